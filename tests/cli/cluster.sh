# Which cluster is meant, how it is reached, and what is said about it.

# A repository with two clusters, and gcloud and ssh that play along.
repository() {
  git init -q . && mkdir -p infra bin
  cat >infra/marin-us-central1.yaml <<'Y'
cluster_name: marin-us-central1
auth: {ssh_user: ray, ssh_private_key: ~/.ssh/the_key.pem}
provider: {type: gcp, region: us-central1, availability_zone: us-central1-a, project_id: proj}
available_node_types:
  head_default: {resources: {CPU: 0, head_node: 1}}
  tpu_worker: {max_workers: 8, resources: {CPU: 120, TPU: 4}, node_config: {acceleratorType: v5p-8}}
Y
  printf 'cluster_name: marin-us-east5\nprovider: {availability_zone: us-east5-b}\n' >infra/marin-us-east5.yaml
  cat >bin/gcloud <<'G'
#!/bin/sh
echo "$*" >>"$WORK/gcloud"
case $1 in
  compute) [ -e "$WORK/no-head" ] || printf '10.128.0.5\t203.0.113.7\n' ;;
  secrets) cat "$WORK/secret" 2>/dev/null || { echo "ERROR: NOT_FOUND: Secret not found" >&2; exit 1; } ;;
