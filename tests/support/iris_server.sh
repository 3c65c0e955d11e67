# For black-box tests with a scripted Iris controller (iris_controller.py). Source it, then:
#   serve [OPTIONS...]   starts one; $IRIS has the options to reach it, $PORT its port, $GOOGLE the base of Google's services
#   behind_iap           starts one that wants an id token, with the login of `iris login` for cluster c; $IRIS is --cluster c
#   ctl JSON             plans faults, adds jobs (see iris_controller.py)
#   fault METHOD 'KEYS'  plans one: fault LaunchJob '"cut": 1'
#   job ID STATE [KEY=JSON...]   adds a job of ours in this state (JOB_STATE_ is added), its log lines from stdin
#   api METHOD JSON      one call past gdnctl, and its answer
#   asked METHOD         number of requests whose method matches (egrep)
#   sent METHOD EXPR     prints the Python expression over `b`, the body of the newest request of the method, and `h`, its headers
#   no_complaints        fails if a client did something that it must not do
#   target SCRIPT        the target of the folder is `sh -c SCRIPT` (SCRIPT with its quotes)
#   kernels_in_python    makes mine.py, which is right, and wrong.py; skips the test without /usr/bin/python3 and numpy
#   wait_for COMMAND...  until the command succeeds, 20 s at most
SRV=$WORK/srv
more=
export IRIS_USER=me GDNCTL_METADATA_BASE=http://127.0.0.1:9/computeMetadata/v1
unset MARIN_CLUSTER_TOKEN IRIS_CONTROLLER_URL
serve() {
  rm -rf "$SRV"
  mkdir -p "$SRV"
  HF_TOKEN='' python3 -B "$REPO/tests/support/iris_controller.py" "$SRV" "$@" >"$SRV/stdout" 2>&1 &
  server=$!
  trap 'kill $server $more 2>/dev/null; wait $server 2>/dev/null; cleanup' EXIT
  for _ in $(seq 400); do [ -s "$SRV/port" ] && break; sleep 0.05; done
  PORT=$(cat "$SRV/port")
  GOOGLE=http://127.0.0.1:$(cat "$SRV/google")
  IRIS="--iris-url http://127.0.0.1:$PORT"
}
behind_iap() {
  serve --iap
  mkdir -p "$XDG_CONFIG_HOME/gdnctl" "$HOME/.config/marin/clusters" "$HOME/.config/marin/credentials"
  printf 'name: c\nauth: {iap: {url: "http://127.0.0.1:%s", oauth_client_id: desk.apps, oauth_client_secret: desk-secret-0123, programmatic_audiences: [aud.apps]}}\ntpu_pools: {p: {family: v5p, sizes: [8]}}\n' \
    "$PORT" >"$HOME/.config/marin/clusters/c.yaml"
  log_in
  export GDNCTL_GOOGLE_TOKEN_URL=$GOOGLE/token
  IRIS='--cluster c'
}
log_in() { # [REFRESH TOKEN]: what `iris login` leaves
  printf '{"cluster": "c", "endpoint": "http://127.0.0.1:%s", "edge_refresh_token": "%s", "metadata": {}}' "$PORT" "${1:-1//refresh-good-0123456789}" \
    >"$HOME/.config/marin/credentials/c.json"
  chmod 600 "$HOME/.config/marin/credentials/c.json"
}
ctl() { printf '%s' "$1" | order || fail "the server takes no such order: $1"; }
order() { # JSON on stdin
  python3 -c '
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("POST", "/__control", sys.stdin.buffer.read())
sys.exit(c.getresponse().status != 200)' "$PORT"
}
api() {
  python3 -c '
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("POST", "/iris.cluster.ControllerService/" + sys.argv[2], sys.argv[3], {"Content-Type": "application/json", "User-Agent": "gdnctl/0"})
print(c.getresponse().read().decode())' "$PORT" "$@"
}
fault() { ctl "{\"fault\": {\"match\": \"$1\", $2}}"; }
job() {
  python3 -c '
import json, sys
job = {"name": sys.argv[1] if sys.argv[1][0] == "/" else "/me/" + sys.argv[1], "state": "JOB_STATE_" + sys.argv[2]}
for item in sys.argv[3:]:
    key, value = item.split("=", 1)
    job[key] = json.loads(value)
print(json.dumps({"job": job, "log": sys.stdin.read().splitlines()}))' "$@" | order || fail "the server takes no such job"
}
asked() {
  python3 -c '
import json, re, sys
print(sum(bool(re.search(sys.argv[2], r["to"] + " " + r["method"])) for r in map(json.loads, open(sys.argv[1]))))' "$SRV/requests" "$1" 2>/dev/null || echo 0
}
sent() {
  python3 -c '
import json, sys
b = h = None
for r in map(json.loads, open(sys.argv[1])):
    if r["method"] == sys.argv[2]: b, h = r["body"], r["headers"]
print(eval(sys.argv[3]))' "$SRV/requests" "$1" "$2"
}
no_complaints() { [ ! -s "$SRV/complaints" ] || fail "the server complains: $(head -c 800 "$SRV/complaints")"; }
target() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }
wait_for() {
  for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return; sleep 0.05; done
  fail "never: $*"
}
said() { grep -qF -- "$1" "$WORK/err" "$WORK/out"; }
kernels_in_python() {
  /usr/bin/python3 -c 'import numpy' 2>/dev/null || skip 'no /usr/bin/python3 with numpy'
  cp "$FIXTURES/python/my_gdn.py" wrong.py
  sed '/^        S = S \* decay/d; s/^        d = /        S = S * decay[:, t]\n        d = /' wrong.py >mine.py
}
