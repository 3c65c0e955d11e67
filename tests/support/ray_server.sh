# For black-box tests with a scripted dashboard (ray_server.py). Source it, then:
#   serve [OPTIONS...]   starts one; $RAY has the options to reach it, $PORT its port
#   ctl JSON             plans faults, adds jobs (see ray_server.py)
#   job ID STATUS [KEY=JSON...]   adds a job in this state, with its log from stdin
#   asked PATTERN        number of matching requests (egrep on "TO METHOD PATH")
#   no_complaints        fails if a client did something that it must not do
SRV=$WORK/srv
serve() {
  rm -rf "$SRV"
  mkdir -p "$SRV"
  python3 -B "$REPO/tests/support/ray_server.py" "$SRV" "$@" >"$SRV/stdout" 2>&1 &
  server=$!
  trap 'kill $server 2>/dev/null; cleanup' EXIT
  for _ in $(seq 400); do [ -s "$SRV/port" ] && break; sleep 0.05; done
  PORT=$(cat "$SRV/port")
  RAY="--ray-address http://127.0.0.1:$PORT"
}
ctl() { printf '%s' "$1" | order || fail "the server takes no such order"; }
order() { # JSON on stdin
  python3 -c '
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
c.request("POST", "/__control", sys.stdin.buffer.read())
sys.exit(c.getresponse().status != 200)' "$PORT"
}
job() {
  python3 -c '
import base64, json, sys
job = {"submission_id": sys.argv[1], "status": sys.argv[2]}
for item in sys.argv[3:]:
    key, value = item.split("=", 1)
    job[key] = json.loads(value)
print(json.dumps({"job": job, "log": "base64:" + base64.b64encode(sys.stdin.buffer.read()).decode()}))' "$@" | order ||
    fail "the server takes no such job"
}
asked() {
  python3 -c '
import json, re, sys
count = 0
for line in open(sys.argv[1]):
    r = json.loads(line)
    if re.search(sys.argv[2], "%s %s %s" % (r["to"], r["method"], r["path"])): count += 1
print(count)' "$SRV/requests" "$1" 2>/dev/null || echo 0
}
no_complaints() { [ ! -s "$SRV/complaints" ] || fail "the server complains: $(head -c 500 "$SRV/complaints")"; }
target() { # SCRIPT
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml
}
