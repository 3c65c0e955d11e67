# Jobs on an Iris controller: submitting, following, their ends, stopping, listing.
. "$REPO/tests/support/iris_server.sh"

test_a_tree_is_run_and_followed() {
  serve
  git init -q
  target '"cat data.txt; sh run.sh; echo to-err >&2; pwd"'
  echo from-the-tree >data.txt
  printf '#!/bin/sh\necho ran\n' >run.sh
  expect 0 "$GDNCTL" ray-test $IRIS --submission-id first --json
  err_has 'from-the-tree'
  err_has 'ran'
  err_has 'to-err'
  err_has '[gdnctl] Job submitted with ID: first'
  err_has "[gdnctl] Job URL: http://127.0.0.1:$PORT/#/job/%2Fme%2Ffirst"
  err_has 'status=SUCCEEDED Job finished successfully.'
  jq -e '.backend == "iris" and .submission_id == "first" and .job_id == "/me/first" and .attempts == 1 and .root_cause == []
         and .outputs == [] and .driver_exit_code == null and .failure_class == "none"
         and .start_time > 1600000000000 and .end_time >= .start_time' "$WORK/out" >/dev/null || fail "the report"
  [ "$(jq -r 'keys_unsorted | map(select(. == "url" or . == "job_id" or . == "attempts" or . == "root_cause" or . == "outputs")) | join(" ")' "$WORK/out")" = \
    'url job_id attempts root_cause outputs' ] || fail "the order of keys"
  [ "$(asked LaunchJob)" = 1 ] || fail "$(asked LaunchJob) launches"
  no_complaints
}

test_the_request_says_what_the_mapping_says() {
  serve
  git init -q
  target '"echo here"'
  expect 0 "$GDNCTL" ray-test $IRIS --tpu v5p-8 --submission-id tpu
  [ "$(sent LaunchJob '(b["name"], b["replicas"], b["maxRetriesPreemption"], b["existingJobPolicy"], b["schedulingTimeout"])')" = \
    "('/me/tpu', 1, 0, 'EXISTING_JOB_POLICY_ERROR', {'milliseconds': '900000'})" ] || fail "the request"
  [ "$(sent LaunchJob '(b["resources"]["device"], b["resources"]["cpuMillicores"], b["resources"]["memoryBytes"], b["resources"]["diskBytes"])')" = \
    "({'tpu': {'variant': 'v5p-8', 'count': 4}}, 32000, '128000000000', '50000000000')" ] || fail "the resources with a TPU"
  [ "$(sent LaunchJob 'b["entrypoint"]["runCommand"]["argv"][:2]')" = "['bash', '-c']" ] || fail "the words of the command"
  sent LaunchJob 'b["entrypoint"]["runCommand"]["argv"][2]' | grep -qF 'exec 2>&1; cd "${IRIS_WORKDIR:-.}" || exit 1; export GDNCTL_OUTPUT_DIR="${IRIS_OUTPUT_DIR:-}"; ' ||
    fail "the beginning of the entrypoint"
  [ "$(sent LaunchJob 'b["entrypoint"].get("setupCommands", [])')" = '[]' ] || fail "setup commands"
  [ "$(sent LaunchJob '"FRAY_CLUSTER_SPEC" in b["environment"]["envVars"]')" = False ] || fail "variables for Ray"
  sent LaunchJob 'b["environment"]["envVars"]["GDNCTL_META_NONCE"]' | grep -qE '^[0-9a-f]{16}$' || fail "the nonce"
  # A package is deterministic and deflated, and the first thing that is sent of a job without one is none.
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id none
  [ "$(sent LaunchJob '"bundleBlob" in b')" = False ] || fail "a bundle for no tree"
  [ "$(sent LaunchJob '(b["resources"]["cpuMillicores"], b["resources"]["memoryBytes"], b["resources"]["diskBytes"], b["resources"].get("device"))')" = \
    "(1000, '4000000000', '20000000000', None)" ] || fail "the resources without a TPU"
  printf 'target = "t"\n[targets.t.test]\nargv = ["true"]\n[targets.t.test.resources]\nCPU = 3\nmemory = 7000000000\ndisk = 9000000000\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-test $IRIS --submission-id table
  [ "$(sent LaunchJob '(b["resources"]["cpuMillicores"], b["resources"]["memoryBytes"], b["resources"]["diskBytes"])')" = \
    "(3000, '7000000000', '9000000000')" ] || fail "the resources of the table"
  no_complaints
}

