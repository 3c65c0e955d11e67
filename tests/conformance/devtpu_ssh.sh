# What a user's own ssh may do to gdnctl's, and gdnctl's to the user's: with a real OpenSSH, see sshd_host.sh.
# rooms: src/services/devtpu src/platform/ssh_options
. "$REPO/tests/support/sshd_host.sh"
. "$REPO/tests/support/ssh_options.sh"

effective() { # every option that ssh has for hosts of the user's, with and without a block of their own
  local host
  for host in work git.example.org elsewhere.example.org 203.0.113.9 dev-tpu-other; do
    echo "== $host"
    command ssh -F "$HOME/.ssh/config" -G "$host"
  done
}
users_configuration() {
  mkdir -p "$HOME/.ssh/conf.d"
  printf 'Host work\n  HostName work.example.org\n  User included\n' >"$HOME/.ssh/conf.d/work"
  cat >"$HOME/.ssh/config" <<C
Include $HOME/.ssh/conf.d/*
ServerAliveInterval 77
IdentityFile ~/.ssh/id_personal
SendEnv LANG GIT_*
LocalForward 8123 localhost:8123

Host git.example.org
  User git
Match host *.example.org
  ProxyJump jump.example.org
Host *
  Compression yes
C
}

test_other_hosts_keep_every_option_while_a_tpu_is_held() {
  host
  users_configuration
  cp "$HOME/.ssh/config" before
  effective >options.before
  grep -q '^hostname work.example.org$' options.before || fail 'the test reads no options'
  allocate --no-sync
  effective | diff options.before - || fail 'another host has other options while one TPU is held'
  HOLD=("${HOLD[@]:0:3}" b) && ctl '{"capacity": {"CPU": 2, "TPU": 8, "TPU-v5p-8-head": 2, "node:127.0.0.1": 1}}'
  allocate --no-sync
  effective | diff options.before - || fail 'another host has other options while two TPUs are held'
  command ssh -F "$HOME/.ssh/config" -G dev-tpu-a >alias
  grep -q '^identitiesonly yes$' alias && grep -q '^identityfile .*google_compute_engine$' alias && grep -q '^user root$' alias ||
    fail 'the alias has not its own options'
  release
  HOLD=("${HOLD[@]:0:3}" a) && release
  cmp before "$HOME/.ssh/config" || fail 'the ssh configuration is not as it was'
}

test_a_read_only_configuration_costs_the_alias_alone() {
  host
  local store=$WORK/store
  mkdir "$store"
  for way in store file folder; do
    printf 'Host *\n  ServerAliveInterval 33\n' >"$store/config"
    rm -rf "$HOME/.ssh/config"
    case $way in
      store) ln -s "$store/config" "$HOME/.ssh/config" && chmod 444 "$store/config" && chmod 555 "$store" ;;
      file) cp "$store/config" "$HOME/.ssh/config" && chmod 444 "$HOME/.ssh/config" ;;
      folder) cp "$store/config" "$HOME/.ssh/config" && chmod 555 "$HOME/.ssh" ;;
    esac
    cp "$HOME/.ssh/config" "$WORK/before"
    allocate
    err_has 'a has no alias in your ssh configuration'
    err_has 'is read-only'
    err_has 'synced 2 files'
    expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh -- cat note
    out_has first
    cmp "$WORK/before" "$HOME/.ssh/config" || fail "$way: the file was changed"
    [ ! -e "$HOME/.ssh/config.bak" ] || fail "$way: a copy"
    release
    is_free || fail "$way: not released"
    chmod -R u+w "$store" && chmod 700 "$HOME/.ssh"
  done
}

test_no_general_option_of_the_user_breaks_a_command() {
  host
  options_ready
  trap 'kill $taken $sshd $metadata $server 2>/dev/null; ssh_sessions_end; cleanup' EXIT
  printf 'a\nb\0\377' >bytes
  { echo 'Host *' && options_that_break | tr '|' '\n' | grep -v '^ProxyCommand'; } >"$HOME/.ssh/config"
  allocate --json
  grep -q '"ssh_ok":true' "$WORK/out" || fail "ssh of dev-tpu-allocate: $(cat "$WORK/err")"
  err_has 'synced 3 files'
  use_it 'all of them'
  release
  : >"$HOME/.ssh/config"
  allocate
  cp "$HOME/.ssh/config" block
  while read -r -u 9 line; do
    { cat block && echo 'Host *' && tr '|' '\n' <<<"$line"; } >"$HOME/.ssh/config"
    ssh_sessions_end
    use_it "$line"
  done 9< <(options_that_break)
  cp block "$HOME/.ssh/config"
  release
}
use_it() { # WHAT
  echo "$RANDOM" >note
  timeout 30 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh -- sh -c 'cat bytes; echo err >&2; exit 3' >"$WORK/out" 2>"$WORK/err"
  [ $? = 3 ] || fail "$1: exit code: $(cat "$WORK/err")"
  cmp -s bytes "$WORK/out" || fail "$1: stdout is $(od -c "$WORK/out" | head -3)"
  cmp -s note "$REMOTE/marin/note" || fail "$1: not synced"
  grep -qx err "$WORK/err" || fail "$1: stderr"
  grep -v '^err$\|^\[gdnctl\] synced\|^Warning: remote port forwarding' "$WORK/err" | sed "s/^/$1: /" >"$WORK/noise"
  [ ! -s "$WORK/noise" ] || fail "$1: noise on stderr: $(cat "$WORK/noise")"
}

test_many_keys_of_an_agent() {
  host
  eval "$(ssh-agent -a "$WORK/agent" -s)" >/dev/null
  trap 'kill $SSH_AGENT_PID $sshd $metadata $server 2>/dev/null; ssh_sessions_end; cleanup' EXIT
  for i in 1 2 3 4 5 6 7 8; do ssh-keygen -q -t ed25519 -N '' -f "$WORK/key$i" && ssh-add -q "$WORK/key$i"; done
  allocate
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh --no-sync cat note
  out_has first
  # The server takes six attempts. Without a key of its own nothing can be done, but ssh's reason is told.
  release
  ssh_sessions_end
  rm "$HOME/.ssh/google_compute_engine"*
  allocate
  err_has 'Too many authentication failures'
  err_has 'the hold is kept'
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  out_has first
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh cat note
  err_has 'Too many authentication failures'
  err_has 'IdentitiesOnly'
  release
}

test_a_login_shell_that_prints() {
  HOST_SHELL=/bin/bash
  host
  printf 'echo "Welcome to host 1"; printf "no end of line"; echo warn >&2\n' >"$REMOTE/.bashrc"
  allocate
  err_has 'synced 2 files of'
  err_has '(rsync,'
  echo second >note
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  [ "$(cat "$WORK/out")" = second ] || fail "stdout: $(cat "$WORK/out")"
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync printf x
  [ "$(cat "$WORK/out")" = x ] || fail "stdout: $(cat "$WORK/out")"
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"
  echo third >note
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  [ "$(cat "$WORK/out")" = third ] || fail "by tar: $(cat "$WORK/out")"
  export SHELL=/bin/sh
  printf 'send pwd; exit 7\\n\nexpect %s/marin\n' "$REMOTE" >steps
  python3 -B "$REPO/tests/support/in_terminal.py" "$GDNCTL" dev-tpu-connect "${HOLD[@]}" <steps >"$WORK/out" 2>"$WORK/err"
  [ $? = 7 ] || fail "dev-tpu-connect: $(cat "$WORK/out" "$WORK/err")"
  release
}

test_a_hold_outlives_its_ssh() {
  host
  allocate
  ssh_sessions_end
  kill "$sshd" && wait "$sshd" 2>/dev/null
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  [ "$(cat "$WORK/out")" = first ] || fail "stdout: $(cat "$WORK/out")"
  err_has "Connection refused: using a job on the holder's host instead of ssh"
  expect 1 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray -- sh -c 'exit 1'
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh cat note
  err_has 'no ssh connection to dev TPU a: ssh: connect to host 127.0.0.1 port'
  ! is_free || fail 'given back'
  sshd_up
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  err_lacks 'instead of ssh'
  release
}

test_input_and_exit_codes() {
  host
  allocate
  head -c 3000000 /dev/urandom >blob
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- cat <blob
  cmp blob "$WORK/out" || fail 'the input of the command'
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'read -r a; echo "$a"; cat; echo end' \
    < <(echo one && sleep 1 && echo two)
  [ "$(tr '\n' ' ' <"$WORK/out")" = 'one two end ' ] || fail "input in parts: $(cat "$WORK/out")"
  mkfifo open && exec 9<>open  # an input without an end
  expect 4 timeout 20 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'exit 4' <open
  exec 9>&-
  expect 2 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray -- cat <note
  err_has 'cannot read the standard input'
  expect 254 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --json -- sh -c 'printf g >&2; exit 255'
  out_has '"exit_code":255'
  err_has 'the command exited with code 255'
  err_lacks 'gdnctl-host'
  expect 254 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --json -- sh -c 'exit 254'
  out_has '"exit_code":254'
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "exit 255"]\n' >gdnctl.toml
  expect 1 "$GDNCTL" dev-tpu-test "${HOLD[@]}"
  err_has "the test of target 't' on dev TPU a FAILED (JOB_ENTRYPOINT_COMMAND_ERROR, exit code 255)"
  release
}
