# An Iris controller, or what stands in its place, that misbehaves. One fault, one test.
. "$REPO/tests/support/iris_server.sh"

wait_with() { # CODE METHOD KEYS
  serve
  job ok SUCCEEDED </dev/null
  fault "$2" "$3"
  expect "$1" "$GDNCTL" ray-wait $IRIS ok --poll 0.2
  no_complaints
}
for_any_state() { wait_with 0 Get "$1"; }

test_slow_drip_is_waited_for() { for_any_state '"drip": 0.002'; }
test_half_closed_connection_is_asked_again() { for_any_state '"half": 1'; }
test_wrong_content_length_is_asked_again() { for_any_state '"short": 50'; }
test_reset_is_asked_again() { for_any_state '"reset": 1, "times": 2'; }
test_cut_answer_is_asked_again() { for_any_state '"cut": 1'; }
test_bad_gateway_is_asked_again() { for_any_state '"status": 502, "body": "<html><title>502</title></html>"'; }
test_unavailable_is_asked_again() { for_any_state '"status": 503'; }
test_gateway_timeout_is_asked_again() { for_any_state '"status": 504'; }
test_internal_error_is_asked_again() { for_any_state '"status": 500, "answer": {"code": "internal", "message": "database is locked"}'; }
test_too_many_tasks_is_asked_again() { for_any_state '"status": 429, "answer": {"code": "resource_exhausted", "message": "16000 active tasks"}'; }
test_not_http_is_asked_again() { for_any_state '"garbage": 1'; }

test_deep_json_is_no_crash() {
  serve
  job ok SUCCEEDED </dev/null
  python3 -c 'import json; print(json.dumps({"fault": {"match": "Get", "status": 200, "body": "[" * 300000, "type": "application/json", "times": -1}}))' | order
  expect 124 "$GDNCTL" ray-wait $IRIS ok --poll 0.2 --timeout 3
  err_has 'not an Iris controller'
}

refused() { # CODE METHOD COMMAND... : one request with the planned refusal, no retry
  local code=$1 method=$2 before
  shift 2
  before=$(asked "$method")
  expect "$code" "$@"
  [ $(($(asked "$method") - before)) -le 1 ] || fail "$(($(asked "$method") - before)) requests of $method"
}

test_refusals_by_the_table() {
  serve
  target '"true"'
  local code keys text
  while IFS='|' read -r code keys text; do
    fault LaunchJob "$keys"
    refused "$code" LaunchJob "$GDNCTL" ray-test $IRIS --working-dir none
    err_has "$text"
    err_lacks 'trying again'
  done <<'L'
2|"status": 400, "answer": {"code": "invalid_argument", "message": "Bundle size 3 exceeds the maximum"}|Bundle size 3 exceeds the maximum
2|"status": 400, "answer": {"code": "failed_precondition", "message": "marin-iris client is too old"}|marin-iris client is too old
2|"status": 500, "answer": {"code": "unknown", "message": "Failed to parse priorityBand field"}|Failed to parse priorityBand field
2|"status": 500, "answer": {"code": "internal", "message": "RPC LaunchJob: Job name must use canonical form"}|Job name must use canonical form
2|"status": 404, "body": ""|LaunchJob
2|"status": 405, "body": ""|LaunchJob
2|"status": 415, "body": ""|LaunchJob
5|"status": 401, "answer": {"error": "authentication required"}|authentication required
5|"status": 401, "answer": {"error": "authentication failed"}|authentication failed
5|"status": 401, "body": "<html><title>401</title></html>"|401
5|"status": 403, "answer": {"code": "permission_denied", "message": "Budget identity me cannot submit production jobs"}|cannot submit production jobs
5|"status": 403, "body": "<html><head><title>You don't have access</title></head></html>"|You don't have access
4|"status": 200, "body": "<html><title>Sign in</title></html>"|not an Iris controller
L
  [ "$(asked LaunchJob)" = 13 ] || fail "$(asked LaunchJob) launches"
  no_complaints
}

