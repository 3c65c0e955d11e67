# Download counterparts: the official clients of the Hugging Face Hub at our fake Hub (so the fake is true), gdnctl and they
# in one folder, nginx as the CDN, W&B's own client at our scripted server. Versions are pinned; what cannot be installed
# skips its tests.
# rooms: src/services/hub src/platform/http src/commands/traces
. "$REPO/tests/support/hub.sh"
INSTALLED=$REPO/build/conformance/hub
export HF_HUB_DISABLE_XET=1 HF_HUB_DISABLE_UPDATE_CHECK=1 HF_HUB_DISABLE_TELEMETRY=1 HF_HUB_DISABLE_PROGRESS_BARS=1 NO_COLOR=1
export HF_HOME=$WORK/hf-home

python_client() {  # PACKAGE VERSION: leaves in $venv the virtual environment that has it
  venv=$INSTALLED/$1-$2
  [ -e "$venv/complete" ] && return
  rm -rf "$venv" && mkdir -p "$INSTALLED" && python3 -m venv "$venv" &&
    HOME=$INSTALLED "$venv/bin/pip" install -q --disable-pip-version-check "$1==$2" >"$WORK/pip" 2>&1 ||
    skip "pip cannot install $1 $2: $(tail -n 1 "$WORK/pip")"
  touch "$venv/complete"
}
javascript_client() {
  local lock=$REPO/tests/conformance/hub/package-lock.json
  export NODE_PATH=$INSTALLED/javascript/node_modules
  cmp -s "$lock" "$INSTALLED/javascript/complete" && return
  command -v npm >/dev/null || skip 'npm is not installed (apt-get install npm)'
  rm -rf "$INSTALLED/javascript" && mkdir -p "$INSTALLED/javascript" && cp "${lock%/*}"/package*.json "$INSTALLED/javascript"
  (cd "$INSTALLED/javascript" && timeout 300 npm ci --ignore-scripts --omit=optional --no-audit --no-fund --fetch-retries=2 >"$WORK/npm" 2>&1) ||
    skip "npm cannot install @huggingface/hub: $(grep -m 1 'npm error [^c]' "$WORK/npm")"
  cp "$lock" "$INSTALLED/javascript/complete"
}
hf() {  # VERSION WORDS: the official command
  local version=$1
  shift
  python_client huggingface_hub "$version"
  HF_TOKEN=$TOKEN timeout 120 "$venv/bin/hf" "$@" >"$WORK/out" 2>"$WORK/err" || fail "hf $version $*: exit code $?"
}
gdnctl_all() { HF_TOKEN=$TOKEN expect 0 fetch --include '*' "$@"; }

# Names and sizes that differ in what matters: paths that need encoding, nothing in a file, LFS and not, folders in folders.
a_world() {
  hub_up && traces
  random_file big.trace.json.gz 3000000
  mkdir -p "$R/odd names"
  echo a >"$R/odd names/50% #1?+[x] é漢.txt"
  printf '{"traceEvents": []}' | gzip -n >"$R/odd names/ü.trace.json.gz"
  : >"$R/empty"
  settings='"token": "'$TOKEN'"'
  setup "{$settings}"
}
same_files() {  # FOLDER: has the files of the repository, and no other beside the clients' own
  diff -r -x .cache -x .gdnctl-manifest.json "$R" "$1" >"$WORK/diff" || fail "not as in the repository: $(cat "$WORK/diff")"
}
no_token_at_the_cdn() { asked '.server == "cdn" and .auth' 0; }
moved() { requests '.method == "GET" and (.server == "cdn" or (.path | contains("/resolve/") or contains("/resolve-cache/")))'; }
# Every file below FOLDER's .cache, the times of its records (line 3) left out.
records() {
  (cd "$1/.cache/huggingface" && find . -type f ! -name '*.lock' | LC_ALL=C sort | while read -r f; do
    case $f in
      *.metadata) printf '%s: %s\n' "$f" "$(sed -n '1,2p' "$f" | od -An -tx1 | tr -d ' \n')" ;;
      *) printf '%s: %s\n' "$f" "$(od -An -tx1 "$f" | tr -d ' \n')" ;;
    esac
  done)
}

