# codex-loop on a target whose profiles are recorded at Weights & Biases: a scripted Ray really runs the profile, which
# leaves its run at a scripted W&B. By the output each run ends with an outlier.
KEY=0123456789abcdef0123456789abcdef01234567
W=$WORK/wandb

serve() {
  mkdir -p "$W/runs" "$WORK/ray"
  python3 -B "$REPO/tests/support/ray_server.py" "$WORK/ray" >"$WORK/ray/out" 2>&1 &
  local ray=$!
  python3 -B "$REPO/tests/support/fake_wandb.py" "$W" "key=$KEY" >"$W/out" 2>&1 &
  local wandb=$!
  trap "kill $ray $wandb 2>/dev/null; cleanup" EXIT
  for _ in $(seq 400); do [ -s "$WORK/ray/port" ] && [ -s "$W/port" ] && break; sleep 0.05; done
  export RAY_ADDRESS=http://127.0.0.1:$(cat "$WORK/ray/port") WANDB_BASE_URL=http://127.0.0.1:$(cat "$W/port") WANDB_API_KEY=$KEY
}
# A checkout of the recipe's target. Its training records speed.txt at each step, and 0.939 at the last one.
world() {
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE
  git init -q . && mkdir -p scripts/gdn "$WORK/tools"
  printf 'target = "marin"\n' >gdnctl.toml
  echo 'It {{ITERATION}}' >scripts/gdn/codex_iteration_prompt.md
  echo 5.0 >speed.txt && touch prints_url
  git add . && git commit -qm base && base=$(git rev-parse HEAD)
  cat >"$WORK/tools/uv" <<'SH'
#!/bin/sh
[ "$1" != sync ] || { mkdir -p .venv/bin && ln -sf "$WORK/tools/train" .venv/bin/python; }
SH
  cat >"$WORK/tools/train" <<'SH'
#!/usr/bin/env python3
import datetime, json, os, sys
folder = os.path.join(os.environ["WORK"], "wandb", "runs")
speed, name = float(open("speed.txt").read()), os.environ["GDN_PROFILE_RUN_NAME_PREFIX"] + "_130m"
if os.environ.get("LEVANTER_FUSED_CE_IMPLEMENTATION") == "xla":
    speed *= 1.1
    if os.path.exists("xla_fails"): sys.exit("RESOURCE_EXHAUSTED: vmem")
run = {"entity": "marin-community", "project": "marin", "name": f"{name}-{len(os.listdir(folder))}", "displayName": name, "state": "failed",
       "createdAt": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
       "history": [{"_step": s, "throughput/mfu": (speed, 0.939)[s == 19], "throughput/duration": 1 / (speed, 0.939)[s == 19]} for s in range(20)]}
run["summary"] = run["history"][-1]
if os.environ["WANDB_MODE"] == "online":
    with open(os.path.join(folder, run["name"] + ".json"), "w") as out: json.dump(run, out)
    if os.path.exists("prints_url"): print(f"wandb: View run at https://wandb.ai/marin-community/marin/runs/{run['name']}")
print("GDNCTL_DEVICE " + json.dumps({"backend": "tpu", "count": 4}))
if not os.path.exists("prints_nothing"): print("throughput/mfu=0.939\nthroughput/duration=1.06")
SH
  chmod +x "$WORK"/tools/*
  echo "export PATH=$WORK/tools:\$PATH" >"$HOME/.bash_profile"
}
agent() { # COMMAND of each iteration
  printf '#!/bin/bash\ncat >/dev/null\n%s\ngit add -A; git commit -qm work\n' "$1" >"$WORK/agent" && chmod +x "$WORK/agent"
}
loop() { # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 1 --max-failures -1 \
    --retry-sleep-seconds 0 --validation-retry-sleep 0 --validation-mode profile-only --validation-max-attempts 1 "$@"
}
logs=.agents/logs/gdn_codex_loop
measured() { # PYTHON over m, the last measurement
  local file
  file=$(ls "$logs"/iteration-*-measurement.json | tail -n 1)
  python3 -c 'import json, sys; m = json.load(open(sys.argv[1])); sys.exit(0 if eval(sys.argv[2]) else str(m))' "$file" "$1" || fail "not so: $1"
}
asked() { touch "$W/requests" && wc -l <"$W/requests"; }
no_trace_of_the_key() {
  local encoded
  encoded=$(printf 'api:%s' $KEY | base64 -w0)
  for word in $KEY "$encoded"; do
    out_lacks "$word"
    err_lacks "$word"
    ! grep -rqF "$word" "$XDG_STATE_HOME" .agents .git || fail 'the key is on disk'
  done
}
last_line() { [ "$(tail -n 1 "$WORK/err")" = "[gdnctl] codex-loop stopped: $1" ] || fail "last line is not: $1"; }

test_pairs_are_judged_by_the_windows_of_their_runs() {
  world && serve && agent 'echo 5.5 >speed.txt'
  loop 0 --perf-pairs 3 -v
  err_has 'performance baseline initialized: throughput/mfu=5 @ '
  err_has 'performance champion promoted: 5 -> 5.5 (+10.00%, source=wandb-history-median[10:18]'
  [ "$(cat speed.txt)" = 5.5 ] || fail 'it was not kept'
  measured 'm["metric_value"] == 5.5 and m["metric_source"] == "wandb-history-median[10:18]" and m["metric_points"] == 9'
  measured 'abs(m["hotspot_metrics"]["step_duration_ms"] - 1000 / 5.5) < 1e-6 and "warnings" not in m'
  measured 'm["fingerprint"]["asked"]["aggregation"] == "history-window median 10:18, 5 points or more"'
  measured 'm["run_url"].startswith("https://wandb.ai/marin-community/marin/runs/gdn_loopgate_iter001_130m-")'
  grep -q '"metric_points": 9' $logs/perf_state.json || fail 'not in the state'
  [ "$(asked)" = 8 ] || fail "$(asked) requests for 8 profiles"
  [ ! -e "$W/complaints" ] || fail "$(cat "$W/complaints")"
  no_trace_of_the_key
}

test_the_summary_where_it_is_asked_for_and_where_the_window_is_empty() {
  world && serve && agent 'date +%N >x'
  loop 0 --perf-pairs 1 --perf-aggregation summary
  measured 'm["metric_value"] == 0.939 and m["metric_source"] == "wandb-summary" and m["metric_points"] == 1'
  loop 0 --perf-pairs 1 --perf-history-step-start 30 --perf-history-step-end 40 --perf-history-aggregation mean
  measured 'm["metric_source"] == "wandb-summary" and "has 0 values of throughput/mfu at steps 30 to 40" in m["warnings"][0]'
  err_has 'using its last step'
  loop 0 --perf-pairs 1 --perf-history-step-start 18 --perf-history-step-end 19 --perf-history-aggregation mean --perf-history-min-points 2
  measured 'abs(m["metric_value"] - (5.0 + 0.939) / 2) < 1e-9 and m["metric_source"] == "wandb-history-mean[18:19]"'
}

test_a_run_that_is_not_named_is_found_but_never_somebody_elses() {
  world && serve && agent 'rm -f prints_url; touch prints_nothing'
  # An hour old, of the same name.
  python3 - "$W/runs/old.json" <<'PY'
import datetime, json, sys
when = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
json.dump({"entity": "marin-community", "project": "marin", "name": "gdn_loopgate_iter001_130m-old", "state": "finished",
           "createdAt": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "summary": {"throughput/mfu": 99}, "history": []}, open(sys.argv[1], "w"))
PY
  loop 0 --perf-pairs 1
  measured 'm["metric_value"] == 5.0 and m["run_url"].endswith("/marin-community/marin/runs/gdn_loopgate_iter001_130m-1")'
  # Nothing of this job is there: the hour-old one is no stand-in.
  agent 'date +%N >x'
  loop 1 --perf-pairs 1 --perf-wandb-project elsewhere --perf-regression-policy fail
  measured 'm["metric_value"] is None and "W&B has no project marin-community/elsewhere" in m["warnings"][0]'
  err_has 'hint: check --perf-wandb-entity and --perf-wandb-project'
  rm "$W"/runs/gdn*
  sed -i 's/if os.environ\["WANDB_MODE"\].*/if False:/' "$WORK/tools/train"
  loop 1 --perf-pairs 1 --perf-regression-policy fail
  measured 'm["metric_value"] is None and "began after the job was submitted" in m["warnings"][0]'
}

