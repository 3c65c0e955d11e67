# Submitting to a Ray cluster: environment, accelerator, preview, limits, second tries, and the way through a tunnel.

serve() { # OPTION...
  mkdir -p "$WORK/ray"
  HF_TOKEN='' python3 "$REPO/tests/support/ray_server.py" "$WORK/ray" "$@" >"$WORK/ray/out" 2>&1 &
  server=$!
  trap 'kill $server; cleanup' EXIT
  for _ in $(seq 400); do [ -s "$WORK/ray/port" ] && break; sleep 0.05; done
  PORT=$(cat "$WORK/ray/port") && URL=http://127.0.0.1:$PORT
  export PORT URL FAKE_SSH_TO=$PORT FAKE_SSH_DIR=$WORK
}
control() { python3 -c 'import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1] + "/__control", sys.argv[2].encode()))' "$URL" "$1"; }
# posted PYTHON: prints the expression over `p`, the submissions so far.
posted() {
  python3 -c 'import json, sys; p = [json.loads(line) for line in open(sys.argv[1])]; print(eval(sys.argv[2]))' "$WORK/ray/posted" "$1"
}
has_posted() { [ "$(posted "$1")" = "$2" ] || fail "$1 is $(posted "$1"), not $2"; }
target() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }
repository() { git init -q . && mkdir -p infra && clusters && git add -A && git commit -qm one; }
clusters() {
  cat >infra/marin-us-central1.yaml <<'Y'
cluster_name: marin-us-central1
provider: {type: gcp, availability_zone: us-central1-a}
available_node_types:
  tpu_worker: {resources: {CPU: 120, TPU: 4}, node_config: {acceleratorType: v5p-8}}
Y
}
through_a_tunnel() {
  mkdir -p "$WORK/bin"
  printf '#!/bin/sh\nprintf "10.128.0.5\\t203.0.113.7\\n"\n' >"$WORK/bin/gcloud"
  printf '#!/bin/sh\nexec python3 "%s/tests/support/fake_ssh.py" "$@"\n' "$REPO" >"$WORK/bin/ssh"
  chmod +x "$WORK"/bin/*
  export PATH=$WORK/bin:$PATH
}
wait_for() { # COMMAND...
  for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done
  fail "never: $*"
}

test_environment_of_a_job_on_a_cluster() {
  repository && serve
  printf 'env:\n  WANDB_ENTITY: our-team\n  EMPTY: null\n  HF_TOKEN: hf_fromTheFile0123456789\n  BOTH: file\n' >.marin.yaml
  target '"echo [$WANDB_ENTITY][$EMPTY][$HF_TOKEN][$WANDB_API_KEY][$BOTH][$GIT_COMMIT][$DOLLAR][$PYTHONPATH]"'
  HF_TOKEN=hf_fromTheEnvironment0123 WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 \
    expect 0 "$GDNCTL" ray-test --ray-address "$URL" -e BOTH=option -e 'DOLLAR=a$HOME%b'
  out_has "[our-team][][hf_fromTheFile0123456789][0123456789abcdef0123456789abcdef01234567][option][$(git rev-parse HEAD)][a\$HOME%b][]"
  err_has 'environment of the job: BOTH DOLLAR EMPTY GIT_COMMIT HF_TOKEN WANDB_API_KEY WANDB_ENTITY'
  [ "$(grep -c "anyone with the cluster's token can read the values" "$WORK/err")" = 1 ] || fail "not said once"
  for value in hf_from 0123456789abcdef our-team; do err_lacks "$value"; done
  ! grep -rE 'hf_from|0123456789abcdef' "$XDG_STATE_HOME" || fail "a value is in the state directory"
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL" --no-secrets
  err_has 'environment of the job: BOTH EMPTY GIT_COMMIT WANDB_ENTITY'
  # A key for a private server is useless, and told to wandb.ai, without that server.
  mkdir -p "$HOME/.config/wandb" && printf '[default]\nbase_url = https://wandb.corp.example\n' >"$HOME/.config/wandb/settings"
  target '"echo [$WANDB_BASE_URL]"'
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL"
  out_has '[https://wandb.corp.example]'
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 WANDB_BASE_URL=https://other.corp.example expect 0 "$GDNCTL" ray-test --ray-address "$URL"
  out_has '[https://other.corp.example]'
  expect 0 "$GDNCTL" ray-test --ray-address "$URL" && out_has '[]'
  # Where nothing says which server a key is for, it goes nowhere, and no job is submitted.
  local before
  before=$(grep -c '"POST"' "$WORK/ray/requests")
  mv "$HOME/.config/wandb/settings" "$HOME/kept"
  WANDB_API_KEY=local-0123456789abcdef0123456789abcdef01234567 expect 2 "$GDNCTL" ray-test --ray-address "$URL"
  err_has 'issued by a private server, and none is configured'
  err_has 'set WANDB_BASE_URL'
  mkdir "$HOME/.config/wandb/settings"
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 8 "$GDNCTL" ray-test --ray-address "$URL"
  err_has 'WANDB_API_KEY cannot be passed on to the job'
  [ "$(grep -c '"POST"' "$WORK/ray/requests")" = "$before" ] || fail "submitted"
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL" -e WANDB_BASE_URL=https://given.example
  out_has '[https://given.example]'
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL" --no-secrets
  out_has '[]'
  rmdir "$HOME/.config/wandb/settings" && mv "$HOME/kept" "$HOME/.config/wandb/settings"
  printf '  WANDB_API_KEY: theKeyOfTheFile0123456789\n' >>.marin.yaml
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL"
  out_has '[]'
  sed -i '/WANDB_API_KEY/d' .marin.yaml
  WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567 expect 0 "$GDNCTL" ray-test --ray-address "$URL" --no-secrets
  err_has 'environment of the job: BOTH EMPTY GIT_COMMIT WANDB_ENTITY'
  echo 'env: [1]' >.marin.yaml
  expect 2 "$GDNCTL" ray-test --ray-address "$URL"
  err_has '.marin.yaml'
}

test_preview_sends_nothing() {
  repository
  target '"true"'
  printf '[targets.t.profile]\nargv = ["sh", "-c", "exit 3"]\n' >>gdnctl.toml
  mkdir big && head -c 300000 /dev/urandom >big/file
  HF_TOKEN=hf_fromTheEnvironment0123 expect 0 "$GDNCTL" ray-test --cluster us-central1 --dry-run -e MINE=secretly -e M2='$x'
  out_has 'place        us-central1 (ssh tunnel to the head node of marin-us-central1)'
  out_has "command      sh -c true"
  out_has 'resources    TPU 4, TPU-v5p-8-head 1'
  out_has 'environment  GIT_COMMIT HF_TOKEN M2 MINE'
  out_has '3 files of '
  out_has ', 0.3 MB of at most 104.9 MB'
  out_has '"HF_TOKEN": "***"'
  out_has '"TPU-v5p-8-head": 1'
  for value in hf_from secretly; do out_lacks $value; err_lacks $value; done
  HF_TOKEN=hf_fromTheEnvironment0123 expect 0 "$GDNCTL" ray-test --ray-address http://127.0.0.1:1 --dry-run --json
  out_has '{"schema":"gdnctl.ray-test-preview/1","backend":"ray","cluster":null,"address":"http://127.0.0.1:1","submission_id":"gdnctl-test-'
  out_has '"package":{"working_dir":'
  out_has '"env_vars":{"GIT_COMMIT":"***","HF_TOKEN":"***"}'
  expect 0 "$GDNCTL" ray-profile --ray-address http://127.0.0.1:1 --dry-run --json
  out_has '"schema":"gdnctl.ray-profile-preview/1"'
  expect 0 "$GDNCTL" ray-test --cluster local --dry-run --working-dir none
  out_has 'package      none'
  head -c 106000000 /dev/urandom >big/file
  expect 2 "$GDNCTL" ray-test --cluster us-central1 --dry-run
  err_has 'big/file'
}

test_the_accelerator_of_a_cluster() {
  repository && serve
  target '"true"'
  at=(ray-test --cluster us-central1 --ray-address "$URL")
  expect 0 "$GDNCTL" "${at[@]}" --json
  err_has -- '--tpu auto: v5p-8 on us-central1'
  has_posted 'p[-1]["entrypoint_resources"]' "{'TPU': 4, 'TPU-v5p-8-head': 1}"
  out_has '"tpu":"v5p-8","entrypoint":"sh -c true","env_names":["GIT_COMMIT"],"resources":{"TPU":4.0,"TPU-v5p-8-head":1.0},"settings":null}'
  expect 124 "$GDNCTL" "${at[@]}" --tpu v6e-8 --timeout 0.5
  err_has 'no node type of us-central1 offers v6e-8: the job may wait forever; it has v5p-8'
  expect 2 "$GDNCTL" "${at[@]}" --tpu v5litepod-3
  err_has 'Ray gives a job 1, 2, 4 or 8'
  expect 2 "$GDNCTL" "${at[@]}" --tpu v5p-128
  err_has 'Only single tpu nodes are supported with the CLI'
  printf 'available_node_types: {w: {resources: {CPU: 1}}}\n' >cpu.yaml
  expect 0 "$GDNCTL" ray-test --cluster-config cpu.yaml --ray-address "$URL"
  has_posted '"entrypoint_resources" in p[-1]' False
  printf 'target = "marin"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-test --cluster-config cpu.yaml --ray-address "$URL"
  err_has 'Unable to infer TPU worker type from cluster config.'
  expect 2 "$GDNCTL" ray-test --ray-address "$URL"
  err_has 'TPU auto-detection requires --cluster to be set.'
  expect 2 "$GDNCTL" ray-profile --ray-address "$URL" --tpu auto
  err_has 'TPU auto-detection requires --cluster to be set.'
  expect 0 "$GDNCTL" ray-profile --cluster us-central1 --ray-address "$URL" --tpu auto --no-wait
  has_posted 'p[-1]["runtime_env"]["env_vars"]["GDN_PROFILE_TPU_VARIANT"]' v5p-8
  has_posted '"entrypoint_resources" in p[-1]' False
  expect 0 "$GDNCTL" ray-profile --cluster us-central1 --ray-address "$URL" --driver-on tpu --no-wait
  has_posted 'p[-1]["entrypoint_resources"]' "{'TPU': 4, 'TPU-v5p-8-head': 1}"
  has_posted 'p[-1]["runtime_env"]["env_vars"]["FRAY_CLUSTER_SPEC"]' ray
  has_posted 'p[-1]["runtime_env"]["env_vars"]["PYTHONPATH"]' experiments:lib/fray/src:lib/haliax/src:lib/iris/src:lib/levanter/src:lib/marin/src:lib/zephyr/src
}

# A checkout whose tools only say what they would.
marin_checkout() { # BACKEND SUMMARY
  mkdir -p lib/levanter .venv/bin "$WORK/tools"
  printf '#!/bin/sh\n[ "$1" = -c ] && echo "GDNCTL_DEVICE {\\"backend\\":\\"%s\\",\\"count\\":4}"\nexit 0\n' "$1" >.venv/bin/python
  printf '#!/bin/sh\n[ "$1 $2" = "run pytest" ] && echo "===== %s in 12.30s ====="\nexit 0\n' "$2" >"$WORK/tools/uv"
  chmod +x .venv/bin/python "$WORK/tools/uv"
  # A login shell starts with the system's own PATH, and a package has no virtual environment.
  echo "export PATH=$WORK/tools:\$PATH VIRTUAL_ENV=$PWD/.venv" >"$HOME/.bash_profile"
  echo .venv >.gitignore && touch lib/levanter/x
  printf 'target = "marin"\n' >gdnctl.toml
}
test_evidence_of_a_tpu_run() {
  repository && marin_checkout tpu '87 passed, 2 skipped' && serve
  at=(ray-test --cluster us-central1 --ray-address "$URL" --json)
  expect 0 "$GDNCTL" "${at[@]}" --require-passed 87 --max-skipped 2
  out_has '"tests":{"passed":87,"failed":0,"errors":0,"skipped":2'
  out_has '"device":{"backend":"tpu","count":4}'
  out_has '"tpu_evidence":true'
  out_has '"settings":{"tests":"both","pytest_args":"","allow_cpu":false}'
  expect 0 "$GDNCTL" ray-wait --ray-address "$URL" --match . --json
  out_has '"tpu_evidence":true'
  out_has '"entrypoint":"bash -lc '
  marin_checkout tpu '49 passed, 40 skipped'
  expect 1 "$GDNCTL" "${at[@]}" --max-skipped 2
  err_has '40 skipped, but --max-skipped allows 2'
  out_has '"tpu_evidence":false'
  expect 1 "$GDNCTL" "${at[@]}" --require-passed 87
  marin_checkout cpu '87 passed'
  expect 1 "$GDNCTL" "${at[@]}"
  err_has 'the tests ran on cpu, not on a TPU (--allow-cpu accepts that)'
  expect 0 "$GDNCTL" "${at[@]}" --allow-cpu
  out_has '"tpu_evidence":false'
  marin_checkout tpu '87 passed'
  # On this machine the environment that a login shell activates is not used unless it is named.
  expect 0 "$GDNCTL" ray-test --cluster local -e VIRTUAL_ENV=$PWD/.venv --json
  out_has '"device":{"backend":"tpu","count":4}'
  out_has '"tpu_evidence":false'
}

test_nothing_outlives_a_job() {
  repository && serve
  target '"sleep 300 & echo pid=$!; trap true TERM; exit 7"'
  expect 1 "$GDNCTL" ray-test --ray-address "$URL" --json
  out_has '"driver_exit_code":7'
  local pid
  pid=$(grep -oE 'pid=[0-9]+' "$WORK/err" | cut -d= -f2)
  wait_for test ! -d "/proc/$pid/exe"
  case $(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) in '' | Z | X) ;; *) fail "the background child lives on" ;; esac
}

test_submitted_again_after_a_fault_of_the_cluster() {
  repository && serve
  target '"echo ran"'
  control '{"capacity": {"CPU": 0}}'
  printf '[targets.t.test]\nargv = ["sh", "-c", "echo ran"]\nresources = { CPU = 1 }\n' | cat <(echo 'target = "t"') - >gdnctl.toml
  "$GDNCTL" ray-test --ray-address "$URL" --resubmit 1 >"$WORK/o" 2>"$WORK/e" &
  local client=$! first
  wait_for grep -q 'Job submitted with ID' "$WORK/e"
  first=$(sed -n 's/.*Job submitted with ID: //p' "$WORK/e")
  control "{\"set\": [\"$first\", {\"status\": \"FAILED\", \"error_type\": \"JOB_SUPERVISOR_ACTOR_DIED\", \"message\": \"Job supervisor actor died: gone\", \"end_time\": 1}]}"
  wait_for grep -q 'resubmitting it' "$WORK/e"
  control '{"capacity": {"CPU": 2}}'
  wait $client || fail "exit $?: $(cat "$WORK/e")"
  has_posted 'len(p)' 2
  has_posted 'p[0]["submission_id"] == p[1]["submission_id"] or p[0]["metadata"]["nonce"] == p[1]["metadata"]["nonce"]' False
  grep -q 'resubmitting it as gdnctl-test-.* (1 of 1)' "$WORK/e" || fail "$(cat "$WORK/e")"
  target '"exit 3"'
  expect 1 "$GDNCTL" ray-test --ray-address "$URL" --resubmit 5
  has_posted 'len(p)' 3
  expect 2 "$GDNCTL" ray-test --ray-address "$URL" --resubmit 1 --no-wait
  expect 2 "$GDNCTL" ray-test --ray-address "$URL" --resubmit -1
}

status_of() { "$GDNCTL" ray-list --ray-address "$URL" --json 2>/dev/null | grep -o "\"submission_id\":\"$1\",\"status\":\"[A-Z]*" | sed 's/.*"//'; }
test_time_limit_and_interruption() {
  repository && serve
  target '"echo up; exec sleep 300"'
  expect 124 "$GDNCTL" ray-test --ray-address "$URL" --submission-id t-1 --timeout 3
  err_has "gdnctl ray-stop --ray-address $URL t-1"
  [ "$(status_of t-1)" = RUNNING ] || fail "t-1 is $(status_of t-1)"
  expect 124 "$GDNCTL" ray-test --ray-address "$URL" --submission-id t-2 --timeout 3 --auto-stop
  [ "$(status_of t-2)" = STOPPED ] || fail "t-2 is $(status_of t-2)"
  python3 - "$GDNCTL" ray-test --ray-address "$URL" --submission-id t-3 --auto-stop >"$WORK/o" 2>&1 <<'P'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
while b"up" not in p.stdout.readline():
    pass
p.send_signal(signal.SIGINT)
print("rc", p.wait())
P
  grep -qx 'rc 130' "$WORK/o" || fail "$(cat "$WORK/o")"
  [ "$(status_of t-3)" = STOPPED ] || fail "t-3 is $(status_of t-3): $(cat "$WORK/o")"
  expect 0 "$GDNCTL" ray-stop --ray-address "$URL" t-1 --wait
}

test_through_a_tunnel_that_dies() {
  repository && serve --token right-token-0123 && through_a_tunnel
  target '"echo one; sleep 4; echo two"'
  echo 'die-in 2.5' >"$WORK/script"
  RAY_AUTH_TOKEN=right-token-0123 expect 0 "$GDNCTL" ray-test --cluster us-central1
  out_has one
  out_has two
  [ "$(grep -cx one "$WORK/out")" = 1 ] || fail "a line came twice"
  grep -q '"to": "agent"' "$WORK/ray/requests" || fail "the agent was not reached through the tunnel"
  err_has 'the ssh tunnel to cluster marin-us-central1 has ended; opening it again'
  while read -r pid _; do
    case $(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) in '' | Z | X) ;; *) fail "ssh $pid is still there" ;; esac
  done <"$WORK/pids"
}

test_secrets_are_in_no_argv_log_or_state() {
  repository && serve --token scanned-token-0123 && through_a_tunnel
  target '"echo up; sleep 2"'
  printf '#!/bin/sh\ncase $1 in compute) printf "10.128.0.5\\t203.0.113.7\\n" ;; *) echo scanned-token-0123 ;; esac\n' >"$WORK/bin/gcloud"
  sed -i 's/us-central1-a}/us-central1-a, project_id: p}/' infra/marin-us-central1.yaml
  # No other test uses these words, because all processes are looked at.
  cat >"$WORK/scan.py" <<'P'
import glob, os, sys, time
words = [b"scanned-token-0123", b"hf_scannedScannedScannedScanned", b"5ec2e70fa11b0d1e55ec2e70fa11b0d1e55ec2e7", b"sekret-of-mine"]
seen = 0
while not os.path.exists(sys.argv[1]):
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            line = open(path, "rb").read()
        except OSError:
            continue
        seen += b"ray-test" in line or b"ssh" in line
        # The server of this test knows its token; nobody else does.
        if any(word in line for word in words) and b"ray_server.py" not in line:
            print("LEAK", path, line)
    time.sleep(0.01)
print("looked at", seen)
P
  python3 "$WORK/scan.py" "$WORK/stop" >"$WORK/scan" &
  local scanner=$!
  printf 'env: {MY_PASSWORD: sekret-of-mine}\n' >.marin.yaml
  export HF_TOKEN=hf_scannedScannedScannedScanned WANDB_API_KEY=5ec2e70fa11b0d1e55ec2e70fa11b0d1e55ec2e7
  expect 0 "$GDNCTL" ray-test --cluster us-central1 -vv
  touch "$WORK/stop"
  wait $scanner
  grep -q LEAK "$WORK/scan" && fail "$(cat "$WORK/scan")"
  [ "$(sed -n 's/looked at //p' "$WORK/scan")" -gt 10 ] || fail "the scan saw nothing: $(cat "$WORK/scan")"
  for word in scanned-token-0123 hf_scanned 5ec2e70fa11b sekret; do
    out_lacks $word
    err_lacks $word
    ! grep -r "$word" "$XDG_STATE_HOME" "$WORK/argv" || fail "$word is on disk"
  done
  [ "$(cat "$HOME/.ray/auth_token")" = scanned-token-0123 ] || fail "the token could not be saved"
}

test_a_dead_cluster_never_becomes_local() {
  repository && through_a_tunnel
  export FAKE_SSH_DIR=$WORK FAKE_SSH_TO=1
  target '"echo ran"'
  printf 'unreachable\n' >"$WORK/script"
  expect 4 "$GDNCTL" ray-test --cluster us-central1
  out_lacks ran
  echo dead-end >"$WORK/script"
  expect 4 "$GDNCTL" ray-test
  out_lacks ran
  [ ! -e "$XDG_STATE_HOME/gdnctl/local" ] || fail "something ran here"
}
