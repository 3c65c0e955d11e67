# A held TPU's host, by an ssh that runs here: the set-up, lost connections, two holds of one name, clusters that fail.
. "$REPO/tests/support/dev_tpu_host.sh"

holds() { "$GDNCTL" dev-tpu-list --ray-address "http://127.0.0.1:$PORT" --json 2>/dev/null | grep -o '"submission_id"' | wc -l; }
hold_id() { "$GDNCTL" dev-tpu-list "${@:1:2}" --json 2>/dev/null | grep -o 'gdnctl-hold-[^"]*'; } # HOLD-OPTIONS...

test_failures_of_the_set_up_are_named() {
  host
  there curl <<<'echo "curl: (6) Could not resolve host: astral.sh" >&2; exit 6'
  expect 0 "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --detach --json
  err_has 'setting up a failed; the hold is kept: uv could not be installed:'
  err_has 'Could not resolve host: astral.sh'
  err_has 'hint: `gdnctl dev-tpu-setup` runs the set-up again'
  grep -q '"setup_ok":false' "$WORK/out" || fail 'setup_ok'
  expect 1 "$GDNCTL" dev-tpu-setup "${HOLD[@]}"
  err_has 'uv could not be installed'
  # Where it is missing it is installed below the home, and found there.
  there curl <<<'echo "mkdir -p ~/.local/bin; cp $WORK/uv ~/.local/bin/uv; echo export PATH=\$HOME/.local/bin:\$PATH >~/.local/bin/env"'
  printf '#!/bin/sh\necho "$*" >>"$WORK/uv.calls"\n[ ! -e "$WORK/uv.fails" ] || { cat "$WORK/uv.fails" >&2; exit 2; }\n' >"$WORK/uv"
  chmod +x "$WORK/uv"
  echo 'error: Failed to fetch: `https://pypi.org/simple/jax/`' >"$WORK/uv.fails"
  expect 1 "$GDNCTL" dev-tpu-setup "${HOLD[@]}"
  err_has 'setting up a failed; the hold is kept: `uv sync` failed:'
  err_has 'Failed to fetch'
  rm "$WORK/uv.fails"
  expect 0 "$GDNCTL" dev-tpu-setup "${HOLD[@]}"
  [ "$(cat "$WORK/uv.calls")" = "$(printf 'sync --all-packages --extra=tpu --python=3.11\n%.0s' 1 2)" ] || fail "uv: $(cat "$WORK/uv.calls")"
  echo 'cp: write error: No space left on device' >"$WORK/uv.fails"
  expect 1 "$GDNCTL" dev-tpu-setup "${HOLD[@]}" --no-sync
  err_has "the disk of the TPU's host is full"
  rm -r "$REMOTE/marin"
  expect 1 "$GDNCTL" dev-tpu-setup "${HOLD[@]}" --no-sync
  err_has "nothing has been synced to the TPU's host yet"
  release
}

test_two_holds_of_one_name_on_two_clusters() {
  host
  printf 'Host mine\n  User me\n' >"$HOME/.ssh/config" && cp "$HOME/.ssh/config" before
  allocate --username alice
  first=$PORT other_server=$server SRV=$WORK/srv2
  serve
  trap 'kill $server $other_server 2>/dev/null; cleanup' EXIT
  A=(--ray-address "http://127.0.0.1:$first" --tpu-name a) HOLD=(--ray-address "http://127.0.0.1:$PORT" --tpu-name a)
  allocate --username bob
  a=$(hold_id "${A[@]}") b=$(hold_id "${HOLD[@]}")
  [ -n "$a" ] && [ -n "$b" ] && [ "$a" != "$b" ] || fail "the holds: $a, $b"
  alias_is() { grep -A5 '^Host dev-tpu-a$' "$HOME/.ssh/config" | grep -q "HostKeyAlias $1" || fail "the alias is not $2's"; }
  alias_is "$b" b
  goes_to() { # ID USER COMMAND...
    : >"$WORK/ssh.calls"
    expect 0 "$GDNCTL" dev-tpu-execute "${@:3}" --no-sync true
    ! grep -v -- "-o HostKeyAlias=$1 -o User=$2 .*dev-tpu-a" "$WORK/ssh.calls" || fail "a call to another host than $1's"
    [ -s "$WORK/ssh.calls" ] || fail 'no ssh at all'
  }
  goes_to "$a" alice "${A[@]}"
  goes_to "$b" bob "${HOLD[@]}"
  goes_to "$b" bob --tpu-name a
  expect 0 "$GDNCTL" dev-tpu-list
  out_has "$a"
  out_has "$b"
  release
  alias_is "$a" a
  goes_to "$a" alice --tpu-name a
  HOLD=("${A[@]}") && release
  cmp before "$HOME/.ssh/config" || fail 'the ssh configuration is not as it was'
}