test_a_page_that_refuses_the_login_says_where_and_what_to_do() {
  behind_iap
  local status times method words
  while read -r status times method words; do
    fault "$method" "\"status\": $status, \"times\": $times, \"body\": \"<!DOCTYPE html><html><body>no</body></html>\""
    expect 5 "$GDNCTL" $words $IRIS
    err_has "http://127.0.0.1:$PORT refused the login (status $status): an HTML page"
    err_has 'hint: iris --cluster c login'
  done <<'L'
401 2 ListJobs ray-list
403 1 ListJobs ray-list
401 2 GetJobStatus job wait x
403 1 GetJobStatus job wait x
401 2 GetCurrentUser cluster check
403 1 GetCurrentUser cluster check
L
  no_complaints
}

test_what_is_no_controller_gets_a_hint() {
  serve
  fault GetCurrentUser '"status": 404, "body": ""'
  expect 4 "$GDNCTL" cluster check $IRIS
  err_has 'not an Iris controller: GetCurrentUser returned 404'
  err_has 'hint: check the address'
  python3 -c 'import json; print(json.dumps({"fault": {"match": "GetCurrentUser", "status": 200, "body": "x" * 9000000}}))' | order
  expect 4 "$GDNCTL" cluster check $IRIS
  err_has 'the answer is larger than 8388608 bytes'
  err_has "hint: check the address: http://127.0.0.1:$PORT may be no Iris controller"
}

test_a_text_of_the_job_cannot_write_to_the_terminal() {
  serve
  job evil FAILED 'error="Exit code: 3. stderr: \u001b[31mred\u001b[2J\u0007\n[gdnctl] forged"' 'task_error="Exit code: 3. stderr: \u001b[31mred\u001b[2J\u0007\n[gdnctl] forged"' </dev/null
  expect 1 "$GDNCTL" job wait $IRIS evil
  err_has 'stderr: red'
  ! grep -q "$(printf '[\033\007]')" "$WORK/err" || fail "control characters: $(cat -v "$WORK/err")"
  ! grep -q '^.gdnctl. forged' "$WORK/err" || fail "a line that looks like ours"
  job waits PENDING 'reason="no \u001b[31mTPU"' </dev/null
  expect 124 "$GDNCTL" job wait $IRIS waits --timeout 1
  ! grep -q "$(printf '\033')" "$WORK/err" || fail "control characters: $(cat -v "$WORK/err")"
}

test_a_traceback_in_the_details_is_never_printed() {
  serve
  target '"true"'
  fault LaunchJob '"status": 400, "answer": {"code": "invalid_argument", "message": "no", "details": [{"type": "iris.rpc.ErrorDetails", "value": "dHJhY2ViYWNr", "debug": {"traceback": "Traceback of-the-server"}}]}'
  expect 2 "$GDNCTL" -vv ray-test $IRIS --working-dir none
  err_lacks of-the-server
  err_lacks dHJhY2ViYWNr
}

test_a_page_or_nobody_at_the_address_is_exit_4() {
  serve
  fault ListJobs '"status": 200, "body": "<html><title>Sign in</title></html>", "times": -1'
  expect 4 "$GDNCTL" ray-list $IRIS
  err_has "not an Iris controller: http://127.0.0.1:$PORT returned"
  local words start
  target '"true"'
  for words in ray-list 'ray-logs x' 'ray-logs -f x' 'ray-stop x' 'ray-wait x' 'ray-test --working-dir none'; do
    start=$SECONDS
    expect 4 "$GDNCTL" $words --iris-url http://127.0.0.1:9
    [ $((SECONDS - start)) -lt 8 ] || fail "$words took $((SECONDS - start)) s"
    err_lacks 'local backend'
  done
}

