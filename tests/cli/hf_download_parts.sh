# hf-download-trace and one large file over several connections: what is asked for, and what happens when a part fails.
. "$REPO/tests/support/hub.sh"

SIZE=71000000  # four parts of 17.75 MB
a_large_file() {
  hub_up && random_file big.trace.json.gz $SIZE
  export HF_TOKEN=$TOKEN
}
fresh() { rm -rf .profiles; forget; }
fault() { setup "{\"token\": \"$TOKEN\", \"rules\": [$1]}"; }
# In any case: the right file, one question for its address, no token at the CDN.
right() {
  same big.trace.json.gz
  asked '.path | contains("/resolve/")' "${1:-1}"
  asked '.server == "cdn" and .auth' 0
  asked '.method == "HEAD"' 0
  ! find .profiles -name '*.part' -o -name '*.gdnctl.json' | grep -q . || fail 'something is left over'
}
part_size() { find .profiles -name '*.part' -printf '%s' 2>/dev/null; }

test_four_parts_with_one_address() {
  a_large_file && fault ''
  expect 0 fetch
  right
  asked '.server == "cdn"' 4
  for part in 0-17749999 17750000-35499999 35500000-53249999 53250000-70999999; do asked ".server == \"cdn\" and .range == \"bytes=$part\"" 1; done
  manifest ".files[0] | .status == \"downloaded\" and .bytes_transferred == $SIZE and .attempts == 1"
  fresh && expect 0 fetch --jobs 1
  right
  asked '.server == "cdn"' 1
  asked '.server == "cdn" and .range == null' 1
  fresh && expect 0 fetch --no-verify
  right
  asked '.server == "cdn"' 4
  # Two files share the connections.
  random_file other.trace.json.gz $SIZE
  fresh && expect 0 fetch --jobs 4
  asked '.server == "cdn"' 4
  same big.trace.json.gz other.trace.json.gz
}
test_a_server_without_ranges() {
  a_large_file && fault '{"on": "cdn", "do": {"ignore_range": 1}}'
  expect 0 fetch
  right
  asked '.server == "cdn"' 1
  manifest ".files[0].bytes_transferred == $SIZE"
  # One that knows where to begin, but not where to end, sends all of it over the first connection.
  fresh && fault '{"on": "cdn", "do": {"to_the_end": 1}}'
  expect 0 fetch
  right
  manifest ".files[0].bytes_transferred == $SIZE"
}
# The first request for each of the later parts does DO; the first connection asks for one only when that has failed.
later_parts() {
  local rules='' from
  for from in 17750000 35500000 53250000; do rules+="${rules:+, }{\"on\": \"cdn\", \"range\": \"bytes=$from-\", \"times\": 1, \"do\": {$1}}"; done
  fault "$rules"
}
test_later_parts_that_fail_are_fetched_by_the_first() {
  a_large_file
  for what in '"range_total": 5' '"range_start": 1' '"status": 403' '"status": 503' '"status": 200' '"redirect": "{self}"'; do
    fresh && later_parts "$what"
    expect 0 fetch
    right 4
    manifest ".files[0].status == \"downloaded\" and .files[0].bytes_transferred == $SIZE"
  done
  # A connection that was used before and is dead is opened anew without a word.
  fresh && later_parts '"drop": 1'
  expect 0 fetch
  same big.trace.json.gz
}
test_later_parts_that_stop_half_way() {
  a_large_file
  for what in '"cut": 5000000' '"stall": 5000000'; do
    fresh && later_parts "$what"
    expect 0 fetch --stall-timeout 1
    right 4
    asked '.server == "cdn" and .range == "bytes=22750000-35499999"' 1
    manifest ".files[0].bytes_transferred == $SIZE"
  done
}
test_the_first_part_that_fails_is_asked_for_again() {
  a_large_file
  for what in '"cut": 3000000' '"status": 503' '"range_start": 7'; do
    fresh && fault "{\"on\": \"cdn\", \"times\": 1, \"do\": {$what}}"
    expect 0 fetch
    right 2
  done
  # A server that knew ranges and no longer does: from the beginning, in one piece.
  fresh && fault '{"on": "cdn", "times": 1, "do": {"cut": 3000000}}, {"on": "cdn", "after": 3, "do": {"ignore_range": 1}}'
  expect 0 fetch
  right 2
}
test_a_wrong_byte_in_a_later_part() {
  a_large_file && fault '{"on": "cdn", "after": 2, "times": 1, "do": {"flip": 1}}'
  expect 0 fetch
  right 2
  err_has 'downloading it once more'
  fresh && fault '{"on": "cdn", "path": "big", "do": {"flip": 1}}'
  expect 7 fetch
  absent big.trace.json.gz
}
test_interrupted_and_continued() {
  a_large_file
  local had
  for signal in INT KILL INT; do
    fresh && fault '{"on": "cdn", "do": {"slow": 0.02}}'
    launch "$GDNCTL" hf-download-trace --repo-id o/r
    for _ in $(seq 500); do [ "$(requests '.server == "cdn"')" = 4 ] && break; sleep 0.01; done
    sleep 0.$((2 + RANDOM % 5)) && kill -$signal $pid
    wait $pid
    absent big.trace.json.gz
    [ "$(part_size)" -gt 53250000 ] || fail 'the parts did not come side by side'
    forget && fault ''
    expect 0 fetch $([ $signal = INT ] || echo --jobs 1)
    same big.trace.json.gz
    had=$((SIZE - $(jq '.files[0].bytes_transferred' .profiles/hf/.gdnctl-manifest.json)))
    [ $had -gt 1000000 ] || fail "only $had bytes were kept after $signal"
    manifest '.files[0].status == "resumed"'
    asked '.server == "cdn" and .auth' 0
  done
}
# Parts that came out of order make the file longer than what is there of it: without its note nothing of it is believed.
test_a_note_that_is_lost_or_wrong() {
  a_large_file
  for note in '{}' '{"spans": [[0, 1, 2]]}' '{"spans": [[0, 71000000, 71000000]]}' garbage; do
    fresh && fault '{"on": "cdn", "do": {"slow": 0.02}}'
    launch "$GDNCTL" hf-download-trace --repo-id o/r
    for _ in $(seq 500); do [ "$(requests '.server == "cdn"')" = 4 ] && break; sleep 0.01; done
    sleep 0.3 && kill -9 $pid
    wait $pid
    printf '%s' "$note" >"$(find .profiles -name '*.gdnctl.json')"
    forget && fault ''
    expect 0 fetch
    same big.trace.json.gz
  done
}
