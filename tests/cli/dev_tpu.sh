# Holding a TPU on this machine: allocate, list, use, release, and every way in which a hold ends.
. "$REPO/tests/support/dev_tpu_local.sh"

test_allocate_until_ctrl_c() {
  tree
  launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a
  ready
  err_has '[gdnctl] local hold: no TPU on this host, the hold is pretended'
  err_has '[gdnctl] TPU allocated successfully!'
  [ "$(held)" = 1 ] || fail 'not in the list'
  [ "$(cat "$(folder a)/marin/note")" = first ] || fail 'the tree was not synced'
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code'
  err_has '[gdnctl] TPU allocation released.'
  [ "$(held)" = 0 ] || fail 'still held'
  [ ! -e "$(folder a)"/lease-* ] || fail 'a lease file is left'
}

test_term_and_hangup_release_too() {
  for signal in TERM HUP; do
    launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync
    ready
    kill -"$signal" "$pid"
    wait "$pid"
    got=$?
    [ "$got" = "$([ $signal = TERM ] && echo 143 || echo 130)" ] || fail "$signal: exit code $got"
    err_has 'TPU allocation released.'
    [ "$(held)" = 0 ] || fail "$signal: still held"
  done
}

test_json_and_list_say_who_holds_what() {
  detach a --tpu-type v5p-8 --no-sync --json
  python3 - "$WORK/out" <<'P' || fail 'JSON of allocate'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["schema"] == "gdnctl.dev-tpu-allocate/1" and o["tpu_name"] == "a" and o["tpu_type"] == "v5p-8", o
assert o["status"] == "RUNNING" and o["adopted"] is False and o["owner"] == "mine" and o["lease_ends"] < o["cap_ends"], o
assert o["host_info"]["tpu_name"] == "a" and o["host_info"]["pid"] > 1, o
P
  expect 0 "$GDNCTL" dev-tpu-list --cluster local --json
  python3 - "$WORK/out" <<'P' || fail 'JSON of list'
import json, sys
o = json.load(open(sys.argv[1]))
assert o["schema"] == "gdnctl.dev-tpu-list/1"
want = "tpu_name cluster address submission_id status tpu_type host ip user owner created lease_ends cap_ends ssh_ok".split()
assert list(o["holds"][0]) == want, list(o["holds"][0])
P
  expect 0 "$GDNCTL" dev-tpu-list --cluster local
  grep -Eq '^NAME +CLUSTER +STATUS +TYPE +HOST +IP +AGE +LEASE +OWNER +ID$' "$WORK/out" || fail 'heading'
  grep -Eq '^a +local +RUNNING +v5p-8 .* mine +gdnctl-hold-' "$WORK/out" || fail 'row'
  expect 0 env USER=somebody "$GDNCTL" dev-tpu-list --cluster local
  out_lacks gdnctl-hold-
  expect 0 env USER=somebody "$GDNCTL" dev-tpu-list --cluster local --all-users
  out_has gdnctl-hold-
  expect 2 env USER=somebody "$GDNCTL" dev-tpu-release --cluster local --tpu-name a
  err_has 'dev TPU a on local is held by'
  expect 2 env USER=somebody "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync
  [ "$(held)" = 1 ] || fail 'somebody else released it'
  expect 0 "$GDNCTL" dev-tpu-release --all-mine
  [ "$(held)" = 0 ] || fail 'still held'
}

test_release_twice_and_from_elsewhere() {
  tree
  detach a
  mkdir "$WORK/elsewhere" && cd "$WORK/elsewhere" || exit
  expect 0 "$GDNCTL" dev-tpu-release --tpu-name a --json
  python3 -c 'import json,sys; o = json.load(open(sys.argv[1])); assert o["schema"] == "gdnctl.dev-tpu-release/1" and len(o["released"]) == 1' \
    "$WORK/out" || fail JSON
  expect 0 "$GDNCTL" dev-tpu-release --tpu-name a
  err_has 'nothing to release'
  expect 4 "$GDNCTL" dev-tpu-execute --tpu-name a true
  err_has 'SSH configuration for dev-tpu-a not found; run dev-tpu-allocate --tpu-name a first'
}

test_a_foreground_hold_that_another_command_releases() {
  launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync
  ready
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null || fail release
  wait "$pid"
  [ $? = 3 ] || fail 'exit code'
  err_has 'was released by another command'
}

test_names() {
  for name in '' 'a b' a/b ../x -a "$(printf 'a%.0s' $(seq 64))"; do
    expect 2 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name="$name" --no-sync
    expect 2 "$GDNCTL" dev-tpu-execute --tpu-name="$name" true
  done
  detach "$(printf 'a%.0s' $(seq 63))" --no-sync
  detach a.b_c-1 --no-sync
  [ "$(held)" = 2 ] || fail 'not both are held'
  "$GDNCTL" dev-tpu-release --all-mine 2>/dev/null
}