test_values_arrive_as_they_are() {
  serve
  target "\"printf %s \\\"\$V\\\" | od -An -tx1 | tr -d ' \\\\n'; echo .; printf %s \\\"\$W\\\" | od -An -tx1 | tr -d ' \\\\n'; echo .\""
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none -e 'V=$HOME ${X} %s '\''q'\'' "d" `id` ü' -e "$(printf 'W=two\nlines\n.')"
  out_has "$(printf %s '$HOME ${X} %s '\''q'\'' "d" `id` ü' | od -An -tx1 | tr -d ' \n')."
  out_has "$(printf 'two\nlines\n.' | od -An -tx1 | tr -d ' \n')."
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir none -e "$(printf 'V=a\377b')"
  [ "$(asked LaunchJob)" = 1 ] || fail "a value that is not UTF-8 was sent"
  no_complaints
}

test_ends_of_commands() {
  serve
  local code script
  while read -r code script; do
    target "\"$script\""
    expect "${code%%/*}" "$GDNCTL" ray-test $IRIS --working-dir none --json
    [ "$(jq -r '"\(.status)/\(.error_type)/\(.driver_exit_code)"' "$WORK/out")" = "${code#*/}" ] || fail "$script: $(cat "$WORK/out")"
  done <<'L'
0/SUCCEEDED/null/null exit 0
1/FAILED/JOB_ENTRYPOINT_COMMAND_ERROR/3 exit 3
1/FAILED/JOB_ENTRYPOINT_COMMAND_ERROR/137 sh -c 'kill -9 $$'
1/FAILED/JOB_ENTRYPOINT_COMMAND_ERROR/127 no-such-command-anywhere
L
  # Without stdout and stderr apart, Iris sees no bad node; we look for its texts ourselves.
  target '"echo RuntimeError: No accelerator found; exit 1"'
  expect 1 "$GDNCTL" ray-test $IRIS --working-dir none --json
  [ "$(jq -r .failure_class "$WORK/out")" = infra-suspect ] || fail "the class of a bad node: $(cat "$WORK/out")"
  git init -q
  printf 'Traceback (most recent call last):\n  File x.py, line 3\nValueError: shapes do not match\n' >said
  printf 'a\377b\n' >bytes
  target '"cat said; exit 3"'
  expect 1 "$GDNCTL" ray-test $IRIS --json
  err_has '[gdnctl] cause, says Iris: ValueError: shapes do not match'
  [ "$(jq -c .root_cause "$WORK/out")" = '["Traceback (most recent call last):","  File x.py, line 3","ValueError: shapes do not match"]' ] ||
    fail "root_cause: $(cat "$WORK/out")"
  target '"cat bytes; echo more"'
  expect 1 "$GDNCTL" ray-test $IRIS
  no_complaints
}

ends_with() { # CODE CLASS STATE ERROR [KEY=JSON...]
  local code=$1 class=$2 state=$3 error=$4
  shift 4
  n=$((n + 1))
  job "e$n" "$state" "error=\"$error\"" "task_error=\"${error##*limit=0; }\"" "$@" </dev/null
  expect "$code" "$GDNCTL" ray-wait $IRIS "e$n" --json
  [ "$(jq -r .failure_class "$WORK/out")" = "$class" ] || fail "$state $error: $(cat "$WORK/out")"
}

