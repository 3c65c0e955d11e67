# A held TPU's host behind a real OpenSSH server: see tests/support/sshd_host.sh. Lost links are in devtpu_network.sh.
# rooms: src/services/devtpu src/jobs src/commands/jobs
. "$REPO/tests/support/sshd_host.sh"

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
  mkdir -p sub '#d' && echo 1 >sub/gone && echo 2 >"$(printf 'new\nline')" && echo 3 >-dash && echo 4 >'sp ace'
  echo 5 >'#notes#' && echo 6 >';x.py' && echo 7 >'#d/kernel.py' && echo 8 >"$(printf 'bad\377utf8')" && echo 9 >'*?[a]\'
  allocate
  diff -r -x .git . "$REMOTE/marin" || fail 'the tree there is not the tree here'
  if command -v rsync >/dev/null; then err_has '(rsync,'; else err_has '(tar,'; fi
  cd "$REMOTE/marin" && [ -f sub/gone ] && [ -f "$(printf 'new\nline')" ] && [ -f ./-dash ] && [ -f 'sp ace' ] || fail 'names'
  mkdir .venv_x && touch .venv_x/mine sub/mine && cd "$WORK/cwd" && rm -r sub ./-dash
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"
  echo second >note && for name in '#notes#' ';x.py' '#d/kernel.py' '*?[a]\'; do echo more >>"$name"; done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  err_has '(tar,'
  out_has second
  diff -r -x .git -x sub -x .venv_x . "$REMOTE/marin" || fail 'the tree there is not the tree here, by tar'
  [ ! -e "$REMOTE/marin/sub/gone" ] && [ ! -e "$REMOTE/marin/-dash" ] || fail 'deletions'
  [ -e "$REMOTE/marin/sub/mine" ] && [ -e "$REMOTE/marin/.venv_x/mine" ] || fail 'removed what it did not bring'
  release
}

test_commands_and_allocations_at_once() {
  host
  pids=
  for i in 1 2 3; do
    "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --no-setup --detach >"$WORK/out.$i" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/out.*)"; done
  [ "$("$GDNCTL" dev-tpu-list "${HOLD[@]:0:2}" --json 2>/dev/null | grep -o '"submission_id"' | wc -l)" = 1 ] || fail 'holds'
  for i in $(seq 30); do echo "$i" >"file$i"; done
  git worktree add -q "$WORK/second" && echo second >"$WORK/second/note"
  pids=
  for i in 1 2 3; do
    rm "file$i"
    for word in first second; do
      cd "$([ $word = first ] && echo "$WORK/cwd" || echo "$WORK/second")" || exit
      "$GDNCTL" dev-tpu-test "${HOLD[@]}" >"$WORK/out.$word.$i" 2>&1 &
      pids="$pids $!"
    done
    cd "$WORK/cwd" || exit
    "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note >"$WORK/out.x.$i" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/out.*)"; done
  for i in 1 2 3; do
    for word in first second; do grep -qx "$word" "$WORK/out.$word.$i" || fail "not its own tree: $(cat "$WORK/out.$word.$i")"; done
    grep -qx first "$WORK/out.x.$i" || fail "not its own tree: $(cat "$WORK/out.x.$i")"
  done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  diff -r -x .git . "$REMOTE/marin" || fail 'the tree there is not the tree here'
  release
}

test_lost_ssh_is_4_and_nothing_is_left() {
  host
  allocate
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; setsid sleep 64201 & sleep 64201'
  until_out on
  pkill -P "$sshd" # the sessions of this sshd
  wait "$pid"
  [ $? = 4 ] || fail "exit code of a lost connection"
  nothing_runs 'sleep 64201'
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64202'
  until_out on
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code of an interrupted command'
  nothing_runs 'sleep 64202'
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64203'
  until_out on
  kill -9 "$pid"
  ssh_sessions_end
  wait "$pid" 2>/dev/null
  nothing_runs 'sleep 64203' 8
  release
}

test_preempted_in_the_middle_of_a_test() {
  host
  allocate
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64301'
  until_out on
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
  err_has 'does not answer ssh'
  err_has 'jobs on the host keep the hold'
  for _ in $(seq 100); do asked 'POST /api/jobs/$' | grep -qx '[2-9]' && break; sleep 0.1; done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  out_has first
  grep -q '"node:127.0.0.1": 0.001' "$SRV/posted" || fail 'not beside the holder'
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh true
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray --no-sync -- sh -c 'exit 5'
  release
  allocate
  err_has 'no ssh connection to a: the tree was not synced'
  ! is_free || fail 'given back'
  release
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
  err_has 'key has changed since this hold began'
  rm -f "$GDNCTL_STATE_DIR/ssh/known_hosts"
  : >"$WORK/ssh/authorized"
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  err_has 'Permission denied'
  release
}

test_without_an_ssh_agent() {
  host
  export SSH_AUTH_SOCK=$WORK/nobody
  allocate
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  unset SSH_AUTH_SOCK
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  # A key with a passphrase, which an agent would have to know.
  ssh_sessions_end
  ssh-keygen -q -p -P '' -N secret-words -f "$HOME/.ssh/google_compute_engine" >/dev/null
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  err_has 'start an ssh-agent'
  release
}