official_download() {  # VERSION
  a_world
  local more
  for more in '' '"page_size": 3' '"relative": true' '"direct": true' '"odd_etag": "weak", "xet": true'; do
    rm -rf d && forget && setup "{$settings${more:+, $more}}"
    hf "$1" download o/r --repo-type dataset --local-dir d
    same_files d
    no_token_at_the_cdn
    [ "$(requests '.server == "cdn"')" != 0 ] || [ "$more" = '"direct": true' ] || fail 'the CDN was not asked'
    asked '.status >= 400' 0
  done
  setup "{$settings}"
  hf "$1" download o/r "run1/$S/perfetto_trace.json.gz" 'odd names/ü.trace.json.gz' --repo-type dataset --local-dir one
  [ "$(find one -type f -not -path '*/.cache/*' | wc -l)" = 2 ] || fail 'not the two files'
  hf "$1" download o/r --include 'run1/*' --repo-type dataset --local-dir two
  diff -r "$R/run1" two/run1 || fail 'not run1'
}
test_hf_2_4_0_downloads_from_the_fake() { official_download 2.4.0; }
test_hf_0_36_2_downloads_from_the_fake() { official_download 0.36.2; }

official_questions() {  # VERSION: also the entries by name (POST paths-info), and what is not there
  a_world
  python_client huggingface_hub "$1"
  HF_TOKEN=$TOKEN "$venv/bin/python" - "$1" "$R" "$COMMIT" >"$WORK/client" 2>&1 <<'PY' || fail "$(cat "$WORK/client")"
import hashlib, os, sys
import huggingface_hub
from huggingface_hub import HfApi
from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

version, folder, commit = sys.argv[1:]
assert huggingface_hub.__version__ == version, huggingface_hub.__version__
api = HfApi()
names = sorted(os.path.relpath(os.path.join(at, n), folder) for at, _, files in os.walk(folder) for n in files)
listed = sorted(api.list_repo_files("o/r", repo_type="dataset"))
assert listed == names, listed
tree = {e.path: e for e in api.list_repo_tree("o/r", repo_type="dataset", recursive=True)}
assert [n for n, e in sorted(tree.items()) if hasattr(e, "blob_id")] == names and "run1" in tree, tree
entries = {e.path: e for e in api.get_paths_info("o/r", names + ["none", "run1"], repo_type="dataset")}
assert sorted(entries) == sorted(names + ["run1"]), sorted(entries)
for name in names:
    with open(os.path.join(folder, name), "rb") as f:
        data = f.read()
    entry = entries[name]
    assert entry.size == len(data), entry
    if entry.lfs:
        assert entry.lfs.sha256 == hashlib.sha256(data).hexdigest(), entry
    else:
        assert entry.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(), entry
    assert tree[name].blob_id == entry.blob_id and tree[name].lfs == entry.lfs
assert api.dataset_info("o/r").sha == commit
assert api.file_exists("o/r", names[0], repo_type="dataset") and not api.file_exists("o/r", "none", repo_type="dataset")
for error, call in ((RepositoryNotFoundError, lambda: api.dataset_info("o/none")),
                    (RevisionNotFoundError, lambda: api.dataset_info("o/r", revision="none")),
                    (EntryNotFoundError, lambda: api.hf_hub_download("o/r", "none", repo_type="dataset"))):
    try:
        call()
    except error:
        continue
    raise AssertionError(f"no {error.__name__}")
PY
  no_token_at_the_cdn
}
test_hf_2_4_0_and_what_the_fake_answers() { official_questions 2.4.0; }
test_hf_0_36_2_and_what_the_fake_answers() { official_questions 0.36.2; }

