# Traces of profiles that run as jobs: where they are, what is read from them, and what does not count.

. "$REPO/tests/support/hub.sh"

profile() { # METRIC-FROM SHELL-LINE [TRACE]: a target whose profile runs this line
  printf 'target = "t"\n[targets.t]\ntest = ["true"]\nmetric = { name = "t/step", from = "%s" }\n' "$1" >gdnctl.toml
  printf '[targets.t.profile]\nargv = ["sh", "-c", \047\047\047%s\047\047\047]\ntrace = "%s"\ntrace_device = "v5p"\n' "$2" "${3:-out/x.trace.json}" >>gdnctl.toml
}
trace="python3 $REPO/tests/support/profile_trace.py out/x.trace.json"
json() { jq -r "$1" "$WORK/out"; }

test_a_metric_is_read_from_the_trace_of_a_local_job() {
  profile trace:step "$trace 4.5 1000"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json '.metric | [.name, .unit, .better, .source] | join(" ")')" = 't/step ms lower trace' ] || fail 'metric'
  jq -e '.metric.value > 4.49 and .metric.value < 4.51' "$WORK/out" >/dev/null || fail 'value'
  path=$(json .metric.trace.path)
  [ "$(sha256sum <"$path")" = "$(json .metric.trace.sha256)  -" ] || fail 'no such file, or another'
  err_has "next: gdnctl trace report $path --device v5p"
  err_has 'metric t/step: 4.5'
  [ -z "$(find "$XDG_STATE_HOME/gdnctl/local/jobs" -name work)" ] || fail 'the working directory is still there'
  expect 0 "$GDNCTL" ray-profile --cluster local --json --quiet
  err_lacks 'trace report'
  profile 'trace:kernel:gdn_kern*' "$trace 4.5 1000"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json '.metric | [.unit, .source] | join(" ")')" = 'us trace' ] || fail 'kernel'
  jq -e '.metric.value > 999 and .metric.value < 1001' "$WORK/out" >/dev/null || fail 'kernel'
  expect 0 "$GDNCTL" ray-profile --cluster local --json --keep-workdir
  grep -q '/work/out/x.trace.json$' <<<"$(json .metric.trace.path)" || fail 'the kept tree lacks it'
}

test_what_the_log_says_stays_the_metric_and_the_trace_stands_beside_it() {
  profile json:/ms "$trace 4.5; echo '{\"ms\": 7}'"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json '.metric | [.value, .source] | join(" ")')" = '7 log' ] || fail 'metric'
  [ "$(json '.metric.trace.sha256 | length')" = 64 ] || fail 'trace'
  profile json:/ms "mkdir out; echo junk >out/x.trace.json; echo '{\"ms\": 7}'"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json .metric.value)" = 7 ] || fail 'an unreadable trace took the metric away'
  err_has 'x.trace.json'
}

test_a_trace_from_before_the_job_is_no_measurement() {
  profile trace:step true
  mkdir out && python3 "$REPO/tests/support/profile_trace.py" out/x.trace.json 3
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json '.metric | [.value, .trace] | map(tostring) | join(" ")')" = 'null null' ] || fail 'the trace of the tree counted'
  err_has 'the job left no trace at out/x.trace.json'
  err_lacks 'trace report'
  profile trace:step "$trace 3; touch -d '2 hours ago' out/x.trace.json"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json .metric.value)" = null ] || fail 'an old trace counted'
  err_has 'older than the job'
}

test_a_folder_below_the_workdir_is_brought_back() {
  mkdir -p sub && : >sub/file
  profile trace:step "python3 $REPO/tests/support/profile_trace.py prof/plugins/profile/s1/h.trace.json 2" prof/
  sed -i 's|^trace_device|workdir = "sub"\n&|' gdnctl.toml
  expect 0 "$GDNCTL" ray-profile --cluster local
  err_has '/back/prof'
  [ -s "$(find "$XDG_STATE_HOME/gdnctl/local/jobs" -name h.trace.json)" ] || fail 'not brought back'
}

