# Logs of jobs on Iris: lines, each once, however they come.
. "$REPO/tests/support/iris_server.sh"

same() { cmp -s "$1" "$2" || fail "not the same bytes: $(cmp "$1" "$2" 2>&1)"; }
numbered() { seq -f 'line %.0f' "$1" "$2"; }

test_tail_is_one_look() {
  serve
  numbered 1 5000 | job a SUCCEEDED
  expect 0 "$GDNCTL" ray-logs $IRIS a --tail 3
  numbered 4998 5000 >"$WORK/want"
  same "$WORK/out" "$WORK/want"
  grep -q '"tail": true' "$SRV/requests" || fail "the whole log was asked for"
  [ "$(asked FetchLogs)" -le 2 ] || fail "$(asked FetchLogs) looks"
  expect 0 "$GDNCTL" ray-logs $IRIS a --tail 0
  [ ! -s "$WORK/out" ] || fail "--tail 0"
  expect 0 "$GDNCTL" ray-logs $IRIS a --tail 3 --json
  jq -e '.logs == "line 4998\nline 4999\nline 5000\n"' "$WORK/out" >/dev/null || fail "the JSON"
  no_complaints
}

test_grep_then_tail_over_the_whole_log() {
  serve
  { numbered 1 3000; echo 'ERROR one'; numbered 1 3000; echo 'a Traceback'; numbered 1 10; } | job a SUCCEEDED
  expect 0 "$GDNCTL" ray-logs $IRIS a --grep 'profiler|trace|ERROR|Traceback' --tail 1
  [ "$(cat "$WORK/out")" = 'a Traceback' ] || fail "grep before tail"
  expect 2 "$GDNCTL" ray-logs $IRIS a --grep '('
  no_complaints
}

test_a_page_of_exactly_its_limit_is_followed_by_another() {
  serve
  numbered 1 6000 >"$WORK/want"
  job a SUCCEEDED <"$WORK/want"
  expect 0 "$GDNCTL" ray-logs $IRIS a --tail 100000
  same "$WORK/out" "$WORK/want"
  expect 0 "$GDNCTL" ray-logs $IRIS a --follow --tail 100000
  same "$WORK/out" "$WORK/want"
  page=$(sent FetchLogs 'b.get("maxLines", 1000)')
  numbered 1 "$page" >"$WORK/want"
  job b SUCCEEDED <"$WORK/want"
  expect 0 "$GDNCTL" ray-wait $IRIS b --show-logs --tail 100000
  same "$WORK/out" "$WORK/want"
  no_complaints
}

test_follow_prints_each_line_once() {
  serve
  numbered 1 3000 >"$WORK/want"
  job f RUNNING <"$WORK/want"
  launch "$GDNCTL" ray-logs $IRIS f --follow --tail 100000
  wait_for said 'line 3000'
  for round in 1 2 3; do
    fault FetchLogs '"cut_body": 200'
    python3 -c '
import json, sys
lines = ["same"] * 40 + ["", "round %s \u20ac" % sys.argv[1]] * 3
open(sys.argv[2], "a", encoding="utf-8").write("".join(line + "\n" for line in lines))
print(json.dumps({"append": ["/me/f", lines]}))' "$round" "$WORK/want" | order
    sleep 0.7
  done
  ctl '{"append": ["/me/f", ["the end"]]}'
  echo 'the end' >>"$WORK/want"
  ctl '{"set": ["/me/f", {"state": "JOB_STATE_SUCCEEDED"}]}'
  wait "$pid" || fail "follow ended with $?"
  same "$WORK/out" "$WORK/want"
  no_complaints
}

test_lines_after_the_end_are_seen() {
  serve
  ctl '{"lag": 1.5}'
  target '"echo first; echo last; exit 3"'
  expect 1 "$GDNCTL" ray-test $IRIS --working-dir none
  out_has first
  out_has last
}