test_the_javascript_client() {
  javascript_client
  # It asks for the first byte, which an empty file has not, and puts names into addresses as they are, # and ? too.
  a_world && rm "$R/empty" "$R"/odd*/50*
  local more
  for more in '' '"page_size": 3' '"relative": true'; do
    rm -rf js && forget && setup "{$settings${more:+, $more}}"
    expect 0 timeout 120 node "$REPO/tests/conformance/hub/client.mjs" "$HF_ENDPOINT" o/r "$TOKEN" js
    tail -n 1 "$WORK/out" >answers.json
    same_files js/files
    same_files "$(jq -r .snapshot answers.json)"
    no_token_at_the_cdn
    jq -e '([.listed[] | select(.type == "file") | .path] | sort) == ([.details[].path] | sort) and (.info | length) == (.details | length)' answers.json >/dev/null || fail 'listings'
    jq -e '.info["run1/profile.json"] | .size == 8 and (.etag | contains("0187f3b09d66cef7911083ad49f890f5a6589589"))' answers.json >/dev/null || fail 'information'
  done
}

both_ways() {  # VERSION
  a_world
  local more
  for more in '' '"xet": true, "page_size": 4'; do
    rm -rf theirs ours kept && setup "{$settings${more:+, $more}}"
    hf "$1" download o/r --repo-type dataset --local-dir theirs
    gdnctl_all --output-dir ours
    same_files theirs
    same_files ours
    records theirs >records.theirs && records ours >records.ours
    # 0.36 writes neither of the two.
    [ "$1" != 0.36.2 ] || sed -i '/CACHEDIR.TAG\|\/trees\//d' records.ours
    cmp records.theirs records.ours || fail "the records differ: $(diff records.theirs records.ours)"
    [ "$1" = 0.36.2 ] || [ "$(grep -c '^./trees/\|^./CACHEDIR.TAG' records.ours)" = 2 ] || fail 'no tree record or no tag'
    [ "$(grep -c metadata: records.ours)" = "$(find "$R" -type f | wc -l)" ] || fail 'not a record a file'
    forget
    gdnctl_all --output-dir theirs --json
    [ "$(moved)" = 0 ] || fail "gdnctl after hf moved files: $(cat "$HUB/requests.jsonl")"
    # 0.36 leaves no listing that would serve again.
    [ "$1" = 0.36.2 ] || asked 'true' 1
    jq -e '[.files[] | .status == "up-to-date" and .bytes_transferred == 0] | all' "$WORK/out" >/dev/null || fail 'not up to date'
    forget
    hf "$1" download o/r --repo-type dataset --local-dir ours
    [ "$(moved)" = 0 ] || fail "hf after gdnctl moved files: $(cat "$HUB/requests.jsonl")"
    [ "$1" = 0.36.2 ] || asked '.path != "/api/agent-harnesses"' 1
    records ours >again && { [ "$1" != 0.36.2 ] || sed -i '/CACHEDIR.TAG\|\/trees\//d' again; }
    cmp records.ours again || fail "hf changed the records: $(diff records.ours again)"
    same_files ours
  done
  # The branch moves: each fetches what has changed, and nothing else, on top of what the other left.
  echo '{"a":2}' >"$R/run1/profile.json" && setup "{$settings, \"commit\": \"deadbeef00000000000000000000000000000000\"}"
  forget
  hf "$1" download o/r --repo-type dataset --local-dir ours
  [ "$(moved)" = 1 ] || fail "hf moved $(moved) files, not the one that changed"
  forget
  gdnctl_all --output-dir theirs
  [ "$(moved)" = 1 ] || fail "gdnctl moved $(moved) files, not the one that changed"
  same_files ours
  same_files theirs
  # A part of the repository by gdnctl must not pass for all of it.
  HF_TOKEN=$TOKEN expect 0 fetch --path-prefix run1 --output-dir part
  hf "$1" download o/r --repo-type dataset --local-dir part
  same_files part
  no_token_at_the_cdn
  ! grep -rqF "$TOKEN" theirs ours part || fail 'the token got into a folder'
}
test_hf_2_4_0_and_gdnctl_in_one_folder() { both_ways 2.4.0; }
test_hf_0_36_2_and_gdnctl_in_one_folder() { both_ways 0.36.2; }

