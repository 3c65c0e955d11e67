# codex-loop with validation and performance: what is kept, what is taken back, and why; jobs of this machine.

. "$REPO/tests/support/loop_repo.sh"
. "$REPO/tests/support/loop_gates.sh"

test_a_gain_is_kept_a_wrong_and_a_no_faster_one_are_not_an_entry_each() {
  world && agent 8:ok 4:wrong 8:ok
  loop 0 --iterations 3 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  last_line 'reason=completed iteration=3 rc=0'
  [ "$(cat speed.txt)" = 8 ] && [ "$(cat state.txt)" = ok ] || fail 'another candidate was kept'
  kept 1
  gain='1.25x faster (1.247-1.253x, 3 pairs)'
  err_has 'performance baseline initialized: mine/forward_ms=10 ms @ '
  err_has 'pair 3 of at most 3: champion 10 ms, candidate 8 ms; so far 1.25x faster (3 pairs)'
  err_has 'performance champion promoted: 10 ms -> 8 ms (+25.00%'
  err_has 'performance within hold band vs champion: 8 ms -> 8 ms'
  err_has 'Iteration failed required TPU validation/profile gate.'
  err_has '[gdnctl] $ '
  [ "$(git show "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-002/head')":state.txt)" = wrong ] || fail 'what was refused is lost'
  grep -q '"decision": "promoted"' $logs/perf_state.json || fail 'no champion was written'
  grep -q '"metric_value": 8' $logs/iteration-001-measurement.json || fail 'no measurement'
  entries 3
  log_has '### Iteration 1 - Speed 8'
  log_has '- Decision: promoted'
  log_has '- mine/forward_ms: `10 ms -> 8 ms`'
  log_has "- Gain over the champion: $gain"
  log_has '- Lone baseline: 10 ms, '
  log_has '- Hypothesis: Because it is.'
  log_has '  - Evidence: `.agents/logs/gdn_codex_loop/iteration-001-validation-tests.log`'
  log_has '/iter-002/head)'
  log_has '- Decision: within_threshold ('
  # A commit of its own for each entry, which names the code it stands on; the next iteration begins there.
  [ "$(git log --format=%s "$base"..HEAD | grep -c '^Log iteration ')" = 3 ] || fail 'log commits'
  git log -1 --format=%B HEAD~1 | grep -q "^Gdnctl-Code: $(git log -1 --format=%H -- speed.txt)\$" || fail 'code'
  [ "$(git show --name-only --format= HEAD)" = $'log.md\nlog.records.jsonl' ] || fail 'the log commit has other files'
  [ -z "$(git status --porcelain -uno)" ] || fail 'the tree is dirty'
  clean_log
  # Whatever shows the gain shows this one.
  expect 0 "$GDNCTL" loop-report
  out_has "| Speed 8 | $(git log -1 --format=%h --abbrev=12 -- speed.txt) | 8 ms | $gain | promoted |"
  expect 0 env COLUMNS=200 "$GDNCTL" loop-status
  out_has "Speed 8: $gain"
  grep -Eq '^ +1  promoted ' "$WORK/out" && grep -Eq '^ +2  rejected .*tests failed: case t_hand: WRONG, stage order' "$WORK/out" && grep -Eq '^ +3  rejected .*no clear gain' "$WORK/out" || fail 'other words'
  ! grep -Eq 'test-fail|within_threshold|refused|LOG' "$WORK/out" || fail 'another word for one fact, or another number'
  expect 0 "$GDNCTL" loop-explain 1
  out_has "gain       $gain"
  out_has 'compared   10 ms -> 8 ms'
  out_has 'iteration 1, commit '
  local view
  for view in summary context; do
    expect 0 "$GDNCTL" log $view --log-file log.md
    out_has "$gain"
    out_lacks unpaired
    out_lacks %
  done
  # One that does not follow from what was measured is found.
  sed -i 's/"after":8\.0/"after":6.0/' log.records.jsonl
  expect 0 "$GDNCTL" lint-log --scope all --log-file log.md
  cat "$WORK/err" "$WORK/out" | grep -q 'L412 .*after is 6 ms in the record, and 8 ms in what the gain was computed from' || fail 'L412'
}

test_a_commit_without_a_change_and_one_of_logs_alone_are_told_apart() {
  world && printf '#!/bin/sh\ncase $(cat) in "It 1"*) ;; *) echo more >>log.md ;; esac\ngit commit -qam again --allow-empty\n' >"$WORK/agent" && chmod +x "$WORK/agent"
  loop 0 --iterations 2 --allow-no-commit
  err_has 'iteration 1: no-op: again (no file was changed)'
  err_has 'iteration 2: no-op: again (only logs were changed)'
}

test_an_entry_of_the_agents_own_is_stamped_and_not_doubled() {
  world
  cat >"$WORK/agent" <<'SH'
#!/bin/bash
cat >/dev/null; echo 8 >speed.txt
printf '\n### Iteration 7 - by hand\n\n- Date: 2026-03-10T12:00:00Z\n- Commit: this commit\n- Hypothesis: it is\n' >>log.md
git commit -qam 'Speed 8'
SH
  chmod +x "$WORK/agent"
  loop 0 --iterations 1 --perf-mode off
  code=$(git log -1 --format=%H -- speed.txt)
  err_has "stamped last hill-climb log entry with commit ${code:0:12}"
  entries 1
  log_has "- Commit: $code"
  [ "$(git log -1 --format=%s)" = 'Log iteration 7: accepted' ] || fail 'log commit'
  [ -z "$(git status --porcelain -uno)" ] || fail 'the tree is dirty'
}

test_every_outcome_has_its_entry_and_infrastructure_its_command() {
  world && agent - 8:oom 8:infra 8:ok
  loop 0 --iterations 4 --max-failures -1 --no-commit-policy continue --validation-policy count-failure \
    --validation-max-attempts 2 --perf-mode off
  entries 4
  kept 1
  [ "$(wc -l <"$WORK/tests_run")" = 4 ] || fail 'the infrastructure was not tried twice, or something else was'
  log_has '### Iteration 1 - nothing was changed'
  log_has '- Commit: none (no new commit)'
  log_has '- Decision: infra-blocked'
  log_has '  - Command: '
  log_has '  - Error: ConnectionResetError'
  clean_log
  expect 0 "$GDNCTL" loop-status --json
  out_has '"oom":1'
  out_has '"infra":1'
}

test_without_a_log_it_is_said_once_and_without_gates_there_is_no_log_commit() {
  world && git rm -q log.md && git commit -qm 'No log' && base=$(git rev-parse HEAD) && agent 8:ok 7:ok
  loop 0 --iterations 2 --perf-mode off
  [ "$(grep -c 'no running log log.md on the branch: iterations get no entry' "$WORK/err")" = 1 ] || fail 'not said once'
  kept 2
  printf '# Log\n' >other.md && git add other.md && git commit -qm other && agent 6:ok
  loop 0 --iterations 1 --perf-mode off --hillclimb-log-file other.md
  grep -q '^### Iteration 1 - Speed 6' other.md || fail 'no entry in the log that was named'
  agent 5:ok
  expect 0 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 1
  [ "$(git log -1 --format=%s)" = 'Speed 5' ] || fail 'a log commit without gates'
}

test_a_log_that_nobody_could_read_any_more_is_refused_before_anything_runs() {
  world && agent 8:ok 7:ok
  sed -i "s/^esac/esac\n[ \$(cat speed.txt) != 8 ] || printf '\`\`\`\\\\n' >>log.md/" "$WORK/agent"
  loop 0 --iterations 2 --max-failures -1 --perf-mode off
  err_has ' running-log: entries could no longer be added to the running log: log.md: the code fence that line 4 opens'
  [ "$(wc -l <"$WORK/tests_run")" = 1 ] || fail 'it was tested'
  kept 1
  entries 2
  log_has '- Decision: rejected (entries could no longer be added'
  clean_log
}

test_work_that_cannot_land_is_not_logged_as_accepted() {
  world && agent 8:ok
  echo 5 >speed.txt  # of the user, who is at it
  loop 2 --iterations 1 --perf-pairs 3
  err_has 'accepted work cannot land'
  last_line 'reason=landing iteration=1 rc=2'
  [ "$(cat speed.txt)" = 5 ] || fail "the user's file was written over"
  entries 0
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'something was committed'
}

test_a_dry_run_shows_what_gates_tell_the_agent() {
  world && agent 8:ok
  loop 0 --iterations 1 --validation-policy continue --dry-run
  out_has 'The loop validates the commits of this run.'
}

test_a_kill_anywhere_and_resume_leave_one_entry_an_iteration() {
  world && agent 8:ok 4:wrong
  local n
  for n in 8 13 19; do # records of the journal, and then it is gone
    git reset -q --hard "$base" && rm -rf $logs
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 \
      --retry-sleep-seconds 0 --validation-retry-sleep 0 --validation-ray-cluster local --max-failures -1 --validation-policy count-failure --perf-mode off
    until [ "$(wc -l 2>/dev/null <$logs/journal.jsonl || echo 0)" -ge $n ] || ! kill -0 $pid 2>/dev/null; do sleep 0.02; done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    expect 0 "$GDNCTL" codex-loop --resume
    entries 2
    [ "$(git log --format=%s "$base"..HEAD | grep -c '^Log iteration ')" = 2 ] || fail "log commits, killed at $n"
    clean_log
  done
}

test_a_job_that_outlives_a_kill_is_stopped_before_anything_else() {
  world && agent 8:ok
  sed -i "1i [ -e $WORK/waits ] || { : >$WORK/waits; sleep 300; }" judge.sh && git commit -qam waits && base=$(git rev-parse HEAD)
  local how
  for how in --resume ''; do
    git reset -q --hard "$base" && rm -rf $logs "$WORK/waits"
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 1 \
      --validation-ray-cluster local --perf-mode off
    until [ -e "$WORK/waits" ]; do kill -0 $pid || fail 'it ended'; sleep 0.02; done
    kill -9 $pid
    wait $pid 2>/dev/null
    expect 0 "$GDNCTL" ray-list --cluster local --status RUNNING --json
    out_has '"submission_id":"gdnctl-test-'
    expect 0 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 1 \
      --validation-ray-cluster local --perf-mode off $how
    grep -qE 'job gdnctl-test-[^ ]* of the interrupted run is no longer running' "$WORK/err" || fail 'no word of it'
    kept 1
    expect 0 "$GDNCTL" ray-list --cluster local --status RUNNING --json
    out_lacks '"submission_id"'
  done
}

test_what_the_target_wants_to_see_before_a_device_is_spent() {
  world && agent 8:ok 7:ok
  printf 'validate = ["true", "echo looked; test $(cat speed.txt) != 8"]\n' >part
  sed -i '/^test = /r part' gdnctl.toml && rm part && git commit -qam validate && base=$(git rev-parse HEAD)
  loop 0 --iterations 2 --max-failures -1 --validation-policy count-failure --perf-mode off
  err_has 'validate: echo looked; test $(cat speed.txt) != 8 exited with code 1'
  [ "$(cat $logs/iteration-001-validate-2.log)" = looked ] || fail 'what it printed is lost'
  [ "$(wc -l <"$WORK/tests_run")" = 1 ] || fail 'a device was spent on what was refused'
  kept 1
  expect 0 "$GDNCTL" loop-explain 1
  out_has 'validate'
}

test_a_performance_state_elsewhere_is_what_entries_and_reports_read() {
  world && agent 8:ok
  loop 0 --iterations 1 --perf-pairs 3 --perf-state-file ../shared.json
  [ ! -e $logs/perf_state.json ] && [ -s ../shared.json ] || fail 'the state is at the wrong place'
  log_has '- mine/forward_ms: `10 ms -> 8 ms`'
  grep -q '"mine/forward_ms"' $logs/ledger.jsonl || fail 'the ledger has no number'
  expect 0 "$GDNCTL" loop-explain 1
  out_has 'measured'
  out_has 'mine/forward_ms'
  expect 0 "$GDNCTL" loop-report
  out_has '| 1 | Speed 8 | promoted | 8 ms | 1.25x faster (1.247-1.253x, 3 pairs) |'
}

test_regression_policies() { # POLICY:EXIT CODE:COUNTED FAILURES:COMMITS KEPT
  local policy word code failures commits
  for policy in fail:1:1:1 revert-count-failure:0:1:1 revert-continue:0:0:1 count-failure:0:1:1 continue:0:0:2; do
    IFS=: read -r word code failures commits <<<"$policy"
    rm -rf .git .agents ./* && world && agent 10.5:ok 12:ok
    loop "$code" --iterations 2 --max-failures -1 --validation-mode profile-only --perf-pairs 1 --perf-regression-policy "$word"
    err_has 'performance regression detected vs champion: 10.5 ms -> 12 ms'
    [ $word = continue ] || err_has "regression commit reverted successfully; champion remains $(git log -1 --format=%h --abbrev=12 "$base"..HEAD -- speed.txt)."
    kept "$commits"
    entries 2
    log_has '- Decision: regression'
    log_has '- mine/forward_ms: `10.5 ms -> 12 ms`'
    expect 0 "$GDNCTL" loop-status --json
    out_has "\"failures_counted\":$failures"
  done
  expect 0 "$GDNCTL" lint-log --scope all # without tests only warnings are left: nothing says that it is correct
}

test_validation_policies_and_exit_codes() {
  world && agent 8:wrong 8:wrong
  loop 1 --iterations 2
  last_line 'reason=validation-tests iteration=1 rc=1'
  loop 1 --iterations 2 --validation-policy count-failure
  loop 0 --iterations 2 --validation-policy count-failure --max-failures 2
  loop 0 --iterations 2 --validation-policy continue --json
  python3 - "$WORK/out" <<'PY' || fail 'not the object'
import json, sys
o = json.load(open(sys.argv[1]))
assert list(o)[0] == 'schema' and o['schema'] == 'gdnctl.codex-loop/1', o
assert o['outcomes'] == {'test-fail': 2} and o['isolation'] == 'worktree' and o['failures'] == 0 and o['rc'] == 0, o
PY
  expect 0 "$GDNCTL" loop-explain 2
  out_has 'case t_hand: WRONG, stage order, value head 0 of 1; chunk 0 (of 64 tokens)'
  out_has 'oracle_stage = order; also possible: intra'
  expect 0 "$GDNCTL" loop-explain 2 --json
  out_has '"oracle_stage":"order; also possible: intra"'
  out_has '"oracle_where":"value head 0 of 1; chunk 0 (of 64 tokens)"'
  expect 0 "$GDNCTL" loop-report
  grep -rqF 'stage order, value head 0 of 1; chunk 0' $logs "$WORK/out" || fail 'the report does not name the stage'
  loop 3 --iterations 2 --validation-policy continue --fail-if-no-win
  kept 0
  clean_log
}

test_validation_modes() {
  world && agent 8:wrong
  loop 0 --iterations 1 --validation-mode profile-only --perf-pairs 1
  [ ! -e "$WORK/tests_run" ] || fail 'tests ran'
  kept 1
  log_has '- Decision: baseline'
  agent 7:wrong
  loop 0 --iterations 1 --validation-mode off
  kept 2
  [ ! -e "$WORK/tests_run" ] || fail 'tests ran'
  loop 2 --iterations 1 --validation-mode off --perf-mode required
}

test_trouble_three_times_in_a_row_ends_the_run() {
  world && agent 8:infra 8:infra 8:infra 8:ok
  loop 4 --iterations 4 --validation-policy continue --validation-max-attempts 1
  last_line 'reason=circuit-breaker iteration=3 rc=4'
  entries 3
  clean_log
}

test_work_that_trouble_parked_is_judged_again_by_what_loop_explain_names() {
  world && sed -i "1i [ ! -e $WORK/trouble ] || { echo 'ConnectionResetError: peer'; exit 1; }" judge.sh
  git commit -qam 'Trouble' && base=$(git rev-parse HEAD) && agent 8:ok && touch "$WORK/trouble"
  loop 0 --iterations 1 --validation-policy continue --validation-max-attempts 1 --perf-mode off
  kept 0
  expect 0 "$GDNCTL" loop-explain 1
  out_has "again      codex-loop --agent command --agent-command 'git cherry-pick "
  expect 0 "$GDNCTL" loop-explain 1 --json
  again=$(jq -r .judge_again "$WORK/out")
  rm "$WORK/trouble"
  loop 0 --iterations 1 --validation-policy fail --perf-mode off --agent-command "$again"
  kept 1
  [ "$(cat speed.txt)" = 8 ] || fail 'other work was landed'
  expect 0 "$GDNCTL" loop-explain 1 --json
  jq -e '.judge_again == null' "$WORK/out" >/dev/null || fail 'judged work is to be judged again'
  clean_log
}

test_another_configuration_is_incomparable_and_nobodys_failure() {
  world && agent 8:ok
  loop 0 --iterations 1 --perf-pairs 1
  sed -i 's|"printf |"true; printf |' gdnctl.toml # the champion of then ran another command line
  git commit -qam 'Another profile' && base=$(git rev-parse HEAD) && agent 9:ok
  loop 0 --iterations 1 --perf-pairs 1 --max-failures 0
  err_lacks 'performance regression detected'
  grep -q '"fingerprint_key"' $logs/perf_state.json || fail 'no fingerprint'
  expect 0 "$GDNCTL" loop-explain 1
}

test_an_idea_that_was_refused_twice_is_blocked_or_warned_of() {
  world && printf '#!/bin/bash\ncat >/dev/null; echo 4 >speed.txt; echo wrong >state.txt; git commit -qam same\n' >"$WORK/agent"
  chmod +x "$WORK/agent"
  loop 0 --iterations 3 --max-failures -1 --validation-policy continue --perf-mode off --idea-policy block
  [ "$(wc -l <"$WORK/tests_run")" = 2 ] || fail 'the third was tested'
  expect 0 "$GDNCTL" loop-explain 3
  out_has 'fail  idea'
  loop 0 --iterations 1 --max-failures -1 --validation-policy continue --perf-mode off
  [ "$(wc -l <"$WORK/tests_run")" = 3 ] || fail 'a warning kept it from its tests'
}

test_a_gate_of_the_target_refuses() {
  world
  cat >>gdnctl.toml <<'TOML'
[targets.mine.gates]
override_pct = 90
limits = { most_ms = 0.5 }
gates = [{ id = "size", says = "`{metric}` rose by {rise}", all = [{ metric = "size", when = "rises-over", limit = "most_ms" }] }]
TOML
  sed -i 's|^argv = .*|argv = ["sh", "-c", "cat result.json"]|' gdnctl.toml
  echo '{"ms": 10, "size": 1}' >result.json && git add -A && git commit -qm gates && base=$(git rev-parse HEAD)
  printf '#!/bin/bash\ncat >/dev/null; echo "{\\"ms\\": 8, \\"size\\": 2}" >result.json; git commit -qam work\n' >"$WORK/agent" && chmod +x "$WORK/agent"
  loop 0 --iterations 1 --max-failures -1 --perf-pairs 3
  err_has 'performance control-flow gate triggered:'
  err_has '  - `size` rose by 1.000'
  [ "$(git show HEAD:result.json)" = '{"ms": 10, "size": 1}' ] || fail 'it was kept'
  log_has '- Decision: control_flow_regression ('
  clean_log
}

test_mistakes_are_found_before_anything() {
  world && agent 8:ok
  loop 2 --iterations 1 --perf-pairs 4
  loop 2 --iterations 1 --validation-profile-env MISSING_EQUALS
  loop 2 --iterations 1 --validation-mode off --perf-mode required
  loop 2 --iterations 1 --validation-max-attempts 0
  loop 2 --iterations 1 --hillclimb-log-file ../other.md
  err_has 'the running log ../other.md is not in the repository'
  expect 2 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --validation-ray-cluster us-centrl1
  err_has 'No cluster config found for region us-centrl1'
  loop 2 --iterations 1 --target cpu-gdn
  err_has "target 'cpu-gdn' tests and times a built-in kernel, not this repository"
  [ ! -e $logs/journal.jsonl ] || fail 'a run began'
  mkdir -p $logs && echo '{' >$logs/perf_state.json
  loop 2 --iterations 1
  [ "$(cat $logs/perf_state.json)" = '{' ] || fail 'a state that does not parse was touched'
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'an agent ran'
}

test_a_held_tpu_runs_what_gates_ask_for() {
  world && agent 9:ok
  loop 0 --iterations 1 --perf-mode off --hold-dev-tpu --dev-tpu-name me --dev-tpu-cluster local
  kept 1
  err_has '$ gdnctl dev-tpu-test --cluster local --tpu-name me'
  err_has '$ gdnctl dev-tpu-profile --cluster local --tpu-name me'
  err_lacks 'ray-test'
  [ "$(wc -l <"$WORK/tests_run")" = 1 ] || fail 'the tests did not run once'
  grep -qx 'verdict: OK' $logs/iteration-001-validation-tests.log || fail 'their log'
  grep -q 'validation tests on held dev TPU me on local' $logs/journal.jsonl || fail 'the record'
}

# As somebody who watches sees it: the profile itself asks.
test_status_shows_the_pair_at_work() {
  world && agent 8:ok
  sed -i "s|\"sh\", \"-c\", \"|&$GDNCTL -C $PWD loop-status >>$WORK/seen; |" gdnctl.toml && git commit -qam 'Ask for the status'
  loop 0 --iterations 1 --perf-pairs 3
  grep -q '^now        pair 1 of at most 3$' "$WORK/seen" || fail "$(cat "$WORK/seen")"
  grep -q '^now        pair 2 of at most 3, the candidate 1.250x as fast so far$' "$WORK/seen" || fail 'the second pair'
}
