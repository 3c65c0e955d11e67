# Why an iteration was accepted or rejected.

record() { python3 "$REPO/tests/support/loop_journal.py" "$@" || fail "no journal"; }

test_an_iteration_that_was_kept() {
  record logs
  expect 0 "$GDNCTL" loop-explain 1 --log-dir logs
  out_has 'iteration 1: promoted'
  out_has 'title      Keep the state in registers'
  out_has 'it passed 3 stages'
  out_has 'stored at  refs/heads/main'
  out_has 'pass  while                        4.1 <= 5'
  out_has 'skip  conditional                  no value in the baseline'
  out_has 'step_ms = 99.99'
  out_has '12,345 tokens'
}

test_an_iteration_that_a_gate_refused_with_its_number() {
  record logs
  expect 0 "$GDNCTL" loop-explain 3 --log-dir logs
  out_has 'iteration 3: rejected (counted as a failure)'
  out_has 'why        `while_ms` increased by 6.25 ms'
  out_has 'fail  while                        6.25 <= 5, `while_ms` increased by 6.25 ms'
  out_has 'stored at  refs/gdnctl/20260310t165307z/iter-003/head'
  expect 0 "$GDNCTL" loop-explain last --log-dir logs
  out_has 'iteration 3: rejected'
}

test_an_iteration_whose_tests_failed_after_a_retry() {
  record logs
  mkdir -p logs
  : >logs/iteration-002-prompt.txt
  : >"logs/iteration-002-a
b.patch"
  : >logs/iteration-020-prompt.txt
  expect 0 "$GDNCTL" loop-explain 2 --log-dir logs
  out_has 'iteration 2: rejected (tests failed; counted as a failure)'
  out_has '  1  server-error, exit code 1, 1 min 30 s, 12,345 tokens'
  out_has 'fail  test, device 20.0 s: case t_long: WRONG'
  out_has '  iteration-002-prompt.txt'
  out_has '  iteration-002-a\nb.patch'
  out_lacks iteration-020
}

test_json_has_every_gate_as_numbers() {
  record logs
  expect 0 "$GDNCTL" loop-explain 3 --log-dir logs --json
  python3 - "$WORK/out" <<'P' || fail "other facts"
import json, sys
e = json.load(open(sys.argv[1]))
assert list(e)[0] == "schema" and e["schema"] == "gdnctl.loop-explain/1"
assert (e["iteration"], e["outcome"], e["verdict"], e["counted"], e["promoted"]) == (3, "rejected", "reject", True, False)
stage = e["stages"][-1]
assert stage["name"] == "performance" and stage["facts"] == {"step_ms": "99.97"}
gates = {g["id"]: g for g in stage["gates"]}
assert gates["while"] == {"id": "while", "result": "fail", "value": 6.25, "relation": "<=", "limit": 5.0, "words": "`while_ms` increased by 6.25 ms"}
assert gates["conditional"]["result"] == "skip" and gates["conditional"]["value"] is None
assert e["measured"] is None and e["cost"]["tokens"] == 12345
P
}

test_what_was_measured_against_the_champion() {
  record logs
  cat >logs/perf_state.json <<'J'
{"version": 2, "champion": {"iteration": 1, "commit": "c", "metric": "gdn/forward_ms", "metric_value": 4.2},
 "history": [{"iteration": 3, "commit": "COMMIT", "metric": "gdn/forward_ms", "metric_value": 4.35, "points": [4.3, 4.35, 4.4],
   "decision": "regression", "delta_vs_champion_pct": 3.571, "suspect": true, "run_url": null,
   "pairs": {"n": 5, "gain_pct": -3.2, "low_pct": -3.6, "high_pct": -2.8, "deviation_pct": 0.31, "verdict": "refuse"},
   "gates": [{"id": "while", "result": "pass", "reason": null, "numbers": "while_ms 0.000 -> 1.000, limit 5.000"}]}]}
J
  head=$(python3 -c 'import hashlib; print(hashlib.sha1(b"head 3").hexdigest())')
  sed -i "s/COMMIT/$head/" logs/perf_state.json
  expect 0 "$GDNCTL" loop-explain 3 --log-dir logs
  out_has 'gdn/forward_ms 4.35 ms (3 runs)'
  out_has 'compared   4.2 ms -> 4.35 ms: the champion, then this candidate, means of alternating runs'
  out_has 'gain       1.033x slower (1.029-1.037x, 5 pairs)'
  out_has 'noise      0.31 % from run to run'
  out_has 'it was rejected against a base that, as found later, had moved'
  expect 0 "$GDNCTL" loop-explain 3 --log-dir logs --json
  out_has '"noise_pct":0.31'
  out_has '"words":"while_ms 0.000 -> 1.000, limit 5.000"'
  printf '[' >logs/perf_state.json
  expect 2 "$GDNCTL" loop-explain 3 --log-dir logs
  err_has 'perf_state.json: the performance state is not a JSON object'
}

test_an_open_iteration_and_one_that_is_not_there() {
  record logs --iterations 2 --open
  expect 0 "$GDNCTL" loop-explain 2 --log-dir logs
  out_has 'iteration 2: under way'
  expect 6 "$GDNCTL" loop-explain 3 --log-dir logs
  err_has 'has no iteration 3'
  expect 6 "$GDNCTL" loop-explain 99999999999999 --log-dir logs
  for words in 0 -1 x 1x ''; do expect 2 "$GDNCTL" loop-explain --log-dir logs -- "$words"; done
  expect 2 "$GDNCTL" loop-explain --log-dir logs
  expect 6 "$GDNCTL" loop-explain 1
}

test_secrets_and_control_characters_are_not_shown() {
  record logs --nasty
  for words in '' --json; do
    expect 0 "$GDNCTL" loop-explain 3 --log-dir logs $words
    out_lacks hf_abcdefgh
    ! grep -q $'\x1b\|\xe2\x80\xae\|\xc2\x9b\|\xe2\x80\x8b' "$WORK/out" || fail "an escape sequence comes through ($words)"
  done
}