test_without_a_key_or_a_server_the_outputs_number_stands() {
  world && serve && agent 'date +%N >x'
  unset WANDB_API_KEY
  loop 0 --perf-pairs 1
  measured 'm["metric_value"] == 0.939 and m["metric_source"] == "cli-output"'
  err_has 'no key for W&B at 127.0.0.1; using the metric from the run'"'"'s output'
  err_has 'hint: export WANDB_API_KEY='
  [ "$(asked)" = 0 ] || fail 'it was asked all the same'
  printf 'machine 127.0.0.1\n  login user\n  password %s\n' $KEY >"$HOME/.netrc"
  loop 0 --perf-pairs 1
  measured 'm["metric_value"] == 5.0'
  printf 'machine 127.0.0.1 login user password wrong-key-0123456789\n' >"$HOME/.netrc"
  loop 0 --perf-pairs 1
  err_has "W&B rejects the key of $HOME/.netrc"
  err_lacks wrong-key
  measured 'm["metric_source"] == "cli-output"'
  export WANDB_API_KEY=$KEY
  printf '503\n502\n' >"$W/faults"
  loop 0 --perf-pairs 1
  measured 'm["metric_value"] == 5.0 and "warnings" not in m'
  WANDB_BASE_URL=http://wandb.example loop 0 --perf-pairs 1
  err_has 'WANDB_BASE_URL uses plain HTTP; the API key would be sent unencrypted'
  measured 'm["metric_source"] == "cli-output"'
  no_trace_of_the_key
}