submits_once() { # KEYS of the fault
  serve
  target '"echo once"'
  fault LaunchJob "$1"
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id one
  out_has once
  expect 0 "$GDNCTL" ray-list $IRIS --json
  [ "$(jq '.jobs | length' "$WORK/out")" = 1 ] || fail "not one job"
  no_complaints
}
test_launch_whose_answer_is_cut_is_one_job() { submits_once '"cut": 1'; }
test_launch_that_is_reset_is_one_job() { submits_once '"reset": 1'; }
test_launch_behind_a_bad_gateway_is_one_job() { submits_once '"status": 502'; }
test_launch_with_an_internal_error_is_one_job() { submits_once '"status": 500, "times": 2, "answer": {"code": "internal", "message": "database is locked"}'; }
test_launch_answer_in_the_middle_is_one_job() { submits_once '"cut_body": 5'; }
test_launch_cut_and_the_look_cut_is_one_job() {
  serve
  target '"echo once"'
  fault LaunchJob '"cut": 1'
  fault GetJobStatus '"reset": 1'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id one
  out_has once
  [ "$(asked LaunchJob)" = 2 ] || fail "not sent again"
}
test_a_foreign_job_met_after_a_cut_is_exit_2() {
  serve
  target '"echo mine"'
  job one RUNNING 'env={"GDNCTL_META_NONCE": "ffffffffffffffff"}' </dev/null
  fault LaunchJob '"reset": 1'
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id one
  err_has 'Job with submission_id one already exists'
}

test_states_and_fields_of_a_newer_build() {
  serve
  ctl '{"extra": true}'
  target '"echo new; exit 3"'
  expect 1 "$GDNCTL" ray-test $IRIS --working-dir none --json
  [ "$(jq .driver_exit_code "$WORK/out")" = 3 ] || fail "$(cat "$WORK/out")"
  err_has new
  job odd REBALANCING </dev/null
  expect 124 "$GDNCTL" ray-wait $IRIS odd --timeout 1 --poll 0.2 --json
  err_has 'status=RUNNING Job is currently running.'
  err_has 'unknown job state REBALANCING'
  [ "$(jq -r '"\(.status): \(.message)"' "$WORK/out")" = 'RUNNING: Job is currently running.' ] || fail "$(cat "$WORK/out")"
  expect 0 "$GDNCTL" ray-list $IRIS --status RUNNING --json
  [ "$(jq -r '.jobs[0] | "\(.submission_id) \(.status): \(.message)"' "$WORK/out")" = 'odd RUNNING: Job is currently running.' ] ||
    fail "$(cat "$WORK/out")"
  ctl '{"set": ["/me/odd", {"state": "JOB_STATE_SUCCEEDED"}]}'
  expect 0 "$GDNCTL" ray-wait $IRIS odd
  expect 0 "$GDNCTL" ray-stop $IRIS odd
  no_complaints
}

test_a_restarted_controller_that_knows_nothing_is_exit_4() {
  serve
  target '"echo up; sleep 30"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --no-wait --submission-id lost
  launch "$GDNCTL" ray-wait $IRIS lost --poll 0.2
  wait_for said status=RUNNING
  ctl '{"forget": true}'
  wait "$pid"
  [ $? = 4 ] || fail "not 4"
  err_has 'job record vanished'
  # A later command knows it too; of a name that nobody has heard of it says so.
  expect 4 "$GDNCTL" ray-wait $IRIS lost
  err_has 'job record vanished'
  expect 6 "$GDNCTL" ray-wait $IRIS never-there
  err_has 'Job never-there does not exist'
}

test_a_record_that_is_only_late_has_not_vanished() {
  serve
  target '"echo up; sleep 2; echo end"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --no-wait --submission-id late
  fault GetJobState '"answer": {}, "skip": 2'
  fault GetJobStatus '"skip": 1, "status": 404, "answer": {"code": "not_found", "message": "Job /me/late not found"}'
  expect 0 "$GDNCTL" ray-wait $IRIS late --poll 0.2
  err_lacks vanished
}

