# shellcheck shell=bash
# For tests of dev TPUs behind a real OpenSSH server: an sshd of our own in a mount namespace, where the account has
# another home, with a scratch key, a fake metadata server, a fake gcloud, and a scripted dashboard that runs the holder.
# Source it, then:
#   host           starts all of it, or skips the test; $REMOTE is the home there, $HOLD names the hold `a`
#   in_own_network FUNCTION   runs the function in a network namespace, where the host is at the end of a link: `v0` here
# $SSH_OPTIONS are options of every ssh; HOME_SIZE=512k limits the disk below the host's home; HOST_SHELL is the login
# shell there.
. "$REPO/tests/support/ray_server.sh"

SSHD_ADDRESS=127.0.0.1 SSH_OPTIONS=
this_script=$(realpath "$script")
host() {
  [ -x /usr/sbin/sshd ] || skip "there is no sshd (Debian package openssh-server)"
  [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || skip "mount namespaces are not allowed here"
  serve
  ctl '{"capacity": {"CPU": 2, "TPU": 4, "TPU-v5p-8-head": 1, "node:127.0.0.1": 1}}'
  mkfifo "$WORK/metadata.in"
  python3 -B "$REPO/tests/support/fake_metadata.py" good \
    /instance/network-interfaces/0/access-configs/0/external-ip=$SSHD_ADDRESS <>"$WORK/metadata.in" >"$WORK/metadata" &
  metadata=$!
  REMOTE=$WORK/remote
  mkdir -p "$REMOTE" "$WORK/ssh" "$WORK/bin" "$HOME/.ssh" /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$WORK/ssh/host" && ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/google_compute_engine"
  cp "$HOME/.ssh/google_compute_engine.pub" "$WORK/ssh/authorized"
  printf 'root:x:0:0:root:%s:%s\nsshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n' "$REMOTE" "${HOST_SHELL:-/bin/sh}" >"$WORK/ssh/passwd"
  SSHD_PORT=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
  printf '#!/bin/sh\nexec %s -p %s %s "$@"\n' "$(command -v ssh)" "$SSHD_PORT" "$SSH_OPTIONS" >"$WORK/bin/ssh"
  printf '#!/bin/sh\necho "$@" >>%s/gcloud.calls\n' "$WORK" >"$WORK/bin/gcloud"
  chmod +x "$WORK/bin"/*
  export PATH=$WORK/bin:$PATH GDNCTL_METADATA_BASE
  cat >"$WORK/ssh/config" <<C
Port $SSHD_PORT
ListenAddress $SSHD_ADDRESS
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
  export GDNCTL_STATE_DIR=$WORK/st # short: sockets are below it
  trap 'kill $sshd $metadata $server 2>/dev/null; ssh_sessions_end; cleanup' EXIT
  git init -q . && printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo tested in $PWD; cat note"]\n' >gdnctl.toml
  echo first >note
  git add -A && git commit -qm tree
  HOLD=(--ray-address "http://127.0.0.1:$PORT" --tpu-name a)
}
sshd_up() {
  local namespaces=-m
  [ "$SSHD_ADDRESS" = 127.0.0.1 ] || namespaces=-mn
  rm -f "$WORK/ssh/linked"
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin unshare $namespaces sh -c '
    mount --bind "$1/passwd" /etc/passwd
    [ -z "$3" ] || mount -t tmpfs -o "size=$3" host-disk "$2"
    if [ "$4" != 127.0.0.1 ]; then
      until [ -e "$1/linked" ]; do sleep 0.05; done
      ip link set lo up && ip address add "$4/24" dev v1 && ip link set v1 up
    fi
    exec /usr/sbin/sshd -D -e -f "$1/config"' sh "$WORK/ssh" "$REMOTE" "${HOME_SIZE:-}" "$SSHD_ADDRESS" >"$WORK/ssh/log" 2>&1 &
  sshd=$!
  if [ "$SSHD_ADDRESS" != 127.0.0.1 ]; then
    for _ in $(seq 100); do [ "$(readlink "/proc/$sshd/ns/net")" != "$(readlink /proc/self/ns/net)" ] && break; sleep 0.02; done
    ip link set v1 netns "$sshd" || skip 'a link cannot be given to another network namespace here'
    touch "$WORK/ssh/linked"
  fi
  for _ in $(seq 200); do grep -q 'listening on' "$WORK/ssh/log" && return; sleep 0.05; done
  skip "sshd does not start here: $(tail -1 "$WORK/ssh/log")"
}
in_own_network() { # FUNCTION
  if ! { [ "$(id -u)" = 0 ] && unshare -n ip link add v0 type veth peer name v1; } 2>/dev/null; then
    skip 'network namespaces are not allowed here, or there is no ip (Debian package iproute2)'
  fi
  unshare -n bash "$REPO/tests/support/run_cli_test.sh" "$this_script" "$1" "$GDNCTL"
  exit $?
}
linked_host() { # the first thing that such a function does
  ip link set lo up && ip link add v0 type veth peer name v1 && ip address add 10.77.0.1/24 dev v0 && ip link set v0 up
  SSHD_ADDRESS=10.77.0.2
  SSH_OPTIONS='-o ServerAliveInterval=1 -o ServerAliveCountMax=2 -o ConnectTimeout=2' # ours take a minute
  host
}
ssh_sessions_end() { pkill -f "$WORK/st/ssh" 2>/dev/null; }
allocate() { expect 0 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --no-setup --detach "$@"; }
release() { "$GDNCTL" dev-tpu-release "${HOLD[@]}" 2>"$WORK/release.err" || fail "release: $(cat "$WORK/release.err")"; }
until_out() { # TEXT
  for _ in $(seq 400); do grep -qF -- "$1" "$WORK/out" && return; sleep 0.05; done
  fail "never printed: $1"
}
nothing_runs() { # PATTERN [SECONDS]
  for _ in $(seq $((${2:-0} * 10))); do pgrep -f "$1" >/dev/null || return 0; sleep 0.1; done
  ! pgrep -f "$1" >/dev/null || fail "still runs: $(pgrep -fa "$1")"
}
is_free() { "$GDNCTL" dev-tpu-list --ray-address "http://127.0.0.1:$PORT" --json 2>/dev/null | grep -q '"holds":\[\]'; }
free_within() { # SECONDS
  for _ in $(seq $(($1 * 10))); do is_free && return; sleep 0.1; done
  is_free || fail "still held after $1 s"
}
