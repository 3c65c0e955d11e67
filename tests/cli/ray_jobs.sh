# Jobs on a dashboard: submitting, waiting, stopping, listing.
. "$REPO/tests/support/ray_server.sh"

test_ray_test_runs_the_tree_and_follows_it() {
  serve
  git init -q
  target '"cat data.txt; ./run.sh; printf last"'
  echo from-the-tree >data.txt
  printf '#!/bin/sh\necho ran\n' >run.sh
  chmod +x run.sh
  expect 0 "$GDNCTL" ray-test $RAY
  out_has 'from-the-tree'
  out_has 'ran'
  [ "$(tail -c 4 "$WORK/out")" = last ] || fail "the end of the log is missing"
  err_has '[gdnctl] Job submitted with ID: gdnctl-test-'
  err_has "[gdnctl] Job URL: http://127.0.0.1:$PORT/#/jobs/gdnctl-test-"
  err_has 'status=SUCCEEDED Job finished successfully.'
  [ "$(asked 'dashboard (GET|PUT) /api/packages/gcs/_ray_pkg_[0-9a-f]{40}_[0-9a-f]{8}.zip$')" = 2 ] || fail "GET, PUT of the package"
  [ "$(asked 'POST /api/jobs/$')" = 1 ] || fail "one POST"
  no_complaints
}

test_exit_codes_of_every_end() {
  serve
  job ok SUCCEEDED </dev/null
  job red FAILED 'error_type="JOB_ENTRYPOINT_COMMAND_ERROR"' driver_exit_code=1 </dev/null
  job start FAILED 'error_type="JOB_ENTRYPOINT_COMMAND_START_ERROR"' </dev/null
  job env FAILED 'error_type="RUNTIME_ENV_SETUP_FAILURE"' </dev/null
  job stopped STOPPED 'message="Job was intentionally stopped."' </dev/null
  job died FAILED 'error_type="JOB_SUPERVISOR_ACTOR_DIED"' 'message="Job supervisor actor died: x"' </dev/null
  job late FAILED 'error_type="JOB_SUPERVISOR_ACTOR_START_TIMEOUT"' driver_node_id=null </dev/null
  job infra FAILED 'error_type="JOB_DRIVER_INFRA_FAILURE"' driver_exit_code=1 </dev/null
  job place FAILED 'error_type="JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE"' </dev/null
  job chips FAILED 'error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE"' 'message="TPU was set to 3 which is not a supported chip configuration"' driver_node_id=null </dev/null
  job other FAILED 'error_type="JOB_SUPERVISOR_ACTOR_START_FAILURE"' 'message="no room"' driver_node_id=null </dev/null
  job newer FAILED 'error_type="SOMETHING_NEW"' </dev/null
  for pair in ok:0 red:1 start:1 env:1 stopped:3 died:4 late:4 infra:4 place:4 chips:2 other:4 newer:1 nobody:6; do
    expect "${pair#*:}" "$GDNCTL" ray-wait $RAY "${pair%:*}"
  done
  no_complaints
}

test_an_id_that_is_listed_can_be_used() {
  serve
  local id
  for id in etl.daily:2026-01-01 'with space' -dash 'ümläut %41?x#y' "quo'te"; do
    echo "log of $id" | job "$id" SUCCEEDED
    expect 0 "$GDNCTL" ray-list $RAY
    out_has "$id"
    expect 0 "$GDNCTL" ray-logs $RAY -- "$id"
    out_has "log of $id"
    expect 0 "$GDNCTL" ray-wait $RAY --timeout 5 -- "$id"
    expect 0 "$GDNCTL" ray-stop $RAY -- "$id"
    err_has "Job $id had already ended (SUCCEEDED)"
  done
  expect 6 "$GDNCTL" ray-wait $RAY no.such:job
  for id in '' latest; do expect 2 "$GDNCTL" ray-wait $RAY "$id"; done
  # What is suggested can be typed as it stands.
  job "a b:'c" RUNNING end_time=null </dev/null
  expect 124 "$GDNCTL" ray-wait $RAY --match '^a b' --timeout 0
  next=$(sed -n 's/.*gdnctl ray-logs/ray-logs/p' "$WORK/err")
  eval "expect 0 \"\$GDNCTL\" $next"
  expect 6 "$GDNCTL" ray-wait --cluster local ../../etc
  expect 6 "$GDNCTL" ray-stop --cluster local etl.daily:2026-01-01
}

test_states_of_a_newer_server_are_shown_as_they_are() {
  serve
  job new RESTARTING end_time=null </dev/null
  job over CANCELLED end_time=1700000000000 </dev/null
  expect 0 "$GDNCTL" ray-list $RAY
  out_has 'RESTARTING '
  out_has 'CANCELLED '
  expect 0 "$GDNCTL" ray-list $RAY --json
  out_has '"submission_id":"new","status":"RESTARTING"'
  expect 124 "$GDNCTL" ray-wait $RAY new --timeout 0.5 --poll 0.1
  err_has 'status=RESTARTING'
  err_has 'unknown job state RESTARTING'
  expect 4 "$GDNCTL" ray-wait $RAY over --json
  out_has '"status":"CANCELLED"'
}

