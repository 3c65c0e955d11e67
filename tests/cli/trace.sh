# gdnctl trace. Most of it is data: tests/support/trace_cases.py runs the cases of tests/fixtures/trace/cases, each on
# xplane and on JSON.
make_trace() { python3 -B "$REPO/tests/support/make_trace.py" "$@"; }
# A trace of a training step: step OUT [PARAMETER=VALUE..]
step() {
  local out=$1
  shift
  (cd "$REPO/tests/support" && python3 -B -c "from make_trace import *; write(tpu_step_trace($*), '$WORK/cwd/$out')") ||
    fail "cannot make $out"
}
# A hostile one of tests/support/trace_shapes.py: shape OUT CALL
shape() {
  (cd "$REPO/tests/support" && python3 -B -c "from trace_shapes import *; open('$WORK/cwd/$1', 'wb').write($2)") ||
    fail "cannot make $1"
}
holds() { jq -e "$1" "$WORK/out" >/dev/null || fail "not so: $1"; }
cases() {
  python3 -B "$REPO/tests/support/trace_cases.py" "$GDNCTL" "$FIXTURES/trace/cases" "$@" >"$WORK/out" 2>&1
  case $? in
    0) grep skipped "$WORK/out" || true ;;
    77) skip "$(head -1 "$WORK/out")" ;;
    *) fail "cases: $*" ;;
  esac
}

test_cases_of_the_model() { cases self_time steps idle classes peaks kernels bounds; }
test_cases_of_formats_and_damage() { cases json gzip xplane; }
test_cases_of_samples_that_are_fixtures() { cases samples; }
test_cases_of_the_real_v6e_profile() { cases v6e; }
test_cases_of_the_synthetic_pair() { cases synthetic_diff; }
test_cases_of_comparisons() { cases diff_step diff_gates diff_statistics baselines; }
test_cases_of_checks_and_reports() { cases check report budgets export; }
test_cases_of_folders() { cases folders times; }
test_cases_of_options() { cases options; }
test_invariants_on_random_events() { cases random_tpu random_gpu; }
test_invariants_on_random_steps() { cases random_step; }

# Each case has a test above.
test_no_case_is_forgotten() {
  for case in "$FIXTURES"/trace/cases/*.json; do
    case=${case##*/} && case=${case%.json}
    grep -q "^test_.*() { cases .*\b$case\b" "$REPO/tests/cli/trace.sh" || fail "no test runs $case"
  done
}

test_a_file_cut_at_any_byte() {
  for form in xplane.pb trace.json; do
    printf '{"planes": [{"name": "/device:TPU:0", "ops": {"a": {"name": "a", "stats": {"hlo_category": "while"}}},
      "lines": [{"name": "XLA Ops", "events": [{"op": "a", "start_ps": 5, "duration_ps": 70}]}]}]}' >small.json
    make_trace small.json "small.$form"
    for n in $(seq 0 $(($(stat -c %s "small.$form") - 1))); do
      head -c "$n" "small.$form" >cut
      "$GDNCTL" trace hotspots cut >"$WORK/out" 2>"$WORK/err"
      case $? in 0 | 9) ;; *) fail "$form cut at $n" ;; esac
      "$GDNCTL" trace hotspots cut --salvage --json >"$WORK/out" 2>"$WORK/err"
      case $? in 0 | 9) ;; *) fail "$form cut at $n with --salvage" ;; esac
    done
  done
}

test_mtimes_do_not_matter() {
  mkdir -p p/plugins/profile/{run_1,run_2}
  step p/plugins/profile/run_1/h.xplane.pb steps=3
  step p/plugins/profile/run_2/h.xplane.pb steps=4
  touch -d 2020-01-01 p/plugins/profile/run_2 p/plugins/profile/run_2/h.xplane.pb
  expect 0 "$GDNCTL" trace steps p --json
  holds '.inputs[0].session == "run_2" and .steps.n == 4'
}