test_jobs_renew_the_lease_while_ssh_is_lost() {
  host
  launch "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --no-setup --lease 8
  until_said 'TPU allocation is active'
  [ "$(asked 'POST /api/jobs/$')" = 1 ] || fail 'a job beside the holder though ssh works'
  echo 'ssh: connect to host 203.0.113.7 port 22: No route to host' >"$WORK/no-ssh"
  until_said "No route to host: jobs on the holder's host renew the lease"
  sleep 11
  [ "$(holds)" = 1 ] || fail 'lost with its ssh'
  rm "$WORK/no-ssh"
  until_said 'the lease is renewed by ssh again'
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code'
  no_complaints
}

test_a_job_beside_the_holder_ends_with_the_hold() {
  host
  echo 'ssh: connect to host 203.0.113.7 port 22: No route to host' >"$WORK/no-ssh"
  allocate --no-sync --lease 5
  id=$(hold_id "${HOLD[@]}")
  [ -n "$id" ] || fail 'no hold'
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'setsid sleep 71401 & sleep 71401'
  for _ in $(seq 200); do pgrep -f '^sleep 71401$' >/dev/null && break; sleep 0.05; done
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  for _ in $(seq 200); do pgrep -f '^sleep 71401$' >/dev/null || break; sleep 0.1; done
  ! pgrep -f '^sleep 71401$' >/dev/null || fail 'it outlived its client and the hold'
  for _ in $(seq 100); do [ "$(holds)" = 0 ] && break; sleep 0.1; done
  [ "$(holds)" = 0 ] || fail 'still held'
  ! ls /tmp/gdnctl-hold | grep -F "$id" >left || fail "records are left: $(cat left)"
}

test_list_tells_when_each_hold_ends() {
  host
  allocate --lease 300 --grace 200 --max-hold 7200
  grep -Eq '^\[gdnctl\] until its first renewal the hold ends at [0-9:+Z]+ \(grace 3 min 20 s\)$' "$WORK/err" || fail 'the grace'
  grep -Eq '^\[gdnctl\] the hold ends at [0-9:+Z]+ unless a command renews it \(lease 5 min.*\), and at [0-9:+Z]+ in any case \(cap 2 h.*\)$' \
    "$WORK/err" || fail 'lease and cap'
  expect 0 "$GDNCTL" dev-tpu-list "${HOLD[@]:0:2}"
  grep -Eq '^\[gdnctl\] a ends at [0-9:+Z]+ unless a command renews it, and at [0-9:+Z]+ in any case$' "$WORK/err" || fail 'the ends'
  release
}

test_clusters_that_are_down_slow_or_restarted() {
  host
  expect 4 "$GDNCTL" dev-tpu-allocate --ray-address http://127.0.0.1:1 --tpu-name a --tpu-type v5p-8
  expect 4 "$GDNCTL" dev-tpu-list --ray-address http://127.0.0.1:1
  ctl '{"fault": {"match": "POST /api/jobs/", "hang": 3}}' # and the answer never comes
  ctl '{"fault": {"match": "GET /api/version", "drip": 0.02, "times": 2}}'
  launch "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --no-setup --lease 20
  until_said 'TPU allocation is active'
  [ "$(holds)" = 1 ] || fail "holds: $(holds)"
  ctl '{"fault": {"match": "GET /api/jobs/gdnctl-hold", "reset": true, "times": 3}}'
  sleep 4
  kill -0 "$pid" || fail "gave up while the cluster did not answer: $(cat "$WORK/err")"
  ctl '{"forget": true}'
  wait "$pid"
  [ $? = 4 ] || fail 'exit code'
  err_has 'is lost: http'
}

test_permission_and_passphrase() {
  host
  allocate --no-sync
  echo 'alice@203.0.113.7: Permission denied (publickey).' >"$WORK/no-ssh"
  expect 5 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync true
  err_has 'start an ssh-agent'
  rm "$WORK/no-ssh"
  release
}

odd_names() {
  mkdir '#d' && for name in '#notes' ';x.py' '#d/kernel.py' -dash 'sp ace ' "$(printf 'new\nline')" '*glob?[a]' 'back\slash' \
    a:b "$(printf 'bad\377utf8')" '~tilde' '$HOME'; do echo "$name" >"./$name"; done
}
same_there() { diff -r -x .git . "$REMOTE/marin" || fail 'the tree there is not the tree here'; }