# The official client's own cache: its files are copied, not fetched.
test_the_cache_of_hf_is_read() {
  a_world
  hf 2.4.0 download o/r --repo-type dataset
  forget
  gdnctl_all --output-dir ours --json
  [ "$(moved)" = 0 ] || fail "moved: $(cat "$HUB/requests.jsonl")"
  jq -e '[.files[].status] | all(. == "copied")' "$WORK/out" >/dev/null || fail 'not copied'
  same_files ours
  HF_TOKEN=$TOKEN expect 0 fetch --include '*' --offline --output-dir offline
  same_files offline
}

nginx_up() {  # [DIRECTIVES of its one location]
  local program
  program=$(PATH=$PATH:/usr/sbin command -v nginx) || skip 'nginx is not installed (apt-get install nginx-light)'
  mkdir -p "$WORK/nginx"
  NGINX_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  cat >"$WORK/nginx/nginx.conf" <<CONF
daemon off;
worker_processes 1;
pid $WORK/nginx/pid;
error_log $WORK/nginx/error;
$([ "$(id -u)" != 0 ] || echo 'user root;')
events { }
http {
  log_format seen escape=json '{"status": \$status, "range": "\$http_range", "sent": \$body_bytes_sent, "authorization": "\$http_authorization", "etag": "\$sent_http_etag"}';
  access_log $WORK/nginx/access seen;
  client_body_temp_path $WORK/nginx/b; proxy_temp_path $WORK/nginx/p; fastcgi_temp_path $WORK/nginx/f; uwsgi_temp_path $WORK/nginx/u; scgi_temp_path $WORK/nginx/s;
  server {
    listen 127.0.0.1:$NGINX_PORT;
    root $HUB/repos;
    location / { ${1:-} }
  }
}
CONF
  "$program" -e "$WORK/nginx/error" -p "$WORK/nginx" -c "$WORK/nginx/nginx.conf" 2>"$WORK/nginx/out" &
  nginx_pid=$!
  trap "kill $hub_pid $nginx_pid 2>/dev/null; wait $nginx_pid 2>/dev/null; cleanup" EXIT
  for _ in $(seq 200); do [ -s "$WORK/nginx/pid" ] && (exec 3<>"/dev/tcp/127.0.0.1/$NGINX_PORT") 2>/dev/null && break; sleep 0.05; done
  [ -s "$WORK/nginx/pid" ] || fail "nginx does not start: $(cat "$WORK/nginx/out" "$WORK/nginx/error")"
  settings+=', "cdn": "http://127.0.0.1:'$NGINX_PORT'"'
  setup "{$settings}"
}
# Leaves a partial file of big.trace.json.gz, of $had bytes, as a killed gdnctl does.
killed_half_way() {
  HF_TOKEN=$TOKEN launch "$GDNCTL" hf-download-trace --repo-id o/r --include 'big*'
  for _ in $(seq 400); do [ -n "$(find .profiles -name '*.part' -size +500k 2>/dev/null)" ] && break; sleep 0.02; done
  kill -9 $pid && wait $pid 2>/dev/null
  had=$(find .profiles -name '*.part' -printf '%s')
  [ "${had:-0}" -gt 500000 ] && [ "$had" -lt 3000000 ] || fail "no partial file: ${had:-none}"
}
# The official client, as $pid, while it holds the lock of big.trace.json.gz, which takes three seconds. It writes by 10 MiB.
hf_under_way() {  # FOLDER
  python_client huggingface_hub 2.4.0
  HF_TOKEN=$TOKEN launch "$venv/bin/hf" download o/r --repo-type dataset --local-dir "$1"
  local lock=$1/.cache/huggingface/download/big.trace.json.gz.lock
  for _ in $(seq 1000); do
    [ ! -e "$lock" ] || flock -n "$lock" true || return 0
    sleep 0.01
  done
  fail 'hf does not begin'
}
# nginx writes its line of a request a moment after the last byte of it.
served_in_the_end() {  # FILTER
  for _ in $(seq 200); do [ "$(served "$1")" = 0 ] || return 0; sleep 0.05; done
  fail "no request with $1: $(cat "$WORK/nginx/access")"
}
served() { jq -s "[.[] | select($1)] | length" "$WORK/nginx/access"; }

