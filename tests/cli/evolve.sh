# codex-loop --mode evolve and the evolve commands as scripts see them.
# shellcheck disable=SC2154
world() {  # a target whose test looks at the kernel, and whose profile prints the number in it as ms
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE
  git init -q . && mkdir -p tests
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
kernel = ["kernel.txt"]
protected = ["tests/**"]
test = ["sh", "tests/judge.sh"]
metric = { name = "mine/forward_ms", better = "lower", unit = "ms", from = "json:/ms" }
[targets.mine.profile]
argv = ["sh", "tests/profile.sh"]
TOML
  echo 'printf "{\"ms\": %s}\n" "$(head -n 1 kernel.txt)"' >tests/profile.sh
  printf 'grep -q wrong kernel.txt && { echo "verdict: WRONG: 1 of 1 cases"; exit 1; }\necho "verdict: OK"\n' >tests/judge.sh
  printf '10\n' >kernel.txt && git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
agent() {  # LINE...: what the agent does; $n is the number of the attempt
  { printf '#!/bin/bash\nprompt=$(cat)\nread -r _ _ n _ <<<"$prompt"\n'; printf '%s\n' "$@"; } >"$WORK/agent" && chmod +x "$WORK/agent"
}
evolve() {  # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir "$WORK/log" --lineages 2 "$@"
}
last_line() { [ "$(tail -n 1 "$WORK/err")" = "[gdnctl] codex-loop stopped: $1" ] || fail "last line is not: $1"; }
dry() { expect "$1" "$GDNCTL" codex-loop --mode evolve --dry-run "${@:2}"; }
has() { jq -s -e "any(.[]; $1)" "$WORK/log/journal.jsonl" >/dev/null; }  # whether a record is so
verdicts() { jq -r 'select(.type=="verdict") | "\(.attempt) \(.verdict)"' "$1/journal.jsonl" | xargs; }

test_usage_errors_exit_2_and_leave_nothing() {
  world && agent 'exit 0'
  evolve 2
  err_has '--mode evolve needs a budget'
  last_line 'reason=usage attempt=0 rc=2'
  evolve 2 --max-attempts 1 --iterations 3
  err_has 'use --max-attempts N'
  evolve 2 --max-attempts 1 --isolation worktree
  evolve 2 --max-attempts 1 --dirty-policy stash
  evolve 2 --max-attempts 1 --plateau 3
  err_has 'use --max-no-improve N'
  evolve 2 --max-attempts 1 --max-tpu-minutes 3
  err_has '--max-device-seconds 180'
  evolve 2 --max-attempts 0
  evolve 2 --max-attempts 1 --operator-mix explore=.5
  evolve 2 --max-attempts 1 --seed 18446744073709551616
  evolve 2 --max-attempts 1 --reserve-final 101%
  evolve 2 --max-attempts 1 --perf-pairs 4
  evolve 2 --max-usd 1 --model unheard-of
  err_has 'price'
  expect 2 "$GDNCTL" codex-loop --iterations 1 --lineages 2
  err_has 'needs --mode evolve'
  [ ! -e "$WORK/log" ] || fail 'something was made'
  [ -z "$(git for-each-ref refs/gdnctl)" ] || fail 'refs were made'
}

test_a_run_starts_from_the_best_of_the_last_one() {
  world && agent 'echo 9 >kernel.txt'
  evolve 2 --max-attempts 1 --from last
  err_has '--from: last is neither a run nor a commit'
  evolve 0 --max-attempts 1 --log-dir .gdnctl/evolve/20260101t000000z-aaaa
  best=$(jq -r 'select(.type=="snapshot") | .commit' .gdnctl/evolve/*/journal.jsonl)
  run=$(jq -r 'select(.type=="run_start") | .run' .gdnctl/evolve/*/journal.jsonl)
  mv .gdnctl/evolve/* .gdnctl/evolve/"$run"
  evolve 3 --max-attempts 1 --from last  # the same again changes nothing
  has ".type==\"run_start\" and .base==\"$best\"" || fail 'another base'
}

test_dry_run_is_a_whole_run_and_leaves_nothing() {
  world
  dry 0 --max-attempts 12 --seed 3 --json --log-dir "$WORK/dry"
  jq -e '.schema == "gdnctl.codex-loop/1" and .attempts == 12 and .best.attempt > 0 and ([.verdicts[]] | add) == 12' "$WORK/out" >/dev/null ||
    fail 'another report'
  last_line 'reason=max-attempts attempt=12 rc=0'
  [ -z "$(git for-each-ref refs/gdnctl)" ] && [ -z "$(git status --porcelain)" ] || fail 'the repository was touched'
  ls "$TMPDIR"/gdnctl-evolve* 2>/dev/null && fail 'a folder was left'
  expect 0 "$GDNCTL" loop-status --log-dir "$WORK/dry" --json
  jq -e '.state == "stopped" and .running == null and .best.gain.unit == "ln"' "$WORK/out" >/dev/null || fail 'another status'
  expect 0 "$GDNCTL" evolve log --log-dir "$WORK/dry"
  out_has 'kept'
  expect 0 "$GDNCTL" evolve lineage --log-dir "$WORK/dry" --json
  jq -e '.attempts[-1].attempt == 0' "$WORK/out" >/dev/null || fail 'another lineage'
  expect 0 "$GDNCTL" loop-report --log-dir "$WORK/dry" --html "$WORK/page.html"
  [ "$(grep -o '<circle' "$WORK/page.html" | wc -l)" -ge 13 ] || fail 'attempts are not in the tree'
  # What lies beyond the edge of the chart has its value beside it.
  grep -q '>-100 %<' "$WORK/page.html" || fail 'attempt 10 has no value'
  # The same seed draws the same again.
  dry 0 --max-attempts 12 --seed 3 --log-dir "$WORK/again"
  for d in dry again; do jq -c 'select(.type=="attempt_start") | [.operator,.lineage,.draws,[.parents[].attempt]]' "$WORK/$d/journal.jsonl" >"$WORK/$d.draws"; done
  cmp "$WORK/dry.draws" "$WORK/again.draws" || fail 'other draws'
  [ "$(verdicts "$WORK/dry")" = "$(verdicts "$WORK/again")" ] || fail 'other verdicts'
}

test_three_attempts_two_lineages_one_kept_then_promoted() {
  world && agent 'case $n in
1) echo 9 >kernel.txt; git add -A; git commit -qm mine; printf "{\"technique\": \"fuse\"}\nI fused it.\n" ;;
2) echo "8 wrong" >kernel.txt; touch elsewhere ;;
3) echo 1 >kernel.txt; echo exit 0 >tests/judge.sh ;;
esac'
  evolve 0 --max-attempts 3 --seed 2
  last_line 'reason=max-attempts attempt=3 rc=0'
  [ "$(verdicts "$WORK/log")" = '1 kept 2 invalid 3 tampered' ] || fail "$(verdicts "$WORK/log")"
  has '(.type=="verdict" and .attempt==1) and (.gain.n == 3 and (.gain.est - .10536 | fabs) < .001)' || fail gain
  has '(.type=="proposal" and .attempt==2) and (.forbidden_paths == ["elsewhere"])' || fail forbidden
  has '(.type=="proposal" and .attempt==1) and (.agent_commits == 1 and .technique == "fuse")' || fail commits
  [ "$(cat "$WORK/log/attempt-0001/trace.json")" = '{"technique": "fuse"}' ] && [ "$(cat "$WORK/log/attempt-0001/response.txt")" = 'I fused it.' ] || fail trace
  [ "$(jq -r 'select(.type=="attempt_start") | .lineage' "$WORK/log/journal.jsonl" | sort -u | wc -l)" = 2 ] || fail 'one lineage'
  [ "$(git rev-parse HEAD)" = "$base" ] && [ -z "$(git status --porcelain)" ] || fail 'the checkout was touched'
  [ "$(git worktree list | wc -l)" = 1 ] || fail 'a worktree was left'
  run=$(jq -r 'select(.type=="run_start") | .run' "$WORK/log/journal.jsonl")
  best=$(git rev-parse "refs/gdnctl/evolve/$run/best")
  [ "$best" = "$(git rev-parse "refs/gdnctl/evolve/$run/cand/1")" ] || fail best
  expect 0 "$GDNCTL" evolve show 2 --log-dir "$WORK/log"
  out_has 'test: '
  expect 6 "$GDNCTL" evolve show 4 --log-dir "$WORK/log"
  expect 0 "$GDNCTL" loop-explain 1 --log-dir "$WORK/log"
  expect 0 "$GDNCTL" loop-report --log-dir "$WORK/log"
  out_has "| agent | command $WORK/agent |"
  expect 0 "$GDNCTL" evolve diff base best --log-dir "$WORK/log"
  out_has '+9'
  expect 1 "$GDNCTL" evolve promote 2 --log-dir "$WORK/log"
  echo mine >>tests/judge.sh
  expect 2 "$GDNCTL" evolve promote best --log-dir "$WORK/log"
  git checkout -q tests/judge.sh
  # On a terminal, it shows which pair is at work.
  expect 0 python3 -B "$REPO/tests/support/in_terminal.py" "$GDNCTL" evolve promote best --log-dir "$WORK/log"
  out_has 'verifying attempt '
  out_has 'pair 1 of at most 9'
  out_has 'pair 9 of at most 9, the candidate '
  out_has 'unseen shapes, unseen seeds  not measured not measured'
  [ "$(git rev-parse main)" = "$best" ] && [ "$(cat kernel.txt)" = 9 ] || fail 'it was not promoted'
  expect 7 "$GDNCTL" evolve promote best --log-dir "$WORK/log"
  # Nothing to do, and other options than those of then.
  evolve 0 --max-attempts 3 --resume
  evolve 2 --max-attempts 3 --resume --stagnation 5
  err_has 'stagnation'
}

test_edit_blocks_need_no_tools() {
  world && agent 'case $n:$prompt in
1:*"did not apply"*) printf "EDIT v1 kernel.txt\n<<<<<<< SEARCH\n10\n=======\n9\n>>>>>>> REPLACE\n" ;;
1:*) printf "EDIT v1 kernel.txt\n<<<<<<< SEARCH\n11\n=======\n9\n>>>>>>> REPLACE\n" ;;
2:*) echo "<NO_VALID_EDIT/>" ;;
esac; ls -A'
  evolve 0 --max-attempts 2 --edit-protocol v1
  [ "$(verdicts "$WORK/log")" = '1 kept 2 abstained' ] || fail "$(verdicts "$WORK/log")"
  has '(.type=="edit_report" and .attempt==1) and (.retried and .edits[0].applied)' || fail report
  [ "$(jq -r 'select(.type=="eval_start" and .attempt==2) | .stage' "$WORK/log/journal.jsonl")" = '' ] || fail 'an abstention was evaluated'
}

test_a_second_loop_is_refused_and_a_damaged_line_named() {
  world && agent 'sleep 60'
  launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --perf-pairs 3 --lineages 2 --max-attempts 1 --log-dir "$WORK/log"
  first=$pid
  for _ in $(seq 300); do grep -q attempt_start "$WORK/log/journal.jsonl" 2>/dev/null && break; sleep .2; done
  expect 7 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command true --max-attempts 1 --log-dir "$WORK/other"
  mkdir -p prompts && echo go >prompts/mine.md
  expect 7 "$GDNCTL" codex-loop --agent command --agent-command true --iterations 1 --allow-dirty
  expect 0 "$GDNCTL" loop-status --log-dir "$WORK/log" --json
  jq -e '.state == "running" and .running.attempt == 1 and .budget_left == {"attempts": 1} and .eta_s == null' "$WORK/out" >/dev/null || fail 'another status'
  kill -9 "$first"
  wait "$first" 2>/dev/null
  agent 'exit 0'
  evolve 3 --max-attempts 1 --resume
  [ "$(verdicts "$WORK/log")" = '1 abandoned 2 noop' ] || fail "$(verdicts "$WORK/log")"
  pgrep -f "$WORK/agent" >/dev/null && fail 'an agent is left'
  expect 0 "$GDNCTL" evolve fsck --log-dir "$WORK/log"
  sed -i '3s/noise/voice/' "$WORK/log/journal.jsonl" && cp "$WORK/log/journal.jsonl" "$WORK/before"
  expect 7 "$GDNCTL" evolve fsck --log-dir "$WORK/log"
  err_has 'journal.jsonl:4'
  evolve 7 --max-attempts 2 --resume
  cmp "$WORK/before" "$WORK/log/journal.jsonl" || fail 'the journal was changed'
}

# kill -9 at records of the journal: two of them, all with GDNCTL_SLOW=1.
test_kill_at_records_then_resume_is_the_same_run() {
  world && agent 'case $n in 1) echo 12 >kernel.txt ;; *) echo "$n wrong" >kernel.txt ;; esac'
  evolve 3 --max-attempts 2 --seed 4
  [ "$(verdicts "$WORK/log")" = '1 rejected 2 invalid' ] || fail "$(verdicts "$WORK/log")"
  cp -r "$WORK/log" "$WORK/whole"
  places='4 15'
  [ -n "${GDNCTL_SLOW:-}" ] && places=$(seq 1 $(($(wc -l <"$WORK/whole/journal.jsonl") - 1)))
  for at in $places; do
    rm -rf "$WORK/log" && git for-each-ref --format='delete %(refname)' refs/gdnctl refs/notes | git update-ref --stdin
    launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
      --log-dir "$WORK/log" --lineages 2 --max-attempts 2 --seed 4
    while kill -0 "$pid" 2>/dev/null && [ "$(cat "$WORK/log/journal.jsonl" 2>/dev/null | wc -l)" -lt "$at" ]; do sleep .02; done
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    evolve 3 --max-attempts 2 --seed 4 --resume
    jq -s -e '[.[] | select(.type=="verdict" and .verdict!="abandoned")] | length == 2' "$WORK/log/journal.jsonl" >/dev/null || fail "killed at $at"
    # Every attempt that both runs have draws the same.
    for d in whole log; do jq -c 'select(.type=="attempt_start") | [.attempt,.operator,.lineage,.draws]' "$WORK/$d/journal.jsonl" | head -n 2 >"$WORK/$d.draws"; done
    cmp "$WORK/whole.draws" "$WORK/log.draws" || fail "other draws, killed at $at"
    [ "$(git rev-parse HEAD)" = "$base" ] && [ -z "$(git status --porcelain)$(git stash list)" ] || fail "the checkout was touched, killed at $at"
    [ "$(git worktree list | wc -l)" = 1 ] || fail "a worktree was left, killed at $at"
    [ -z "$(git fsck --no-dangling 2>&1)" ] || fail "git fsck, killed at $at"
  done
}

test_pause_stop_and_the_newest_run() {
  world && agent 'exit 0'
  expect 6 "$GDNCTL" evolve log
  expect 3 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 --max-no-improve 2
  last_line 'reason=max-no-improve attempt=2 rc=3'
  [ -z "$(git status --porcelain)" ] || fail 'the log directory is not excluded'
  expect 0 "$GDNCTL" evolve stop
  expect 3 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 --max-attempts 9 --resume
  last_line 'reason=stop-file attempt=2 rc=3'
  expect 0 "$GDNCTL" evolve pause
  [ -e .gdnctl/evolve/*/PAUSE ] || fail 'no PAUSE'
  expect 0 "$GDNCTL" evolve pause --off
  [ ! -e .gdnctl/evolve/*/PAUSE ] || fail PAUSE
  expect 0 "$GDNCTL" loop-status
  out_has 'noop'
  expect 0 "$GDNCTL" evolve best --json
  jq -e '.attempt == 0' "$WORK/out" >/dev/null || fail best
}

test_noise_that_hides_the_gain_is_said_before_an_agent_runs() {
  world && agent "touch '$WORK/agent_ran'"
  # Far apart from one profile to the next, in either order.
  printf 'echo x >>%s/profiles\nn=$(wc -l <%s/profiles)\necho "{\\"ms\\": $((100 + n * n * 37 %% 251))}"\n' "$WORK" "$WORK" >tests/profile.sh
  git commit -qam noise
  evolve 1 --max-attempts 1
  err_has 'pairs would be needed'
  last_line 'reason=noise attempt=0 rc=1'
  [ ! -e "$WORK/agent_ran" ] || fail 'an agent ran'
  expect 1 "$GDNCTL" evolve noise --pairs 3 --json
  jq -e '.sd_pct > 1 and (.pairs_needed == 0 or .pairs_needed > 3)' "$WORK/out" >/dev/null || fail noise
  expect 0 "$GDNCTL" ray-list --cluster local
  out_lacks gdnctl-
  expect 6 "$GDNCTL" ray-logs last --cluster local
}

test_imported_candidates_are_measured_before_anything_new() {
  world && agent 'exit 0'
  mkdir old && for n in 1 2 10; do echo $((10 - n / 2)) >old/proposal_$n.py; done
  echo '{"compiled": true, "correct": true, "speedup": 28.5, "error": null}' | tee old/proposal_1_metrics.json >old/proposal_2_metrics.json
  echo '{"compiled": false, "correct": false, "speedup": 0, "error": "no"}' >old/proposal_10_metrics.json
  expect 0 "$GDNCTL" evolve import --from old --json
  jq -e '.imported == 3 and .to_judge == 2 and .best_there == "proposal_1"' "$WORK/out" >/dev/null || fail import
  rm -r old
  expect 0 "$GDNCTL" evolve log
  out_has 'imported'
  expect 0 "$GDNCTL" evolve best --json
  jq -e '.attempt == 0' "$WORK/out" >/dev/null || fail 'an imported score was believed'
  expect 0 "$GDNCTL" codex-loop --mode evolve --resume --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 --max-attempts 3
  [ "$(verdicts .gdnctl/evolve/*)" = '1 duplicate 2 kept 4 noop' ] || fail "$(verdicts .gdnctl/evolve/*)"
  expect 0 "$GDNCTL" evolve export --layout contest --to out
  [ "$(cat out/proposal_0_1.py)" = 9 ] && jq -e '.speedup > 1.1 and .speedup < 1.12' out/proposal_0_1_metrics.json >/dev/null || fail export
  expect 7 "$GDNCTL" evolve export --layout contest --to out
  expect 0 "$GDNCTL" evolve gc --older-than 1d
  out_has 'removed 0 refs'
}

test_export_takes_the_file_that_was_changed() {
  world
  sed -i 's/kernel = .*/kernel = ["kernel.txt", "more.txt"]/' gdnctl.toml && echo more >more.txt && git add . && git commit -qm more
  agent 'echo $((10 - n)) >kernel.txt' '[ "$n" != 2 ] || echo 2 >more.txt'
  evolve 0 --max-attempts 1 --operator-mix exploit=1
  expect 0 "$GDNCTL" evolve export --layout contest --to out best --log-dir "$WORK/log"
  [ "$(cat out/proposal_0_1.py)" = 9 ] || fail 'another file'
  evolve 0 --max-attempts 2 --operator-mix exploit=1 --resume
  expect 2 "$GDNCTL" evolve export --layout contest --to out2 best --log-dir "$WORK/log"
  err_has 'change 2 files, but this layout has one: kernel.txt, more.txt'
  err_lacks '--map'
  [ ! -e out2 ] || fail 'something was written'
}