test_a_folder_that_cannot_be_written() {
  mkdir p && step p/h.xplane.pb steps=4 && chmod -R a-w p
  powerless
  before=$(find p -printf '%p %m %T@ %s\n')
  for command in info hotspots steps kernels report; do expect 0 "${as[@]}" "$GDNCTL" trace $command p; done
  [ "$before" = "$(find p -printf '%p %m %T@ %s\n')" ] || fail 'the input changed'
  expect 8 "${as[@]}" "$GDNCTL" trace export p --output p/x.json
  err_has 'p/x.json'
  chmod 0 p/h.xplane.pb
  expect 8 "${as[@]}" "$GDNCTL" trace info p
  chmod 0 p
  expect 8 "${as[@]}" "$GDNCTL" trace info p
  err_has 'Permission denied'
}

test_an_export_is_read_back() {
  step a.xplane.pb steps=5
  expect 0 "$GDNCTL" trace export a.xplane.pb --perfetto --output e.json
  out_has 'e.json'
  jq -e '.traceEvents | all(.ph != null) and any(.name == "thread_name" and .args.name == "Async XLA Ops")' e.json >/dev/null ||
    fail 'no async lane'
  # On a thread no event ends after one that began before it and is still open.
  jq -e '[.traceEvents[] | select(.ph == "X")] | group_by([.pid, .tid]) | all(sort_by(.ts, -.dur) | . as $e |
    all(range(1; length); $e[.] as $b | $e[. - 1] as $a | $b.ts >= $a.ts + $a.dur - 1e-6 or $b.ts + $b.dur <= $a.ts + $a.dur + 1e-6))' \
    e.json >/dev/null || fail 'events of a thread overlap'
  for file in a.xplane.pb e.json; do
    "$GDNCTL" trace steps $file --json | jq -S '[.steps, .window, .time]' >$file.steps
    "$GDNCTL" trace hotspots $file --json | jq -S '[.hotspots.rows[] | [.name, .class, .self_ps, .total_ps, .calls]]' >$file.rows
  done
  cmp a.xplane.pb.steps e.json.steps && cmp a.xplane.pb.rows e.json.rows || fail 'the export differs'
  ln -s a.xplane.pb same.json && expect 2 "$GDNCTL" trace export a.xplane.pb --output same.json
  ln a.xplane.pb hard.json && expect 2 "$GDNCTL" trace export a.xplane.pb --output hard.json
  ln -s nowhere/x dangling.json && expect 8 "$GDNCTL" trace export a.xplane.pb --output dangling.json
  [ -z "$(find . -name '*.part')" ] || fail 'a draft is left'
}

test_a_damaged_baseline() {
  step a.xplane.pb steps=5
  expect 0 "$GDNCTL" trace report a.xplane.pb --save-baseline b
  file=$(find "$XDG_STATE_HOME" -name b.json)
  [ -n "$file" ] || fail 'no file of the baseline'
  [ "$(stat -c %a "$(dirname "$file")")" = 700 ] || fail 'others can read it'
  for text in '' 'null' '[]' '{}' '{"schema":"gdnctl.trace-baseline/2"}' "$(head -c 300 "$file")"; do
    printf '%s' "$text" >"$file"
    expect 9 "$GDNCTL" trace diff baseline:b a.xplane.pb
    err_has 'b.json'
  done
}

test_reports_in_a_running_log_are_verified() {
  step a.xplane.pb && expect 0 "$GDNCTL" trace report a.xplane.pb
  cp "$WORK/out" report.md
  tail -1 report.md | grep -qE '^<!-- gdnctl.trace/1 sha256:[0-9a-f]{64} -->$' || fail 'no seal'
  [ "$(tail -1 report.md | grep -oE '[0-9a-f]{64}')" = "$(head -n -1 report.md | sha256sum | cut -d' ' -f1)" ] || fail 'another sha256'
  grep -qF "Trace \`$(sha256sum a.xplane.pb | cut -c1-12)\`" report.md || fail 'the sha256 of the trace'
}