test_the_same_name_again_adopts() {
  tree
  launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a
  ready
  id=$(hold_of submission_id)
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  detach a --json
  grep -q '"adopted":true' "$WORK/out" || fail 'not adopted'
  [ "$(hold_of submission_id)" = "$id" ] || fail 'another hold'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_killed_client_frees_the_tpu_within_its_lease() {
  launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync --lease 2 --grace 3
  ready
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  free_within 6
}

test_renewal_keeps_it_and_the_cap_ends_it() {
  launch "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync --lease 1 --grace 2 --max-hold 5
  ready
  sleep 3
  [ "$(held)" = 1 ] || fail 'not renewed'
  wait "$pid"
  [ $? = 124 ] || fail 'exit code'
  err_has 'has reached its cap of 5.0 s'
  [ "$(held)" = 0 ] || fail 'still held'
}

test_detached_lease_is_longer_and_each_use_renews() {
  tree
  detach a
  [ "$(hold_of lease_s)" = 3600 ] || fail 'lease'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
  detach b --lease 4 --grace 4
  for _ in 1 2 3; do
    sleep 1.5
    "$GDNCTL" dev-tpu-execute --tpu-name b --no-sync true 2>/dev/null || fail 'use failed'
  done
  [ "$(held)" = 1 ] || fail 'uses did not renew'
  free_within 8
}

test_execute() {
  tree
  detach a
  expect 7 "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'echo out; echo err >&2; exit 7'
  [ "$(cat "$WORK/out")" = out ] || fail 'stdout'
  err_has err
  expect 254 "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'exit 255'
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a printf '%s|' 'a b' "it's" '$HOME' -e --json ''
  [ "$(cat "$WORK/out")" = "a b|it's|\$HOME|-e|--json||" ] || fail 'words'
  printf 'a\0b\377' >bytes
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat bytes
  cmp bytes "$WORK/out" || fail 'bytes'
  echo second >note
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync cat note
  out_has first
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat note
  out_has second
  expect 0 env SECRET_TOKEN=s3cret-of-a-hold "$GDNCTL" dev-tpu-execute --tpu-name a -e SECRET_TOKEN -e B=2 -- \
    sh -c 'echo "$SECRET_TOKEN$B"; cat /proc/*/cmdline 2>/dev/null | tr "\0" " " >cmdlines'
  out_has s3cret-of-a-hold2
  ! grep -q s3cret-of-a-hold "$(folder a)/marin/cmdlines" || fail 'on a command line'
  ! grep -rq s3cret-of-a-hold "$XDG_STATE_HOME" || fail 'kept in a file'
  expect 2 "$GDNCTL" dev-tpu-execute --tpu-name a -e NOWHERE true
  expect 124 "$GDNCTL" dev-tpu-execute --tpu-name a --timeout 1 sleep 97531
  expect 124 "$GDNCTL" dev-tpu-execute --tpu-name a --idle-timeout 1 sleep 97531
  ! pgrep -f 'sleep 97531' >/dev/null || fail 'it still runs'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_nothing_that_a_command_started_is_left() {
  tree
  detach a
  launch "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'setsid sleep 86421 & trap "" TERM; echo on; sleep 86421; sleep 86421'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  for _ in $(seq 150); do pgrep -f 'sleep 86421' >/dev/null || break; sleep 0.1; done
  ! pgrep -f 'sleep 86421' >/dev/null || fail 'it outlived its client'
  launch "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- sh -c 'echo on; exec sleep 86422'
  for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
  out_has on
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null || fail 'release'
  wait "$pid"
  [ $? = 4 ] || fail 'a command whose TPU is released'
  ! pgrep -f 'sleep 86422' >/dev/null || fail 'it outlived the hold'
}

test_test_and_profile_run_the_targets_commands() {
  tree
  printf '[targets.t.profile]\nargv = ["sh", "-c", "echo profiled"]\n' >>gdnctl.toml
  detach a
  expect 0 "$GDNCTL" dev-tpu-test --tpu-name a --json
  err_has tested
  grep -q '"schema":"gdnctl.dev-tpu-test/1".*"status":"SUCCEEDED"' "$WORK/out" || fail 'JSON'
  expect 0 "$GDNCTL" dev-tpu-profile --cluster local --tpu-name a --tpu v5p-8 --size 130m --num-steps 20 --no-sync
  out_has profiled
  sed -i 's/echo tested/exit 5/' gdnctl.toml
  expect 1 "$GDNCTL" dev-tpu-test --cluster local --tpu-name a --tests both
  err_has "the test of target 't' on dev TPU a FAILED (JOB_ENTRYPOINT_COMMAND_ERROR, exit code 5)"
  err_lacks 'job gdnctl-hold'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_two_people_and_one_tpu() {
  export GDNCTL_LOCAL_RESOURCES='{"CPU":2,"TPU":4,"TPU-v5p-8-head":1}'
  detach a --no-sync
  err_lacks pretended
  [ "$(hold_of tpu_type)" = v5p-8 ] || fail 'type'
  expect 124 env USER=other "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name b --no-sync --ready-timeout 2
  err_has 'dev TPU b was not ready on local within 2.0 s'
  launch env USER=other "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name b --no-sync
  for _ in $(seq 100); do grep -q PENDING "$WORK/err" && break; sleep 0.05; done
  expect_pending=$("$GDNCTL" dev-tpu-list --cluster local --all-users 2>/dev/null)
  case $expect_pending in *PENDING*) ;; *) fail "no PENDING hold: $expect_pending" ;; esac
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code of giving up'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
  expect 0 env USER=other "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name b --no-sync --detach
  USER=other "$GDNCTL" dev-tpu-release --tpu-name b 2>/dev/null
}

test_usage() {
  expect 2 "$GDNCTL" dev-tpu-allocate --cluster local
  err_has -- '--tpu-name is required'
  expect 2 "$GDNCTL" dev-tpu-allocate --cluster nowhere --tpu-name a
  err_has 'No cluster config found for region nowhere'
  expect 2 "$GDNCTL" dev-tpu-allocate --cluster local --fallback-cluster nowhere --tpu-name a
  for bad in '--lease 0' '--grace -1' '--max-hold 0' '--attempts 0' '--ready-timeout 0' '--retry-sleep -1'; do
    expect 2 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a $bad
  done
  expect 2 "$GDNCTL" dev-tpu-release
  expect 2 "$GDNCTL" dev-tpu-execute --tpu-name a
}

test_watch_runs_again_at_a_change() {
  tree
  detach a
  launch "$GDNCTL" dev-tpu-watch --tpu-name a --debounce 0.2 -- sh -c 'cat note; sleep 3579'
  for _ in $(seq 200); do grep -q first "$WORK/out" && break; sleep 0.05; done
  touch note.swp
  echo second >note
  for _ in $(seq 400); do grep -q second "$WORK/out" && break; sleep 0.05; done
  out_has second
  [ "$(pgrep -fc 'sleep 3579$')" -le 3 ] || fail 'two at a time'
  ! grep -q 'waiting for another command' "$WORK/err" || fail 'it waits for its own command'
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code'
  ! pgrep -f 'sleep 3579' >/dev/null || fail 'it still runs'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_watch_ends_with_its_hold() {
  tree
  local line
  for line in 'sleep 3578' 'true'; do # while the command runs, and between two runs
    detach a
    launch "$GDNCTL" dev-tpu-watch --tpu-name a -- sh -c "echo on; exec $line"
    for _ in $(seq 200); do grep -q on "$WORK/out" && break; sleep 0.05; done
    "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
    for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -INT "$pid" 2>/dev/null
    wait "$pid"
    [ $? = 4 ] || fail "exit code of: $line"
    err_has 'dev TPU a on local was released by another command'
  done
}

test_the_input_of_a_command() {
  tree
  detach a
  head -c 300000 /dev/urandom >blob
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- sh -c 'head -c 5; cat' <blob
  cmp blob "$WORK/out" || fail 'the bytes'
  printf 'a\nb\n' >lines
  while read -r line; do # as ssh does, it takes all that is there
    expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- cat
    out_has b
  done <lines
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- cat <&-
  mkfifo open && exec 9<>open  # an input without an end
  expect 0 timeout 20 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- true <open
  exec 9>&-
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

# A hold of another program, whose alias leads to a host that refuses ssh.
test_a_host_that_refuses_ssh_ran_nothing() {
  mkdir -p "$HOME/.ssh" bin && printf 'Host dev-tpu-a\n  HostName 203.0.113.7\n' >"$HOME/.ssh/config"
  printf '#!/bin/sh\necho "ssh: connect to host 203.0.113.7 port 22: Connection refused" >&2\nexit 255\n' >bin/ssh
  chmod +x bin/ssh
  PATH=$PWD/bin:$PATH expect 4 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- true
  [ "$(grep -c 'Connection refused' "$WORK/err")" = 1 ] || fail 'said more than once'
  err_has 'error: ssh: connect to host 203.0.113.7 port 22: Connection refused'
  err_lacks 'still be running'
  # A command that began has its own output, whatever that says.
  printf '#!/bin/sh\necho "ssh: no key" >&2\nexit 3\n' >bin/ssh
  PATH=$PWD/bin:$PATH expect 3 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- true
  err_has 'ssh: no key'
}

test_an_ssh_configuration_that_cannot_be_read() {
  mkdir -p "$HOME/.ssh/config"
  expect 8 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- true
  err_has "cannot read $HOME/.ssh/config: Is a directory"
  rmdir "$HOME/.ssh/config"
  printf 'Host dev-tpu-a\n' >"$HOME/.ssh/config" && powerless
  mkdir -p "$XDG_STATE_HOME/gdnctl" && chmod 700 "$XDG_STATE_HOME/gdnctl" && chmod 000 "$HOME/.ssh/config"
  [ ${#as[@]} = 0 ] || chown -R 65534:65534 "$XDG_STATE_HOME" "$HOME"
  expect 8 "${as[@]}" "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync -- true
  err_has "cannot read $HOME/.ssh/config: Permission denied"
}

test_allocate_hints_at_its_own_option() {
  expect 2 "$GDNCTL" dev-tpu-allocate --ray-address http://127.0.0.1:1 --tpu-name a
  err_has 'hint: name the accelerator, for example --tpu-type v5p-8'
}