test_every_end_of_the_table() {
  serve
  n=0
  local before='Cumulative failed task attempts exceeded max_task_failures: failures=1, limit=0; '
  ends_with 0 none SUCCEEDED ''
  ends_with 1 user FAILED "${before}Exit code: 3" exit=3
  [ "$(jq -r '"\(.error_type) \(.driver_exit_code)"' "$WORK/out")" = 'JOB_ENTRYPOINT_COMMAND_ERROR 3' ] || fail "exit code 3: $(cat "$WORK/out")"
  ends_with 1 user FAILED "${before}Exit code: 3. stderr: last line" exit=3
  jq -r .message "$WORK/out" | grep -qF 'last line' || fail "the last line is not in the message"
  jq -r .message "$WORK/out" | grep -qF 'Cumulative' && fail "Iris's own words before the cause"
  ends_with 1 user FAILED "${before}Exit code: -11" exit=-11
  [ "$(jq .driver_exit_code "$WORK/out")" = -11 ] || fail "the signal"
  ends_with 1 user FAILED "${before}Exit code 139: killed by SIGSEGV" exit=139
  ends_with 1 user FAILED "${before}Exit code 137: OOM killed (container exceeded memory limit)" exit=137
  ends_with 1 user FAILED "${before}Exit code: 1. stderr: FileNotFoundError: [Errno 2] No such file or directory" exit=1
  [ "$(jq -r .error_type "$WORK/out")" = JOB_ENTRYPOINT_COMMAND_START_ERROR ] || fail "no program: $(cat "$WORK/out")"
  ends_with 1 user FAILED "${before}Build failed with exit_code=1"
  [ "$(jq -r .error_type "$WORK/out")" = RUNTIME_ENV_SETUP_FAILURE ] || fail "build: $(cat "$WORK/out")"
  ends_with 1 user FAILED "${before}BadZipFile: File is not a zip file"
  ends_with 4 infra FAILED "${before}RuntimeError: Failed to fetch 0000: HTTP Error 404: Not Found"
  jq -r '.driver_exit_code, .job_id' "$WORK/out" | grep -q null || fail "an exit code without a command"
  ends_with 124 timeout FAILED "${before}Execution timeout exceeded"
  ends_with 4 infra WORKER_FAILED "TPU init failure ('No accelerator found'): Exit code: 1. stderr: RuntimeError: No accelerator found" exit=1
  [ "$(jq -r .error_type "$WORK/out")" = JOB_SUPERVISOR_ACTOR_DIED ] || fail "bad node: $(cat "$WORK/out")"
  ends_with 4 infra WORKER_FAILED 'Preempted by /other/job/0' 'task_state="TASK_STATE_PREEMPTED"'
  ends_with 4 infra WORKER_FAILED 'maintenance' 'task_state="TASK_STATE_PREEMPTED"'
  ends_with 4 infra UNSCHEDULABLE 'Scheduling timeout exceeded (Duration(2.000s))'
  [ "$(jq -r .error_type "$WORK/out")" = JOB_SUPERVISOR_ACTOR_START_TIMEOUT ] || fail "never scheduled: $(cat "$WORK/out")"
  for error in 'Terminated by user' 'Parent job terminated' 'Replaced by new submission'; do ends_with 3 stopped KILLED "$error"; done
  # What the worker's own record says comes before any text.
  ends_with 4 infra FAILED "${before}Exit code: 1" exit=1 'attempt={"isWorkerFailure": true}'
  expect 6 "$GDNCTL" ray-wait $IRIS nobody
  err_has 'Job nobody does not exist'
  no_complaints
}

test_stopping() {
  serve
  target '"trap \"\" TERM; echo up; while :; do sleep 0.1; done"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --no-wait --submission-id run
  [ "$(cat "$WORK/out")" = '[gdnctl] submission_id=run' ] || fail "stdout of --no-wait"
  up() { "$GDNCTL" ray-logs $IRIS run | grep -qx up; }
  wait_for up
  expect 0 "$GDNCTL" ray-stop $IRIS run --wait --json
  [ "$(jq -c '[.stopped, .status]' "$WORK/out")" = '[true,"STOPPED"]' ] || fail "$(cat "$WORK/out")"
  err_has 'Job run stop requested'
  expect 3 "$GDNCTL" ray-wait $IRIS run
  for again in 1 2; do
    expect 0 "$GDNCTL" ray-stop $IRIS run --json
    [ "$(jq -c .stopped "$WORK/out")" = false ] || fail "stopped again"
  done
  expect 6 "$GDNCTL" ray-stop $IRIS nobody
  # A job that waits for the TPU is over at once; a hold is completed, not terminated.
  ctl '{"tpus": 0}'
  target '"echo never"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --no-wait --submission-id waits --tpu v5p-8
  expect 0 "$GDNCTL" ray-stop $IRIS waits --wait
  expect 3 "$GDNCTL" ray-wait $IRIS waits
  job gdnctl-hold-me-a-20261125T031358-48b1f032 RUNNING </dev/null
  expect 0 "$GDNCTL" ray-stop $IRIS gdnctl-hold-me-a-20261125T031358-48b1f032
  [ "$(asked CompleteJob)" = 1 ] || fail "a hold was not completed"
  no_complaints
}

