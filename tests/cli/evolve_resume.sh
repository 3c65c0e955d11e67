# codex-loop --mode evolve --resume: the run's own options hold. What evolve commands say where the run's commits are not.
# shellcheck disable=SC2154
. "$REPO/tests/cli/evolve.sh"
resume() { expect "$1" "$GDNCTL" codex-loop --mode evolve --resume "${@:2}"; }

test_evolve_resume_needs_no_other_option() {
  world && agent 'echo $((10 - n)) >kernel.txt'
  expect 0 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --lineages 2 --seed 2 --max-attempts 1
  resume 0
  last_line 'reason=max-attempts attempt=1 rc=0'
  resume 0 --max-attempts 2
  last_line 'reason=max-attempts attempt=2 rc=0'
  # The new budget holds as well.
  resume 0
  last_line 'reason=max-attempts attempt=2 rc=0'
  log=$(echo .gdnctl/evolve/*) && journal=$(md5sum <"$log/journal.jsonl")
  resume 2 --perf-pairs 5 --lineages 3 --seed 4 --sleep-seconds 0 --max-attempts 9
  err_has '--perf-pairs 5 (the run has 3)'
  err_has '--lineages 3 (the run has 2)'
  err_has '--seed 4 (the run has 2)'
  err_has '--accept-config-change'
  last_line 'reason=usage attempt=0 rc=2'
  expect 2 "$GDNCTL" codex-loop --resume --log-dir "$log"
  err_has '--mode climb (the run has evolve)'
  [ "$(md5sum <"$log/journal.jsonl")" = "$journal" ] || fail 'the journal is another'
  resume 0 --lineages 3 --accept-config-change --max-attempts 3 --sleep-seconds 1 --directive 'be quick'
  resume 0 --max-attempts 4
  last_line 'reason=max-attempts attempt=4 rc=0'
  grep -q '^be quick$' "$log/attempt-0004/prompt.md" || fail 'the new directive does not hold'
  [ "$(jq -s 'map(select(.type=="config_change")) | length' "$log/journal.jsonl")" = 1 ] || fail 'the accepted change does not hold'
}

test_an_emptied_journal_is_damage_and_no_new_run() {
  world && agent 'exit 0'
  evolve 3 --max-attempts 1
  for harm in : 'head -c 300 /dev/zero'; do
    eval "$harm" >"$WORK/log/journal.jsonl"
    for command in 'evolve log' 'evolve fsck' 'loop-status' 'codex-loop --mode evolve --max-attempts 2 --agent command --agent-command true'; do
      # shellcheck disable=SC2086
      expect 7 "$GDNCTL" $command --log-dir "$WORK/log"
      err_has 'journal.jsonl:1: the journal is damaged: it was emptied'
    done
    evolve 7 --max-attempts 2 --resume
  done
}

test_candidates_of_a_dry_run_or_of_another_repository() {
  world && agent 'echo 9 >kernel.txt'
  dry 0 --max-attempts 4 --seed 3 --log-dir "$WORK/log"
  missing() { # WORDS: what each command says
    for command in 'diff base best' 'replay best' 'promote best' "export best --to $WORK/export"; do
      # shellcheck disable=SC2086
      expect 6 "$GDNCTL" evolve $command --log-dir "$WORK/log"
      err_has "$1"
      err_has 'hint: '
    done
    [ ! -e "$WORK/export" ] || fail 'something was exported'
  }
  missing 'was a dry run: its candidates were in a temporary repository'
  rm -r "$WORK/log"
  evolve 0 --max-attempts 1
  mkdir ../other && cd ../other && git init -q . && cp ../cwd/gdnctl.toml . && git add . && git commit -qm other
  missing "$PWD lacks commit ${base:0:12} of run "
}

commits_of() { jq -r 'select(.type=="snapshot") | .commit' "$WORK/log/journal.jsonl"; }
# Removes the refs of a run's attempts and, with them, their commits.
prune() {
  for n; do git update-ref -d "refs/gdnctl/evolve/$run/cand/$n"; done
  for ref in $(git for-each-ref --format='%(refname)' "refs/gdnctl/evolve/$run/best" "refs/gdnctl/evolve/$run/lineage" refs/notes); do git update-ref -d "$ref"; done
  rm -rf "$WORK/state/gdnctl/worktrees" && git worktree prune && git reflog expire --expire=now --all && git gc -q --prune=now
}

test_a_candidate_whose_commit_is_missing_is_left_out() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  evolve 0 --max-attempts 2 --operator-mix exploit=1
  run=$(jq -r 'select(.type=="run_start") | .run' "$WORK/log/journal.jsonl") first=$(commits_of | head -n 1) second=$(commits_of | tail -n 1)
  git clone -q --bare . "$WORK/copy.git" && git push -q "$WORK/copy.git" 'refs/gdnctl/*:refs/gdnctl/*'
  prune 2
  evolve 0 --max-attempts 3 --operator-mix exploit=1 --resume
  err_has "attempt 2: commit $second is missing"
  err_has "git fetch PATH 'refs/gdnctl/*:refs/gdnctl/*'"
  err_has 'the best candidate is now attempt 1'
  last_line 'reason=max-attempts attempt=3 rc=0'
  has '.type=="attempt_start" and .attempt==3 and .parents==[{"attempt":1,"commit":"'"$first"'"}]' || fail 'not from what remains'
  [ "$(verdicts "$WORK/log")" = '1 kept 2 kept 3 kept' ] || fail "$(verdicts "$WORK/log")"
  # It is back.
  git fetch -q "$WORK/copy.git" 'refs/gdnctl/*:refs/gdnctl/*'
  evolve 0 --max-attempts 4 --operator-mix exploit=1 --resume
  err_lacks 'is missing'
  has '.type=="attempt_start" and .attempt==4 and .parents[0].attempt==3' || fail 'not from the best'
  # All candidates are gone: the base is what remains.
  prune 1 2 3 4
  evolve 0 --max-attempts 5 --operator-mix exploit=1 --resume
  err_has 'the best candidate is now the base commit'
  has '.type=="attempt_start" and .attempt==5 and .parents[0].attempt==0' || fail 'not from the base'
  expect 0 "$GDNCTL" evolve fsck --log-dir "$WORK/log"
  [ "$(grep -c 'is missing' "$WORK/err")" = 4 ] || fail "fsck: $(cat "$WORK/err")"
}

test_a_run_whose_base_is_missing_stops_at_once() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  evolve 0 --max-attempts 1
  lines=$(wc -l <"$WORK/log/journal.jsonl")
  mkdir ../other && cd ../other && git init -q . && cp -r ../cwd/gdnctl.toml ../cwd/tests ../cwd/kernel.txt . && git add . && git commit -qm other
  evolve 6 --max-attempts 2 --resume
  err_has "the base commit $base of run "
  err_has "git fetch PATH 'refs/gdnctl/*:refs/gdnctl/*'"
  [ "$(wc -l <"$WORK/log/journal.jsonl")" = "$lines" ] || fail 'records were written'
}

# A wall budget of which the pause between two sessions took nothing.
test_the_pause_between_sessions_costs_no_wall_time() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  evolve 0 --max-attempts 1 --max-wall 3600
  before=$("$GDNCTL" loop-status --log-dir "$WORK/log" --json | jq .spent.wall_s)
  sleep 5
  printf '{"torn' >>"$WORK/log/journal.jsonl"
  evolve 0 --max-attempts 2 --max-wall 3600 --stagnation 9 --accept-config-change --resume
  expect 0 "$GDNCTL" loop-status --log-dir "$WORK/log" --json
  first=$(jq -rs '[.[] | select(.type=="config_change" or .type=="repair" or .type=="resume") | .type] | join(" ")' "$WORK/log/journal.jsonl")
  [ "$first" = 'config_change repair resume' ] || fail "first records: $first"
  took=$(jq -rs '(.[-1].ts | fromdate) - ([.[] | select(.type=="resume")][0].ts | fromdate)' "$WORK/log/journal.jsonl")
  jq -e --argjson before "$before" --argjson took "$took" '.spent.wall_s <= $before + $took + 2' "$WORK/out" >/dev/null || fail "the pause counts: $before, $took"
  jq -e '.budget_left.attempts == 0 and .budget_left.wall_s < 3240' "$WORK/out" >/dev/null || fail 'what is left'
}

test_the_reserve_verifies_the_best_and_promote_uses_that() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  echo "echo x >>'$WORK/profiles'; $(cat tests/profile.sh)" >tests/profile.sh && git commit -qam count && base=$(git rev-parse HEAD)
  evolve 0 --max-attempts 2 --max-wall 3600 --operator-mix exploit=1
  [ "$(jq -r 'select(.type=="verify") | "\(.attempt) \(.pass)"' "$WORK/log/journal.jsonl")" = '2 true' ] || fail 'no verification at the end'
  has '.type=="verify" and .wall_s > 0 and (.quadrants | length) == 4 and (.gates | map(.stage) | index("target") != null)' || fail 'the record'
  profiles=$(wc -l <"$WORK/profiles")
  expect 0 "$GDNCTL" evolve promote best --log-dir "$WORK/log" --json
  jq -e '.promoted and .pass and (.quadrants | length) == 4 and .gain.n == 9' "$WORK/out" >/dev/null || fail 'promote'
  [ "$(git rev-parse HEAD~2)" = "$base" ] && [ "$(wc -l <"$WORK/profiles")" = "$profiles" ] || fail 'verified once more'
  # Without a reserve, promote verifies; so it does where something has changed.
  git reset -q --hard "$base" && rm -rf "$WORK/log"
  evolve 0 --max-attempts 1 --max-wall 3600 --operator-mix exploit=1 --reserve-final 0
  has '.type=="verify"' && fail 'verified without a reserve'
  evolve 0 --max-attempts 2 --max-wall 3600 --reserve-final 10% --operator-mix exploit=1 --resume
  has '.type=="verify" and .attempt==2 and .pass' || fail 'not verified'
  evolve 0 --max-attempts 3 --max-wall 3600 --operator-mix exploit=1 --reserve-final 0 --stagnation 9 --accept-config-change --resume
  profiles=$(wc -l <"$WORK/profiles")
  expect 0 "$GDNCTL" evolve promote 2 --log-dir "$WORK/log"
  [ "$(wc -l <"$WORK/profiles")" -gt "$profiles" ] || fail 'a verification was used that a change followed'
}

test_a_change_that_was_accepted_holds_although_noise_ends_the_run() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  echo 'printf "{\"ms\": %s}\n" "$(awk -v k="$(head -n 1 kernel.txt)" -v r="$(od -An -N1 -tu1 /dev/urandom)" "BEGIN { print k * (1 + r / 80) }")"' >tests/profile.sh && git commit -qam noise
  expect 1 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 --log-dir "$WORK/log" --max-attempts 1
  last_line 'reason=noise attempt=0 rc=1'
  resume 1 --log-dir "$WORK/log" --target-gain-pct 3 --accept-config-change
  resume 1 --log-dir "$WORK/log"
  err_lacks 'was started with'
  err_has '--target-gain-pct 3'
  resume 1 --log-dir "$WORK/log" --target-gain-pct 0.5 --accept-config-change
  err_has 'hint: --target-gain-pct 0.5 must exceed --perf-min-improvement-pct 0.5'
  # The noise of another evaluator is measured.
  echo 'echo more' >>tests/judge.sh && sed -i 's/"tests\/judge.sh"/"tests\/judge.sh", "more"/' gdnctl.toml
  resume 1 --log-dir "$WORK/log" --target-gain-pct 3 --accept-config-change
  err_has 'measuring the noise: 3 pairs'
  [ "$(jq -s 'map(select(.type=="eval_stage" and .stage=="noise")) | length' "$WORK/log/journal.jsonl")" = 2 ] || fail 'not measured again'
}

test_a_failed_final_verification_ends_with_1() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  cat >tests/judge.sh <<'SH'
[ "$GDNCTL_EVAL_SHAPES" != unseen ] || grep -qx 10 kernel.txt || { echo "verdict: WRONG: 1 of 1 cases"; exit 1; }
echo "verdict: OK"
SH
  git commit -qam shapes
  for _ in 1 2; do # the run, and a session that has nothing left to do
    evolve 1 --max-attempts 1 --max-wall 3600 --operator-mix exploit=1 --resume
    last_line 'reason=max-attempts attempt=1 rc=1'
    has '.type=="verify" and .pass==false' && has '.type=="stop" and .rc==1' || fail 'the records'
  done
  expect 0 "$GDNCTL" loop-status --log-dir "$WORK/log"
  grep -q 'failed the final verification: quadrants: unseen shapes' "$WORK/out" || fail "status: $(cat "$WORK/out")"
  expect 0 "$GDNCTL" loop-status --log-dir "$WORK/log" --json
  jq -e '.failed_verification.attempt == 1 and .failed_verification.stage == "quadrants"' "$WORK/out" >/dev/null || fail 'JSON'
  touch "$WORK/log/STOP"
  evolve 1 --max-attempts 2 --max-wall 3600 --operator-mix exploit=1 --resume
  last_line 'reason=stop-file attempt=1 rc=1'
  expect 1 "$GDNCTL" evolve promote best --log-dir "$WORK/log"
}

test_a_run_without_budget_for_the_verification_says_so() {
  world && agent 'echo $((10 - n)).5 >kernel.txt'
  sed -i '1i sleep 0.1' tests/profile.sh && git commit -qam slow
  evolve 0 --max-attempts 1 --operator-mix exploit=1
  spent=$("$GDNCTL" loop-status --log-dir "$WORK/log" --json | jq '.spent.device_s * 1.02')
  evolve 0 --max-attempts 9 --max-device-seconds "$spent" --reserve-final 1% --operator-mix exploit=1 --resume
  last_line 'reason=max-device-seconds attempt=2 rc=0'
  err_has 'no budget is left for the final verification'
  err_has 'hint: `gdnctl evolve promote best`'
}

test_resume_restores_no_ref_that_gc_removed() {
  world && agent 'case $n in 2) echo wrong >kernel.txt ;; *) echo $((10 - n)).5 >kernel.txt ;; esac'
  evolve 0 --max-attempts 2 --operator-mix exploit=1
  [ "$(verdicts "$WORK/log")" = '1 kept 2 invalid' ] || fail "$(verdicts "$WORK/log")"
  run=$(jq -r 'select(.type=="run_start") | .run' "$WORK/log/journal.jsonl") second=$(commits_of | tail -n 1)
  sleep 1.1
  expect 0 "$GDNCTL" evolve gc --older-than 1s --log-dir "$WORK/log"
  git update-ref -d "refs/gdnctl/evolve/$run/cand/1"
  evolve 0 --max-attempts 3 --operator-mix exploit=1 --resume
  git rev-parse -q --verify "refs/gdnctl/evolve/$run/cand/1" >/dev/null || fail 'a kept candidate has no ref'
  git rev-parse -q --verify "refs/gdnctl/evolve/$run/cand/2" >/dev/null && fail 'the ref that gc removed is back'
  rm -rf "$WORK/state/gdnctl/worktrees" && git worktree prune && git reflog expire --expire=now --all && git gc -q --prune=now
  git cat-file -e "$second" 2>/dev/null && fail 'the commit is still there'
  for n in 4 5; do
    evolve 0 --max-attempts $n --operator-mix exploit=1 --resume
    err_lacks 'is missing'
    err_lacks 'git fetch'
  done
}