test_one_run_that_cannot_be_asked_makes_no_pair() {
  world && serve && agent 'echo 5.5 >speed.txt'
  printf '0\n0\n0\n403\n' >"$W/faults"  # the champion's number is a window's, the candidate's would be the output's
  loop 0 --perf-pairs 3
  err_has 'they cannot be paired'
  [ "$(cat speed.txt)" = 5.0 ] || fail 'it was kept'
  expect 0 "$GDNCTL" loop-status --json
  out_has '"infra":1'
}

test_another_cross_entropy_is_profiled_beside_and_never_in_the_way() {
  world && serve && agent 'date +%N >x'
  ce='--validation-profile-ce-compare-implementation xla'
  loop 0 --perf-pairs 1 $ce
  measured 'm["metric_value"] == 5.0 and m["ce_requested_implementation"] == "pallas_tpu"'
  measured 'm["ce_ab_compare"]["metric_value"] == 5.5 and m["ce_ab_compare"]["metric_source"] == "wandb-history-median[10:18]"'
  measured 'm["ce_ab_compare"]["profile_prefix"] == "gdn_loopgate_ce_xla_pallas_iter001" and abs(m["ce_ab_compare"]["delta_pct"] - 10) < 1e-9'
  measured 'm["ce_ab_compare"]["run_url"] != m["run_url"] and m["ce_ab_compare"]["failure"] is None'
  grep -q '"profile_prefix": "gdn_loopgate_ce_xla_pallas_iter001"' $logs/perf_state.json || fail 'not in the state'
  expect 0 "$GDNCTL" loop-explain 1
  out_has 'xla, pallas: 5.5 (+10.00%)'
  agent 'touch xla_fails'
  loop 0 --perf-pairs 1 $ce
  err_has 'no comparison with the cross-entropy xla, pallas: validation profile on the default cluster: RESOURCE_EXHAUSTED'
  measured 'm["metric_value"] == 5.0 and "RESOURCE_EXHAUSTED" in m["ce_ab_compare"]["failure"] and m["ce_ab_compare"]["metric_value"] is None'
  [ -e xla_fails ] || fail 'the candidate was not kept'
  loop 2 --validation-profile-ce-compare-implementation pallas_tpu
  loop 2 --validation-profile-ce-bwd-compare-mode pallas
}

test_who_does_not_report_is_not_asked_about() {
  world && serve && agent 'date +%N >x'
  loop 0 --perf-pairs 1 --validation-profile-wandb-mode offline
  loop 0 --perf-pairs 1 --validation-profile-env WANDB_MODE=disabled
  measured 'm["metric_source"] == "cli-output" and "aggregation" not in m["fingerprint"]["asked"]'
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
test = ["true"]
profile = ["echo", "https://wandb.ai/marin-community/marin/runs/x throughput/mfu=5.0"]
TOML
  git commit -qam plain
  loop 0 --perf-pairs 1
  [ "$(asked)" = 0 ] || fail 'it was asked'
  err_lacks W\&B
}

test_mistakes_are_found_before_anything() {
  world && agent true
  loop 2 --perf-history-step-start 19
  err_has '--perf-history-step-end must be >= --perf-history-step-start.'
  loop 2 --perf-history-min-points 10
  loop 2 --perf-history-min-points 0
  loop 2 --perf-wandb-entity ''
  loop 2 --perf-aggregation last
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'an agent ran'
}