test_a_busy_tpu_and_one_that_cannot_be() {
  serve
  ctl '{"tpus": 0}'
  target '"echo never"'
  RAY_JOB_START_TIMEOUT_SECONDS=2 expect 4 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v5p-8 --submission-id busy
  err_has 'Insufficient TPUs (need 4, available 0)'
  [ "$(sent LaunchJob 'b["schedulingTimeout"]')" = "{'milliseconds': '2000'}" ] || fail "the limit of the queue"
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v6e-8 --submission-id never
  err_has 'no scaling group provides device tpu:v6e-8'
  err_has 'hint: `gdnctl cluster list` shows what it offers'
  [ "$(asked LaunchJob)" = 2 ] || fail "tried on"
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v5p-16
  err_has 'Only single tpu nodes are supported with the CLI'
  [ "$(asked LaunchJob)" = 2 ] || fail "sent although it cannot be"
}

test_a_taken_name_is_never_replaced() {
  serve
  target '"echo second"'
  job taken RUNNING </dev/null
  echo first | job ended SUCCEEDED
  for name in taken ended; do
    expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id $name
    err_has "Job with submission_id $name already exists. Please use a different submission_id."
    err_has 'hint: choose another --submission-id, or leave the option out'
    err_lacks 'gdnctl ray-'
  done
  expect 0 "$GDNCTL" ray-logs $IRIS ended
  [ "$(cat "$WORK/out")" = first ] || fail "the ended job was replaced"
  for name in 4711 latest a/b 'with space' ''; do
    expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id "$name"
  done
  [ "$(asked LaunchJob)" = 2 ] || fail "$(asked LaunchJob) launches"
}

test_the_limit_of_a_package() {
  serve
  git init -q
  target '"true"'
  head -c 26300000 /dev/urandom >big.bin
  expect 2 "$GDNCTL" ray-test $IRIS
  err_has 'package of the working directory has more than 26214400 bytes'
  err_has big.bin
  [ "$(asked .)" = 0 ] || fail "$(asked .) requests"
}

test_another_name_than_asked_for_is_followed() {
  serve
  ctl '{"rename": "/robot/{}"}'
  target '"echo renamed"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id mine --json
  [ "$(jq -r '"\(.submission_id) \(.job_id)"' "$WORK/out")" = '/robot/mine /robot/mine' ] || fail "$(cat "$WORK/out")"
  err_has renamed
  expect 0 "$GDNCTL" ray-logs $IRIS /robot/mine
  out_has renamed
  no_complaints
}

test_whole_names_and_those_of_others() {
  serve
  echo mine | job x SUCCEEDED
  echo of-x2 | job x2 SUCCEEDED
  echo theirs | job /you/x SUCCEEDED
  for id in x /me/x; do
    expect 0 "$GDNCTL" ray-logs $IRIS "$id"
    [ "$(cat "$WORK/out")" = mine ] || fail "$id"
  done
  expect 0 "$GDNCTL" ray-logs $IRIS /you/x
  [ "$(cat "$WORK/out")" = theirs ] || fail '/you/x'
  expect 0 "$GDNCTL" ray-wait $IRIS /you/x --json
  [ "$(jq -r '"\(.submission_id) \(.job_id)"' "$WORK/out")" = '/you/x /you/x' ] || fail "$(cat "$WORK/out")"
  no_complaints
}

