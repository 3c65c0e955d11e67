# A dashboard, or what stands in its place, that misbehaves. One fault, one test.
. "$REPO/tests/support/ray_server.sh"

finished() { job ok SUCCEEDED </dev/null; }
wait_with() { # CODE FAULT
  serve
  finished
  ctl "{\"fault\": $2}"
  expect "$1" "$GDNCTL" ray-wait $RAY ok --poll 0.2
  no_complaints
}

test_slow_drip_is_waited_for() { wait_with 0 '{"match": "GET /api/jobs/ok", "drip": 0.002}'; }
test_half_closed_connection_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "half": 1}'; }
test_wrong_content_length_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "short": 50}'; }
test_reset_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "reset": 1, "times": 2}'; }
test_cut_answer_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "cut": 1}'; }
test_bad_gateway_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "status": 502, "body": "<html><title>502</title>"}'; }
test_unavailable_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "status": 503}'; }
test_gateway_timeout_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "status": 504}'; }
test_job_server_crash_is_asked_again() {
  wait_with 0 '{"match": "GET /api/jobs/ok", "status": 500, "body": "500 Internal Server Error\n\nServer got itself in trouble", "times": 2}'
}
test_not_http_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "garbage": 1}'; }
test_page_of_a_proxy_is_asked_again() {
  wait_with 0 '{"match": "GET /api/jobs/ok", "status": 200, "type": "text/html", "body": "<html><title>Sign in</title></html>"}'
  err_has 'an HTML page: Sign in'
}
test_empty_answer_is_asked_again() { wait_with 0 '{"match": "GET /api/jobs/ok", "status": 200, "body": ""}'; }
test_deep_json_is_no_crash() {
  serve
  finished
  python3 -c 'import json; print(json.dumps({"fault": {"match": "GET /api/jobs/ok", "status": 200, "body": "[" * 300000}}))' | order
  expect 0 "$GDNCTL" ray-wait $RAY ok --poll 0.2
}

# A profile that prints {"ms": 5}; its log cannot be read the first N times (-1: ever) in each way.
profile_without_a_log() { # N
  serve
  for way in 'AGENT /' 'GET /api/v0/logs' 'GET /api/jobs/p/logs'; do
    ctl "{\"fault\": {\"match\": \"$way\", \"status\": 502, \"times\": $1}}"
  done
  cat >gdnctl.toml <<'T'
target = "t"
[targets.t]
test = ["true"]
profile = ["echo", '{"ms": 5}']
metric = { name = "ms", better = "lower", unit = "ms", from = "json:/ms" }
T
}

test_a_log_that_comes_back_after_the_jobs_end_has_the_metric() {
  profile_without_a_log 5
  expect 0 "$GDNCTL" ray-profile $RAY --submission-id p --working-dir none --json
  out_has '"value":5.0'
}

test_a_metric_without_its_log_is_no_success() {
  profile_without_a_log -1
  expect 4 "$GDNCTL" ray-profile $RAY --submission-id p --working-dir none --timeout 8 --json
  out_has '"status":"SUCCEEDED"'
  out_has '"value":null'
  err_has 'log incomplete'
  err_lacks 'no JSON object'
}

test_a_test_is_judged_by_its_status_if_its_log_stays_away() {
  profile_without_a_log -1
  expect 0 "$GDNCTL" ray-test $RAY --submission-id p --working-dir none
  err_has 'the end of the log could not be read'
}

test_a_page_for_a_list_is_exit_4() {
  serve
  ctl '{"fault": {"match": "GET /api/jobs/", "status": 200, "body": "<html><title>Sign in</title></html>"}}'
  expect 4 "$GDNCTL" ray-list $RAY
  err_has 'an HTML page: Sign in'
}

test_no_jobs_server_is_exit_4() {
  serve
  expect 4 "$GDNCTL" ray-list $RAY/prefix
  err_has 'there is no Ray Jobs API at it'
}