esac
G
  printf '#!/bin/sh\nexec python3 "%s/tests/support/fake_ssh.py" "$@"\n' "$REPO" >bin/ssh
  chmod +x bin/*
  export PATH=$PWD/bin:$PATH FAKE_SSH_DIR=$WORK
}
dashboard() { # [token=T]
  mkdir -p "$WORK/dash"
  python3 "$REPO/tests/support/fake_dashboard.py" "$WORK/dash" "$@" >/dev/null 2>&1 &
  server=$!
  trap 'kill $server; cleanup' EXIT
  for _ in $(seq 200); do [ -s "$WORK/dash/port" ] && break; sleep 0.05; done
  PORT=$(cat "$WORK/dash/port")
  export PORT FAKE_SSH_TO=$PORT
}
asked() { grep -c "^GET $1\$" "$WORK/dash/requests"; }
no_ssh_is_left() {
  while read -r pid _; do
    case $(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) in
      '' | Z | X) ;;
      *) fail "ssh $pid is still there" ;;
    esac
  done <"$WORK/pids"
}

test_list() {
  repository
  echo 'a: [' >infra/marin-broken.yaml
  expect 0 "$GDNCTL" cluster list
  out_has 'us-central1            marin-us-central1    us-central1-a  v5p-8        v5p-8  (in use)'
  out_has 'us-east5               marin-us-east5       us-east5-b     -            -'
  out_has 'infra/marin-broken.yaml:2: not YAML'
  expect 0 "$GDNCTL" cluster list --json
  out_has '{"schema":"gdnctl.cluster-list/1","clusters":[{"name":"local","in_use":false,"backend":"local"},{"name":"broken","in_use":false,"error":'
  out_has '"cluster_name":"marin-us-central1","zone":"us-central1-a","project":"proj","tpu":"v5p-8","tpu_types":["v5p-8"],"backend":"ray"}'
  rm -r infra
  expect 0 "$GDNCTL" cluster list
  out_has 'local                  this machine         -              -            -  (in use)'
  [ ! -e "$WORK/gcloud" ] || fail "somebody was asked"
}

test_completion_knows_the_clusters() {
  repository
  expect 0 "$GDNCTL" __complete -- ray-test --cluster ''
  [ "$(xargs <"$WORK/out")" = 'local us-central1 us-east5' ] || fail "$(cat "$WORK/out")"
}

test_check_says_what_would_be_used() {
  dashboard
  expect 0 "$GDNCTL" cluster check --ray-address "127.0.0.1:$PORT/"
  out_has "address    http://127.0.0.1:$PORT (option --ray-address)"
  out_has 'token      none (RAY_AUTH_TOKEN: not set, RAY_AUTH_TOKEN_PATH: not set'
  out_has 'answers    yes: Ray 2.60.0, authentication disabled, session_1'
  out_has 'TPU        4 of 8 in use'
  out_has 'queued     2 x {TPU 4, TPU-v5p-8-head 1}'
  RAY_ADDRESS=http://127.0.0.1:$PORT/prefix/ RAY_API_SERVER_ADDRESS=ray://x:10001 expect 0 "$GDNCTL" cluster check --json
  out_has '{"schema":"gdnctl.cluster-check/1","backend":"ray","cluster":null,"origin":"environment RAY_ADDRESS","file":null'
  out_has '"token_origin":null,"token_withheld":false,"tpu_types":[],"answers":true,"ray_version":"2.60.0","session_name":"session_1","authentication_mode":"disabled","load":{"tpu_used":4.0,"tpu_total":8.0,"queued":[{"resources":{"TPU":4.0,"TPU-v5p-8-head":1.0},"count":2}]},"error":null,"iris":null}'
  err_has 'RAY_API_SERVER_ADDRESS=ray://x:10001 is not a dashboard address: ignored'
  [ "$(asked /prefix/api/version)" = 1 ] || fail "the path prefix is lost"
}

test_check_of_this_machine() {
  expect 0 "$GDNCTL" cluster check
  out_has 'cluster    local (no other cluster is configured)'
  expect 0 "$GDNCTL" cluster check local --json
  out_has '"backend":"local","cluster":"local","origin":"option --cluster"'
  expect 4 "$GDNCTL" cluster check --no-local
}

test_check_errors() {
  repository
  expect 2 "$GDNCTL" cluster check mars
  err_has 'No cluster config found for region mars'
  err_has 'looked for infra/marin-mars.yaml, infra/marin-mars-a.yaml, infra/marin-mars-b.yaml, infra/marin-mars-vllm.yaml in '
  err_has ', ~/.config/marin/clusters/mars.yaml, ~/.config/marin/clusters/mars.yml, lib/iris/config/mars.yaml, lib/iris/config/mars.yml in '
  err_has 'known clusters: local, us-central1, us-east5'
  err_has '`--cluster-config FILE`'
  err_has '`--ray-address URL`'
  expect 2 "$GDNCTL" cluster check --cluster-config nowhere.yaml
  expect 2 "$GDNCTL" cluster check us-central1 --cluster us-east5
  expect 2 "$GDNCTL" cluster check local --ray-address http://127.0.0.1:1
  expect 2 "$GDNCTL" cluster check --ray-address ray://127.0.0.1:1
  expect 4 "$GDNCTL" cluster check --ray-address http://127.0.0.1:1
  out_has 'answers    no'
  expect 4 "$GDNCTL" cluster check --ray-address http://127.0.0.1:1 --json
  out_has '"answers":false'
  dashboard
  expect 4 "$GDNCTL" cluster check --ray-address "http://127.0.0.1:$PORT/elsewhere"
  err_has 'is not a Ray dashboard'
}

test_token_sources_and_refusals() {
  dashboard token=right-token-0123
  at=(cluster check --ray-address "http://127.0.0.1:$PORT")
  expect 5 "$GDNCTL" "${at[@]}"
  err_has 'Unauthorized: Missing authentication token'
  err_has 'RAY_AUTH_TOKEN: not set'
  err_has 'make get_ray_auth_token'
  : >"$WORK/dash/requests"
  RAY_AUTH_TOKEN=wrong-token-9999 expect 5 "$GDNCTL" "${at[@]}"
  err_has 'Forbidden: Invalid authentication token'
  err_lacks wrong-token
  [ "$(asked /api/version)" = 1 ] || fail "a refusal was tried again"
  RAY_AUTH_TOKEN=right-token-0123 expect 0 "$GDNCTL" "${at[@]}"
  out_has 'token      environment RAY_AUTH_TOKEN'
  out_has 'authentication token'
  out_lacks right-token
  mkdir -p "$HOME/.ray" && printf ' right-token-0123\n' >"$HOME/.ray/auth_token"
  expect 0 "$GDNCTL" "${at[@]}" --json
  out_has "\"token_origin\":\"file $HOME/.ray/auth_token\""
  RAY_AUTH_TOKEN_PATH=$WORK/none expect 5 "$GDNCTL" "${at[@]}"
  RAY_AUTH_TOKEN_PATH=/dev/null expect 5 "$GDNCTL" "${at[@]}"
  err_has 'RAY_AUTH_TOKEN_PATH: /dev/null is empty'
}

test_a_token_stays_off_the_open_wire() {
  local own
  own=$(hostname -I 2>/dev/null | awk '{print $1}')
  [ -n "$own" ] || skip 'this machine has no address but loopback'
  RAY_AUTH_TOKEN=some-token-0123 expect 4 "$GDNCTL" cluster check --ray-address "http://$own:1"
  err_has "the token is not sent in clear text to http://$own:1; --allow-plaintext-token allows it"
  out_has '(not sent in clear text)'
  RAY_AUTH_TOKEN=some-token-0123 expect 4 "$GDNCTL" cluster check --ray-address "http://$own:1" --allow-plaintext-token
  err_lacks 'clear text'
}

test_tunnel_to_the_head_node() {
  repository
  dashboard token=right-token-0123
  echo right-token-0123 >"$WORK/secret"
  expect 0 "$GDNCTL" cluster check us-central1
  out_has 'address    ssh tunnel to the head node of marin-us-central1, now http://127.0.0.1:'
  out_has 'token      secret RAY_AUTH_TOKEN of project proj'
  out_has 'answers    yes: Ray 2.60.0'
  [ "$(cat "$HOME/.ray/auth_token")" = right-token-0123 ] || fail "the token was not kept"
  [ "$(stat -c %a "$HOME/.ray/auth_token")" = 600 ] || fail "others may read the token"
  local port
  port=$(grep -oE '^127\.0\.0\.1:[0-9]+' "$WORK/argv" | cut -d: -f2)
  [ "$(head -1 "$WORK/argv")" = -N ] || fail 'a tunnel that runs a command'
  local option
  for option in BatchMode=yes ServerAliveInterval=15 ServerAliveCountMax=4 IdentitiesOnly=yes ControlPath=none RemoteCommand=none \
    StrictHostKeyChecking=accept-new "UserKnownHostsFile=$XDG_STATE_HOME/gdnctl/ssh/known_hosts"; do
    grep -qxF -- "$option" "$WORK/argv" || fail "ssh lacks $option"
  done
  [ "$(tail -6 "$WORK/argv" | tr '\n' ' ')" = "-i $HOME/.ssh/the_key.pem -L 127.0.0.1:$port:10.128.0.5:8265 ray@203.0.113.7 -- " ] || fail 'the words of ssh'
  grep -qx 'compute instances list --filter labels.ray-cluster-name=marin-us-central1 AND labels.ray-node-type=head --format value(networkInterfaces\[0\].networkIP,networkInterfaces\[0\].accessConfigs\[0\].natIP) --limit 1 --project=proj' "$WORK/gcloud" || fail "$(cat "$WORK/gcloud")"
  read -r pid group <"$WORK/pids"
  [ "$pid" = "$group" ] || fail "ssh has no process group of its own"
  no_ssh_is_left
  rm "$WORK/gcloud"
  expect 0 "$GDNCTL" cluster check us-central1
  ! grep -q secrets "$WORK/gcloud" || fail "the secret was asked for again"
}

test_tunnel_gets_another_port() {
  repository
  dashboard
  printf 'in-use\nsilent\n' >"$WORK/script"
  expect 0 "$GDNCTL" cluster check us-central1
  [ "$(grep -c '^--$' "$WORK/argv")" = 3 ] || fail "$(cat "$WORK/argv")"
  printf 'silent\nin-use\nin-use\n' >"$WORK/script"
  expect 4 "$GDNCTL" cluster check us-central1
  err_has 'cannot open an ssh tunnel to ray@203.0.113.7: bind [127.0.0.1]:1: Address already in use'
  no_ssh_is_left
}

test_tunnel_faults() {
  repository
  dashboard
  echo deny >"$WORK/script"
  expect 5 "$GDNCTL" cluster check us-central1
  err_has 'Permission denied (publickey)'
  err_has 'the_key.pem'
  [ "$(grep -c '^--$' "$WORK/argv")" = 1 ] || fail "a refused key was tried again"
  echo unreachable >"$WORK/script"
  expect 4 "$GDNCTL" cluster check us-central1
  err_has 'Connection refused'
  echo dead-end >"$WORK/script"
  expect 4 "$GDNCTL" cluster check us-central1
  err_has 'no dashboard answers at the head node of cluster marin-us-central1'
  err_has 'channel 2: open failed: connect failed: Connection refused'
  echo deaf >"$WORK/script"
  expect 0 "$GDNCTL" cluster check us-central1
  touch "$WORK/no-head"
  expect 4 "$GDNCTL" cluster check us-central1
  err_has 'No head node found for cluster marin-us-central1'
  rm bin/ssh
  no_ssh_is_left
}

test_tunnel_ends_with_the_command() {
  repository
  dashboard
  # Nobody answers behind the tunnel: the command is in the middle of its tries when it is ended.
  for signal in INT TERM HUP KILL; do
    rm -f "$WORK/pids"
    echo dead-end >"$WORK/script"
    python3 - "$signal" "$WORK/pids" "$GDNCTL" cluster check us-central1 >"$WORK/o" 2>&1 <<'P'
import os, signal, subprocess, sys, time
sig, pids, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
signal.signal(signal.SIGINT, signal.SIG_DFL)
p = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
while not os.path.exists(pids) or not open(pids).read().endswith("\n"):
    time.sleep(0.01)
time.sleep(0.2)
p.send_signal(getattr(signal, "SIG" + sig))
print("rc", p.wait())
P
    case $signal in INT | HUP) code=130 ;; TERM) code=143 ;; KILL) code=-9 ;; esac
    grep -qx "rc $code" "$WORK/o" || fail "$signal: $(cat "$WORK/o")"
    sleep 0.3
    no_ssh_is_left
  done
}