test_a_trace_metric_without_a_trace_and_a_path_on_a_cluster_are_configuration_errors() {
  profile trace:step true
  sed -i '/^trace/d' gdnctl.toml
  expect 2 "$GDNCTL" ray-profile --cluster local
  err_has 'targets.t.metric reads trace:step, but its profile has no trace'
  err_has 'hint: add `trace = "PATH"` to [targets.t.profile]'
  profile trace:step true
  expect 2 "$GDNCTL" ray-profile --ray-address http://127.0.0.1:9 --tpu v5p-8
  err_has "target 't': the trace out/x.trace.json of its profile cannot be copied back from a job on a Ray cluster"
  err_has 'hint: set `trace` of [targets.t.profile] to "wandb"'
  for bad in /abs ../up . hf:name; do
    profile trace:step true "$bad"
    expect 2 "$GDNCTL" ray-profile --cluster local
    err_has 'targets.t.profile.trace must be a path below'
  done
  profile trace:nothing true
  expect 2 "$GDNCTL" ray-profile --cluster local
  err_has 'trace:kernel:GLOB'
  profile trace:step true
  sed -i 's/v5p/v9/' gdnctl.toml
  expect 2 "$GDNCTL" ray-profile --cluster local
  err_has 'targets.t.profile.trace_device must be one of cpu, v4'
}

test_a_held_tpu_of_this_machine_brings_it_back_too() {
  git init -q . && profile trace:step "$trace 6" && git add -A && git commit -qm base
  expect 0 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name mine --detach
  expect 0 "$GDNCTL" dev-tpu-profile --cluster local --tpu-name mine --json
  jq -e '.metric.source == "trace" and .metric.value > 5.9 and .metric.value < 6.1' "$WORK/out" >/dev/null || fail 'value'
  err_has "next: gdnctl trace report $XDG_STATE_HOME/gdnctl/traces/"
  # What an earlier run left on the host is older than this one.
  profile trace:step true && git commit -qam none
  sleep 1.1
  expect 0 "$GDNCTL" dev-tpu-profile --cluster local --tpu-name mine --json
  [ "$(json .metric.value)" = null ] || fail 'an old trace counted'
  expect 0 "$GDNCTL" dev-tpu-release --cluster local --tpu-name mine
}

remote_trace() { mkdir -p "$1" && python3 "$REPO/tests/support/profile_trace.py" x.json "$2" && gzip -nc x.json >"$1/host.trace.json.gz"; }

test_a_trace_on_the_hub_is_fetched_from_its_newest_session() {
  hub_up && remote_trace "$R/run1/plugins/profile/2026_03_09_08_00_00" 9 && remote_trace "$R/run1/$S" 7
  profile trace:step true hf:o/r/run1
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  jq -e '.metric.value > 6.9 and .metric.value < 7.1' "$WORK/out" >/dev/null || fail 'value'
  grep -q "$XDG_STATE_HOME/gdnctl/traces/.*/run1/$S/host.trace.json.gz" <<<"$(json .metric.trace.path)" || fail 'path'
  profile trace:step true hf:o/r/nothing
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json '.metric | [.value, .trace] | map(tostring) | join(" ")')" = 'null null' ] || fail 'a value from nowhere'
  err_has 'the trace could not be fetched: o/r/nothing contains no trace'
}

test_a_trace_at_wandb_is_that_of_the_run_which_the_output_names() {
  local w=$WORK/wandb key=0123456789abcdef0123456789abcdef01234567
  mkdir -p "$w/runs" "$w/artifacts" "$w/files" && : >"$w/bucket" && : >"$w/requests"
  python3 -B "$REPO/tests/support/fake_wandb.py" "$w" "key=$key" >"$w/out" 2>&1 &
  wandb_pid=$!
  trap "kill $wandb_pid 2>/dev/null; cleanup" EXIT
  for _ in $(seq 600); do [ -s "$w/port" ] && break; sleep 0.05; done
  export WANDB_BASE_URL=http://127.0.0.1:$(cat "$w/port") WANDB_API_KEY=$key
  printf '{"entity": "e", "project": "p", "name": "r1", "state": "finished", "createdAt": "2026-03-10T09:00:00Z", "summary": {}, "history": [], "config": {}}' >"$w/runs/r1"
  artifact() { # UPDATED
    printf '{"id": "a1", "entity": "e", "project": "p", "run": "r1", "type": "jax_profile", "collection": "run-r1-profiler", "version": 0, "aliases": ["latest"], "updated": "%s"}' "$1" >"$w/artifacts/a1"
  }
  remote_trace "$w/files/a1/$S" 5
  profile trace:step 'echo https://wandb.ai/e/p/runs/r1' wandb
  artifact "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  jq -e '.metric.value > 4.9 and .metric.value < 5.1' "$WORK/out" >/dev/null || fail 'value'
  artifact 2026-03-10T11:00:00Z
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(json .metric.value)" = null ] || fail 'an old profile counted'
  err_has 'run-r1-profiler:v0 was stored before the job began'
  profile trace:step true wandb
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  err_has "the profile's output does not name a W&B run"
}