test_lists() {
  serve
  job gdnctl-test-me-20261125T031358-48b1f032 FAILED 'submitted=1795577000000' </dev/null
  job newest RUNNING 'submitted=1795577900000' </dev/null
  job /you/other SUCCEEDED 'submitted=1795577100000' </dev/null
  job newest/child RUNNING </dev/null
  expect 0 "$GDNCTL" ray-list $IRIS --json
  [ "$(jq -r '[.jobs[].submission_id] | join(" ")' "$WORK/out")" = 'newest /you/other gdnctl-test-me-20261125T031358-48b1f032' ] || fail "$(cat "$WORK/out")"
  [ "$(jq -r .schema "$WORK/out")" = gdnctl.ray-list/1 ] || fail schema
  expect 0 "$GDNCTL" job list $IRIS --mine --json
  [ "$(jq -r '[.jobs[].submission_id] | join(" ")' "$WORK/out")" = 'newest gdnctl-test-me-20261125T031358-48b1f032' ] || fail "$(cat "$WORK/out")"
  [ "$(jq -r .schema "$WORK/out")" = gdnctl.ray-list/1 ] || fail 'schema of the alias'
  [ "$(sent ListJobs 'b["query"]["jobIdPrefix"]')" = /me/ ] || fail "--mine asks for everyone's jobs"
  expect 0 "$GDNCTL" ray-list $IRIS --status FAILED --json
  [ "$(jq -r '.jobs | length' "$WORK/out")" = 1 ] || fail "--status"
  expect 0 "$GDNCTL" ray-list $IRIS --limit 1
  out_has newest
  out_lacks other
  no_complaints
}

test_aliases_are_the_same_commands() {
  serve
  target '"echo via alias"'
  expect 0 "$GDNCTL" job test $IRIS --working-dir none --submission-id a --no-wait
  [ "$(cat "$WORK/out")" = '[gdnctl] submission_id=a' ] || fail 'job test --no-wait'
  expect 0 "$GDNCTL" job wait $IRIS a --show-logs
  out_has 'via alias'
  expect 0 "$GDNCTL" job logs $IRIS a
  [ "$(cat "$WORK/out")" = 'via alias' ] || fail 'job logs'
  expect 0 "$GDNCTL" job stop $IRIS a
  expect 0 "$GDNCTL" job list $IRIS
  expect 2 "$GDNCTL" job test $IRIS --timeout -1
  err_has 'hint: `gdnctl job test --help` shows the options'
  expect 2 "$GDNCTL" job tests $IRIS
  err_has 'job test'
  expect 0 "$GDNCTL" job --help
  out_has 'test'
  expect 0 "$GDNCTL" --help
  out_has '(also: job test)'
}

test_what_iris_cannot_do_is_said_in_one_sentence() {
  serve
  git init -q
  target '"true"'
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir gs://bucket/tree.zip
  err_has '--working-dir URI is not supported on iris'
  err_has 'hint: pass a folder, or `none`'
  printf 'a==1\n' >req.txt
  expect 2 "$GDNCTL" ray-test $IRIS --pip-requirements req.txt
  err_has '--pip-requirements is not supported on iris'
  err_lacks 'gdnctl ray-'
  expect 2 "$GDNCTL" ray-test $IRIS --keep-workdir
  err_has '--keep-workdir is not supported on iris'
  err_lacks 'gdnctl ray-'
  expect 2 "$GDNCTL" dev-tpu-connect $IRIS --tpu-name a
  err_has 'dev-tpu-connect is not supported on iris: its containers have no terminal; use dev-tpu-execute'
  expect 2 "$GDNCTL" dev-tpu-setup $IRIS --tpu-name a
  err_has 'dev-tpu-setup is not supported on iris: commands set up their own environment (uv sync)'
  expect 2 "$GDNCTL" dev-tpu-execute $IRIS --tpu-name a --via ssh -- true
  err_has "--via ssh is not supported on iris: commands run in the holder's container"
  expect 2 "$GDNCTL" ray-test $IRIS --ray-address http://127.0.0.1:9
  [ "$(asked LaunchJob)" = 0 ] || fail "something was launched"
}

