# gdnctl policy show, test, simulate.

state() { # VALUES of later candidates: a baseline of 4.0, then each with the decision that was recorded
  cat <<'JSON'
{"version": 2, "champion": null, "history": [
 {"iteration": 1, "commit": "1111111111111111", "metric": "throughput/mfu", "metric_value": 4.0, "decision": "baseline"},
 {"iteration": 2, "commit": "2222222222222222", "metric": "throughput/mfu", "metric_value": 4.2, "decision": "promoted"},
 {"iteration": 3, "commit": "3333333333333333", "metric": "throughput/mfu", "metric_value": 4.14, "decision": "regression"},
 {"iteration": 4, "commit": "4444444444444444", "metric": "throughput/mfu", "metric_value": 4.23, "decision": "promoted",
  "hotspot_metrics": {"while_ms": 6.0}, "hotspot_baseline_metrics": {"while_ms": 2.0}}]}
JSON
}

test_show_is_a_policy_file() {
  expect 0 "$GDNCTL" policy show
  out_has '"schema": "gdnctl.policy/1"'
  out_has '"max_while_increase_ms": 5.0'
  cp "$WORK/out" policy.json
  expect 0 "$GDNCTL" policy show --perf-policy-file policy.json
  cmp "$WORK/out" policy.json || fail 'another policy than was printed'
  expect 0 "$GDNCTL" policy show --json --perf-max-while-increase-ms 2
  out_has '"max_while_increase_ms":2.0'
}

test_show_reads_the_target() {
  printf '[targets.mine]\ntest = ["true"]\n[targets.mine.gates]\nhold = "keep"\nlimits = { max_while_increase_ms = 1.5 }\n' >gdnctl.toml
  expect 0 "$GDNCTL" policy show --target mine
  out_has '"hold": "keep"'
  out_has '"max_while_increase_ms": 1.5'
}

# refused LINE TEXT COMMAND...: each command names the line of `gates` that has the mistake
refused() {
  local line=$1 text=$2 command
  shift 2
  printf 'target = "mine"\n[targets.mine]\ntest = ["true"]\n[targets.mine.gates]\n%s\n' "$line" >gdnctl.toml
  for command in "$@"; do
    expect 2 "$GDNCTL" $command
    err_has "gdnctl.toml:5: $text"
  done
}

test_mistakes_in_a_targets_gates() {
  refused 'hodl = "keep"' 'unknown key targets.mine.gates.hodl' 'policy show' 'config show' lint-log 'prompts list' \
    '--target mine ray-list --cluster local' 'ray-test --dry-run --cluster local'
  err_has 'did you mean `hold`?'
  expect 1 "$GDNCTL" doctor
  out_has 'gdnctl.toml:5: unknown key targets.mine.gates.hodl'
  refused 'hold = "drop"' 'targets.mine.gates.hold must be automatic, keep or refuse' 'policy show'
  refused 'override_pct = "5"' 'targets.mine.gates.override_pct must be a number, 0 or more' 'config show'
  refused 'limits = { max_while_incraese_ms = 2.0 }' 'unknown key targets.mine.gates.limits.max_while_incraese_ms' \
    'policy show'
}

test_mistakes_in_the_gates_of_another_target() {
  printf 'target = "cpu-gdn"\n[targets.mine]\ntest = ["true"]\n[targets.mine.gates]\nhodl = "keep"\n' >gdnctl.toml
  expect 0 "$GDNCTL" policy show
  expect 2 "$GDNCTL" config show
  err_has 'gdnctl.toml:5: unknown key targets.mine.gates.hodl'
}

test_replay_agrees() {
  state >s.json
  expect 0 "$GDNCTL" policy test s.json
  out_has '3 records, 0 not judged, 0 decided differently by policy default'
}

test_replay_differs() {
  state >s.json
  expect 1 "$GDNCTL" policy test s.json --perf-max-regression-pct 2 --perf-max-while-increase-ms 3
  out_has '-> within_threshold'
  out_has '-> control_flow_regression'
  out_has '`while_ms` increased by 4.000 ms (2.000 -> 6.000, limit 3.000)'
  out_has '2 decided differently'
  expect 1 "$GDNCTL" policy test s.json --perf-max-regression-pct 2 --json
  out_has '{"schema":"gdnctl.policy-test/1","policy":"default","records":3,"not_judged":0,"differences":1,'
}

