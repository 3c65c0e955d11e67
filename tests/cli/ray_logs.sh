# Logs of jobs on a dashboard, byte for byte.
. "$REPO/tests/support/ray_server.sh"

same() { cmp -s "$1" "$2" || fail "not the same bytes: $(cmp "$1" "$2" 2>&1)"; }
numbered() { seq -f 'line %.0f' "$1" "$2"; }

test_tail_is_one_look() {
  serve
  numbered 1 5000 | job a SUCCEEDED
  expect 0 "$GDNCTL" ray-logs $RAY a --tail 3
  numbered 4998 5000 >"$WORK/want"
  same "$WORK/out" "$WORK/want"
  [ "$(asked '/api/v0/logs/file.*lines=3$')" = 1 ] || fail "not one look"
  [ "$(asked .)" = 2 ] || fail "$(asked .) requests"
  no_complaints
}

test_grep_then_tail_over_the_whole_log() {
  serve
  { numbered 1 3000; echo 'ERROR one'; numbered 1 3000; echo 'a Traceback'; numbered 1 10; } | job a SUCCEEDED
  expect 0 "$GDNCTL" ray-logs $RAY a --grep 'profiler|trace|ERROR|Traceback' --tail 1
  [ "$(cat "$WORK/out")" = 'a Traceback' ] || fail "grep before tail"
  [ "$(asked 'lines=-1$')" = 1 ] || fail "not the whole log once"
  expect 2 "$GDNCTL" ray-logs $RAY a --grep '('
}

test_raw_bytes_pass_and_json_is_repaired() {
  serve
  printf 'ok\n\377\376bad\0\nno newline' >"$WORK/want"
  job a FAILED 'error_type="JOB_ENTRYPOINT_COMMAND_ERROR"' driver_exit_code=5 <"$WORK/want"
  expect 0 "$GDNCTL" ray-logs $RAY a
  same "$WORK/out" "$WORK/want"
  expect 0 "$GDNCTL" ray-logs $RAY a --json
  python3 -c 'import json, sys; sys.exit("\ufffd\ufffdbad" not in json.load(open(sys.argv[1], encoding="utf-8"))["logs"])' "$WORK/out" || fail "not repaired"
}

follows() { # whatever the server's options, the log in pieces arrives whole
  numbered 1 2000 >"$WORK/want"
  job f RUNNING end_time=null <"$WORK/want"
  launch "$GDNCTL" ray-logs $RAY f --follow --tail 100000
  for round in 1 2 3 4; do
    sleep 0.6
    [ -z "${1:-}" ] || ctl "$1"
    ctl "$(python3 -c '
import json, sys
text = "".join("same\n" for _ in range(40)) + "round %s \u20ac\n" % sys.argv[1] * 3
open(sys.argv[2], "a", encoding="utf-8").write(text)
print(json.dumps({"append": ["f", text]}))' "$round" "$WORK/want")"
  done
  printf 'the end' >>"$WORK/want"
  ctl '{"append": ["f", "the end"]}'
  ctl '{"set": ["f", {"status": "SUCCEEDED", "message": "Job finished successfully."}]}'
  wait "$pid" || fail "follow ended with $?"
  same "$WORK/out" "$WORK/want"
  no_complaints
}

test_follow_through_the_agent() {
  serve
  follows
  [ "$(asked 'agent GET /logs/job-driver-f.log')" -gt 3 ] || fail "not through the agent"
  [ "$(asked '/api/v0/')" = 0 ] || fail "the dashboard was asked too"
}

test_follow_through_the_dashboard() {
  serve --no-agent
  follows
  [ "$(asked '/api/v0/logs/file')" -gt 3 ] || fail "not through the dashboard"
}

test_follow_with_cut_connections() {
  serve --no-agent
  follows '{"fault": {"match": "GET /api/v0/logs/file", "cut_body": 900}}'
}

test_follow_with_resets_of_everything() {
  serve
  ctl '{"fault": {"match": "AGENT", "times": 2, "skip": 2, "reset": 1}}'
  follows '{"fault": {"match": "GET", "reset": 1}}'
}

test_follow_as_json_when_nothing_else_works() {
  serve --no-agent
  ctl '{"fault": {"match": "GET /api/v0/", "times": -1, "status": 404, "body": "404: Not Found"}}'
  follows
}

test_follow_survives_a_suspended_client() {
  serve
  job f RUNNING end_time=null </dev/null
  launch "$GDNCTL" ray-logs $RAY f --follow
  sleep 0.8
  kill -STOP "$pid"
  ctl '{"append": ["f", "while you slept\n"]}'
  sleep 1
  kill -CONT "$pid"
  ctl '{"set": ["f", {"status": "SUCCEEDED"}]}'
  wait "$pid" || fail "ended with $?"
  [ "$(cat "$WORK/out")" = 'while you slept' ] || fail "log: $(cat "$WORK/out")"
}

test_logs_gone_with_the_node_still_give_the_status() {
  serve --no-agent
  job d FAILED 'error_type="JOB_SUPERVISOR_ACTOR_DIED"' 'driver_node_id="abab"' </dev/null
  expect 4 "$GDNCTL" ray-wait $RAY d --show-logs
  err_has 'logs are gone with the node'
  expect 6 "$GDNCTL" ray-logs $RAY d
  err_has 'logs are gone with the node'
  # Nothing depends on the log of a job that is followed: its status is told at once, the loss once.
  expect 0 timeout 30 "$GDNCTL" ray-logs $RAY d --follow
  err_has 'status=FAILED'
  [ "$(grep -c 'logs are gone with the node' "$WORK/err")" = 1 ] || fail "not said once: $(cat "$WORK/err")"
}

test_full_disk_under_the_printed_log_is_exit_8() {
  serve
  [ -e /dev/full ] || skip 'no /dev/full'
  numbered 1 200000 | job a SUCCEEDED
  "$GDNCTL" ray-logs $RAY a --tail 200000 >/dev/full 2>"$WORK/err"
  [ $? = 8 ] || fail "not 8: $(cat "$WORK/err")"
}

test_logs_of_a_waiting_job_are_empty() {
  serve
  job p PENDING driver_node_id=null end_time=null </dev/null
  expect 0 "$GDNCTL" ray-logs $RAY p
  out_empty
}

test_show_logs_with_json_goes_to_stderr() {
  serve
  echo hello | job a SUCCEEDED
  expect 0 "$GDNCTL" ray-wait $RAY a --show-logs --json
  err_has hello
  python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$WORK/out" || fail "stdout is not one object"
}
