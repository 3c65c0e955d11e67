# codex-loop on a target whose metric is in the trace of its profile: what decides, what is kept of the trace, and what
# is shown of it.

. "$REPO/tests/support/loop_repo.sh"
. "$REPO/tests/support/loop_gates.sh"

device_world() { # METRIC-FROM: speed.txt has STEP_MS[,KERNEL_US[,WALL_S]], or the word `junk`
  world
  cat >profile.sh <<SH
IFS=, read -r step kernel wall <speed.txt
if [ "\$step" = junk ]; then mkdir -p out; echo junk >out/x.trace.json; exit; fi
python3 "$REPO/tests/support/profile_trace.py" out/x.trace.json "\$step" \${kernel:+"\$kernel"}
echo "throughput/duration=\${wall:-0.5}"
SH
  sed -i "s|^metric = .*|metric = { name = \"mine/device\", from = \"$1\" }|; s|^argv = .*|argv = [\"sh\", \"profile.sh\"]\ntrace = \"out/x.trace.json\"\ntrace_device = \"v5p\"|; s|\"judge.sh\"\]\$|\"judge.sh\", \"profile.sh\"]|" gdnctl.toml
  sed -i 's|^test = .*|test = ["sh", "judge.sh"]|' gdnctl.toml
  git add . && git commit -qm device && base=$(git rev-parse HEAD)
}

test_the_step_of_the_trace_decides_and_its_digest_goes_into_the_next_prompt() {
  device_world trace:step && agent 8:ok 9:ok
  loop 0 --iterations 2 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  kept 1
  err_has 'performance baseline initialized: mine/device=10 ms @ '
  err_has 'performance champion promoted: 10 ms -> 8 ms (+25.00%, source=trace:step'
  jq -e '.champion | .metric_source == "trace:step" and (.wall_ms | length) == 3 and .trace.sha256' $logs/perf_state.json >/dev/null || fail 'state'
  # The champion's trace is kept to compare the next one with.
  local baseline first
  baseline=$(echo $logs/perf_state.trace-*.json)
  jq -e '.schema == "gdnctl.trace-baseline/1"' "$baseline" >/dev/null || fail 'no baseline'
  first=$(sha256sum <$logs/iteration-001-trace/x.trace.json)
  [ -s $logs/iteration-002-trace/x.trace.json ] || fail 'the trace was not kept'
  grep -q 'What the trace of iteration 1' $logs/iteration-002-prompt.txt || fail 'no digest in the prompt'
  ! grep -q 'What the trace of' $logs/iteration-001-prompt.txt || fail 'a digest before any trace'
  # The log's entry and its record.
  log_has '  - Trace location: `.agents/logs/gdn_codex_loop/iteration-001-trace/x.trace.json`'
  log_has '- Hotspots observed'
  jq -se --arg sha "${first%% *}" '.[0].profiles[0] | .trace.sha256 == $sha and (.hotspots | length) > 0 and .metrics.step_duration_ms > 7.9' log.records.jsonl >/dev/null || fail 'record'
  clean_log
  # Traces of pairs are read and dropped.
  [ -z "$(find "$XDG_STATE_HOME/gdnctl/local/jobs" -name x.trace.json)" ] || fail 'traces are left'
}

test_an_unreadable_trace_is_infrastructure_where_the_metric_needs_it() {
  device_world trace:step && agent junk:ok
  loop 0 --iterations 1 --max-failures -1 --validation-policy count-failure --perf-pairs 3 --validation-max-attempts 1
  kept 0
  err_has 'no mine/device was read from a trace'
  expect 0 "$GDNCTL" loop-status --json
  out_has '"infra":1'
}

test_device_and_wall_time_in_opposite_directions_are_quarantined() {
  device_world trace:step && echo 10,2500,0.5 >speed.txt && git commit -qam wall && base=$(git rev-parse HEAD) && agent 8,2000,0.7:ok
  loop 0 --iterations 1 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  kept 0
  err_has 'performance quarantined: device time changed by -20.00 %, wall time by +40.00 % (500 ms -> 700 ms)'
  err_has 'measuring once more'
  [ "$(grep -c 'performance quarantined' "$WORK/err")" = 2 ] || fail 'not measured once more'
  jq -e '.history[-1].decision == "quarantined" and .champion.decision == "baseline"' $logs/perf_state.json >/dev/null || fail 'state'
}

test_a_kernels_gain_that_the_rest_of_the_step_took_back_is_moved() {
  device_world 'trace:kernel:gdn_kernel*' && echo 10,2000 >speed.txt && git commit -qam kernel && base=$(git rev-parse HEAD) && agent 9.9,1000:ok
  loop 0 --iterations 1 --max-failures -1 --validation-policy count-failure --perf-pairs 3
  err_has 'moved: the rest of the step gave back more than half of it'
  jq -e '.history[-1].labels == ["moved"]' $logs/perf_state.json >/dev/null || fail 'label'
}

test_a_trace_that_no_cluster_can_bring_back_is_found_before_anything_runs() {
  device_world trace:step && agent 8:ok
  mkdir infra && printf 'cluster_name: marin-c\nprovider: {availability_zone: us-east5-b}\n' >infra/marin-c.yaml
  git add infra && git commit -qm infra
  expect 2 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --perf-mode required \
    --validation-ray-cluster c
  err_has "the trace out/x.trace.json of its profile cannot be copied back from a job on a Ray cluster"
  [ ! -e $logs/journal.jsonl ] || fail 'it began'
}
