# hf-download-trace when Hub, CDN and network fail: each fault, its exit code, and what was asked for.
. "$REPO/tests/support/hub.sh"

fault() { setup "{\"rules\": [$1]}"; }
# One file of 1 MB on the CDN, one small file on the Hub. The token goes to the Hub, whatever happens.
two() { hub_up && random_file big.trace.json.gz 1000000 && printf '{"a":1}\n' >"$R/profile.json" && export HF_TOKEN=$TOKEN; }
fresh() { rm -rf .profiles; forget; }
only_the_hub_got_the_token() {
  asked '.server == "cdn" and .auth' 0
  asked '.server == "hub" and (.auth | not)' 0
  asked '.method == "HEAD"' 0
}
good() { expect 0 fetch "$@"; same big.trace.json.gz profile.json; only_the_hub_got_the_token; no_secret; }
# Without a fault: revision, listing, two addresses, one file at the CDN. EXTRA requests come on top of these.
asked_again() { asked true $((5 + $1)); }

test_rate_limits() {
  two
  for headers in '"RateLimit": "\"api\";r=0;t=1"' '"RateLimit": "\"api\";r=500;t=200"' '"Retry-After": "1"' '"Retry-After": "{date}"'; do
    for on in revision tree resolve cdn; do
      fresh && fault "{\"on\": \"$on\", \"times\": 1, \"do\": {\"status\": 429, \"headers\": {$headers}}}" && good
      asked '.status == 429' 1
      asked_again $([ $on = cdn ] && echo 2 || echo 1)
    done
  done
  fresh && fault '{"on": "revision", "do": {"status": 429, "headers": {"RateLimit-Policy": "\"fixed window\";\"api\";q=500;w=300"}}}'
  expect 4 fetch --retries 1
  err_has 'rate limit reached'
  err_has '500 requests in 300 s'
  asked '.path | contains("revision")' 2
  fault '{"on": "revision", "do": {"status": 429, "headers": {"Retry-After": "3600"}}}'
  expect 4 fetch
  err_has 'the next retry would be in 1 h'
}
test_server_errors() {
  two
  for status in 408 500 502 503 504; do
    for on in revision tree resolve cdn; do
      fresh && fault "{\"on\": \"$on\", \"times\": 1, \"do\": {\"status\": $status}}" && good
      asked ".status == $status" 1
      asked_again $([ $on = cdn ] && echo 2 || echo 1)
    done
  done
  fresh && fault '{"on": "cdn", "do": {"status": 503, "body": "overloaded", "headers": {"X-Request-Id": "req-7"}}}'
  expect 4 fetch --retries 1
  err_has 'answered 503: overloaded (request id req-7)'
  same profile.json
  manifest '.files[0].error | .kind == "network" and .http_status == 503 and .request_id == "req-7"'
  no_secret
}
test_a_cut_body_is_continued() {
  two
  for on in cdn; do
    fresh && fault "{\"on\": \"$on\", \"times\": 2, \"do\": {\"cut\": 300000}}" && good
    manifest '.files[0] | .status == "resumed" or .status == "downloaded"'
    manifest '.files[0].bytes_transferred == 1000000'
    asked '.server == "cdn" and .range == "bytes=300000-"' 1
    asked '.server == "cdn" and .range == "bytes=600000-"' 1
    asked_again 4
  done
  fresh && fault '{"on": "cdn", "do": {"cut": 0}}'
  expect 4 fetch --retries 2
  asked '.server == "cdn"' 3
  # Bytes that come begin the count of retries anew, but not the time that all of them may take.
  fresh && fault '{"on": "cdn", "do": {"cut": 1}}'
  expect 4 timeout 60 "$GDNCTL" hf-download-trace --repo-id o/r --retry-max-time 3
  err_has 'later than --retry-max-time allows'
  [ "$(requests '.server == "cdn"')" -gt 6 ] || fail 'the count did not begin anew'
}
test_stalls() {
  two
  fault '{"on": "cdn", "times": 1, "do": {"stall": 200000}}' && good --stall-timeout 1
  asked '.server == "cdn" and .range == "bytes=200000-"' 1
  asked_again 2
  fresh && fault '{"on": "cdn", "do": {"stall": 0}}'
  expect 4 fetch --stall-timeout 1 --retries 1
  asked '.server == "cdn"' 2
  fresh && fault '{"on": "revision", "do": {"stall_head": 1}}'
  expect 4 fetch --stall-timeout 1 --retries 0
  err_has 'no data for 1 s'
}
test_ranges_that_are_not_what_was_asked_for() {
  two
  for what in '"ignore_range": 1' '"range_start": 5' '"range_total": 5' '"status": 416, "headers": {"Content-Range": "bytes */5"}'; do
    fresh
    fault "{\"on\": \"cdn\", \"times\": 1, \"do\": {\"cut\": 300000}}, {\"on\": \"cdn\", \"times\": 1, \"do\": {$what}}"
    good
    manifest '.files[0].attempts > 1'
    asked '.server == "cdn" and .range == "bytes=300000-"' 1
    asked_again $([ "$what" = '"ignore_range": 1' ] && echo 2 || echo 4)
  done
}
test_a_signed_address_that_runs_out() {
  two
  setup '{"once": 1, "rules": [{"on": "cdn", "times": 1, "do": {"cut": 400000}}]}' && good
  asked '.server == "cdn" and .range == "bytes=400000-"' 1
  for status in 401 403 410; do
    fresh && fault "{\"on\": \"cdn\", \"times\": 1, \"do\": {\"status\": $status}}" && good
  done
  fresh && fault '{"on": "cdn", "do": {"status": 403}}'
  expect 5 fetch --retries 1
}
test_wrong_bytes() {
  two
  fault '{"on": "cdn", "times": 1, "do": {"flip": 1}}' && good
  err_has 'downloading it once more'
  asked_again 2
  for what in '"flip": 1' '"extra": 7' '"pointer": 1'; do
    fresh && fault "{\"on\": \"cdn\", \"do\": {$what}}"
    expect 7 fetch
    asked '.server == "cdn"' 2
    absent big.trace.json.gz
    same profile.json
    ! find .profiles -name '*.part' | grep -q . || fail 'a wrong partial file is kept'
  done
  err_has 'LFS pointer'
  fresh && fault '{"on": "cdn", "do": {"flip": 1}}'
  expect 7 fetch
  err_has 'sha256 is'
  expect 0 fetch --no-verify
}
test_a_hash_of_the_hub_itself() {
  two
  printf '{"a":3}\n' >"$R/profile.json"
  fault '{"on": "resolve", "path": "profile.json", "do": {"flip": 1}}'
  expect 7 fetch
  err_has 'git sha1 is'
}
test_bodies_in_odd_shapes() {
  two
  for what in '"gzip": 1' '"chunked": 1' '"no_length": 1'; do
    fresh && fault "{\"on\": \"cdn\", \"do\": {$what}}, {\"on\": \"resolve\", \"do\": {$what}}" && good
    asked_again 0
  done
  for odd in weak bare; do fresh && setup "{\"odd_etag\": \"$odd\"}" && good && asked_again 0; done
}
test_redirects() {
  two
  setup "{\"token\": \"$TOKEN\", \"relative\": 1}" && good
  asked_again 1
  asked '.path | startswith("/api/resolve-cache/")' 1
  asked '(.path | startswith("/api/resolve-cache/")) and (.query | contains("etag=") | not)' 0
  asked '.server == "cdn" and .auth' 0
  asked '.server == "hub" and (.auth | not)' 0
  for host in default same; do
    fresh && setup "{\"token\": \"$TOKEN\", \"relative\": 1, \"redirect_host\": \"$host\"}" && good
    asked '.path | startswith("/api/resolve-cache/")' 1
  done
  for where in '{self}' 'file:///etc/passwd' 'ftp://127.0.0.1/x' 'http://user:pw@127.0.0.1/x'; do
    fresh && fault "{\"on\": \"resolve\", \"path\": \"profile\", \"do\": {\"redirect\": \"$where\"}}"
    expect 4 fetch
    err_has 'not allowed'
    same big.trace.json.gz
    absent profile.json
  done
  no_secret
}
test_a_fake_that_is_no_hub() {
  two
  for what in '"status": 200, "body": "<html>log in</html>", "headers": {"Content-Type": "text/html"}' '"status": 200, "body": "{}"' '"status": 200, "body": "{\"sha\": "'; do
    fault "{\"on\": \"revision\", \"do\": {$what}}"
    expect 4 fetch
    err_has 'does not look like a Hugging Face Hub (captive portal or proxy?)'
  done
  fault '{"on": "tree", "do": {"status": 200, "body": "<html>x</html>"}}' && expect 4 fetch
  fault '{"on": "tree", "do": {"status": 200, "body": "[{\"type\": \"file\""}}' && expect 4 fetch
  err_has 'listing'
  fault '{"on": "tree", "do": {"status": 200, "body": "          ", "repeat": 6815744}}' && expect 4 fetch
  err_has 'larger than 64 MiB'
  fault '{"on": "tree", "do": {"bomb": 65}}' && expect 4 fetch
  err_has 'larger than 64 MiB'
  absent .
}
test_listings_are_compressed_and_files_are_not() {
  two
  setup '{"gzip_api": 1}' && good
  asked '(.path | startswith("/api/")) and (.accepted // "" | contains("gzip"))' 2
  asked '(.path | startswith("/api/") | not) and .accepted != "identity"' 0
}
test_odd_entries_of_a_listing() {
  two
  setup '{"entries": [{"type": "directory", "path": "d", "oid": "0"}, {"type": "submodule", "path": "s.trace.json.gz"},
    {"type": "file", "oid": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", "size": 0, "path": "../out.txt", "xetHash": "redacted"}]}'
  good
  err_has 'unsafe name'
}
test_unsafe_names() {
  two
  for name in ../../../etc/passwd folder/../../../etc/passwd '..\\\\..\\\\Windows\\\\evil' /etc/passwd 'C:/Windows/System32/evil' 'D:relative\\\\evil' '\\\\\\\\attacker\\\\share\\\\evil' 'folder/C:\\\\Windows\\\\evil' 'folder/\\\\evil' .cache/huggingface/x 'a//b' 'a/./b' 'a\u0007b' 'profile.json/x'; do
    setup "{\"entries\": [{\"type\": \"file\", \"oid\": \"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\", \"size\": 0, \"path\": \"$name\"}]}"
    expect 8 fetch --include '*'
    asked '.path | contains("/resolve/")' 0
  done
  absent .
}
test_who_may_and_who_may_not() {
  two && unset HF_TOKEN
  setup "{\"token\": \"$TOKEN\"}"
  expect 6 fetch
  err_has "Dataset 'o/r' not found. If the repo is private"
  HF_TOKEN=hf_WrongWrongWrongWrongWrongWrongWro expect 5 fetch
  err_has 'token from $HF_TOKEN was rejected; check https://huggingface.co/settings/tokens'
  HF_TOKEN=$TOKEN expect 0 fetch
  asked '.server == "cdn" and .auth' 0
  expect 0 fetch --token $TOKEN --output-dir a && err_has 'process list'
  printf '%s\r\n' $TOKEN >"$WORK/token" && expect 0 fetch --token-file ../token --output-dir b
  : >"$WORK/empty" && expect 6 fetch --token-file ../empty --output-dir e && err_has 'empty is empty: no token is sent'
  mkdir -p "$HOME/.cache/huggingface" && echo $TOKEN >"$HOME/.cache/huggingface/token" && expect 0 fetch --output-dir c
  HF_HUB_DISABLE_IMPLICIT_TOKEN=1 expect 6 fetch --output-dir d
  expect 6 fetch --no-token --output-dir d
  no_secret
  for two in "--token $TOKEN --no-token" "--token $TOKEN --token-file ../token" '--token-file ../token --no-token'; do
    expect 2 fetch $two
    err_has 'only one of --token, --token-file and --no-token'
  done
  HF_TOKEN=$'a b' expect 5 fetch
  HF_TOKEN=$'hf_abcdefgh\nx' expect 5 fetch
  err_has '$HF_TOKEN'
  HF_TOKEN=$TOKEN HF_ENDPOINT=http://hub.example.org expect 5 fetch
  err_has 'unencrypted'
}
test_what_the_hub_says() {
  two
  says() {  # CODE STATUS X-ERROR-CODE X-ERROR-MESSAGE TEXT
    fault "{\"on\": \"revision\", \"do\": {\"status\": $2, \"headers\": {\"X-Error-Code\": \"$3\", \"X-Error-Message\": \"$4\"}}}"
    expect "$1" fetch --retries 0
    err_has "$5"
  }
  says 6 404 RevisionNotFound 'Invalid rev id: refs' "Revision not found in dataset 'o/r': main"
  says 6 404 RepoNotFound 'Repository not found' "Dataset 'o/r' not found"
  says 5 401 GatedRepo 'Access to model X is restricted.' "Access denied. Dataset 'o/r' requires approval."
  says 5 403 GatedRepo 'and you are not in the authorized list.' 'requires approval'
  says 5 403 '' 'Access to this resource is disabled.' 'Access to this resource is disabled.'
  says 5 401 '' 'Invalid credentials in Authorization header' 'was rejected'
  says 6 401 '' 'Invalid username or password.' 'try --repo-type model'
  says 5 403 '' '' 'answered 403'
  says 6 404 '' '' 'answered 404'
  says 4 400 '' 'bad thing' 'bad thing'
  says 6 404 EntryNotFound 'Entry not found' "File not found in dataset 'o/r'."
}
test_a_warning_of_the_hub_is_passed_on_once() {
  two && setup '{"page_size": 1, "warning": "quota; almost used up"}' && good
  [ "$(grep -c 'the Hub says: almost used up' "$WORK/err")" = 1 ] || fail 'not once'
}
test_a_listing_of_many_pages() {
  two && setup '{"many": 3500}' && good
  asked '.path | contains("/tree/")' 4
  fresh && expect 0 fetch --include 'many/00349*' --quiet
  [ "$(wc -l <"$WORK/out")" = 10 ] || fail 'ten were expected'
}
# Numbers that no file has: nothing overflows, and nothing is asked for.
test_sizes_that_a_server_makes_up() {
  two
  local entry='"type": "file", "oid": "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"'
  setup "{\"entries\": [{$entry, \"size\": 9223372036854775807, \"path\": \"x.trace.json.gz\"}, {$entry, \"size\": 9223372036854775807, \"path\": \"y.trace.json.gz\"}]}"
  expect 4 fetch
  err_has 'larger than 50 GB'
  same big.trace.json.gz profile.json
  expect 2 fetch --max-bytes 1000000000
  expect 4 fetch --dry-run --force
  fresh && setup "{\"entries\": [{$entry, \"size\": 40000000000000000, \"path\": \"x.txt\"}, {$entry, \"size\": 18446744073709551615, \"path\": \"y.txt\"}]}"
  expect 4 fetch
  err_has 'listing is malformed'
  absent .
}
test_a_proxy_of_the_environment() {
  two && fault ''
  local proxy=$HF_ENDPOINT
  # A token may only go unencrypted where that is allowed.
  export HF_ENDPOINT=http://hub.example.org
  http_proxy=$proxy expect 0 fetch --insecure-http
  same big.trace.json.gz profile.json
  asked '.server == "hub" and (.asked | startswith("http://hub.example.org/") | not)' 0
  asked '.server == "cdn"' 1
  fresh && http_proxy=$proxy NO_PROXY=hub.example.org expect 4 fetch --no-token --retries 0
  asked true 0
  fresh && http_proxy=http://127.0.0.1:1 expect 4 fetch --no-token --retries 0
  # This machine itself is never asked for by way of a proxy.
  fresh && HF_ENDPOINT=$proxy http_proxy=http://127.0.0.1:1 expect 0 fetch
}
# A proxy that wants a login says so for each kind of request, and it is no matter of the Hub's or of W&B's.
test_a_proxy_that_wants_a_login() {
  cat >proxy.py <<'PY'
import http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def refuse(self):
        self.send_response(int(open("code").read()))
        for name, value in (("Proxy-Authenticate", 'Basic realm="x"'), ("Content-Length", "7")): self.send_header(name, value)
        self.end_headers(); self.wfile.write(b"go away"); open("seen", "a").write(self.command + "\n")
    do_CONNECT = do_GET = do_POST = do_HEAD = refuse
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy); open("port", "w").write(str(s.server_port)); s.serve_forever()
PY
  echo 407 >code && : >seen && { python3 -B proxy.py & hub_pid=$!; } && trap "kill $hub_pid 2>/dev/null; cleanup" EXIT
  for _ in $(seq 600); do [ -s port ] && break; sleep 0.05; done
  local at=127.0.0.1:$(cat port) key=0123456789abcdef0123456789abcdef01234567
  export HTTPS_PROXY=http://me:secret-word@$at http_proxy=http://me:secret-word@$at HF_TOKEN=$TOKEN
  for endpoint in https://hub.example.org http://hub.example.org; do
    expect 4 fetch --endpoint $endpoint --insecure-http
    err_has "the proxy $at ("
    err_has 'rejected the user name or password (status 407)'
    err_lacks secret-word
    err_lacks 'Hugging Face'
    HTTPS_PROXY=$at http_proxy=$at expect 4 fetch --endpoint $endpoint --insecure-http --json
    jq -e '.error.kind == "network" and (.error.message | contains("requires a user name"))' "$WORK/out" >/dev/null || fail 'JSON'
  done
  [ "$(wc -l <seen)" = 4 ] || fail "tried again: $(cat seen)"
  WANDB_API_KEY=$key expect 4 "$GDNCTL" wandb-download-trace e/p/r1
  err_has "the proxy $at (HTTPS_PROXY)"
  err_lacks secret-word
  echo 403 >code && : >seen && expect 4 fetch --endpoint https://hub.example.org
  err_has "the proxy $at (HTTPS_PROXY) refused the connection with status 403"
  [ "$(wc -l <seen)" = 1 ] || fail "tried again: $(cat seen)"
}
test_nobody_there() {
  export HF_ENDPOINT=http://127.0.0.1:1
  expect 4 fetch --retries 0
  err_has 'Connection refused'
  HF_ENDPOINT=http://no-such-host.invalid expect 4 fetch --retries 0
  err_has 'resolving no-such-host.invalid'
  HF_ENDPOINT=http://hub.example.org http_proxy=http://127.0.0.1:1 expect 4 fetch --retries 0
  err_has '127.0.0.1'
}
test_tls() {
  command -v openssl >/dev/null || skip 'no openssl'
  unset SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE
  openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null
  hub_up --tls cert.pem key.pem
  random_file big.trace.json.gz 1000000 && printf '{"a":1}\n' >"$R/profile.json"
  export HF_ENDPOINT=https://127.0.0.1:$(cat "$HUB/port") HF_TOKEN=$TOKEN
  expect 4 fetch --retries 0
  err_has 'TLS'
  expect 2 fetch --retries 0 --ca-bundle none.pem
  err_has '--ca-bundle none.pem: no such file'
  SSL_CERT_FILE=none.pem expect 4 fetch --retries 0
  good --ca-bundle cert.pem
  SSL_CERT_FILE=cert.pem expect 0 fetch
  # A folder of certificates, by whichever name.
  mkdir cas && cp cert.pem cas && openssl rehash cas
  for name in SSL_CERT_DIR SSL_CERT_FILE REQUESTS_CA_BUNDLE CURL_CA_BUNDLE; do
    fresh && (export $name=cas && expect 0 fetch --retries 0) || exit 1
  done
  fresh && SSL_CERT_DIR=/etc/ssl/certs:cas expect 0 fetch --retries 0
  fresh && expect 0 fetch --retries 0 --ca-bundle cas
  mkdir empty && SSL_CERT_DIR=empty SSL_CERT_FILE=empty expect 4 fetch --retries 0
  err_has 'CA certificates: empty'
  fresh && fault "{\"on\": \"resolve\", \"path\": \"profile\", \"do\": {\"redirect\": \"http://127.0.0.1:$(cat "$HUB/port")/x\"}}"
  SSL_CERT_FILE=cert.pem expect 4 fetch
  err_has 'it would leave https'
}
