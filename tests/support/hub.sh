# Shared by the tests of downloads: a fake Hub (fake_hub.py) in $HUB, whose repository o/r is the folder $R.
HUB=$WORK/hub R=$WORK/hub/repos/datasets/o/r
COMMIT=c0ffee0000000000000000000000000000000000
TOKEN=hf_SecretSecretSecretSecretSecretSecr
S=plugins/profile/2026_03_10_12_00_00

hub_up() {  # [--tls CERT KEY]
  mkdir -p "$R" && : >"$HUB/requests.jsonl"
  python3 -B "$REPO/tests/support/fake_hub.py" "$HUB" "$@" >"$HUB/out" 2>&1 &
  hub_pid=$!
  trap "kill $hub_pid 2>/dev/null; cleanup" EXIT
  for _ in $(seq 600); do [ -s "$HUB/port" ] && break; sleep 0.05; done
  [ -s "$HUB/port" ] || fail 'the fake hub does not come up'
  export HF_ENDPOINT=http://127.0.0.1:$(cat "$HUB/port")
}
# A repository of traces as written by profilers: run1 with two sessions, and run10.
traces() {
  local at
  for at in run1/plugins/profile/2026_03_09_08_00_00 run1/$S run10/$S; do
    mkdir -p "$R/$at"
    printf '{"traceEvents": [{"name": "%s"}]}' "$at" | gzip -n >"$R/$at/host.trace.json.gz"
    printf '\x0a\x03\x12\x01%s' a >"$R/$at/host.xplane.pb"
  done
  printf '{"traceEvents": []}' | gzip -n >"$R/run1/$S/perfetto_trace.json.gz"
  printf '{"a":1}\n' >"$R/run1/profile.json"
  echo hello >"$R/README.md"
}
random_file() { mkdir -p "$(dirname "$R/$1")" && head -c "$2" /dev/urandom >"$R/$1"; }
setup() { printf '%s' "$1" >"$HUB/setup.json.new" && mv "$HUB/setup.json.new" "$HUB/setup.json"; }
fetch() { "$GDNCTL" hf-download-trace --repo-id o/r "$@"; }
# requests JQ-FILTER: number of requests that it selects
requests() { jq -s "[.[] | select($1)] | length" "$HUB/requests.jsonl" 2>/dev/null || echo 0; }
asked() { local got; got=$(requests "$1"); [ "$got" = "$2" ] || fail "$got requests with $1, expected $2: $(cat "$HUB/requests.jsonl")"; }
forget() { : >"$HUB/requests.jsonl"; }
same() { local f; for f in "$@"; do cmp -s "$R/$f" ".profiles/hf/$f" || fail "$f is not as in the repository"; done; }
absent() { local f; for f in "$@"; do [ ! -e ".profiles/hf/$f" ] || fail "$f is there"; done; }
manifest() { jq -e "$1" .profiles/hf/.gdnctl-manifest.json >/dev/null || fail "the manifest lacks $1: $(cat .profiles/hf/.gdnctl-manifest.json)"; }
no_secret() { ! grep -rqF "$TOKEN" "$WORK/cwd" "$WORK/out" "$WORK/err" || fail 'the token got out'; ! grep -rq 'X-Amz-Signature=' "$WORK/cwd" "$WORK/out" "$WORK/err" || fail 'a signature got out'; }