test_pipes_and_closed_outputs() {
  step a.xplane.pb && make_trace <(echo '{}') empty.xplane.pb
  expect 0 sh -c 'cat a.xplane.pb | "$0" trace steps /dev/stdin' "$GDNCTL"
  expect 0 sh -c '"$0" trace hotspots a.xplane.pb | head -1' "$GDNCTL"
  expect 8 sh -c '"$0" trace hotspots a.xplane.pb >/dev/full' "$GDNCTL"
  expect 8 sh -c '"$0" trace export a.xplane.pb --output /dev/full' "$GDNCTL"
}

# Until the command handles SIGINT.
until_it_listens() {
  local caught=0
  until ((0x$caught & 2)); do
    caught=$(sed -n 's/^SigCgt:\t*//p' /proc/$pid/status 2>/dev/null) && [ -n "$caught" ] || fail 'it ended'
  done
}

test_interrupted() {
  mkfifo pipe
  exec 7<>pipe
  for signal in INT TERM; do
    launch "$GDNCTL" trace info /dev/fd/7
    until_it_listens
    kill -$signal $pid
    wait $pid
    [ $? = $((128 + $(kill -l $signal))) ] || fail "$signal while it reads a pipe"
  done
  exec 7>&-
}

test_a_named_pipe_is_refused() {
  mkfifo pipe && ln -s pipe link
  local shared=pipe
  if [ -w /dev/shm ]; then
    shared=/dev/shm/gdnctl-pipe.$$
    mkfifo "$shared" && trap 'rm -f "/dev/shm/gdnctl-pipe.$$"; cleanup' EXIT
  fi
  for input in pipe link "$shared"; do
    expect 9 timeout 10 "$GDNCTL" trace info $input
    err_has "$input is neither a file nor a folder"
  done
}

# 200 MB of zeros behind the first bytes of an xplane, and a field that claims 4 GB of them.
test_a_small_gzip_that_inflates_hugely() {
  for head in 0a00 0affffffff0f; do
    python3 -c "import gzip; open('bomb.gz', 'wb').write(gzip.compress(bytes.fromhex('$head') + bytes(200 << 20)))"
    expect_within_kb 65536 sh -c '"$0" trace info bomb.gz 2>"$1"; [ $? = 9 ]' "$GDNCTL" "$WORK/err"
    grep -q 'xplane: the field at offset [02] is damaged or ends beyond 2 GiB' "$WORK/err" || fail "$head: another error"
    expect_within_kb 65536 sh -c '"$0" trace hotspots bomb.gz --salvage 2>"$1"; [ $? = 9 ]' "$GDNCTL" "$WORK/err"
  done
}

# 50 MB of JSON with as many events as real ones of that size.
test_memory_of_a_large_file() {
  shape big.json 'many_names(270000, 300)'
  [ "$(stat -c %s big.json)" -gt 50000000 ] || fail 'not so large'
  for command in hotspots 'report --digest'; do expect_within_kb 65536 "$GDNCTL" trace $command big.json; done
}

# User time must not grow much faster than the input: three times for twice as much.
test_time_is_linear_on_a_quiet_machine() {
  ! sanitized || skip 'with sanitizers it takes minutes'
  for call in 'equal_starts(%d)' 'equal_starts(%d, True)' 'staircase(%d)' 'many_names(%d, 300)' 'many_names(%d, 100000)' 'many_runs(%d)' 'overlapping(%d)'; do
    shape one.json "${call/\%d/100000}" && shape two.json "${call/\%d/200000}"
    python3 - "$GDNCTL" <<'PY' || fail "$call"
import os, subprocess, sys
def user(path):
    process = subprocess.Popen([sys.argv[1], "trace", "report", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    return usage.ru_utime if status == 0 else sys.exit(f"exit {status}")
one = two = 1e9
for attempt in range(12):  # the least of so many, because other machines may share the processor
    one, two = min(one, user("one.json")), min(two, user("two.json"))
    if attempt >= 2 and two <= 3 * one + 0.02:
        sys.exit(0)
sys.exit(f"{one:.3f} s, {two:.3f} s for twice as much")
PY
  done
}