test_a_second_attempt_is_announced() {
  serve
  job r RUNNING </dev/null
  launch "$GDNCTL" ray-logs $IRIS r --follow
  ctl '{"append": ["/me/r", ["of the first"], 0]}'
  wait_for said 'of the first'
  ctl '{"append": ["/me/r", ["of the second"], 1]}'
  wait_for said 'of the second'
  ctl '{"set": ["/me/r", {"state": "JOB_STATE_SUCCEEDED", "attempt": {"attemptId": 1}}]}'
  wait "$pid" || fail "ended with $?"
  cat "$WORK/out" "$WORK/err" | grep -qF '[gdnctl] attempt 2 began' || fail "not announced"
  expect 0 "$GDNCTL" ray-wait $IRIS r --json
  [ "$(jq .attempts "$WORK/out")" = 2 ] || fail "attempts: $(cat "$WORK/out")"
}

test_a_neighbour_with_a_longer_name_is_not_read() {
  serve
  echo mine | job x SUCCEEDED
  echo not-mine | job x2 SUCCEEDED
  echo of-the-child | job x/kid SUCCEEDED
  expect 0 "$GDNCTL" ray-logs $IRIS x
  out_has mine
  out_lacks not-mine
  out_has of-the-child
}

test_odd_lines() {
  serve
  git init -q
  python3 - "$WORK/want" <<'P'
import sys
open("said", "wb").write(b"trailing  \n\na\rb\n" + b"z" * 5000000 + b"\nesc\033[1m nul\0 \xe2\x82\xac\nend")
open(sys.argv[1], "wb").write(b"trailing\n\na\nb\n" + b"z" * 5000000 + b"\nesc\033[1m nul\0 \xe2\x82\xac\nend\n")
P
  target '"cat said"'
  expect 0 "$GDNCTL" ray-test $IRIS
  same "$WORK/out" "$WORK/want"
}

test_lost_lines_do_not_change_the_status() {
  serve
  numbered 1 12000 | job flood SUCCEEDED
  ctl '{"lose": 2000}'
  expect 0 "$GDNCTL" ray-wait $IRIS flood --show-logs --tail 100000
  [ "$(wc -l <"$WORK/out")" = 10000 ] || fail "$(wc -l <"$WORK/out") lines"
  expect 0 "$GDNCTL" ray-logs $IRIS flood --follow --tail 100000
  [ "$(head -1 "$WORK/out")" = 'line 2001' ] || fail "$(head -1 "$WORK/out")"
}

test_an_empty_log() {
  serve
  job quiet SUCCEEDED </dev/null
  for words in 'ray-logs quiet' 'ray-logs quiet -f' 'ray-wait quiet --show-logs'; do
    expect 0 "$GDNCTL" $words $IRIS
    [ ! -s "$WORK/out" ] || fail "$words printed something"
  done
  expect 6 "$GDNCTL" ray-logs $IRIS nobody
  expect 6 "$GDNCTL" ray-logs $IRIS nobody -f
}

test_a_follow_of_a_vanished_record_ends() {
  serve
  target '"echo up; sleep 30"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --no-wait --submission-id v
  launch "$GDNCTL" ray-logs $IRIS v --follow
  wait_for said up
  ctl '{"forget": true}'
  wait "$pid"
  [ $? = 4 ] || fail "not 4"
  err_has 'job record vanished'
}

test_forty_thousand_lines_take_little() {
  serve
  numbered 1 40000 | job big SUCCEEDED
  expect_within_kb 65536 "$GDNCTL" ray-logs $IRIS big --follow --tail 100000
  [ "$(wc -l <"$WORK/out")" = 40000 ] || fail "$(wc -l <"$WORK/out") lines"
  [ "$(asked FetchLogs)" -le 45 ] || fail "$(asked FetchLogs) requests"
}

test_json_and_stderr_of_show_logs() {
  serve
  printf 'one\ntwo\n' | job a FAILED 'error="Exit code: 3"' 'task_error="Exit code: 3"' exit=3
  expect 1 "$GDNCTL" ray-wait $IRIS a --show-logs --json
  err_has two
  [ "$(jq .driver_exit_code "$WORK/out")" = 3 ] || fail "$(cat "$WORK/out")"
}
