# hf-download-trace against a fake Hub: what is selected, said, recorded, and asked for.
. "$REPO/tests/support/hub.sh"

test_the_default_finds_what_profilers_write() {
  hub_up && traces
  expect 0 fetch --path-prefix run1
  out_has "[gdnctl] run1/$S/host.trace.json.gz -> .profiles/hf/run1/$S/host.trace.json.gz"
  same run1/$S/host.trace.json.gz run1/$S/perfetto_trace.json.gz run1/profile.json run1/plugins/profile/2026_03_09_08_00_00/host.trace.json.gz
  absent run1/$S/host.xplane.pb run10 README.md
  [ "$(wc -l <"$WORK/out")" = 4 ] || fail 'four lines were expected'
  err_has 'https://ui.perfetto.dev'
  err_has 'next: gdnctl trace report .profiles/hf'
  asked '.path | startswith("/api/")' 2
  asked '.method == "HEAD"' 0
  asked '.server == "cdn"' 3
  asked '.path | contains("/resolve/")' 4
  asked 'true' 9
}
test_xplane_comes_beside_the_default_and_beside_a_pattern() {
  hub_up && traces
  expect 0 fetch --path-prefix run1 --include-xplane
  same run1/$S/host.xplane.pb run1/profile.json
  err_has 'xprof --logdir .profiles/hf/run1/'
  expect 0 fetch --path-prefix run10 --pattern 'nothing' --include-xplane
  same run10/$S/host.xplane.pb
  absent run10/$S/host.trace.json.gz
}
test_the_original_s_default_regex_was_never_right() {
  hub_up && traces
  expect 3 fetch --pattern 'trace\\.json\\.gz$'
  err_lacks 'trace report'
  err_has 'did you mean'
  err_has 'README.md'
  absent .
}
test_python_s_regexes_and_globs() {
  hub_up && traces
  expect 0 fetch --pattern '(?i)PERFETTO\w+?\.json' --output-dir a
  [ "$(wc -l <"$WORK/out")" = 1 ] || fail 'one was expected'
  err_has "next: gdnctl trace report a/run1/$S/perfetto_trace.json.gz"
  expect 0 fetch --include '*.pb' --exclude 'run10/*' --output-dir b
  [ "$(wc -l <"$WORK/out")" = 2 ] || fail 'two were expected'
  expect 2 fetch --pattern 'a(b'
  err_has "a(b"
  expect 3 fetch --pattern '(a*)*Z$'
}
test_latest_session_and_limit() {
  hub_up && traces
  mkdir -p "$R/run2/plugins/profile/steps-2-to-9" "$R/run2/plugins/profile/steps-10-to-20"
  gzip -nc </dev/null | tee "$R/run2/plugins/profile/steps-2-to-9/a.trace.json.gz" >"$R/run2/plugins/profile/steps-10-to-20/a.trace.json.gz"
  expect 0 fetch --latest-session --quiet
  out_has ".profiles/hf/run1/$S/host.trace.json.gz"
  out_has '.profiles/hf/run2/plugins/profile/steps-10-to-20/a.trace.json.gz'
  out_lacks steps-2-to-9
  out_lacks 2026_03_09
  out_lacks gdnctl]
  expect 0 fetch --limit 1 --output-dir one
  [ "$(wc -l <"$WORK/out")" = 1 ] || fail 'one was expected'
  expect 2 fetch --limit 0
}
test_nothing_matches() {
  hub_up && traces
  expect 3 fetch --path-prefix run3
  err_has 'no matching files'
  expect 3 fetch --path-prefix run
  expect 0 fetch --path-prefix run3 --allow-empty
  absent run1
  expect 3 fetch --path-prefix run3 --json
  jq -e '.error.kind == "no_match" and .files == []' "$WORK/out" >/dev/null || fail 'JSON'
}
test_a_file_named_exactly() {
  hub_up && traces
  expect 0 fetch --path-prefix README.md
  same README.md
  expect 0 "$GDNCTL" hf-download-trace "$HF_ENDPOINT/datasets/o/r/blob/main/run1/$S/host.xplane.pb?x=1" --output-dir x
  cmp "$R/run1/$S/host.xplane.pb" "x/run1/$S/host.xplane.pb" || fail 'not the same'
  expect 6 "$GDNCTL" hf-download-trace "$HF_ENDPOINT/datasets/o/r/blob/main/none.json"
}
test_uris() {
  hub_up && traces
  expect 0 "$GDNCTL" hf-download-trace hf://datasets/o/r@refs/pr/1/run1/ --dry-run
  out_has 'run1/profile.json'
  out_has download
  absent .
  asked '.path == "/api/datasets/o/r/revision/refs%2Fpr%2F1"' 1
  expect 6 "$GDNCTL" hf-download-trace hf://o/r
  err_has 'try --repo-type dataset'
  for bad in hf:// hf://datasets/ hf://dataset/o/r hf://gpt2 hf://o/m@ hf://@v1/f hf://o/m//s hf://datasets/o/.x hf://models/a--b/c datasets/o/r a/b/c https://example.org/o/r; do
    expect 2 "$GDNCTL" hf-download-trace "$bad"
  done
  expect 2 "$GDNCTL" hf-download-trace datasets/o/r
  err_has 'use --repo-type dataset'
  expect 2 "$GDNCTL" hf-download-trace hf://datasets/o/r --revision v1
  expect 2 "$GDNCTL" hf-download-trace
  expect 2 "$GDNCTL" hf-download-trace o/r --repo-id o/r
  absent .
}
test_the_manifest_and_json() {
  hub_up && traces
  expect 0 fetch --path-prefix run1 --json
  jq -e '.schema == "gdnctl.download/1" and .source == "hf" and .repo == "o/r" and .type == "dataset" and .revision == "main"' "$WORK/out" >/dev/null || fail 'JSON'
  jq -e --arg c $COMMIT '.commit == $c and .error == null and (.files | length) == 4' "$WORK/out" >/dev/null || fail 'JSON'
  jq -e '.files[] | select(.path == "run1/profile.json") | .git_sha1 == "0187f3b09d66cef7911083ad49f890f5a6589589" and .status == "downloaded" and .size == 8 and .attempts == 1 and .bytes_transferred == 8' "$WORK/out" >/dev/null || fail 'JSON of a file'
  jq -e '(.by_kind.perfetto | length) == 1 and (.by_kind.trace_json | length) == 2 and (.by_kind.profile | length) == 1' "$WORK/out" >/dev/null || fail 'kinds'
  cmp "$WORK/out" .profiles/hf/.gdnctl-manifest.json || fail 'the manifest is not what --json prints'
  expect 0 fetch --path-prefix run1 --manifest "$WORK/m.json" --output-dir x && [ -s "$WORK/m.json" ] && [ ! -e x/.gdnctl-manifest.json ] || fail 'manifest elsewhere'
  expect 0 fetch --path-prefix run1 --manifest none --output-dir y && [ ! -e y/.gdnctl-manifest.json ] || fail 'no manifest'
}
test_the_official_layout() {
  hub_up && traces
  expect 0 fetch --path-prefix run1
  cd .profiles/hf || fail 'no folder'
  [ "$(od -An -c .cache/huggingface/.gitignore | tr -d ' \n')" = '*' ] || fail .gitignore
  printf 'Signature: 8a477f597d28d172789f06886806bc55\n# This file is a cache directory tag created by huggingface_hub.\n# For information about cache directory tags, see:\n#\thttps://bford.info/cachedir/\n' | cmp - .cache/huggingface/CACHEDIR.TAG || fail TAG
  local m=.cache/huggingface/download/run1/profile.json
  [ "$(sed -n 1p $m.metadata)" = $COMMIT ] && [ "$(sed -n 2p $m.metadata)" = 0187f3b09d66cef7911083ad49f890f5a6589589 ] || fail metadata
  sed -n 3p $m.metadata | grep -qE '^[0-9]{10}\.[0-9]+$' || fail time
  [ -e $m.lock ] && [ ! -e .cache/huggingface/trees ] || fail 'lock or trees'
  ! find . -name '*.part' -o -name '*.gdnctl.json' -o -name '*.tmp' | grep -q . || fail 'something is left over'
}
test_again_moves_nothing_and_a_full_listing_is_kept() {
  hub_up && traces
  expect 0 fetch
  [ -e .profiles/hf/.cache/huggingface/trees/$COMMIT.json ] || fail 'no tree record'
  forget
  expect 0 fetch
  asked 'true' 1
  manifest '[.files[].status] | all(. == "up-to-date")'
  expect 0 fetch --revision $COMMIT --path-prefix run1
  asked 'true' 1
  rm .profiles/hf/run1/profile.json
  expect 0 fetch --revision $COMMIT
  asked 'true' 2
  same run1/profile.json
}
test_a_file_without_a_record_is_hashed() {
  hub_up && traces
  expect 0 fetch --path-prefix run1
  rm -r .profiles/hf/.cache
  printf '{"a":2}\n' >.profiles/hf/run1/profile.json
  forget
  expect 0 fetch --path-prefix run1
  asked '.path | contains("/resolve/")' 1
  same run1/profile.json
  printf 'garbage' >.profiles/hf/.cache/huggingface/download/run1/profile.json.metadata
  expect 0 fetch --path-prefix run1
  asked '.path | contains("/resolve/")' 1
  expect 0 fetch --path-prefix run1 --force
  asked '.path | contains("/resolve/")' 5
}
test_the_branch_moves() {
  hub_up && traces
  expect 0 fetch --path-prefix run1
  setup '{"commit": "deadbeef00000000000000000000000000000000"}'
  printf '{"b":1}\n' >"$R/run1/profile.json"
  forget
  expect 0 fetch --path-prefix run1
  asked '.path | contains("/resolve/")' 1
  same run1/profile.json
  grep -q deadbeef ".profiles/hf/.cache/huggingface/download/run1/$S/host.trace.json.gz.metadata" || fail 'the record names the old commit'
}
test_pages_and_their_links() {
  hub_up && traces
  for link in relative absolute default; do
    setup "{\"page_size\": 2, \"link\": \"$link\", \"link_style\": \"several\"}"
    expect 0 fetch --output-dir $link
    [ "$(wc -l <"$WORK/out")" = 5 ] || fail "not all with $link links"
  done
  for style in unquoted lines; do
    setup "{\"page_size\": 2, \"link_style\": \"$style\"}" && expect 0 fetch --output-dir $style
    [ "$(wc -l <"$WORK/out")" = 5 ] || fail "not all with links that are $style"
  done
  export HF_TOKEN=$TOKEN
  setup '{"page_size": 2, "link": "foreign"}' && expect 4 fetch --output-dir f && err_has 'continues at'
  setup '{"page_size": 2, "link": "loop"}' && expect 4 fetch --output-dir l && err_has 'repeats itself'
}
test_flat() {
  hub_up && traces
  expect 8 fetch --path-prefix run1 --flat
  asked '.path | contains("/resolve/")' 0
  absent .
  expect 0 fetch --path-prefix run1 --flat --latest-session
  cmp "$R/run1/$S/host.trace.json.gz" .profiles/hf/host.trace.json.gz || fail 'not there'
  forget
  expect 0 fetch --path-prefix run1 --flat --latest-session
  asked '.path | contains("/resolve/")' 0
  # Without its folder, a name may be one that is ours.
  for name in .gdnctl-manifest.json .cache; do
    mkdir -p "$R/odd" && echo x >"$R/odd/$name"
    expect 8 fetch --path-prefix "odd/$name" --flat --output-dir odd
    err_has 'reserved for download records'
    [ ! -e odd ] || fail 'something was written'
    rm "$R/odd/$name"
  done
}
test_a_selection_too_large_is_refused_before_anything_moves() {
  hub_up && traces
  expect 2 fetch --max-bytes 10
  err_has '--max-bytes 10'
  asked '.path | contains("/resolve/")' 0
  absent .
}
test_renamed() {
  hub_up && traces
  setup '{"renamed": {"old/name": "o/r"}}'
  export HF_TOKEN=$TOKEN
  expect 0 "$GDNCTL" hf-download-trace --repo-id old/name --path-prefix run1
  same run1/profile.json
  manifest '.repo == "o/r"'
  asked '.path | contains("old/name")' 1
}
test_offline_and_the_hub_s_cache() {
  hub_up && traces
  expect 4 fetch --offline
  expect 4 fetch --offline --revision $COMMIT
  err_has 'no listing'
  local c=$HOME/.cache/huggingface/hub/datasets--o--r sha
  sha=0187f3b09d66cef7911083ad49f890f5a6589589
  mkdir -p "$c/blobs" "$c/refs" "$c/snapshots/$COMMIT/run1"
  cp "$R/run1/profile.json" "$c/blobs/$sha" && printf $COMMIT >"$c/refs/main"
  ln -s ../../../blobs/$sha "$c/snapshots/$COMMIT/run1/profile.json"
  expect 0 fetch --offline
  same run1/profile.json
  manifest '.files[0].status == "copied"'
  asked 'true' 0
  expect 0 fetch --path-prefix run1 --output-dir online
  asked '.path | contains("profile.json")' 0
  CACHES=$HOME/.cache HF_HOME='${CACHES}/huggingface' expect 0 fetch --offline --output-dir home
  HOMES='x$HOMES' HF_HOME='$HOMES' expect 4 timeout 10 "$GDNCTL" hf-download-trace --repo-id o/r --offline --output-dir loop
  # Its name alone is no proof of what a blob is.
  printf '{"b":1}\n' >"$c/blobs/$sha" && expect 0 fetch --path-prefix run1/profile.json --output-dir wrong
  cmp "$R/run1/profile.json" wrong/run1/profile.json || fail 'a wrong blob was copied'
  rm "$c/blobs/$sha" && mkfifo "$c/blobs/$sha"
  expect 0 timeout 20 "$GDNCTL" hf-download-trace --repo-id o/r --path-prefix run1/profile.json --output-dir pipe
  rm "$c/blobs/$sha" && cp "$R/run1/profile.json" "$c/blobs/$sha" && forget
  HF_HUB_OFFLINE=1 expect 0 fetch
  asked '.path | contains("resolve")' 0
}
test_offline_again_after_the_same_command() {
  hub_up && traces
  expect 0 fetch --path-prefix run1 --include-xplane && [ ! -e .profiles/hf/.cache/huggingface/trees ] || fail 'a whole listing'
  forget
  for way in '' --offline; do
    HF_HUB_OFFLINE=${way:-1} expect 0 fetch --path-prefix run1 --include-xplane $way
    manifest ".commit == \"$COMMIT\" and (.files | length) == 6 and ([.files[].status] | all(. == \"up-to-date\"))"
  done
  expect 0 "$GDNCTL" hf-download-trace hf://datasets/o/r@main/run1 --include-xplane --offline
  # Another selection, revision or Hub: the manifest does not say what there is.
  expect 4 fetch --path-prefix run10 --offline
  expect 4 fetch --path-prefix run1 --offline
  expect 4 fetch --path-prefix run1 --include-xplane --revision v1 --offline
  expect 4 fetch --path-prefix run1 --include-xplane --endpoint http://127.0.0.1:1 --offline
  rm .profiles/hf/run1/profile.json
  expect 4 fetch --path-prefix run1 --include-xplane --offline
  err_has 'run1/profile.json is not on this machine'
  printf '{' >.profiles/hf/.gdnctl-manifest.json
  expect 4 fetch --path-prefix run1 --include-xplane --offline
  asked true 0
  expect 0 fetch --output-dir m --manifest m.json && expect 0 fetch --output-dir m --manifest m.json --offline
  expect 0 fetch --output-dir f --flat --path-prefix run10 && expect 0 fetch --output-dir f --flat --path-prefix run10 --offline
  setup '{"renamed": {"old/name": "o/r"}}'
  expect 0 "$GDNCTL" hf-download-trace old/name --path-prefix run1 --output-dir n
  expect 0 "$GDNCTL" hf-download-trace old/name --path-prefix run1 --output-dir n --offline
  jq -e '.repo == "o/r"' n/.gdnctl-manifest.json >/dev/null || fail 'the old name'
}
test_hashes_are_right_where_they_were_taken() {
  hub_up && traces
  expect 0 fetch --path-prefix run1
  err_has '4 downloaded; hashes are right'
  manifest '[.files[].hashed] | all'
  local old=run1/$S/host.trace.json.gz time
  # A wrong byte that the records do not show.
  time=$(stat -c %y ".profiles/hf/$old") && printf X | dd of=".profiles/hf/$old" bs=1 seek=20 conv=notrunc 2>/dev/null && touch -d "$time" ".profiles/hf/$old"
  expect 0 fetch --path-prefix run1
  err_has '4 up-to-date; hashes were not checked again'
  err_lacks 'hashes are right'
  manifest '[.files[].hashed] | any | not'
  rm .profiles/hf/run1/profile.json && expect 0 fetch --path-prefix run1
  err_has 'the hash of 1 file is right, 3 not checked again'
  expect 7 fetch --path-prefix run1 --verify --offline
  err_has "$old has other content on this machine"
  forget
  expect 0 fetch --path-prefix run1 --verify
  err_has "$old: the file on this machine has another hash"
  err_has '1 downloaded, 3 up-to-date; hashes are right'
  asked '.path | contains("/resolve/")' 1
  same "$old"
  expect 0 fetch --path-prefix run1 --verify --json
  jq -e '[.files[] | .hashed and .status == "up-to-date"] | all' "$WORK/out" >/dev/null || fail 'JSON'
  expect 0 fetch --path-prefix run1 --no-verify --force
  err_has 'hashes were not checked'
  expect 2 fetch --verify --no-verify
}
test_validate_trace() {
  hub_up && traces
  expect 0 fetch --path-prefix run10 --include-xplane --validate-trace
  printf '{"traceEvents": [1,' | gzip -n >"$R/run10/bad.trace.json.gz"
  printf '\x0a\x7f' >"$R/run10/bad.xplane.pb"
  expect 7 fetch --path-prefix run10 --include-xplane --validate-trace
  err_has 'bad.trace.json.gz: invalid trace: it is JSON truncated'
  err_has 'bad.xplane.pb: invalid trace: it is not an XSpace'
}
test_an_empty_file_and_odd_names() {
  hub_up
  mkdir -p "$R/a b" && : >"$R/empty.trace.json"
  for name in 'a b/c%d#e?f+[x]' 'ü/ñ' 'weird but valid/name.txt'; do mkdir -p "$R/$(dirname "$name")"; echo "$name" >"$R/$name"; done
  expect 0 fetch --include '*'
  same empty.trace.json 'a b/c%d#e?f+[x]' 'ü/ñ' 'weird but valid/name.txt'
  # The longest name, and one that leaves no room for its record.
  local long=$(printf 'x%.0s' $(seq 235))
  rm -r .profiles && echo long >"$R/$long.trace.json" && expect 0 fetch --pattern xxx && same "$long.trace.json"
  forget && expect 0 fetch --pattern xxx && asked '.path | contains("/resolve/")' 0
  rm -r .profiles && echo long >"$R/${long}y.trace.json" && forget && expect 8 fetch --pattern xxx && asked '.path | contains("/resolve/")' 0
  err_has 'longer than 246 bytes'
}
test_progress_is_for_a_terminal_only() {
  hub_up && traces
  expect 0 fetch
  ! grep -q $'\r' "$WORK/err" || fail 'a carriage return without a terminal'
  command -v script >/dev/null || skip 'no script(1)'
  script -qec "$GDNCTL hf-download-trace --repo-id o/r --output-dir tty --force" "$WORK/tty" >/dev/null </dev/null || fail 'on a terminal'
  grep -q 'of 5 files' "$WORK/tty" || fail 'no bar'
}
test_the_home_folder_as_output() {
  hub_up && traces
  expect 0 bash -c '"$GDNCTL" hf-download-trace --repo-id o/r --path-prefix run10 --output-dir=~/traces --manifest=~/m.json'
  [ -s "$HOME/m.json" ] && [ -d "$HOME/traces/run10" ] && [ ! -e '~' ] || fail "in the working directory: $(ls)"
}