test_a_spent_budget_is_said_before_the_launch() {
  serve
  target '"true"'
  ctl '{"budgets": [{"userId": "me", "budgetLimit": "1000", "budgetSpent": "4279", "maxBand": "PRIORITY_BAND_INTERACTIVE", "effectiveBand": "PRIORITY_BAND_BATCH", "utilizationPercent": 427.9}]}'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v5p-8
  err_has 'is spent: the job runs as BATCH and is preempted first'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none
  err_lacks BATCH
  [ "$(asked GetSchedulerState)" = 1 ] || fail "asked for a job without a TPU"
  ctl '{"budgets": [{"userId": "you", "effectiveBand": "PRIORITY_BAND_BATCH"}, {"userId": "me", "effectiveBand": "PRIORITY_BAND_INTERACTIVE"}]}'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v5p-8
  err_lacks BATCH
  fault GetSchedulerState '"status": 404, "times": -1'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v5p-8
  err_lacks BATCH
  err_lacks GetSchedulerState
}

test_preempted_in_the_middle_of_a_test() {
  serve
  target '"echo up; sleep 60"'
  launch "$GDNCTL" ray-test $IRIS --working-dir none --submission-id p --json
  wait_for said up
  ctl '{"kick": "/me/p", "reason": "Preempted by /you/big/0"}'
  wait "$pid"
  [ $? = 4 ] || fail "not 4"
  [ "$(jq -r '"\(.status) \(.error_type) \(.failure_class)"' "$WORK/out")" = 'FAILED JOB_SUPERVISOR_ACTOR_DIED infra' ] || fail "$(cat "$WORK/out")"
  err_has 'Preempted by /you/big/0'
}

test_ctrl_c_leaves_the_job_alone_unless_told() {
  serve
  target '"echo up; sleep 30"'
  launch "$GDNCTL" ray-test $IRIS --working-dir none --submission-id stays
  wait_for said up
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  err_has 'gdnctl job wait'
  expect 0 "$GDNCTL" ray-list $IRIS --status RUNNING
  out_has stays
  launch "$GDNCTL" ray-test $IRIS --working-dir none --submission-id goes --auto-stop
  wait_for said up
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  expect 3 "$GDNCTL" ray-wait $IRIS goes
  expect 124 "$GDNCTL" ray-wait $IRIS stays --timeout 0.5
}

test_a_kernel_is_judged_and_timed_as_a_job() {
  ! sanitized || skip 'with sanitizers the program is larger than a package'
  serve
  kernels_in_python
  there() { "$GDNCTL" oracle verify gdn --python /usr/bin/python3 $IRIS --allow-cpu --case device_003 "$@"; }
  expect 0 there --kernel py:mine.py --json
  jq -e '.verdict == "OK" and .job.backend == "iris" and .environment.framework == "numpy"' "$WORK/out" >/dev/null || fail 'JSON'
  [ "$(sent LaunchJob 'b["bundleBlob"] < 25 * 2**20')" = True ] || fail 'the bundle is too large'
  expect 1 there --kernel py:wrong.py --save-failures failures
  out_has 'verdict: WRONG'
  expect 1 "$GDNCTL" oracle compare gdn --inputs failures/device_003.inputs.safetensors --outputs failures/device_003.outputs.safetensors
  expect 0 "$GDNCTL" oracle bench gdn --python /usr/bin/python3 $IRIS --allow-cpu --shape 1,1,2,32,16,16 --rounds 2 --runs 1 --kernel py:mine.py
  out_has 'GFLOP/s'
  no_complaints
}

test_a_sweep_runs_as_a_job_for_each_time() {
  serve
  git init -q .
  cat >plan.toml <<'TOML'
shapes = [{ batch = 1024, hidden = 512, vocab = 128256 }]
v = [128, 256]
repeats = 1
device_kind = "TPU v5"
x_dtype = "bf16"
implementation = "mine"
source_revision = "r1"
command = ["sh", "-c", """echo "config $0 BlockSizes(b_block_size=$1, h_block_size=512, v_block_size=$2)"; echo 'loss 11.9'; echo "steady_time_s 0.$2"; echo 'tokens_per_s 1'""", "{label}", "{b}", "{v}"]
TOML
  expect 0 "$GDNCTL" sweep run plan.toml $IRIS --json
  jq -e '[.counts.ok, .counts.failed] == [2, 0]' "$WORK/out" >/dev/null || fail "counts: $(head -c 600 "$WORK/out")"
  [ "$(asked LaunchJob)" = 4 ] || fail "$(asked LaunchJob) launches"
  no_complaints
}
