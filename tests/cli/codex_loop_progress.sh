# codex-loop and what it says: times, the first failing case, a busy machine.

. "$REPO/tests/support/loop_repo.sh"
. "$REPO/tests/support/loop_gates.sh"

test_on_a_busy_machine_only_pairs_promote_and_it_is_said() {
  world && agent 8:ok 4:ok 4:ok
  mkdir -p "$GDNCTL_MACHINE_FILES/proc/999999"
  printf 'gdnctl\0codex-loop\0--iterations\09\0' >"$GDNCTL_MACHINE_FILES/proc/999999/cmdline"
  local busy='another codex-loop is running on this machine (process 999999)'
  loop 0 --iterations 2 --validation-mode profile-only --perf-pairs 1
  err_has "performance baseline initialized: mine/forward_ms=8 ms @ "
  err_has "performance within hold band vs champion: 8 ms -> 4 ms (+100.00%, source=cli-output); 2x faster (unpaired); not promoted, as the machine was busy: $busy"
  log_has "- Busy machine: $busy"
  expect 0 "$GDNCTL" loop-explain 2
  out_has "busy       $busy"
  out_has '2x faster (unpaired); on a busy machine, not promoted'
  expect 0 env COLUMNS=200 "$GDNCTL" loop-status
  out_has '2x faster (unpaired); on a busy machine, not promoted'
  ! grep -q '^ITER .*LOG' "$WORK/out" || fail 'the log has other numbers'
  git reset -q --hard "$base" && git checkout -qB main "$base"
  loop 0 --iterations 2 --validation-mode profile-only --perf-pairs 3 --perf-state-file ../pairs.json
  err_has "the machine is busy: $busy"
  err_has 'performance champion promoted: 8 ms -> 4 ms (+100.00%'
  err_has "; the machine was busy: $busy"
}

test_every_line_of_progress_has_its_time_but_those_that_scripts_know() {
  world && agent 8:ok 4:wrong
  TZ=XXX-5:30 loop 0 --iterations 2 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  local known='\$ |=== codex iteration |session directives: |codex-loop stopped: |Iteration failed required TPU |using codex binary|resilient mode'
  local rest
  rest=$(grep '^\[gdnctl\] ' "$WORK/err" | grep -Ev "^\[gdnctl\] ($known)" | grep -Ev '^\[gdnctl\] [0-9]{2}:[0-9]{2}:[0-9]{2}\+05:30 ')
  [ -z "$rest" ] || fail "without a time: $rest"
  grep -Eq '^\[gdnctl\] [0-9:]{8}\+05:30 iteration 1: accepted: Speed 8$' "$WORK/err" || fail 'the end of iteration 1'
  ! grep -E "^\[gdnctl\] [0-9:+]+ ($known)" "$WORK/err" || fail 'a line that scripts know has a time'
  # What failed is shown in a few lines, with the place of the rest.
  err_has '; the first failing case:'
  err_has 'case   t_hand                     WRONG          6.3e+06 x budget'
  err_has 'stage: order; also possible: intra'
  err_has "all of it: $PWD/.agents/logs/gdn_codex_loop/iteration-002-validation-tests.log"
}

test_control_characters_of_an_agent_reach_no_log_no_terminal_and_no_page() {
  world
  # The first iteration has a report, the others only their commits.
  cat >"$WORK/agent" <<'SH'
#!/bin/bash
set -e
read -r line; cat >/dev/null; n=${line#It }
bad=$(printf '\033]0;title\007\033[2J\342\200\256\302\2332J\177\342\200\213')
echo "says $bad"
if [ "$n" = 1 ]; then
  python3 - "$(dirname "$0")/cwd/.agents/logs/gdn_codex_loop/iteration-001-report.json" "$bad" <<'PY'
import json, sys
bad = sys.argv[2]
report = {w: f"{w} {bad}" for w in ("title", "slot", "move", "hypothesis", "change_class", "new_argument", "next_hypothesis")}
json.dump({**report, "changes": [bad, "two"], "reject_if": [bad]}, open(sys.argv[1], "w"))
PY
fi
echo $((9 - n)) >speed.txt; [ "$n" = 1 ] || echo wrong >state.txt
date +%N >note.txt; git add -A; git commit -qm "Speed $bad" -m "Because $bad."
SH
  chmod +x "$WORK/agent"
  local any=$'[\x01-\x08\x0b-\x1f\x7f]\\|\xc2[\x80-\x9f]\\|\xe2\x80[\x8b\x8e\x8f\xa8-\xae]'
  loop 0 --iterations 2 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  expect 0 env LC_ALL=C grep -c "title .x1b" log.md
  ! LC_ALL=C grep -n "$any" log.md log.records.jsonl || fail 'the log has them'
  ! git log --format=%s --grep '^Log iteration' | LC_ALL=C grep "$any" || fail 'a log commit has them'
  loop 0 --iterations 3 --resume --max-failures -1 --validation-policy count-failure --perf-pairs 3
  ! LC_ALL=C grep -n "$any" "$WORK/err" || fail 'the terminal gets them'
  local view
  for view in loop-status 'loop-status --json' loop-report 'loop-report --html page.html' 'loop-report --json' \
    'loop-explain 1' 'loop-explain 2 --json' 'log show 1 --log-file log.md' 'log show 1 --json --log-file log.md' \
    'log summary --log-file log.md' 'log context --log-file log.md'; do
    expect 0 env COLUMNS=300 "$GDNCTL" $view
    ! LC_ALL=C grep -n "$any" "$WORK/out" || fail "$view prints them"
  done
  ! LC_ALL=C grep -n "$any" page.html || fail 'the page has them'
  expect 0 "$GDNCTL" loop-status
  out_has 'title \x1b]0;title\x07'
  clean_log
}
