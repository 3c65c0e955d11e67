# The login to an Iris cluster behind Google's proxy (IAP): where the id token comes from, when it is renewed, and that
# neither it nor what it is made from is seen anywhere.
. "$REPO/tests/support/iris_server.sh"

minted() { asked 'google POST' ; }
gcloud() { # WORDS that it can do
  mkdir -p "$WORK/bin"
  ln -sf "$REPO/tests/support/fake_gcloud_iris.py" "$WORK/bin/gcloud"
  export PATH=$WORK/bin:$PATH FAKE_GCLOUD=$1 GOOGLE
}

test_the_login_that_iris_left_is_used_once_a_command() {
  behind_iap
  target '"echo behind the proxy"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none --submission-id a
  out_has 'behind the proxy'
  [ "$(minted)" = 1 ] || fail "$(minted) tokens"
  sent FetchLogs 'h["proxy-authorization"]' | grep -q '^Bearer ' || fail "no token for the logs"
  [ "$(sent POST '(b.count("grant_type=refresh_token"), b.count("client_id=desk.apps"), b.count("client_secret="))')" = '(1, 1, 1)' ] || fail "the form"
  expect 0 "$GDNCTL" ray-list $IRIS
  [ "$(minted)" = 2 ] || fail "not one more token"
  no_complaints
}

test_a_token_that_expires_while_following_is_renewed_once() {
  behind_iap
  target '"for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done"'
  launch "$GDNCTL" ray-test $IRIS --working-dir none --submission-id long
  wait_for said 'line 3'
  ctl '{"expire": true}'
  wait "$pid" || fail "ended with $?"
  [ "$(grep -c '^line' "$WORK/out")" = 8 ] || fail "lines lost or printed twice"
  [ "$(minted)" = 2 ] || fail "$(minted) tokens"
  err_lacks 'trying again'
  no_complaints
}

test_a_token_near_its_end_is_not_sent() {
  behind_iap
  ctl '{"token_life": 200}'
  target '"true"'
  expect 0 "$GDNCTL" ray-test $IRIS --working-dir none
  [ "$(minted)" -ge 2 ] || fail "a token that ends within 300 s was kept"
}

test_refused_with_a_new_token_too_is_exit_5() {
  behind_iap
  fault ListJobs '"status": 401, "answer": {"error": "authentication failed"}, "times": -1'
  expect 5 "$GDNCTL" ray-list $IRIS
  err_has 'authentication failed'
  err_has 'iris --cluster c login'
  [ "$(asked ListJobs)" = 2 ] || fail "$(asked ListJobs) requests"
  [ "$(minted)" = 2 ] || fail "$(minted) tokens"
}

test_a_revoked_login_is_exit_5() {
  behind_iap
  log_in 1//refresh-revoked-0123456789
  expect 5 "$GDNCTL" ray-list $IRIS
  err_has 'the login to cluster c has expired'
  err_has 'iris --cluster c login'
  err_lacks revoked-0123456789
  [ "$(asked ListJobs)" = 0 ] || fail "asked without a token"
}

test_nobody_has_logged_in() {
  behind_iap
  rm "$HOME/.config/marin/credentials/c.json"
  gcloud ''
  expect 5 "$GDNCTL" ray-list $IRIS
  err_has 'not logged in to cluster c'
  err_has 'iris --cluster c login'
  PATH=/usr/bin:/bin expect 5 "$GDNCTL" ray-list $IRIS
  err_has 'not logged in to cluster c'
  [ "$(asked ListJobs)" = 0 ] || fail "asked without a token"
}

test_no_oauth_client_is_exit_5() {
  behind_iap
  sed -i 's/, oauth_client_id: desk.apps, oauth_client_secret: desk-secret-0123//' "$HOME/.config/marin/clusters/c.yaml"
  expect 5 "$GDNCTL" ray-list $IRIS
  err_has 'no OAuth client for cluster c: set oauth_client_id and oauth_client_secret in [clusters.c]'
  printf '[clusters.c]\noauth_client_id = "desk.apps"\noauth_client_secret = "desk-secret-0123"\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-list $IRIS
}

test_the_manifest_of_a_cluster_and_the_constants_of_a_checkout() {
  behind_iap
  sed -i 's/oauth_client_id/desktop_oauth_client_id/; s/oauth_client_secret/desktop_oauth_client_secret/' "$HOME/.config/marin/clusters/c.yaml"
  expect 0 "$GDNCTL" ray-list $IRIS
  sed -i 's/, desktop_oauth_client_id: desk.apps, desktop_oauth_client_secret: desk-secret-0123//' "$HOME/.config/marin/clusters/c.yaml"
  git init -q
  mkdir -p lib/rigging/src/rigging
  printf 'X = 1\nMARIN_DESKTOP_OAUTH_CLIENT = OAuthClient(\n    client_id="desk.apps",\n    client_secret="desk-secret-0123",\n)\n' >lib/rigging/src/rigging/auth.py
  expect 0 "$GDNCTL" ray-list $IRIS
}

test_on_gce_the_machine_has_the_token() {
  behind_iap
  rm "$HOME/.config/marin/credentials/c.json"
  export GDNCTL_METADATA_BASE=$GOOGLE/computeMetadata/v1
  expect 0 "$GDNCTL" ray-list $IRIS
  grep -q 'identity?audience=aud.apps&format=full' "$SRV/requests" || fail "the audience"
  [ "$(asked 'google POST')" = 0 ] || fail "the token endpoint was asked"
}