test_nginx_as_the_cdn() {
  a_world && nginx_up 'gzip on; gzip_min_length 1; gzip_types *;'
  setup "{$settings, \"lfs\": [\".gz\", \".pb\", \".json\", \".md\"]}"
  gdnctl_all --output-dir ours
  same_files ours
  [ "$(served '.status == 200')" = 11 ] || fail "$(cat "$WORK/nginx/access")"
  [ "$(served '.authorization != "" or .etag == ""')" = 0 ] || fail "$(cat "$WORK/nginx/access")"
  hf 2.4.0 download o/r --repo-type dataset --local-dir theirs
  same_files theirs
}
test_nginx_continues_a_download() {
  a_world && nginx_up 'limit_rate 1m;'
  killed_half_way
  gdnctl_all --json
  served_in_the_end ".status == 206 and .range == \"bytes=$had-\" and .sent == 3000000 - $had"
  jq -e --argjson had "$had" '.files[] | select(.path == "big.trace.json.gz") | .status == "resumed" and .bytes_transferred == 3000000 - $had' "$WORK/out" >/dev/null || fail 'not continued'
  same_files .profiles/hf
}
# The CDN has less of the file than the partial one that is there: its 416 makes gdnctl start again.
test_nginx_answers_416() {
  a_world && nginx_up 'limit_rate 1m;'
  killed_half_way
  mkdir -p elsewhere && cp "$R/big.trace.json.gz" elsewhere/whole
  local digest
  digest=$(sha256sum <elsewhere/whole | cut -d ' ' -f 1)
  setup "{$settings, \"sizes\": {\"big.trace.json.gz\": 3000000}, \"digests\": {\"big.trace.json.gz\": \"$digest\"}}"
  truncate -s 1000 "$R/big.trace.json.gz"
  HF_TOKEN=$TOKEN fetch --include 'big*' --retries 1 >"$WORK/out" 2>"$WORK/err" && fail 'taken for whole'
  served_in_the_end ".status == 416 and .range == \"bytes=$had-\""
  [ ! -e .profiles/hf/big.trace.json.gz ] || fail 'a wrong file is there'
  cp elsewhere/whole "$R/big.trace.json.gz"
  gdnctl_all
  same_files .profiles/hf
}

# Parts of one file over several connections, or one stream: the bytes that nginx sends are the file's, once.
test_nginx_serves_a_big_file() {
  hub_up && settings='"token": "'$TOKEN'"' && nginx_up
  random_file big.trace.json.gz 150000000
  gdnctl_all --json
  same_files .profiles/hf
  jq -e '.files[0] | .bytes_transferred == 150000000 and .attempts == 1' "$WORK/out" >/dev/null || fail 'not once'
  for _ in $(seq 100); do [ "$(jq -s 'map(.sent) | add' "$WORK/nginx/access")" = 150000000 ] && break; sleep 0.05; done
  [ "$(jq -s 'map(.sent) | add' "$WORK/nginx/access")" = 150000000 ] || fail "$(cat "$WORK/nginx/access")"
  [ "$(served '.status != 200 and .status != 206')" = 0 ] || fail "$(cat "$WORK/nginx/access")"
}
test_fifty_interruptions() {
  . "$REPO/tests/cli/hf_download_local.sh"
  INSTANTS=50 test_killed_at_any_instant
}
# What a killed one leaves is no obstacle to the other.
test_after_a_killed_one_the_other_finishes() {
  a_world && nginx_up 'limit_rate 1m;'
  killed_half_way
  hf 2.4.0 download o/r --repo-type dataset --local-dir .profiles/hf
  same_files .profiles/hf
  forget && gdnctl_all
  [ "$(moved)" = 0 ] || fail "moved: $(cat "$HUB/requests.jsonl")"
  hf_under_way d
  kill -9 $pid && wait $pid 2>/dev/null
  [ ! -e d/big.trace.json.gz ] || fail 'killed too late'
  gdnctl_all --output-dir d
  same_files d
}
# The official client's lock: who comes second waits, and finds the file there.
test_gdnctl_waits_for_hf() {
  a_world && nginx_up 'limit_rate 1m;'
  hf_under_way .profiles/hf
  HF_TOKEN=$TOKEN "$GDNCTL" hf-download-trace --repo-id o/r --include '*' >"$WORK/ours" 2>&1 || fail "gdnctl failed: $(cat "$WORK/ours")"
  wait $pid || fail 'hf failed'
  same_files .profiles/hf
  served_in_the_end '.sent >= 3000000'
  [ "$(served '.sent > 100')" = 1 ] || fail "the big one was fetched twice: $(cat "$WORK/nginx/access")"
}