test_a_full_disk() {
  HOME_SIZE=512k
  host
  allocate
  head -c 2000000 /dev/urandom >blob
  for program in rsync tar; do
    [ $program = rsync ] || { printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"; }
    expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
    err_has "the disk of the TPU's host is full"
  done
  expect 1 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'cat /dev/zero >more 2>/dev/null; echo more >>more'
  # To the last byte: a command needs no disk to be brought there.
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync cat note
  out_has first
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'rm -f more blob'
  rm blob
  echo second >note
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  out_has second
  release
}

test_a_tree_that_changes_while_it_is_synced() {
  host
  mkdir d && for i in $(seq 300); do echo "$i" >"d/$i"; done
  allocate
  (while :; do for i in $(seq 300); do rm -f "d/$i"; echo "$RANDOM" >"d/$i"; [ $((i % 7)) = 0 ] && mv "d/$i" "d/new$i" && mv "d/new$i" "d/$i"; done; done) &
  changes=$!
  trap 'kill $changes $sshd $metadata $server 2>/dev/null; ssh_sessions_end; cleanup' EXIT
  for _ in 1 2 3 4; do expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note; done
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"
  for _ in 1 2 3; do expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note; done
  kill $changes
  wait $changes 2>/dev/null
  rm -f d/new* "$WORK/bin/rsync"
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  diff -r d "$REMOTE/marin/d" >/dev/null || fail 'the tree there is not the tree here'
  release
}

test_submodules_and_links_are_synced_as_in_packages() {
  host
  git init -q "$WORK/other" && (cd "$WORK/other" && echo inner >file && git add -A && git commit -qm other)
  git -c protocol.file.allow=always submodule --quiet add "$WORK/other" sub
  ln -s sub/file link && ln -s d folder && mkdir d && echo deep >d/deep
  allocate
  [ "$(cat "$REMOTE/marin/sub/file")" = inner ] || fail 'the submodule'
  [ "$(cat "$REMOTE/marin/link")" = inner ] && [ ! -L "$REMOTE/marin/link" ] || fail 'the link'
  [ ! -e "$REMOTE/marin/sub/.git" ] || fail 'its .git'
  release
}

# GDNCTL_KILLS=50 is the long form.
test_killed_at_random_instants_frees_the_tpu() {
  host
  printf 'Host mine\n  User me\n' >"$HOME/.ssh/config"
  cp "$HOME/.ssh/config" before
  HOLD=(--ray-address "http://127.0.0.1:$PORT" --tpu-name k$$)
  for i in $(seq "${GDNCTL_KILLS:-3}"); do
    "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --no-setup --lease 2 --grace 2 \
      >/dev/null 2>"$WORK/kill.$i" &
    pid=$!
    # Half of them while a command runs there, whose client dies too.
    runner=
    if [ $((i % 2)) = 0 ]; then
      for _ in $(seq 200); do grep -q 'is active' "$WORK/kill.$i" 2>/dev/null && break; sleep 0.05; done
      "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c 'setsid sleep 64401 & sleep 64401' >/dev/null 2>&1 &
      runner=$!
    fi
    sleep "$(awk "BEGIN { srand($i * 7 + $$); print rand() * 2.5 }")"
    kill -9 "$pid" $runner 2>/dev/null
    wait "$pid" $runner 2>/dev/null
    free_within 8
    nothing_runs 'sleep 64401' 8
    sed '/^# BEGIN_DEV_TPU_K/,/^# END_DEV_TPU_K/d' "$HOME/.ssh/config" | cmp -s - before || fail "kill $i: the ssh configuration"
  done
  "$GDNCTL" dev-tpu-release "${HOLD[@]}" 2>/dev/null
  cmp before "$HOME/.ssh/config" || fail 'the ssh configuration is not as it was'
  ! ls /tmp/gdnctl-hold | grep -q -- "-k$$-" || fail "lease files are left: $(ls /tmp/gdnctl-hold)"
}

# The program and the tree go there; verdict, times and the files of failures come home.
test_a_python_kernel_is_judged_on_the_host() {
  host
  /usr/bin/python3 -c 'import numpy' 2>/dev/null || skip 'no /usr/bin/python3 with numpy'
  cp "$FIXTURES/python/my_gdn.py" wrong.py
  sed '/^        S = S \* decay/d; s/^        d = /        S = S * decay[:, t]\n        d = /' wrong.py >mine.py
  git add -A && git commit -qm kernels
  allocate
  there() { "$GDNCTL" oracle verify gdn --python /usr/bin/python3 "${HOLD[@]}" --allow-cpu --case device_003 "$@"; }
  expect 0 there --kernel py:mine.py
  out_has 'verdict: OK (1 case)'
  [ "$(ls "$REMOTE/.gdnctl/bin" | wc -l)" = 1 ] || fail 'not one copy of the program'
  expect 1 there --kernel py:wrong.py --save-failures failures --json
  [ "$(jq -r '[.verdict, .environment.framework, .job.driver_exit_code] | join(" ")' "$WORK/out")" = 'WRONG numpy 1' ] || fail 'JSON'
  expect 1 "$GDNCTL" oracle compare gdn --inputs failures/device_003.inputs.safetensors --outputs failures/device_003.outputs.safetensors
  out_has 'verdict: WRONG'
  [ -z "$(ls -d "$REMOTE"/marin/.gdnctl/failures-* 2>/dev/null)" ] || fail 'the failures are still there'
  [ "$(ls "$REMOTE/.gdnctl/bin" | wc -l)" = 1 ] || fail 'the program was sent twice'
  expect 9 "$GDNCTL" oracle verify gdn --python /usr/bin/python3 "${HOLD[@]}" --case device_003 --kernel py:mine.py
  err_has 'no TPU was seen: the kernel ran on cpu'
  bench() { "$GDNCTL" oracle bench gdn --python /usr/bin/python3 "${HOLD[@]}" --shape 1,1,2,32,16,16 --rounds 2 --runs 1 "$@"; }
  expect 0 bench --kernel py:mine.py --peer py:./mine.py --allow-cpu
  out_has 'than py:./mine.py'
  expect 9 bench --kernel py:mine.py
  release
}