# another_host: a server that writes down whatever it is sent, in $WORK/other/seen; its port is $OTHER.
another_host() {
  mkdir -p "$WORK/other"
  python3 -c '
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    def note(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        open(sys.argv[1] + "/seen", "ab").write(self.requestline.encode() + b"\n" + str(self.headers).encode() + body)
        self.send_response(200); self.end_headers()
    do_GET = do_POST = do_PUT = do_HEAD = do_CONNECT = note
    def log_message(self, *a): pass
s = http.server.HTTPServer(("127.0.0.1", 0), H)
open(sys.argv[1] + "/port", "w").write(str(s.server_port))
s.serve_forever()' "$WORK/other" >/dev/null 2>&1 &
  other=$!
  trap 'kill $other $server 2>/dev/null; cleanup' EXIT
  for _ in $(seq 200); do [ -s "$WORK/other/port" ] && break; sleep 0.05; done
  OTHER=$(cat "$WORK/other/port")
}

test_redirect_to_another_host_gets_no_token() {
  serve
  another_host
  ctl "{\"fault\": {\"match\": \"POST /api/jobs/x\", \"status\": 307, \"headers\": {\"Location\": \"http://127.0.0.1:$OTHER/\"}, \"times\": -1}}"
  expect 4 env RAY_AUTH_TOKEN=s3cret-token-value "$GDNCTL" ray-stop $RAY x
  err_has 'is redirected to'
  err_lacks s3cret
  [ ! -s "$WORK/other/seen" ] || fail "the other host was asked: $(cat "$WORK/other/seen")"
}

test_ten_megabyte_traceback_is_one_line() {
  serve
  python3 -c 'import json; print(json.dumps({"fault": {"match": "POST /api/jobs/x/stop", "status": 500, "body": "  File x\n" * 1200000 + "ValueError: at last"}}))' | order
  expect 4 "$GDNCTL" ray-stop $RAY x
  [ "$(wc -c <"$WORK/err")" -lt 2000 ] || fail "$(wc -c <"$WORK/err") bytes on stderr"
}

test_ten_megabyte_message_of_a_job() {
  serve
  python3 -c 'import json; print(json.dumps({"job": {"submission_id": "big", "status": "FAILED", "error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": "x" * 10000000}}))' | order
  expect 1 "$GDNCTL" ray-wait $RAY big
}

test_missing_token_is_exit_5_after_one_request() {
  serve --token right-token-value
  expect 5 "$GDNCTL" ray-wait $RAY ok
  err_has 'Unauthorized: Missing authentication token'
  err_has 'RAY_AUTH_TOKEN'
  [ "$(asked .)" = 1 ] || fail "$(asked .) requests"
}

test_wrong_token_is_exit_5_after_one_request() {
  serve --token right-token-value
  expect 5 env RAY_AUTH_TOKEN=wrong-token-value "$GDNCTL" ray-wait $RAY ok
  err_has 'Forbidden: Invalid authentication token'
  err_lacks wrong-token-value
  [ "$(asked .)" = 1 ] || fail "$(asked .) requests"
}

test_right_token_opens_dashboard_and_agent() {
  serve --token right-token-value
  export RAY_AUTH_TOKEN=right-token-value
  target '"echo hello"'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none
  out_has hello
  [ "$(asked 'agent GET')" -gt 0 ] || fail "the agent was not asked"
  no_complaints
}

submits_once() { # FAULT
  serve
  target '"echo once"'
  ctl "{\"fault\": $1}"
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --submission-id one
  out_has once
  [ "$("$GDNCTL" ray-list $RAY --json 2>/dev/null | grep -o '"submission_id":"one"' | wc -l)" = 1 ] || fail "not one job"
  no_complaints
}
test_post_whose_answer_is_cut_is_one_job() { submits_once '{"match": "POST /api/jobs/", "cut": 1}'; }
test_post_that_is_reset_is_one_job() { submits_once '{"match": "POST /api/jobs/", "reset": 1}'; }
test_post_behind_a_bad_gateway_is_one_job() { submits_once '{"match": "POST /api/jobs/", "status": 502}'; }
test_no_available_agent_twice_is_one_job() {
  submits_once '{"match": "POST /api/jobs/", "status": 500, "times": 2, "body": "No available agent to submit job, please try again later."}'
}
test_cannot_connect_to_host_is_one_job() {
  submits_once '{"match": "POST /api/jobs/", "status": 500, "body": "Cannot connect to host 10.0.0.7:52365 ssl:default"}'
}
test_post_cut_and_get_cut_is_one_job() {
  serve
  target '"echo once"'
  ctl '{"fault": {"match": "POST /api/jobs/", "cut": 1}}'
  ctl '{"fault": {"match": "GET /api/jobs/one", "reset": 1}}'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --submission-id one
  out_has once
  [ "$(asked 'POST /api/jobs/$')" = 2 ] || fail "not sent again"
}
test_answer_without_an_id_is_exit_4() {
  serve
  target '"true"'
  ctl '{"fault": {"match": "POST /api/jobs/", "status": 200, "body": "<html><title>Sign in</title></html>"}}'
  expect 4 "$GDNCTL" ray-test $RAY --working-dir none
}
test_bad_request_is_exit_2_after_one_post() {
  serve
  target '"true"'
  ctl '{"fault": {"match": "POST /api/jobs/", "status": 400, "body": "Traceback\nTypeError: no"}}'
  expect 2 "$GDNCTL" ray-test $RAY --working-dir none
  err_has 'TypeError: no'
  [ "$(asked POST)" = 1 ] || fail "sent again"
}
test_browser_headers_on_the_way_are_exit_2() {
  serve
  target '"true"'
  ctl "{\"fault\": {\"match\": \"POST /api/jobs/\", \"status\": 405, \"body\": \"'POST' method not allowed for browser traffic.\"}}"
  expect 2 "$GDNCTL" ray-test $RAY --working-dir none
  err_has 'not allowed for browser traffic'
}

test_upload_that_is_cut_is_sent_again() {
  serve
  git init -q
  target '"cat f.txt"'
  echo content >f.txt
  ctl '{"fault": {"match": "PUT /api/packages", "reset": 1}}'
  expect 0 "$GDNCTL" ray-test $RAY
  out_has content
}
test_upload_refused_as_too_large_is_exit_2() {
  serve
  git init -q
  target '"true"'
  head -c 20000 /dev/urandom >big.bin
  ctl '{"too_large": 10000}'
  expect 2 "$GDNCTL" ray-test $RAY
  err_has 'Maximum request body size 10000 exceeded'
  err_has '20000  big.bin'
  [ "$(asked 'POST /api/jobs')" = 0 ] || fail "submitted"
}
test_package_store_in_trouble_is_borne() {
  serve
  git init -q
  target '"echo fine"'
  ctl '{"fault": {"match": "GET /api/packages", "status": 500, "body": "Server got itself in trouble"}}'
  expect 0 "$GDNCTL" ray-test $RAY
  out_has fine
}

test_head_restart_while_waiting_is_exit_4() {
  serve
  target '"sleep 30"'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --no-wait --submission-id lost
  launch "$GDNCTL" ray-wait $RAY lost --poll 0.2
  for _ in $(seq 100); do grep -q status= "$WORK/err" && break; sleep 0.05; done
  ctl '{"forget": true}'
  wait "$pid"
  [ $? = 4 ] || fail "not 4: $(cat "$WORK/err")"
  err_has 'job record vanished (head restarted)'
  # A later command knows it too: the id is in the list of submissions.
  expect 4 "$GDNCTL" ray-wait $RAY lost
  err_has 'job record vanished (head restarted)'
  expect 6 "$GDNCTL" ray-wait $RAY never-there
}

test_a_deleted_record_is_not_a_head_restart() {
  serve
  target '"true"'
  expect 0 "$GDNCTL" ray-test $RAY --working-dir none --no-wait --submission-id gone
  ctl '{"fault": {"match": "GET /api/jobs/gone", "status": 404, "body": "Job gone does not exist", "times": -1}}'
  expect 6 "$GDNCTL" ray-wait $RAY gone
}

test_dashboard_away_for_a_while_does_not_end_the_wait() {
  serve
  job long RUNNING end_time=null </dev/null
  launch "$GDNCTL" ray-wait $RAY long --poll 0.2
  for _ in $(seq 100); do grep -q status= "$WORK/err" && break; sleep 0.05; done
  ctl '{"fault": {"match": "GET /api/jobs/long", "reset": 1, "times": 3}}'
  sleep 1
  ctl '{"set": ["long", {"status": "SUCCEEDED"}]}'
  wait "$pid" || fail "ended with $?"
  err_has 'trying again in'
}

test_a_dead_address_is_exit_4_and_never_the_local_backend() {
  target '"true"'
  local words start
  for words in ray-list 'ray-logs x' 'ray-logs -f x' 'ray-stop x' 'ray-stop --wait x' 'ray-wait x' 'ray-wait --match x' 'ray-test --working-dir none'; do
    start=$(date +%s%N)
    expect 4 "$GDNCTL" $words --ray-address http://127.0.0.1:9
    [ $((($(date +%s%N) - start) / 1000000)) -lt 6000 ] || fail "$words took $((($(date +%s%N) - start) / 1000000)) ms"
    err_lacks 'local backend'
    [ "$(grep -c 'trying again' "$WORK/err")" -le 3 ] || fail "$words tried on"
  done
}

# A dashboard that answers N requests with the state of a running job, and is gone then; its address is in `dying`.
dying_dashboard() {  # N
  cat >"$WORK/dying.py" <<'END'
import http.server, json, os, sys
left = int(sys.argv[1])
job = {"type": "SUBMISSION", "submission_id": "x", "status": "RUNNING", "entrypoint": "x", "message": "m", "metadata": {},
       "runtime_env": {}, "start_time": 1700000000000, "driver_node_id": "ab"}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global left
        left -= 1
        body = json.dumps([job] if self.path == "/api/jobs/" else job).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if left == 0:
            self.wfile.flush()
            os._exit(0)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w") as f:
    f.write(str(server.server_port))
os.rename("port.new", "port")
server.serve_forever()
END
  rm -f port
  python3 "$WORK/dying.py" "$1" &
  for _ in $(seq 100); do [ -e port ] && break; sleep 0.05; done
  dying=http://127.0.0.1:$(cat port)
}

test_a_server_that_goes_away_is_waited_for_by_those_who_wait() {
  local start words count
  dying_dashboard 1
  start=$SECONDS
  expect 4 "$GDNCTL" ray-logs x --ray-address "$dying"
  [ $((SECONDS - start)) -lt 8 ] || fail "ray-logs took $((SECONDS - start)) s"
  for words in '2 ray-logs -f x' '1 ray-wait --match x --poll 0.2'; do
    count=${words%% *}
    dying_dashboard "$count"
    "$GDNCTL" ${words#* } --ray-address "$dying" >"$WORK/out" 2>"$WORK/err" &
    sleep 5
    kill -0 $! || fail "$words did not wait: $(cat "$WORK/err")"
    kill $!
    wait $! && fail 'ended with 0'
    err_has 'trying again'
  done
}

test_no_secret_leaves_by_any_door() {
  RAY_SERVER_TOKEN=tok-0123456789abcdef serve  # no argv of ours holds it
  export RAY_AUTH_TOKEN=tok-0123456789abcdef HF_TOKEN=hf-ray-secret-0123456789 WANDB_API_KEY=wandb-ray-secret-0123456789
  another_host
  export http_proxy=http://127.0.0.1:$OTHER https_proxy=http://127.0.0.1:$OTHER ALL_PROXY=http://127.0.0.1:$OTHER
  git init -q
  target '"sleep 3; exit 1"'
  launch "$GDNCTL" -vv ray-test $RAY -e "MINE=own-ray-secret-0123456789"
  for _ in $(seq 100); do grep -q RUNNING "$WORK/err" && break; sleep 0.05; done
  cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -v 'MINE=own-ray-secret' >"$WORK/argv"
  wait "$pid"
  expect 1 "$GDNCTL" -vv ray-wait $RAY --match . --show-logs --json
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  expect 0 "$GDNCTL" ray-list $RAY --json
  ctl '{"fault": {"match": "POST /api/jobs/", "status": 400, "body": "Traceback\nTypeError: got hf-ray-secret-0123456789 of type str"}}'
  expect 2 "$GDNCTL" -vv ray-test $RAY
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  # A dashboard that sends everyone elsewhere, and an address that is another machine's.
  for method in GET POST; do
    ctl "{\"fault\": {\"match\": \"$method /api/jobs/\", \"status\": 307, \"headers\": {\"Location\": \"http://127.0.0.1:$OTHER/\"}, \"times\": -1}}"
  done
  expect 4 "$GDNCTL" -vv ray-test $RAY --working-dir none
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  expect 4 "$GDNCTL" -vv ray-wait $RAY x
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  "$GDNCTL" -vv ray-list --ray-address http://192.0.2.1:8265 >>"$WORK/argv" 2>&1  # through the proxy, which may be anyone's
  grep -q 192.0.2.1 "$WORK/other/seen" || fail "the other host was never asked: the test sees nothing"
  for secret in tok-0123456789abcdef hf-ray-secret-0123456789 wandb-ray-secret-0123456789 own-ray-secret-0123456789; do
    ! grep -qF -- "$secret" "$WORK/argv" || fail "$secret was printed, or is in an argv"
    ! grep -rqF -- "$secret" "$XDG_STATE_HOME" "$TMPDIR" || fail "$secret is in a state file"
    ! grep -qF -- "$secret" "$WORK/other/seen" || fail "$secret went to another host"
  done
}

test_a_time_limit_holds_while_nobody_answers() {
  git init -q . && git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m start
  expect 124 "$GDNCTL" ray-test --target cpu-gdn --ray-address http://127.0.0.1:1 --timeout 1
  err_has 'was not submitted within 1'
  [ "$(grep -c 'trying again' "$WORK/err")" -le 2 ] || fail "tried on: $(grep -c 'trying again' "$WORK/err") times"
}