# W&B's own client at the scripted server: it is content with its answers, and has the same files as gdnctl in the end.
test_the_client_of_wandb_and_gdnctl_fetch_the_same() {
  . "$REPO/tests/conformance/wandb.sh"
  client
  . "$REPO/tests/cli/wandb_download_trace.sh"
  wandb_up
  for i in $(seq 7); do printf '{"traceEvents": []}' >"$W/files/art2/$S/part $i.trace.json"; done
  local more
  for more in '{}' '{"page_size": 2}' '{"expired": ["'$S'/host.trace.json.gz"]}'; do
    rm -rf theirs ours && printf '%s' "$more" >"$W/setup.json" && : >"$W/bucket"
    WANDB_CACHE_DIR=$PWD/cache-$RANDOM timeout 120 "$python" - >"$WORK/client" 2>&1 <<'PY' || fail "$(cat "$WORK/client")"
import wandb
api = wandb.Api()
artifact = api.artifact("e/p/run-r1-profiler:latest")
assert artifact.version == "v1" and artifact.type == "jax_profile" and artifact.state == "COMMITTED", (artifact.version, artifact.type, artifact.state)
assert len(artifact.manifest.entries) == 9, artifact.manifest.entries
artifact.download(root="theirs")
names = sorted(a.name for a in api.run("e/p/r1").logged_artifacts())
assert names == ["run-r1-model:v0", "run-r1-profiler:v0", "run-r1-profiler:v1"], names
assert sorted(f.name for f in artifact.files(per_page=4)) == sorted(artifact.manifest.entries)
PY
    diff -r "$W/files/art2" theirs || fail 'the client has other files'
    [ "$(bucket '.where == "bucket" and .auth')" = 0 ] || fail 'authorization at the bucket'
    expect 0 fetch --include '*' --output-dir ours
    diff -r -x .cache -x .gdnctl-manifest.json "$W/files/art2" ours || fail 'gdnctl has other files'
  done
  [ ! -e "$W/complaints" ] || fail "$(cat "$W/complaints")"
}
# What `wandb login --host` leaves behind is enough to ask that server, and no other is asked.
test_a_login_of_the_wandb_client_is_used() {
  . "$REPO/tests/conformance/wandb.sh"
  client
  . "$REPO/tests/cli/wandb_download_trace.sh"
  wandb_up
  local url=$WANDB_BASE_URL
  unset WANDB_BASE_URL WANDB_API_KEY
  timeout 120 "${python%/*}/wandb" login --relogin --host "$url" "$KEY" >"$WORK/client" 2>&1 || fail "$(cat "$WORK/client")"
  grep -q "^machine ${url#http://}$" "$HOME/.netrc" || fail "another netrc: $(sed 's/password.*/password/' "$HOME/.netrc")"
  : >"$W/requests"
  HTTPS_PROXY=http://127.0.0.1:1 expect 0 fetch
  from_art art2
  [ "$(operations)" = 'RunOutputArtifacts FetchArtifactManifest GetArtifactMembershipFileUrls' ] || fail "asked: $(operations)"
}