test_wait_on_a_finished_job_is_one_request() {
  serve
  job ok SUCCEEDED </dev/null
  expect 0 "$GDNCTL" ray-wait $RAY ok
  [ "$(asked .)" = 1 ] || fail "$(asked .) requests"
}

test_infra_suspect_from_the_log() {
  serve
  printf 'x\nRuntimeError: Device or resource busy\n' | job red FAILED 'error_type="JOB_ENTRYPOINT_COMMAND_ERROR"' driver_exit_code=1
  expect 1 "$GDNCTL" ray-wait $RAY red --json
  out_has '"failure_class":"infra-suspect"'
  out_has '"backend":"ray"'
}

test_wait_timeout_leaves_the_job_alive() {
  serve
  job long RUNNING end_time=null </dev/null
  expect 124 "$GDNCTL" ray-wait $RAY long --poll 0.1 --timeout 0.5
  [ "$(asked 'POST')" = 0 ] || fail "the job was touched"
}

test_polling_is_one_request_a_poll() {
  serve
  job long RUNNING end_time=null </dev/null
  expect 124 "$GDNCTL" ray-wait $RAY long --poll 0.2 --timeout 1.9
  [ "$(asked .)" -le 11 ] || fail "$(asked .) requests in 10 polls"
}

test_interrupt_leaves_the_job_running_and_auto_stop_stops_it() {
  serve
  target '"sleep 30"'
  launch "$GDNCTL" ray-test $RAY --working-dir none --submission-id one
  for _ in $(seq 200); do grep -q RUNNING "$WORK/err" && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "not 130"
  err_has 'the job keeps running; next:'
  [ "$(asked 'POST /api/jobs/one/stop')" = 0 ] || fail "stopped"
  launch "$GDNCTL" ray-test $RAY --working-dir none --submission-id two --auto-stop
  for _ in $(seq 200); do grep -q RUNNING "$WORK/err" && break; sleep 0.05; done
  kill -TERM "$pid"
  wait "$pid"
  [ $? = 143 ] || fail "not 143"
  err_has 'Job two stop requested'
  expect 3 "$GDNCTL" ray-wait $RAY two --poll 0.1
  expect 0 "$GDNCTL" ray-stop $RAY one --wait
}

test_stop_of_a_job_that_waits_is_made_good_later() {
  serve
  ctl '{"capacity": {"CPU": 2, "TPU": 0}}'
  target '"echo started; sleep 30"'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --no-wait --submission-id waits --tpu v5p-8
  expect 0 "$GDNCTL" ray-stop $RAY waits
  err_has 'Job waits stop requested'
  err_has 'job waits is still waiting'
  ctl '{"set": ["waits", {"_stop": false}]}'
  ctl '{"capacity": {"CPU": 2, "TPU": 4, "TPU-v5p-8-head": 1}}'
  for _ in $(seq 100); do "$GDNCTL" ray-list $RAY --status RUNNING 2>"$WORK/err" | grep -q waits && break; sleep 0.1; done
  expect 3 "$GDNCTL" ray-wait $RAY waits --poll 0.2
  [ "$(asked 'POST /api/jobs/waits/stop')" -ge 2 ] || fail "not stopped again"
  expect 0 "$GDNCTL" ray-list $RAY
  local before
  before=$(asked 'GET /api/jobs/waits')
  expect 0 "$GDNCTL" ray-list $RAY
  [ "$(asked 'GET /api/jobs/waits')" = "$before" ] || fail "asked about a job that has ended"
}

test_stop_wait_goes_on_to_the_end() {
  serve
  target '"sleep 30"'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --no-wait --submission-id s
  for _ in $(seq 100); do "$GDNCTL" ray-list $RAY --status RUNNING 2>/dev/null | grep -q ' s$' && break; sleep 0.1; done
  expect 0 "$GDNCTL" ray-stop $RAY s --wait --json
  out_has '"status":"STOPPED"'
  out_has '"stopped":true'
  expect 0 "$GDNCTL" ray-stop $RAY s --json
  out_has '"stopped":false'
  expect 6 "$GDNCTL" ray-stop $RAY nobody
}