test_every_name_arrives_with_its_content() {
  host
  odd_names
  allocate
  same_there
  # Without rsync, and with a second look at what is of the same size and time.
  printf '#!/bin/sh\nexit 127\n' >"$WORK/bin/rsync" && chmod +x "$WORK/bin/rsync"
  sleep 2
  touch -d '2020-01-01' note && expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  echo fir5t >note && touch -d '2020-01-01' note
  for name in ./*; do [ -d "$name" ] || [ "$name" = ./note ] || [ "$name" = ./gdnctl.toml ] || echo more >>"$name"; done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  out_has fir5t
  err_has '(tar,'
  same_there
  mkdir file && echo x >file/x && expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  rm -r file && echo y >file && expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  same_there
  rm file && mkdir -p file/x && echo z >file/x/z && expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  same_there
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  err_has '(up to date,'
  release
}

test_commands_at_once_on_one_host() {
  host
  allocate
  for i in $(seq 40); do echo "$i" >"file$i"; done
  pids=
  for i in 1 2 3 4; do
    "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note >"$WORK/out.$i" 2>&1 & pids="$pids $!"
    rm "file$i"
    "$GDNCTL" dev-tpu-test "${HOLD[@]}" >"$WORK/out.t$i" 2>&1 & pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/out.*)"; done
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  same_there
  # Jobs beside the holder have trees of their own.
  pids=
  for i in 1 2 3; do "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray cat note >"$WORK/out.$i" 2>"$WORK/err.$i" & pids="$pids $!"; done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/err.*)"; done
  release
}

test_allocations_at_once_make_one_hold() {
  host
  # From one machine; then from three, where all may have submitted before the first look shows it.
  for round in one three; do
    [ $round = one ] || ctl '{"capacity": {"CPU": 2, "TPU": 12, "TPU-v5p-8-head": 3, "node:127.0.0.1": 1}}'
    pids=
    for i in 1 2 3; do
      [ $round = one ] || export GDNCTL_STATE_DIR=$WORK/state.$i
      "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --no-setup --detach --json >"$WORK/out.$i" 2>"$WORK/err.$i" &
      pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/err.*)"; done
    [ "$(holds)" = 1 ] || fail "round $round: holds $(holds)"
    [ "$(grep -ho '"submission_id":"[^"]*' "$WORK"/out.* | sort -u | wc -l)" = 1 ] || fail 'they name different holds'
    expect 0 "$GDNCTL" dev-tpu-release "${HOLD[@]}"
    [ "$(holds)" = 0 ] || fail 'still held'
  done
}

test_a_hold_is_kept_when_ssh_fails() {
  host
  echo 'ssh: connect to host 203.0.113.7 port 22: Connection refused' >"$WORK/no-ssh"
  allocate --json
  err_has 'no ssh connection to a: the tree was not synced'
  err_has 'the hold is kept, without the tree on its host'
  grep -q '"ssh_ok":false' "$WORK/out" || fail 'ssh_ok'
  [ "$(holds)" = 1 ] || fail 'given back'
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  [ "$(cat "$WORK/out")" = first ] || fail "stdout of a job beside the holder: $(cat "$WORK/out")"
  rm "$WORK/no-ssh"
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ssh cat note
  err_lacks 'as a job'
  # ssh works now, and fails again.
  echo 'ssh: connect to host 203.0.113.7 port 22: No route to host' >"$WORK/no-ssh"
  expect 0 "$GDNCTL" dev-tpu-test "${HOLD[@]}"
  err_has "ssh: connect to host 203.0.113.7 port 22: No route to host: using a job on the holder's host instead of ssh"
  expect 254 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --json -- sh -c 'exit 255'
  out_has '"exit_code":255'
  expect 2 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --via ray cat <note
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat <note
  err_has 'cannot read the standard input'
  err_lacks '--no-secrets'
  rm "$WORK/no-ssh"
  release
}

test_gcloud_is_told_the_project() {
  host
  metadata good
  printf '#!/bin/sh\necho "$*" >>"$WORK/gcloud.calls"\n' >"$WORK/bin/gcloud" && chmod +x "$WORK/bin/gcloud"
  printf 'cluster_name: c\nprovider: {type: gcp, availability_zone: us-central1-a, project_id: team-tpus}\nauth: {ssh_user: ray}\n' >c.yaml
  allocate --no-sync
  grep -q '^compute --project=project tpus tpu-vm ssh .* --zone=us-central1-a -- hostname$' "$WORK/gcloud.calls" || fail "$(cat "$WORK/gcloud.calls")"
  release
  HOLD+=(--cluster-config c.yaml)
  export RAY_AUTH_TOKEN=t
  allocate --no-sync
  grep -q '^compute --project=team-tpus tpus tpu-vm ssh .* --zone=us-central1-a -- hostname$' "$WORK/gcloud.calls" || fail "$(cat "$WORK/gcloud.calls")"
  release
}