test_gcloud_of_a_service_account_has_the_token() {
  behind_iap
  rm "$HOME/.config/marin/credentials/c.json"
  gcloud ' identity '
  expect 0 "$GDNCTL" ray-list $IRIS
  grep -q -- 'print-identity-token --audiences=aud.apps' "$WORK/gcloud.log" || fail "$(cat "$WORK/gcloud.log")"
}

test_google_away() {
  behind_iap
  fault 'google POST /token' '"status": 503, "times": 2'
  expect 0 "$GDNCTL" ray-list $IRIS
  export GDNCTL_GOOGLE_TOKEN_URL=http://127.0.0.1:9/token
  expect 4 timeout 60 "$GDNCTL" ray-list $IRIS
  export GDNCTL_GOOGLE_TOKEN_URL=http://example.com/token
  expect 2 "$GDNCTL" ray-list $IRIS
}

test_a_redirect_to_a_login_page_is_exit_5() {
  behind_iap
  fault ListJobs '"status": 302, "body": "<html>Found</html>", "headers": {"Location": "https://accounts.google.com/o/oauth2/v2/auth"}, "times": -1'
  expect 5 "$GDNCTL" ray-list $IRIS
  err_has "http://127.0.0.1:$PORT asks for a login"
  [ "$(asked ListJobs)" = 1 ] || fail "$(asked ListJobs) requests"
}

test_a_cluster_token_goes_along_only_where_set() {
  behind_iap
  export MARIN_CLUSTER_TOKEN=cluster-token-0123456789
  expect 0 "$GDNCTL" -vv ray-list $IRIS
  [ "$(sent ListJobs 'h["authorization"]')" = 'Bearer cluster-token-0123456789' ] || fail "not sent"
  err_lacks cluster-token-0123456789
  unset MARIN_CLUSTER_TOKEN
  expect 0 "$GDNCTL" ray-list $IRIS
  [ "$(sent ListJobs 'h.get("authorization")')" = None ] || fail "sent"
}

test_no_token_to_plain_http() {
  behind_iap
  printf '[clusters.far]\nkind = "iris"\nurl = "http://192.0.2.1:8080"\n' >gdnctl.toml
  cp "$HOME/.config/marin/credentials/c.json" "$HOME/.config/marin/credentials/far.json"
  timeout 20 "$GDNCTL" ray-list --cluster far >"$WORK/out" 2>"$WORK/err"
  [ "$(minted)" = 0 ] || fail "a token was made for plain http"
  sed -i "s|http://127.0.0.1:$PORT|http://iris.example.org|" "$HOME/.config/marin/clusters/c.yaml"
  expect 2 "$GDNCTL" ray-list $IRIS
  [ "$(minted)" = 0 ] || fail "a token was made for plain http"
}

# A server that writes down whatever it is sent, in $WORK/other/seen; its port is $OTHER.
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
  more="$more $!"
  for _ in $(seq 200); do [ -s "$WORK/other/port" ] && break; sleep 0.05; done
  OTHER=$(cat "$WORK/other/port")
}

test_no_secret_leaves_by_any_door() {
  behind_iap
  another_host
  export HF_TOKEN=hf-secret-0123456789 WANDB_API_KEY=wandb-secret-0123456789 MARIN_CLUSTER_TOKEN=cluster-token-0123456789
  export http_proxy=http://127.0.0.1:$OTHER https_proxy=http://127.0.0.1:$OTHER ALL_PROXY=http://127.0.0.1:$OTHER
  git init -q
  target '"sleep 2; exit 1"'
  launch "$GDNCTL" -vv ray-test $IRIS -e "MINE=own-secret-0123456789" --submission-id s
  wait_for said RUNNING
  cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -v 'MINE=own-secret' >"$WORK/argv"
  wait "$pid"
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  expect 1 "$GDNCTL" -vv ray-wait $IRIS s --show-logs --json
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  # What Google and the controller say in an error, with the secret in it.
  fault 'google POST /token' '"status": 400, "answer": {"error": "invalid_grant", "error_description": "1//refresh-good-0123456789 of desk-secret-0123"}'
  expect 5 "$GDNCTL" -vv ray-list $IRIS
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  fault ListJobs "\"status\": 307, \"headers\": {\"Location\": \"http://127.0.0.1:$OTHER/\"}, \"times\": -1"
  "$GDNCTL" -vv ray-list $IRIS >>"$WORK/argv" 2>&1
  fault LaunchJob '"status": 400, "answer": {"code": "invalid_argument", "message": "bad value hf-secret-0123456789"}'
  expect 2 "$GDNCTL" -vv ray-test $IRIS
  cat "$WORK/out" "$WORK/err" >>"$WORK/argv"
  sed -n 's/.*"proxy-authorization": "Bearer \([^"]*\)".*/\1/p' "$SRV/requests" | sort -u >"$WORK/tokens"
  [ -s "$WORK/tokens" ] || fail "no token was sent: the test sees nothing"
  for secret in refresh-good-0123456789 desk-secret-0123 cluster-token-0123456789 hf-secret-0123456789 wandb-secret-0123456789 \
    own-secret-0123456789 task-token-0123456789 $(cat "$WORK/tokens"); do
    ! grep -qF -- "$secret" "$WORK/argv" || fail "$secret was printed, or is in an argv"
    ! grep -rqF -- "$secret" "$XDG_STATE_HOME" "$TMPDIR" || fail "$secret is in a state file"
    [ ! -e "$WORK/other/seen" ] || ! grep -qF -- "$secret" "$WORK/other/seen" || fail "$secret went to another host"
  done
  no_complaints
}
