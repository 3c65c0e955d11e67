# A held TPU's host behind a real OpenSSH server: an sshd of our own in a mount namespace, where the account has another
# home, with a scratch key, a fake metadata server, a fake gcloud, and a scripted dashboard that runs the holder.
. "$REPO/tests/support/ray_server.sh"

host() { # [MODE of the metadata server]
  [ -x /usr/sbin/sshd ] || skip "there is no sshd (Debian package openssh-server)"
  [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "mount namespaces are not allowed here"
  serve
  ctl '{"capacity": {"CPU": 2, "TPU": 4, "TPU-v5p-8-head": 1, "node:127.0.0.1": 1}}'
  mkfifo "$WORK/metadata.in"
  python3 -B "$REPO/tests/support/fake_metadata.py" "${1:-good}" \
    /instance/network-interfaces/0/access-configs/0/external-ip=127.0.0.1 <>"$WORK/metadata.in" >"$WORK/metadata" &
  metadata=$!
  REMOTE=$WORK/remote
  mkdir -p "$REMOTE" "$WORK/ssh" "$WORK/bin" "$HOME/.ssh" /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/host" && ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/google_compute_engine"
  cp "$HOME/.ssh/google_compute_engine.pub" "$WORK/ssh/authorized"
  printf 'root:x:0:0:root:%s:/bin/sh\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n' "$REMOTE" >"$WORK/ssh/passwd"
  SSHD_PORT=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  printf '#!/bin/sh\nexec %s -p %s "$@"\n' "$(command -v ssh)" "$SSHD_PORT" >"$WORK/bin/ssh"
  printf '#!/bin/sh\necho "$@" >>%s/gcloud.calls\n' "$WORK" >"$WORK/bin/gcloud"
  chmod +x "$WORK/bin"/*
  export PATH=$WORK/bin:$PATH GDNCTL_METADATA_BASE
  cat >"$WORK/ssh/config" <<C
Port $SSHD_PORT
ListenAddress 127.0.0.1
HostKey $WORK/ssh/host
AuthorizedKeysFile $WORK/ssh/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
SetEnv PATH=$PATH
C
  for _ in $(seq 200); do [ -s "$WORK/metadata" ] && break; sleep 0.05; done
  GDNCTL_METADATA_BASE=$(cat "$WORK/metadata")
  sshd_up
  export GDNCTL_STATE_DIR=$WORK/st  # short: sockets are below it
  trap 'kill $sshd $metadata $server 2>/dev/null; ssh_sessions_end; cleanup' EXIT
  git init -q . && printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo tested in $PWD; cat note"]\n' >gdnctl.toml
  echo first >note
  git add -A && git commit -qm tree
  HOLD=(--ray-address "http://127.0.0.1:$PORT" --tpu-name a)
}
sshd_up() {
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare -m sh -c \
    'mount --bind "$1/passwd" /etc/passwd && exec /usr/sbin/sshd -D -e -f "$1/config"' sh "$WORK/ssh" >"$WORK/ssh/log" 2>&1 &
  sshd=$!
  for _ in $(seq 200); do grep -q 'listening on' "$WORK/ssh/log" && return; sleep 0.05; done
  skip "sshd does not start here: $(tail -1 "$WORK/ssh/log")"
}
ssh_sessions_end() { pkill -f "$WORK/st/ssh" 2>/dev/null; }
allocate() { expect 0 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --no-setup --detach "$@"; }
release() { "$GDNCTL" dev-tpu-release "${HOLD[@]}" 2>"$WORK/release.err" || fail "release: $(cat "$WORK/release.err")"; }
nothing_runs() { ! pgrep -f "$1" >/dev/null || fail "still runs: $(pgrep -fa "$1")"; }

test_allocate_use_release() {
  host
  printf 'Host *\n  User nobody\n  Port 1' >"$HOME/.ssh/config"
  cp "$HOME/.ssh/config" before
  allocate --json
  err_has '[gdnctl] SSH alias: dev-tpu-a'
  grep -q '"ssh_ok":true' "$WORK/out" || fail 'no ssh'
  grep -q 'tpu-vm ssh ray-marin-us-central1-worker-ed0b8cf7-tpu --zone=us-central1-a -- hostname' "$WORK/gcloud.calls" || fail 'keys'
  [ "$(cat "$REMOTE/marin/note")" = first ] || fail 'no tree'
  [ "$(head -1 "$HOME/.ssh/config")" = '# BEGIN_DEV_TPU_A' ] || fail 'the block is not at the top'
  expect 7 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c 'pwd; echo err >&2; exit 7'
  [ "$(cat "$WORK/out")" = "$REMOTE/marin" ] || fail 'where it ran'
  expect 254 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'exit 255'
  head -c 3000000 /dev/urandom >blob
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat blob
  cmp blob "$WORK/out" || fail 'bytes'
  expect 0 env WANDB_API_KEY=s3cret-s3cret RAY_ADDRESS=http://127.0.0.1:1 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- \
    sh -c 'echo "key=$WANDB_API_KEY ray=$RAY_ADDRESS"; cat /proc/*/cmdline | tr "\0" " " >lines'
  out_has 'key=s3cret-s3cret ray='
  out_lacks 'ray=http'
  ! grep -q s3cret-s3cret "$REMOTE/marin/lines" || fail 'a secret on a command line'
  ! grep -rq s3cret-s3cret "$REMOTE/.gdnctl" "$GDNCTL_STATE_DIR" || fail 'a secret in a file'
  expect 0 "$GDNCTL" dev-tpu-test "${HOLD[@]}" --json
  err_has "tested in $REMOTE/marin"
  release
  cmp before "$HOME/.ssh/config" || fail 'the ssh configuration is not as it was'
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  err_has 'SSH configuration for dev-tpu-a not found; run dev-tpu-allocate --tpu-name a first'
}

test_sync_by_rsync_and_by_tar() {
  host
  mkdir -p sub && echo 1 >sub/gone && echo 2 >"$(printf 'new\nline')" && echo 3 >-dash && echo 4 >'sp ace'
  allocate
  if command -v rsync >/dev/null; then err_has '(rsync,'; else err_has '(tar,'; fi
  cd "$REMOTE/marin" && [ -f sub/gone ] && [ -f "$(printf 'new\nline')" ] && [ -f ./-dash ] && [ -f 'sp ace' ] || fail 'names'
  mkdir .venv_x && touch .venv_x/mine sub/mine && cd "$WORK/cwd" && rm -r sub ./-dash
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"
  echo second >note
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  err_has '(tar,'
  out_has second
  [ ! -e "$REMOTE/marin/sub/gone" ] && [ ! -e "$REMOTE/marin/-dash" ] || fail 'deletions'
  [ -e "$REMOTE/marin/sub/mine" ] && [ -e "$REMOTE/marin/.venv_x/mine" ] || fail 'removed what it did not bring'
  release
}

test_lost_ssh_is_4_and_nothing_is_left() {
  host
  allocate
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; setsid sleep 64201 & sleep 64201'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  pkill -P "$sshd" # the sessions of this sshd
  wait "$pid"
  [ $? = 4 ] || fail "exit code of a lost connection"
  nothing_runs 'sleep 64201'
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64202'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code of an interrupted command'
  nothing_runs 'sleep 64202'
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64203'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  kill -9 "$pid"
  ssh_sessions_end
  wait "$pid" 2>/dev/null
  for _ in $(seq 80); do pgrep -f 'sleep 64203' >/dev/null || break; sleep 0.1; done
  [ -z "${DEBUG_DT:-}" ] || ps -eo pid,ppid,stat,args | grep -E 'ssh|64203|run/' >&2
  nothing_runs 'sleep 64203'
  release
}

test_preempted_in_the_middle_of_a_test() {
  host
  allocate
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64301'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  echo preempt >"$WORK/metadata.in"
  wait "$pid"
  [ $? = 4 ] || fail 'exit code'
  err_has 'was preempted'
  nothing_runs 'sleep 64301'
}

test_without_ssh_jobs_beside_the_holder_do_it() {
  host
  kill "$sshd"
  allocate --no-sync --lease 20
  err_has 'does not answer by ssh'
  err_has 'the hold is kept by jobs beside it'
  for _ in $(seq 100); do asked 'POST /api/jobs/$' | grep -qx '[2-9]' && break; sleep 0.1; done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  out_has first
  grep -q '"node:127.0.0.1": 0.001' "$SRV/posted" || fail 'not beside the holder'
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh true
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray --no-sync -- sh -c 'exit 5'
  release
  expect 4 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --detach
  err_has 'there is no ssh to a: the tree was not synced'
  [ "$("$GDNCTL" dev-tpu-list --ray-address "http://127.0.0.1:$PORT" --json)" = '{"schema":"gdnctl.dev-tpu-list/1","holds":[]}' ] || fail 'still held'
}

test_a_changed_host_key_and_a_refused_key_are_told() {
  host
  allocate
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  ssh_sessions_end
  kill "$sshd"
  rm "$WORK/ssh/host"* && ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/host"
  sshd_up
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  err_has 'key is not the one that this hold began with'
  rm -f "$GDNCTL_STATE_DIR/ssh/known_hosts"
  : >"$WORK/ssh/authorized"
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  err_has 'Permission denied'
  release
}

test_killed_at_random_instants_frees_the_tpu() {
  host
  printf 'Host mine\n  User me\n' >"$HOME/.ssh/config"
  cp "$HOME/.ssh/config" before
  for i in $(seq "${GDNCTL_KILLS:-8}"); do
    "$GDNCTL" dev-tpu-allocate --ray-address "http://127.0.0.1:$PORT" --tpu-name k --tpu-type v5p-8 --username root \
      --no-setup --lease 2 --grace 2 >/dev/null 2>"$WORK/kill.$i" &
    pid=$!
    sleep "$(awk "BEGIN { srand($i * 7 + $$); print rand() * 3 }")"
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    for _ in $(seq 90); do
      "$GDNCTL" dev-tpu-list --ray-address "http://127.0.0.1:$PORT" --json 2>/dev/null | grep -q '"holds":\[\]' && break
      sleep 0.1
    done
    "$GDNCTL" dev-tpu-list --ray-address "http://127.0.0.1:$PORT" --json | grep -q '"holds":\[\]' || fail "kill $i: still held"
    grep -v DEV_TPU "$HOME/.ssh/config" | grep -q 'Host mine' || fail "kill $i: the ssh configuration"
  done
  "$GDNCTL" dev-tpu-release --ray-address "http://127.0.0.1:$PORT" --tpu-name k 2>/dev/null
  cmp before "$HOME/.ssh/config" || fail 'the ssh configuration is not as it was'
}
