# hf-download-trace on this machine's side: interruptions, locks, full disks, links, what it costs.
. "$REPO/tests/support/hub.sh"

fault() { setup "{\"rules\": [$1]}"; }
slow() { fault '{"on": "cdn", "do": {"slow": 0.05}}'; }  # 5 MB/s a connection
await() { for _ in $(seq 400); do eval "$1" && return 0; sleep 0.02; done; fail "never: $1"; }
part_bytes() { find .profiles -name '*.part' -printf '%s\n' 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'; }

test_an_interrupted_download_is_continued() {
  hub_up && random_file a.trace.json.gz 4000000 && slow
  for signal in INT TERM; do
    rm -rf .profiles && forget
    launch "$GDNCTL" hf-download-trace --repo-id o/r
    await '[ "$(find .profiles -name "*.part" -size +500k 2>/dev/null | wc -l)" = 1 ]'
    local before=$(date +%s%N)
    kill -$signal $pid && wait $pid
    [ $? = 130 ] || fail "not 130 after $signal"
    [ $((($(date +%s%N) - before) / 1000000)) -lt 1000 ] || fail 'not within a second'
    err_has 'run the same command again'
    jq -e '.files[0] | .status == "skipped" and .error.kind == "interrupted"' .profiles/hf/.gdnctl-manifest.json >/dev/null || fail manifest
    manifest '.error.kind == "interrupted" and (.error.message | contains("1 of 1"))'
    absent a.trace.json.gz
    setup '{}' && expect 0 fetch && slow
    same a.trace.json.gz
    manifest '.files[0] | .status == "resumed" and .bytes_transferred < 3600000'
  done
}
# Killed, or told to stop, at INSTANTS random ones.
test_killed_at_any_instant() {
  hub_up && random_file a.trace.json.gz 3000000 && random_file b.trace.json.gz 2000000 && random_file c/d.json.gz 100000
  printf '{"a":1}\n' >"$R/profile.json"
  fault '{"on": "cdn", "do": {"slow": 0.01}}'
  local i signal status
  for i in $(seq ${INSTANTS:-12}); do
    rm -rf .profiles
    launch "$GDNCTL" hf-download-trace --repo-id o/r --include '*'
    signal=$([ $((i % 2)) = 0 ] && echo INT || echo KILL)
    sleep 0.$(printf '%03d' $((RANDOM % 400))) && kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
    [ $signal = KILL ] || [ $status = 130 ] || [ $status = 0 ] || fail "exit code $status after INT"
    for f in a.trace.json.gz b.trace.json.gz c/d.json.gz profile.json; do
      [ ! -e ".profiles/hf/$f" ] || same "$f"  # whole or not there
    done
    local had
    had=$(part_bytes)
    expect 0 fetch --include '*'
    same a.trace.json.gz b.trace.json.gz c/d.json.gz profile.json
    manifest "([.files[].bytes_transferred] | add) <= 5100008 - $had"
    ! find .profiles -name '*.part' | grep -q . || fail 'a partial file is left'
  done
}
test_two_at_once_in_one_folder() {
  hub_up
  for i in 1 2 3 4; do random_file $i.trace.json.gz 1500000; done
  slow
  launch "$GDNCTL" hf-download-trace --repo-id o/r --jobs 2
  expect_also=$("$GDNCTL" hf-download-trace --repo-id o/r --jobs 2 2>&1) || fail "the second: $expect_also"
  wait $pid || fail 'the first'
  same 1.trace.json.gz 2.trace.json.gz 3.trace.json.gz 4.trace.json.gz
  asked '.server == "cdn"' 4
}
# Each looks at all files first: what the other has fetched since then is not fetched again.
test_two_at_once_and_many_files() {
  hub_up
  for i in $(seq 60); do random_file $i.trace.json.gz 3000; done
  fault '{"on": "cdn", "do": {"slow": 0.02}}'
  launch "$GDNCTL" hf-download-trace --repo-id o/r
  expect_also=$("$GDNCTL" hf-download-trace --repo-id o/r 2>&1) || fail "the second: $expect_also"
  wait $pid || fail 'the first'
  asked '.server == "cdn"' 60
}
test_the_official_client_s_lock_is_waited_for() {
  hub_up && random_file a.trace.json.gz 1000
  local lock=.profiles/hf/.cache/huggingface/download/a.trace.json.gz.lock
  mkdir -p "${lock%/*}"
  exec 8>"$lock" && flock 8
  { sleep 1; date +%s%N >"$WORK/freed"; } 8>&8 &
  exec 8>&-
  expect 0 fetch
  [ -s "$WORK/freed" ] || fail 'it did not wait'
  same a.trace.json.gz
}
test_a_partial_file_of_another_version_is_not_continued() {
  hub_up && random_file a.trace.json.gz 400000
  fault '{"on": "cdn", "do": {"cut": 200000}}'
  expect 4 fetch --retries 0
  [ "$(part_bytes)" = 200000 ] || fail 'no partial file'
  random_file a.trace.json.gz 400000 && setup '{"commit": "deadbeef00000000000000000000000000000000"}'
  expect 0 fetch
  same a.trace.json.gz
  manifest '.files[0] | .status == "downloaded" and .bytes_transferred == 400000'
}
test_a_partial_file_with_wrong_bytes() {
  hub_up && random_file a.trace.json.gz 400000
  fault '{"on": "cdn", "do": {"cut": 200000}}'
  expect 4 fetch --retries 0
  head -c 200000 /dev/zero >"$(find .profiles -name '*.part')"
  setup '{}' && expect 0 fetch
  same a.trace.json.gz
}
test_a_full_disk() {
  hub_up && random_file a.trace.json.gz 3000000
  mkdir full && mount -t tmpfs -o size=1m tmpfs full 2>/dev/null || skip 'cannot mount a tmpfs'
  trap "kill $hub_pid 2>/dev/null; umount '$PWD/full'; cleanup" EXIT
  expect 8 fetch --output-dir full
  err_has 'no space left on device: '
  asked '.server == "cdn"' 0
  mount -o remount,size=8m full
  truncate -s 0 "$R/a.trace.json.gz" && random_file b.trace.json.gz 900000
  head -c 7500000 /dev/zero >full/other
  setup '{"commit": "deadbeef00000000000000000000000000000000"}'
  expect 8 fetch --output-dir full
  rm full/other
  expect 0 fetch --output-dir full
  cmp "$R/b.trace.json.gz" full/b.trace.json.gz || fail 'not the same'
}
test_no_permission() {
  hub_up && random_file a.trace.json.gz 1000
  mkdir locked && chmod 500 locked
  powerless
  chmod a+rwx .
  expect 8 "${as[@]}" "$GDNCTL" hf-download-trace --repo-id o/r --output-dir locked/x
  err_has 'Permission denied'
  touch file
  expect 8 fetch --output-dir file/x
}
test_planted_links() {
  hub_up && mkdir -p "$R/sub" outside && echo safe >outside/file
  random_file sub/a.trace.json.gz 1000
  mkdir -p .profiles/hf && ln -s "$PWD/outside" .profiles/hf/sub
  expect 8 fetch
  err_has 'symbolic link'
  rm .profiles/hf/sub && mkdir .profiles/hf/sub && ln -s "$PWD/outside/file" .profiles/hf/sub/a.trace.json.gz
  expect 8 fetch
  rm -r .profiles && mkdir -p .profiles/hf && ln -s "$PWD/outside" .profiles/hf/.cache
  expect 8 fetch
  rm -r .profiles && mkdir -p .profiles/hf/sub/a.trace.json.gz
  expect 8 fetch
  [ "$(ls outside)" = file ] && [ "$(cat outside/file)" = safe ] || fail 'something got out'
}
test_one_failing_file_stops_no_other() {
  hub_up && traces
  fault '{"on": "cdn", "path": "perfetto", "do": {"flip": 1}}, {"on": "resolve", "path": "profile.json", "do": {"status": 403}}'
  expect 7 fetch --path-prefix run1
  same run1/$S/host.trace.json.gz
  manifest '[.files[] | select(.status == "failed") | .error.kind] | sort == ["auth", "integrity"]'
  manifest '.error.kind == "integrity" and (.error.message | startswith("2 of 4 files failed: run1/"))'
  [ "$(grep -c 'failed:' "$WORK/err")" = 2 ] || fail 'not both are named'
}
test_head_check() {
  hub_up && traces
  expect 0 fetch --path-prefix run1 --head-check
  asked '.method == "HEAD"' 4
  asked '.method == "HEAD" and .server == "cdn"' 0
  fault '{"on": "resolve", "path": "profile.json", "times": 1, "do": {"status": 200, "headers": {"ETag": "\"0000000000000000000000000000000000000000\"", "X-Repo-Commit": "x"}}}'
  expect 7 fetch --path-prefix run1 --head-check --output-dir b
  err_has 'HEAD says'
  setup '{"no_head_length": 1, "direct": 1}'
  expect 0 fetch --path-prefix run1 --head-check --output-dir c
}
test_memory_does_not_grow_with_the_file() {
  hub_up && mkdir -p "$R" && truncate -s 300M "$R/a.trace.json.gz"
  expect_within_kb 65536 "$GDNCTL" hf-download-trace --repo-id o/r
}
