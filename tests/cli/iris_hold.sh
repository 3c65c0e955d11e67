# Holding a TPU on Iris: the holder is a job, and commands run in its container by ExecInContainer.
. "$REPO/tests/support/iris_server.sh"

host() {
  serve "$@"
  git init -q . && printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo tested; cat note"]\n' >gdnctl.toml
  echo first >note
  git add -A && git commit -qm tree
  HOLD="$IRIS --tpu-name a"
  trap 'leave_nothing; kill $server $more 2>/dev/null; wait $server 2>/dev/null; cleanup' EXIT
}
# The folders of the container lie in /tmp of this machine; each hold has its own.
leave_nothing() {
  for id in $(sed -n 's|.*"name": "/[^/]*/\(gdnctl-hold-[A-Za-z0-9_-]*\)".*|\1|p' "$SRV/launched" 2>/dev/null); do
    rm -rf "/tmp/gdnctl-run/$id" "/tmp/gdnctl-hold/$id" "/tmp/gdnctl-hold/$id".*
  done
}
allocate() { expect 0 "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --detach "$@"; }
execute() { # CODE WORDS...
  local code=$1
  shift
  expect "$code" "$GDNCTL" dev-tpu-execute $HOLD "$@"
}
release() { expect 0 "$GDNCTL" dev-tpu-release $HOLD; }
held() { "$GDNCTL" dev-tpu-list $IRIS --json 2>/dev/null | jq '.holds | length'; }
held_is() { [ "$(held)" = "$1" ]; }
hold_name() { sent LaunchJob 'b["name"]'; }
state_of() { api GetJobState "{\"jobIds\": [\"$1\"]}"; }
is_in_state() { state_of "$1" | grep -qF "$2"; }

gone() { ! pgrep -f "$1" >/dev/null; }

test_allocate_list_release() {
  host
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8
  wait_for said 'TPU allocation is active. Press Ctrl-C to release...'
  err_has '[gdnctl] TPU allocated successfully!'
  err_has "[gdnctl] iris: commands run in the holder's container"
  err_lacks 'SSH alias'
  [ ! -e "$HOME/.ssh" ] || fail "something of ssh was written"
  [ "$(sent LaunchJob '(b["resources"]["device"]["tpu"], b["resources"]["cpuMillicores"], round(int(b["schedulingTimeout"]["milliseconds"]) / 1e4), b["existingJobPolicy"], "bundleBlob" in b)')" = \
    "({'variant': 'v5p-8', 'count': 4}, 32000, 90, 'EXISTING_JOB_POLICY_ERROR', False)" ] || fail "$(sent LaunchJob b)"
  name=$(hold_name)
  expect 0 "$GDNCTL" dev-tpu-list $IRIS --json
  [ "$(jq -r '.holds[0] | "\(.tpu_name) \(.status) \(.tpu_type) \(.owner) \(.ssh_ok) /me/\(.submission_id)"' "$WORK/out")" = "a RUNNING v5p-8 mine null $name" ] ||
    fail "$(cat "$WORK/out")"
  expect 0 env IRIS_USER=you "$GDNCTL" dev-tpu-list $IRIS --all-users --json
  [ "$(jq -r '.holds[0].owner' "$WORK/out")" = other ] || fail "$(cat "$WORK/out")"
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail 'exit code of the interrupted allocate'
  [ "$(asked CompleteJob) $(asked TerminateJob)" = '1 0' ] || fail "a hold is completed, not terminated"
  [ "$(held)" = 0 ] || fail 'still held'
  is_in_state "$name" SUCCEEDED || fail "$(state_of "$name")"
  release
  no_complaints
}

test_commands_in_the_container() {
  host
  execute 4 -- true
  err_has "no TPU is held under the name a; run \`gdnctl dev-tpu-allocate $IRIS --tpu-name a\` first"
  err_lacks SSH
  allocate
  execute 0 -- cat note
  err_lacks 'Job URL'
  [ "$(cat "$WORK/out")" = first ] || fail 'the tree did not travel'
  execute 7 --no-sync -- sh -c 'echo out; echo err >&2; exit 7'
  cat "$WORK/out" "$WORK/err" | grep -qx out || fail 'no output'
  # Any bytes, in the order in which they were written, and nothing on standard input.
  execute 0 --no-sync -- sh -c 'printf "a\\377\\000b\\r\\n"; cat; printf "\\300end"'
  [ "$(od -An -tx1 "$WORK/out" | tr -d ' \n')" = "61ff00620d0ac0656e64" ] || fail "$(od -c "$WORK/out")"
  execute 0 --no-sync -- sh -c 'head -c 3000000 /dev/zero | tr "\\0" x; head -c 1000000 /dev/urandom | tee /tmp/gdnctl-run/sum-$$ | sha256sum >&2; cat /tmp/gdnctl-run/sum-$$; rm /tmp/gdnctl-run/sum-$$'
  [ "$(wc -c <"$WORK/out")" -ge 4000000 ] || fail "$(wc -c <"$WORK/out") bytes"
  execute 0 --no-sync -e 'V=a$b "c"' -- sh -c 'printf %s "$V"'
  [ "$(cat "$WORK/out")" = 'a$b "c"' ] || fail "$(cat "$WORK/out")"
  execute 0 --no-sync -- sh -c 'echo [$GDNCTL_OUTPUT_DIR]'
  out_has '[]'
  # Changed and deleted files travel; what a run left in its tree stays there for the next run of the same tree.
  echo second >note
  execute 0 -- cat note
  [ "$(cat "$WORK/out")" = second ] || fail 'the changed file did not travel'
  execute 0 -- sh -c 'mkdir -p .venv; echo kept >.venv/mark'
  execute 0 -- cat .venv/mark
  execute 0 --no-sync -- cat .venv/mark note
  expect 0 "$GDNCTL" dev-tpu-test $HOLD --json
  [ "$(jq -r .status "$WORK/out")" = SUCCEEDED ] || fail "$(cat "$WORK/out")"
  err_has tested
  release
  execute 4 -- true
  no_complaints
}

test_a_big_tree_travels_in_pieces() {
  host
  allocate
  head -c 5000000 /dev/urandom >big.bin
  git add -A
  execute 0 -- sha256sum big.bin
  [ "$(cut -d' ' -f1 "$WORK/out")" = "$(sha256sum <big.bin | cut -d' ' -f1)" ] || fail 'not the same file'
  first=$(asked ExecInContainer)
  execute 0 -- true
  [ $(($(asked ExecInContainer) - first)) -lt 12 ] || fail "sent again: $(($(asked ExecInContainer) - first)) calls"
  head -c 26300000 /dev/urandom >big.bin
  execute 2 -- true
  err_has 'has more than 26214400 bytes'
  release
}

test_without_a_tree_there_is_an_empty_folder() {
  host
  allocate --no-sync
  execute 0 --no-sync -- sh -c 'ls -A | wc -l'
  [ "$(cat "$WORK/out")" = 0 ] || fail "$(cat "$WORK/out")"
  release
}

test_an_interrupted_command_ends_there_too() {
  host
  allocate --no-sync
  launch "$GDNCTL" dev-tpu-execute $HOLD --no-sync -- sh -c 'echo up; exec sleep 86417'
  wait_for said up
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  wait_for gone 'sleep 8641[7]'
  execute 124 --no-sync --timeout 1 -- sleep 86418
  wait_for gone 'sleep 8641[8]'
  execute 124 --no-sync --idle-timeout 1 -- sh -c 'echo up; sleep 86419'
  release
}

test_faults_of_the_way_into_the_container() {
  host
  allocate --no-sync
  for keys in '"reset": 1, "times": 2' '"status": 503' '"cut": 1' '"cut_body": 20' '"status": 500, "answer": {"code": "internal", "message": "worker did not answer"}'; do
    fault ExecInContainer "$keys"
    execute 0 --no-sync -- sh -c 'echo once >>/tmp/gdnctl-run/once-$PPID; echo ran'
    [ "$(grep -cx ran "$WORK/out")" = 1 ] || fail "$keys: $(cat "$WORK/out")"
  done
  # Cut after it was started: the command is not started twice.
  mark=/tmp/gdnctl-run/mark-$$
  for skip in 0 1 2; do
    rm -f "$mark"
    fault ExecInContainer "\"cut\": 1, \"skip\": $skip"
    execute 0 --no-sync -- sh -c "echo x >>$mark; sleep 0.2"
    [ "$(wc -l <"$mark")" = 1 ] || fail "ran $(wc -l <"$mark") times (skip $skip)"
  done
  rm -f "$mark" /tmp/gdnctl-run/once-*
  # The container is gone in the middle of a command.
  launch "$GDNCTL" dev-tpu-execute $HOLD --no-sync -- sh -c 'echo up; sleep 60'
  wait_for said up
  ctl "{\"kick\": \"$(hold_name)\", \"reason\": \"Preempted by /you/big/0\"}"
  wait "$pid"
  [ $? = 4 ] || fail "not 4"
}

test_the_lease() {
  host
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync --lease 4 --grace 6
  wait_for said 'TPU allocation is active'
  sleep 7
  [ "$(held)" = 1 ] || fail 'the lease is not renewed'
  kill -KILL "$pid"
  wait "$pid"
  name=$(hold_name)
  wait_for is_in_state "$name" SUCCEEDED
  [ "$(held)" = 0 ] || fail 'still held'
  expect 0 "$GDNCTL" ray-logs $IRIS "${name#/me/}"
  out_has 'GDNCTL_RELEASED {"reason": "lease"}'
}

test_ends_of_a_hold() {
  host
  ended_by() { # CODE TEXT COMMAND...
    local code=$1 text=$2
    shift 2
    launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync $options
    wait_for said 'TPU allocation is active'
    "$@"
    wait "$pid"
    got=$?
    [ $got = "$code" ] || fail "exit code $got, not $code, of $*"
    [ -z "$text" ] || err_has "$text"
  }
  kick() { ctl "{\"kick\": \"$(hold_name)\", \"reason\": \"$1\"}"; }
  complete() { api CompleteJob "{\"jobId\": \"$(hold_name)\"}" >/dev/null; }
  options=''
  ended_by 3 'was released' complete
  ended_by 3 '' "$GDNCTL" dev-tpu-release $HOLD
  ended_by 4 'was preempted' kick 'Preempted by /you/big/0'
  ended_by 4 '' kick 'maintenance'
  options='--max-hold 3'
  ended_by 124 'has reached its cap' true
}

test_adopted_by_its_owner_refused_to_others() {
  host
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync
  wait_for said 'TPU allocation is active'
  kill -KILL "$pid"
  wait "$pid"
  allocate --no-sync --json
  [ "$(jq .adopted "$WORK/out")" = true ] || fail "$(cat "$WORK/out")"
  [ "$(held)" = 1 ] || fail 'two holds'
  expect 2 env IRIS_USER=you USER=you "$GDNCTL" dev-tpu-release $HOLD
  [ "$(asked CompleteJob)" = 0 ] || fail "somebody else's was released"
  # Also where this machine has forgotten it.
  rm -rf "$XDG_STATE_HOME"
  allocate --no-sync --json
  [ "$(jq .adopted "$WORK/out")" = true ] || fail "$(cat "$WORK/out")"
  release
}

test_given_up_while_it_waits() {
  host
  ctl '{"tpus": 0}'
  expect 124 "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync --detach --ready-timeout 3
  name=$(hold_name)
  ! is_in_state "$name" PENDING || fail "it still waits"
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync
  wait_for said PENDING
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  ! is_in_state "$(hold_name)" PENDING || fail "it still waits"
  # The client is gone without a word: the queue has its limit.
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync --ready-timeout 3
  wait_for said PENDING
  kill -KILL "$pid"
  wait "$pid"
  wait_for is_in_state "$(hold_name)" UNSCHEDULABLE
  ctl '{"tpus": 1}'
  allocate --no-sync
  release
}

test_a_type_that_no_group_offers() {
  host
  expect 2 "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v6e-8 --no-sync --detach
  err_has 'no scaling group provides device tpu:v6e-8'
  [ "$(asked LaunchJob)" = 1 ] || fail "tried on"
}

test_a_launch_whose_answer_is_cut_is_one_hold() {
  host
  fault LaunchJob '"cut": 1'
  allocate --no-sync
  [ "$(held)" = 1 ] || fail "$(held) holds"
  release
}

test_a_login_is_renewed_in_the_middle_of_a_hold() {
  behind_iap
  git init -q .
  HOLD="$IRIS --tpu-name a"
  trap 'leave_nothing; kill $server $more 2>/dev/null; wait $server 2>/dev/null; cleanup' EXIT
  launch "$GDNCTL" dev-tpu-allocate $HOLD --tpu-type v5p-8 --no-sync --lease 4 --grace 6
  wait_for said 'TPU allocation is active'
  ctl '{"expire": true}'
  sleep 6
  kill -0 "$pid" || fail "ended"
  execute 0 --no-sync -- echo fine
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  no_complaints
}

test_a_kernel_is_judged_and_timed_in_the_container() {
  ! sanitized || skip 'with sanitizers the program is larger than a package'
  kernels_in_python
  host
  allocate
  there() { "$GDNCTL" oracle verify gdn --python /usr/bin/python3 $HOLD --allow-cpu --case device_003 "$@"; }
  expect 0 there --kernel py:mine.py --save-failures none
  out_has 'verdict: OK (1 case)'
  err_has 'sending this program to the container'
  err_lacks 'gdnctl-execute-'
  [ ! -e none ] || fail 'a folder for nothing'
  expect 1 there --kernel py:wrong.py --save-failures failures --json
  err_lacks 'sending this program'
  err_has 'the failures are in failures'
  [ "$(jq -r '[.verdict, .environment.framework] | join(" ")' "$WORK/out")" = 'WRONG numpy' ] || fail 'JSON'
  expect 1 "$GDNCTL" oracle compare gdn --inputs failures/device_003.inputs.safetensors --outputs failures/device_003.outputs.safetensors
  expect 0 "$GDNCTL" oracle bench gdn --python /usr/bin/python3 $HOLD --allow-cpu --shape 1,1,2,32,16,16 --rounds 2 --runs 1 --kernel py:mine.py
  out_has 'GFLOP/s'
  release
  no_complaints
}
