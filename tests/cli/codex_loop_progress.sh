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
  grep -Eq '^ITER +LOG +OUTCOME' "$WORK/out" && grep -Eq '^ +2 +1 ' "$WORK/out" || fail 'the number of the log is missing'
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
  grep -Eq '^\[gdnctl\] [0-9:]{8}\+05:30 iteration 1: accepted; iteration 0 of the log$' "$WORK/err" || fail 'the end of iteration 1'
  ! grep -E "^\[gdnctl\] [0-9:+]+ ($known)" "$WORK/err" || fail 'a line that scripts know has a time'
  # What failed is shown in a few lines, with the place of the rest.
  err_has '; the first failing case:'
  err_has 'case   t_hand                     WRONG          6.3e+06 x budget'
  err_has 'stage: order; also possible: intra'
  err_has "all of it: $PWD/.agents/logs/gdn_codex_loop/iteration-002-validation-tests.log"
}