test_replay_of_the_running_log() {
  printf '%s\n' '{"schema":"gdnctl.iteration/1","iteration":5,"decision":"promoted","comparison":{"kind":"champion"},"metrics":{"throughput/mfu":{"before":4.0,"after":4.1}}}' \
    '{"schema":"gdnctl.iteration/1","iteration":6,"decision":"promoted","comparison":{"kind":"control"},"metrics":{"throughput/mfu":{"before":4.0,"after":4.1}}}' >log.records.jsonl
  expect 0 "$GDNCTL" policy test log.records.jsonl --perf-metric throughput/mfu
  out_has 'compared with a control, not with a champion'
  out_has '2 records, 1 not judged, 0 decided differently'
}

test_replay_of_nothing() {
  expect 2 "$GDNCTL" policy test
  expect 2 "$GDNCTL" policy test missing.json
  echo '{"version": 9, "history": []}' >bad.json
  expect 9 "$GDNCTL" policy test bad.json
  echo 'no json' >bad.json
  expect 9 "$GDNCTL" policy test bad.json
  echo '{"a":1}' >bad.json
  expect 9 "$GDNCTL" policy test bad.json
  : >bad.json
  expect 9 "$GDNCTL" policy test bad.json
  printf '{"version":2,"champ' >bad.json
  expect 9 "$GDNCTL" policy test bad.json
  err_has 'contains neither records nor a performance state'
  record='{"schema":"gdnctl.iteration/1","iteration":5,"decision":"promoted","comparison":{"kind":"champion"},"metrics":{"throughput/mfu":{"before":4.0,"after":4.1}}}'
  printf '%s\n{"schema' "$record" >torn.jsonl
  expect 0 "$GDNCTL" policy test torn.jsonl --perf-metric throughput/mfu
  err_has 'torn.jsonl: ignoring the incomplete last line'
  printf '%s' "$record" >whole.jsonl
  expect 9 "$GDNCTL" policy test whole.jsonl
  out_has '1 records, 1 not judged'
  err_has 'none of 1 records could be judged'
  echo '{"version": 2, "champion": null, "history": []}' >none.json
  expect 9 "$GDNCTL" policy test none.json --json
  out_has '"records":0,"not_judged":0,"differences":0'
}

test_thresholds_are_not_negative() {
  for option in --perf-max-while-increase-ms --perf-max-regression-pct --perf-gate-override-pct --perf-min-improvement-pct; do
    expect 2 "$GDNCTL" policy show $option -1
    err_has "$option must be >= 0."
    expect 2 "$GDNCTL" policy test missing.json $option=-1
  done
}

test_simulate() {
  expect 0 "$GDNCTL" policy simulate --noise-pct 0.3 --gain-pct 0 --gain-pct 1 --trials 500
  out_has 'TRUE GAIN'
  cp "$WORK/out" first
  expect 0 "$GDNCTL" policy simulate --noise-pct 0.3 --gain-pct 0 --gain-pct 1 --trials 500
  cmp "$WORK/out" first || fail 'the same seed gave another table'
  expect 0 "$GDNCTL" policy simulate --noise-pct 1 --gain-pct 0 --trials 100 --json
  out_has '{"schema":"gdnctl.policy-simulate/1","policy":"default","shape":"normal","pairs":9,"trials":100,"seed":1,"rows":[{"noise_pct":1.0,'
  expect 2 "$GDNCTL" policy simulate --noise-pct much
  expect 2 "$GDNCTL" policy simulate --perf-pairs 4
  expect 2 "$GDNCTL" policy simulate --trials 0
  err_has '--trials 0: expected 1 to 10000000'
  err_lacks --seed
  launch "$GDNCTL" policy simulate --trials 100000
  sleep 0.5
  kill -TERM "$pid"
  wait "$pid"
  [ $? = 143 ] || fail 'SIGTERM is 143'
}