test_a_controller_away_does_not_end_the_wait() {
  serve
  target '"echo up; sleep 3; echo end"'
  launch "$GDNCTL" ray-test $IRIS --working-dir none --submission-id away
  wait_for said up
  fault '' '"reset": 1, "times": 6'
  wait "$pid" || fail "ended with $?"
  out_has end
  err_has 'trying again'
  [ "$(grep -cx up "$WORK/out")" = 1 ] || fail "a line twice"
}

test_the_status_is_right_while_the_log_cannot_be_read() {
  serve
  fault FetchLogs '"status": 500, "answer": {"code": "internal", "message": "log read failed"}, "times": -1'
  target '"echo unseen; exit 3"'
  expect 1 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id blind
  err_has 'the end of the log could not be read'
  cat >gdnctl.toml <<'T'
target = "t"
[targets.t]
test = ["true"]
profile = ["echo", '{"ms": 5}']
metric = { name = "ms", better = "lower", unit = "ms", from = "json:/ms" }
T
  expect 4 "$GDNCTL" ray-profile $IRIS --working-dir none --timeout 8 --json
  [ "$(jq -r .status "$WORK/out")" = SUCCEEDED ] || fail "$(cat "$WORK/out")"
}

test_a_log_that_comes_back_has_the_metric() {
  serve
  cat >gdnctl.toml <<'T'
target = "t"
[targets.t]
test = ["true"]
profile = ["echo", '{"ms": 5}']
metric = { name = "ms", better = "lower", unit = "ms", from = "json:/ms" }
T
  fault FetchLogs '"status": 502, "times": 3'
  expect 0 "$GDNCTL" ray-profile $IRIS --working-dir none --json
  out_has '"value":5.0'
}

test_ten_megabytes_of_error_are_one_line() {
  serve
  python3 -c 'import json; print(json.dumps({"fault": {"match": "TerminateJob", "status": 400, "answer": {"code": "invalid_argument", "message": "  File x\n" * 1200000 + "ValueError: at last"}}}))' | order
  job x RUNNING </dev/null
  expect 2 "$GDNCTL" ray-stop $IRIS x
  [ "$(wc -c <"$WORK/err")" -lt 3000 ] || fail "$(wc -c <"$WORK/err") bytes on stderr"
  python3 -c 'import json; print(json.dumps({"job": {"name": "/me/big", "state": "JOB_STATE_FAILED", "error": "x" * 1000000, "task_error": "x" * 1000000}}))' | order
  expect 1 "$GDNCTL" ray-wait $IRIS big
}

test_polling_stays_within_its_pace() {
  serve
  target '"echo up; sleep 14"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id pace
  # State every 0.25 s in the first 10 s and every second then; the log every second.
  [ "$(asked GetJobState)" -le 52 ] || fail "$(asked GetJobState) looks at the state in 14 s"
  [ "$(asked GetJobStatus)" -le 6 ] || fail "$(asked GetJobStatus) GetJobStatus"
  [ "$(asked FetchLogs)" -le 26 ] || fail "$(asked FetchLogs) looks at the log in 14 s"
}

test_a_federated_job() {
  serve
  job far RUNNING 'cluster="peer-b"' 'peer="PEER_STATUS_SYNCED"' </dev/null
  ctl '{"append": ["/me/far", ["from the peer"]]}'
  launch "$GDNCTL" ray-logs $IRIS far --follow
  wait_for said 'from the peer'
  ctl '{"append": ["/me/far", ["and its end"]]}'
  ctl '{"set": ["/me/far", {"state": "JOB_STATE_SUCCEEDED"}]}'
  wait "$pid" || fail "ended with $?"
  out_has 'and its end'
  err_has '[gdnctl] runs on cluster peer-b'
  job refused PENDING 'cluster="peer-b"' 'peer="PEER_STATUS_REJECTED"' 'reason="Rejected by peer-b"' </dev/null
  expect 4 "$GDNCTL" ray-wait $IRIS refused --timeout 20
  no_complaints
}
