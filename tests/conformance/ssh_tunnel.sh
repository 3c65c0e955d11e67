# The way to a cluster through OpenSSH itself: an sshd of our own on a free port, a throw-away key, a scripted gcloud, and
# a scripted dashboard (ray_server.py) behind them.
# rooms: src/services/cluster src/services/ray src/jobs
. "$REPO/tests/support/ray_server.sh"
. "$REPO/tests/support/ssh_options.sh"

head_node() { # starts sshd, and the dashboard where a head node has it: at port 8265 of an address of its own
  [ -x /usr/sbin/sshd ] || skip "there is no sshd (Debian package openssh-server)"
  command -v ssh ssh-keygen >/dev/null || skip "there is no ssh (Debian package openssh-client)"
  # An sshd that root starts wants this folder; one of somebody else does without.
  [ "$(id -u)" != 0 ] || mkdir -p /run/sshd || skip "no /run/sshd"
  HEAD=127.$((RANDOM % 200 + 20)).$((RANDOM % 250)).$((RANDOM % 250 + 2))
  python3 - "$HEAD" "$PORT" >"$WORK/relay" 2>&1 <<'P' &
import socket, sys, threading
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for s in (a, b):
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
listener = socket.create_server((sys.argv[1], 8265))
print("up", flush=True)
while True:
    client, _ = listener.accept()
    server = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((client, server), (server, client)):
        threading.Thread(target=pump, args=pair, daemon=True).start()
P
  relay=$!
  mkdir -p "$WORK/ssh" "$WORK/bin"
  ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/host" && ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/key"
  cp "$WORK/ssh/key.pub" "$WORK/ssh/authorized"
  SSHD_PORT=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
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
C
  /usr/sbin/sshd -D -e -f "$WORK/ssh/config" >"$WORK/ssh/log" 2>&1 &
  sshd=$!
  trap 'kill $sshd $relay $server 2>/dev/null; cleanup' EXIT
  for _ in $(seq 200); do grep -q 'listening on' "$WORK/ssh/log" && grep -q up "$WORK/relay" && break; sleep 0.05; done
  grep -q 'listening on' "$WORK/ssh/log" || skip "sshd does not start here: $(tail -1 "$WORK/ssh/log")"
  # A cluster file has no port of ssh; everything else is what gdnctl says.
  printf '#!/bin/sh\necho $$ >>"%s/ssh/pids"\nexec %s -F %s -p %s "$@"\n' "$WORK" "$(command -v ssh)" "${USER_CONFIG:-/dev/null}" "$SSHD_PORT" >"$WORK/bin/ssh"
  printf '#!/bin/sh\ncase $1 in compute) printf "%s\\t127.0.0.1\\n" ;; *) echo right-token-0123 ;; esac\n' "$HEAD" >"$WORK/bin/gcloud"
  chmod +x "$WORK"/bin/*
  export PATH=$WORK/bin:$PATH
  printf 'cluster_name: c\nauth: {ssh_user: %s, ssh_private_key: %s}\nprovider: {type: gcp, availability_zone: us-central1-a, project_id: p}\n' \
    "$(id -un)" "$WORK/ssh/key" >cluster.yaml
}
alive() { case $(awk '{print $3}' "/proc/$1/stat" 2>/dev/null) in '' | Z | X) return 1 ;; esac; }
none_left() {
  while read -r pid; do ! alive "$pid" || fail "ssh $pid is still there"; done <"$WORK/ssh/pids"
}

test_follows_a_job_through_a_tunnel_that_is_killed() {
  serve --token right-token-0123
  head_node
  target '"for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 1; done"'
  launch "$GDNCTL" ray-test --cluster-config cluster.yaml --working-dir none
  local before
  for _ in $(seq 1800); do grep -qx 'tick 3' "$WORK/out" && break; sleep 0.05; done
  before=$(wc -l <"$WORK/ssh/pids")
  while read -r tunnel; do kill -9 "$tunnel"; done <"$WORK/ssh/pids"
  wait "$pid" || fail "exit code $?"
  for i in 1 2 3 4 5 6 7 8; do
    [ "$(grep -cx "tick $i" "$WORK/out")" = 1 ] || fail "tick $i came $(grep -cx "tick $i" "$WORK/out") times"
  done
  err_has 'the ssh tunnel to cluster c has ended; opening it again'
  [ "$(wc -l <"$WORK/ssh/pids")" -gt "$before" ] || fail "no second ssh"
  [ "$(grep -c 'Accepted publickey' "$WORK/ssh/log")" -ge 2 ] || fail "sshd saw no second login: $(cat "$WORK/ssh/log")"
  none_left
  [ "$(stat -c %a "$HOME/.ray/auth_token")" = 600 ] || fail "the token's file has mode $(stat -c %a "$HOME/.ray/auth_token")"
  [ -s "$XDG_STATE_HOME/gdnctl/ssh/known_hosts" ] || fail "the host key is not kept"
  ! grep -rq right-token-0123 "$WORK/ssh" "$XDG_STATE_HOME" "$WORK/err" || fail "the token is somewhere"
  no_complaints
}

test_the_tunnel_ends_with_the_command_however_that_ends() {
  serve --token right-token-0123
  head_node
  target '"echo up; sleep 60"'
  local signal
  for signal in TERM KILL; do
    launch "$GDNCTL" ray-test --cluster-config cluster.yaml --working-dir none
    for _ in $(seq 1800); do grep -qx up "$WORK/out" && break; sleep 0.05; done
    grep -qx up "$WORK/out" || fail "the job does not run: $(tail -3 "$WORK/ssh/log")"
    kill -$signal "$pid"
    wait "$pid"
    for _ in $(seq 100); do
      while read -r tunnel; do alive "$tunnel" && break; done <"$WORK/ssh/pids" || break
      sleep 0.05
    done
    none_left
  done
}

test_a_key_that_is_refused_is_exit_5() {
  serve
  head_node
  ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/other"
  sed -i "s|$WORK/ssh/key|$WORK/ssh/other|" cluster.yaml
  expect 5 "$GDNCTL" ray-list --cluster-config cluster.yaml
  err_has 'Permission denied'
  none_left
}

test_another_host_key_is_exit_4_and_gets_no_token() {
  serve --token right-token-0123
  head_node
  expect 0 "$GDNCTL" ray-list --cluster-config cluster.yaml
  kill "$sshd"
  wait "$sshd" 2>/dev/null
  rm "$WORK"/ssh/host*
  ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/host"
  /usr/sbin/sshd -D -e -f "$WORK/ssh/config" >"$WORK/ssh/log" 2>&1 &
  sshd=$!
  for _ in $(seq 200); do grep -q 'listening on' "$WORK/ssh/log" && break; sleep 0.05; done
  local before
  before=$(asked .)
  expect 4 "$GDNCTL" ray-list --cluster-config cluster.yaml
  err_has 'ost key'
  [ "$(asked .)" = "$before" ] || fail "the dashboard was asked"
  none_left
}

test_no_general_option_of_the_user_breaks_the_tunnel() {
  serve --token right-token-0123
  USER_CONFIG=$WORK/user-config
  : >"$USER_CONFIG"
  head_node
  options_ready
  trap 'kill $taken $sshd $relay $server 2>/dev/null; cleanup' EXIT
  while read -r -u 9 line; do
    # The head node's address is what gcloud says, and the user's to redirect.
    [[ $line != HostName* ]] || continue
    { echo 'Host *' && tr '|' '\n' <<<"$line"; } >"$USER_CONFIG"
    timeout 30 "$GDNCTL" ray-list --cluster-config cluster.yaml >"$WORK/out" 2>"$WORK/err" || fail "$line: exit code $?"
  done 9< <(options_that_break)
  none_left
  { echo 'Host *' && options_that_break | tr '|' '\n' | grep -v '^ProxyCommand\|^HostName'; } >"$USER_CONFIG"
  expect 0 "$GDNCTL" ray-list --cluster-config cluster.yaml
}