test_taken_id_is_exit_2_and_uploads_stay_apart() {
  serve
  git init -q
  target '"true"'
  expect 0 "$GDNCTL" ray-test $RAY --no-wait --submission-id same
  expect 2 "$GDNCTL" ray-test $RAY --no-wait --submission-id same
  err_has 'Job with submission_id same already exists. Please use a different submission_id.'
  expect 0 "$GDNCTL" ray-test $RAY --no-wait --submission-id other
  local names
  names=$(python3 -c '
import json, sys
names = {json.loads(l)["path"] for l in open(sys.argv[1]) if "PUT" in l}
print(len(names), len({n.split("_")[3] for n in names}))' "$SRV/requests")
  [ "$names" = "3 1" ] || fail "names and contents: $names"
}

test_values_arrive_byte_for_byte() {
  serve
  target '"printf %s \"$SECRET\""'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none -e 'SECRET=a$HOME ${lower} $$ 100% "q" \'
  out_has 'a$HOME ${lower} $$ 100% "q" \'
  expect 2 "$GDNCTL" ray-test $RAY --working-dir none -e 'SECRET=hunter2${HOME}'
  err_lacks hunter2
  no_complaints
}

test_an_old_server_gets_no_field_it_does_not_know() {
  serve --version 2.52.1
  git init -q
  target '"echo ok"'
  expect 0 "$GDNCTL" ray-test $RAY --tpu v5p-8
  out_has ok
  no_complaints
}

test_pip_and_uri() {
  serve
  target '"true"'
  printf '# tools\na==1\n\nb>=2  # why\n' >requirements.txt
  expect 0 "$GDNCTL" ray-test $RAY --no-wait --working-dir s3://bucket/tree.zip --pip-requirements requirements.txt
  expect 2 "$GDNCTL" ray-test --cluster local --no-wait --working-dir none --pip-requirements requirements.txt
  err_has 'the local backend does not support --pip-requirements'
  no_complaints
}

test_too_large_a_tree_is_exit_2_without_upload() {
  serve
  git init -q
  target '"true"'
  head -c 105000000 /dev/urandom >big.bin
  echo small >small.txt
  expect 2 "$GDNCTL" ray-test $RAY
  err_has 'more than 104857600'
  err_has '105000000  big.bin'
  [ "$(asked PUT)" = 0 ] || fail "uploaded"
  [ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
}

test_list_matches_and_json() {
  serve
  job gdnctl-test-a SUCCEEDED start_time=1000 'metadata={"user":"me","kind":"test"}' </dev/null
  job gdnctl-test-b RUNNING start_time=2000 end_time=null </dev/null
  job ghost FAILED start_time=null 'entrypoint="Entrypoint not found."' </dev/null
  expect 0 "$GDNCTL" ray-list $RAY --json
  out_has '"schema":"gdnctl.ray-list/1"'
  out_lacks ghost
  expect 0 env USER=me "$GDNCTL" ray-list $RAY --mine
  out_has gdnctl-test-a
  out_lacks gdnctl-test-b
  expect 124 "$GDNCTL" ray-wait $RAY --match '^gdnctl-test' --timeout 0
  err_has 'submission_id=gdnctl-test-b'
}

test_ctrl_c_while_packing_submits_nothing() {
  serve
  git init -q
  target '"true"'
  truncate -s 3900M large  # nothing on disk, seconds to pack
  launch "$GDNCTL" ray-test $RAY --json --submission-id packed
  for _ in $(seq 600); do ls -l "/proc/$pid/fd" 2>/dev/null | grep -q gdnctl-package && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "exit code"
  out_has '"submission_id":"packed","status":null'
  [ "$(asked 'PUT|POST')" = 0 ] || fail "something was sent"
}

test_a_post_that_is_interrupted_names_the_job_or_stops_it() {
  serve
  target '"sleep 60"'
  ctl '{"fault": {"match": "POST /api/jobs/", "hang": 30, "times": -1}}'
  launch "$GDNCTL" ray-test $RAY --working-dir none --submission-id doubt
  for _ in $(seq 400); do [ "$(asked 'POST /api/jobs/$')" = 1 ] && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "exit code"
  err_has 'check whether the job was accepted: `gdnctl ray-wait doubt`'
}

test_json_when_a_signal_ends_a_submission() {
  serve
  target '"echo up >&2; sleep 60"'
  launch "$GDNCTL" ray-test $RAY --working-dir none --json --auto-stop --submission-id j
  for _ in $(seq 400); do grep -qx up "$WORK/err" && break; sleep 0.05; done
  kill -TERM "$pid"
  wait "$pid"
  [ $? = 143 ] || fail "exit code"
  out_has '"submission_id":"j","status":"STOPPED"'
  out_has '"backend":"ray"'
}

test_a_time_limit_is_kept_when_the_dashboard_is_silent() {
  serve
  job long RUNNING end_time=null </dev/null
  ctl '{"fault": {"match": "GET /api/jobs/long", "hang": 60, "times": -1}}'
  local start=$SECONDS
  expect 124 "$GDNCTL" ray-wait $RAY long --timeout 2
  [ $((SECONDS - start)) -le 8 ] || fail "took $((SECONDS - start)) s"
}
