# dev-tpu-connect, and dev-tpu-execute with a terminal: here and over ssh.
. "$REPO/tests/support/dev_tpu_host.sh"

in_terminal() { # CODE COMMAND...; its steps on stdin
  local want=$1 got
  shift
  python3 -B "$REPO/tests/support/in_terminal.py" "$@" >"$WORK/out" 2>"$WORK/err"
  got=$?
  [ "$got" = "$want" ] || fail "exit code $got, expected $want, of: $*"
}
gone() { # PATTERN
  for _ in $(seq 100); do pgrep -f "$1" >/dev/null || return 0; sleep 0.1; done
  fail "still runs: $(pgrep -fa "$1")"
}
# One with a terminal keeps its tree too. $1: the tree, $2: the lock.
waits() {
  touch "$WORK/locked"
  flock "$2" sh -c "sleep 8; rm '$WORK/locked'" &
  in_terminal 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c "test ! -e '$WORK/locked' && cat note" <<'T'
expect waiting for another command that uses the TPU of a to end
expect first
T
  wait $!
  (in_terminal 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c "echo on; touch '$WORK/on'; until [ -e '$WORK/go' ]; do sleep 0.1; done; cat note" <<'T'
expect on
expect first
T
  ) &
  local typed=$! later
  for _ in $(seq 200); do [ -e "$WORK/on" ] && break; sleep 0.1; done
  echo changed >note
  "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note </dev/null >"$WORK/later" 2>&1 &
  later=$!
  for _ in $(seq 200); do grep -q "tree on the TPU's host to end" "$WORK/later" && break; sleep 0.1; done
  [ "$(cat "$1/note")" = first ] || fail 'the tree changed below a command with a terminal'
  touch "$WORK/go"
  wait "$typed" || fail 'the command with a terminal'
  wait "$later" && grep -qx changed "$WORK/later" || fail "later: $(cat "$WORK/later")"
}
# What holds on both roads; $HOLD names the hold, $1 is where the tree is.
shell_and_commands() {
  export SHELL=/bin/sh PS1='ready> ' WANDB_API_KEY=s3cret-of-a-shell
  in_terminal 7 "$GDNCTL" dev-tpu-connect "${HOLD[@]}" <<'T'
send pwd; test -t 0 && echo a-$((40 + 2))-terminal\n
expect a-42-terminal
send echo second >note; exit 7\n
T
  tr -d '\r' <"$WORK/out" | grep -q "$1\$" || fail "not in the tree $1"
  [ "$(cat "$1/note")" = second ] || fail 'the shell did nothing'
  touch note # what the shell wrote is as long as what it replaced
  in_terminal 254 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c 'cat note; test -t 0 && test -t 1 && echo tty; exit 255' <<'T'
expect first
expect tty
T
  in_terminal 3 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo name?; read -r n; echo "hello $n"; exit 3' <<'T'
expect name?
send world\n
expect hello world
T
  in_terminal 130 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 71301' <<'T'
expect on
send \x03
T
  gone 'sleep 71301'
  in_terminal 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -e OWN="it's" -- \
    sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " >lines; echo "own=$OWN"' <<'T'
expect own=it's
T
  ! grep -q s3cret-of-a-shell "$1/lines" || fail 'a secret on a command line'
  ! grep -rq s3cret-of-a-shell "$(dirname "$1")" "$XDG_STATE_HOME" || fail 'a secret in a file'
}

test_on_this_machine() {
  git init -q . && echo first >note && printf '[targets.t]\ntest = ["true"]\n' >gdnctl.toml && git add -A && git commit -qm tree
  HOLD=(--cluster local --tpu-name a)
  expect 0 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --detach
  shell_and_commands "$XDG_STATE_HOME/gdnctl/local/holds/a/marin"
  waits "$XDG_STATE_HOME/gdnctl/local/holds/a/marin" "$XDG_STATE_HOME/gdnctl/local/holds/a/run.lock"
  release
  in_terminal 4 "$GDNCTL" dev-tpu-connect "${HOLD[@]}" </dev/null
  out_has 'SSH configuration for dev-tpu-a not found; run dev-tpu-allocate --tpu-name a first'
}

test_over_ssh() {
  host
  allocate
  shell_and_commands "$REMOTE/marin"
  waits "$REMOTE/marin" "$REMOTE/.gdnctl/run.lock"
  [ -z "$(ls "$REMOTE/.gdnctl/run")" ] || fail 'a script is left on the host'
  grep -q '^-t .*dev-tpu-a exec sh -c ' "$WORK/ssh.calls" || fail "no terminal was asked for: $(cat "$WORK/ssh.calls")"
  echo 'Connection to host closed.' >"$WORK/no-ssh"
  in_terminal 4 "$GDNCTL" dev-tpu-connect "${HOLD[@]}" </dev/null
  out_has 'ssh: Connection to host closed.'
  rm "$WORK/no-ssh"
  release
}

test_a_closed_terminal_leaves_nothing() {
  host
  allocate
  in_terminal 130 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c 'echo on; setsid sleep 71302 & sleep 71302' <<'T'
expect on
hangup
T
  gone 'sleep 71302'
  release
}

test_connect_needs_ssh() {
  host
  echo 'ssh: connect to host 203.0.113.7 port 22: Connection refused' >"$WORK/no-ssh"
  allocate --no-sync
  in_terminal 4 "$GDNCTL" dev-tpu-connect "${HOLD[@]}" </dev/null
  out_has 'no ssh connection to dev TPU a'
  # Its lines are as long as the terminal's.
  tr -s '\r\n ' ' ' <"$WORK/out" | grep -qF -- "--via ray runs the command as a job on the holder's host" || fail 'no hint'
  release
}

test_what_a_shell_leaves_ends_with_the_hold() {
  host
  allocate --lease 5
  in_terminal 0 "$GDNCTL" dev-tpu-connect "${HOLD[@]}" <<'T'
send setsid sleep 71303 & echo on-$((40 + 2))\n
expect on-42
send exit 0\n
T
  sleep 1.5
  pgrep -f '^sleep 71303$' >/dev/null || fail 'it ended with its shell'
  gone '^sleep 71303$'
}
