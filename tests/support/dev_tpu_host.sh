# shellcheck shell=bash
# For tests of dev TPUs on a cluster without root: a scripted dashboard that runs the holder, and an `ssh` that runs
# commands on this machine with another home. Source it, then:
#   host            starts both; $REMOTE is the home there, $HOLD the options that name the hold `a`
#   metadata MODE   starts a metadata server, sets GDNCTL_METADATA_BASE; commands for it go to $WORK/metadata.in
# A file $WORK/no-ssh is what ssh says while it fails; $WORK/ssh.calls has the words of every call.
. "$REPO/tests/support/ray_server.sh"

host() {
  serve
  ctl '{"capacity": {"CPU": 2, "TPU": 4, "TPU-v5p-8-head": 1, "node:127.0.0.1": 1}}'
  export REMOTE=$WORK/remote GDNCTL_METADATA_BASE=http://127.0.0.1:1
  mkdir -p "$REMOTE" "$WORK/bin" "$WORK/there" "$HOME/.ssh"
  cat >"$WORK/bin/ssh" <<'S'
#!/bin/sh
printf '%s\n' "$*" >>"$WORK/ssh.calls"
case " $* " in *' -L '*) exec python3 "$REPO/tests/support/fake_ssh.py" "$@" ;; esac
if [ -e "$WORK/no-ssh" ]; then cat "$WORK/no-ssh" >&2; exit 255; fi
while :; do
  case $1 in
    -O) exit 0 ;;
    -[FolipS]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
shift
cd "$REMOTE" && exec env -u GDNCTL_STATE_DIR HOME="$REMOTE" PATH="$WORK/there:/usr/bin:/bin" sh -c "$*"
S
  chmod +x "$WORK/bin/ssh"
  export PATH=$WORK/bin:$PATH
  trap 'kill $server ${other_server:-} ${metadata:-} 2>/dev/null; cleanup' EXIT
  git init -q . && printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo tested; cat note"]\n' >gdnctl.toml
  echo first >note
  git add -A && git commit -qm tree
  HOLD=(--ray-address "http://127.0.0.1:$PORT" --tpu-name a)
}
metadata() { # MODE [PATH=VALUE...]
  mkfifo "$WORK/metadata.in"
  python3 -B "$REPO/tests/support/fake_metadata.py" "$@" <>"$WORK/metadata.in" >"$WORK/metadata" &
  metadata=$!
  for _ in $(seq 200); do [ -s "$WORK/metadata" ] && break; sleep 0.05; done
  GDNCTL_METADATA_BASE=$(cat "$WORK/metadata")
  export GDNCTL_METADATA_BASE
}
there() { # NAME: a program on the host, its script on stdin
  { printf '#!/bin/sh\n'; cat; } >"$WORK/there/$1" && chmod +x "$WORK/there/$1"
}
allocate() { expect 0 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --no-setup --detach "$@"; }
release() { "$GDNCTL" dev-tpu-release "${HOLD[@]}" 2>"$WORK/release.err" || fail "release: $(cat "$WORK/release.err")"; }
until_said() { # TEXT [SECONDS]: by the command in the background
  for _ in $(seq $((${2:-20} * 20))); do
    grep -qF -- "$1" "$WORK/err" "$WORK/out" && return
    sleep 0.05
  done
  fail "never said: $1"
}
