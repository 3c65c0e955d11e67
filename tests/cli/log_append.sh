# log init, append, render, new: the records and the log that is rendered from them.
job() {  # job STATUS EXIT VERDICT: what `ray-test --json` prints
  printf '{"schema":"gdnctl.ray-test/1","backend":"local","cluster":"local","address":"local","submission_id":"gdnctl-test-me-20260310T165307-0123abcd","status":"%s","error_type":%s,"message":"Job finished.","failure_class":"%s","driver_exit_code":%s,"start_time":1773161587000,"end_time":1773161599500,"url":null,"target":"cpu-gdn","tests":null,"device":null,"verdict":{"overall":"%s","cases":2,"vectors":1,"counts":{"%s":3}}}\n' \
    "$1" "${4:-null}" "${5:-none}" "$2" "$3" "$3"
}

test_init_writes_a_head_once() {
  expect 0 "$GDNCTL" log init --log-file a/b/log.md
  for s in '# Hill-Climb Log: cpu-gdn' '## Goal' '## Loop Contract' '## Known Constraints' '## Macro Move Menu' \
    '## Entry Template' '## Iterations'; do
    grep -qxF "$s" a/b/log.md || fail "head lacks $s"
  done
  cp a/b/log.md before
  expect 7 "$GDNCTL" log init --log-file a/b/log.md
  err_has 'already exists'
  cmp -s before a/b/log.md || fail 'init touched an existing log'
  expect 0 "$GDNCTL" log init --template experiment --log-file e.md --json
  out_has '"schema":"gdnctl.log-init/1"'
  grep -qx '# Experiment Log' e.md || fail 'no experiment head'
}

test_init_writes_the_heading_of_the_target() {
  printf 'target = "mine"\n[targets.mine]\ntest = ["true"]\nlog = "log.md"\nmetric = { name = "my/ms", better = "lower", from = "json:/ms" }\n[targets.mine.profile]\nargv = ["true"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" log init
  grep -qxF '# Hill-Climb Log: mine' log.md || fail "heading: $(head -1 log.md)"
  grep -qF 'Judge by `my/ms` of a profiled run' log.md || fail 'no metric'
}

test_stamp_takes_head_by_default() {
  git init -q . && "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log append --log-file log.md --title One --change x --commit pending
  git add -A && git commit -qm one
  expect 0 "$GDNCTL" log stamp --log-file log.md
  grep -qF -- "- Commit: $(git rev-parse HEAD)" log.md || fail "not stamped: $(grep Commit: log.md)"
}

test_append_without_init_creates_nothing() {
  expect 2 "$GDNCTL" log append --title x --log-file none.md
  err_has 'log file not found'
  err_has 'gdnctl log init'
  [ -z "$(ls -A)" ] || fail "something was created: $(ls -A)"
}

test_append_from_job_then_render_check() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  job SUCCEEDED 0 OK >job.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json --title 'Correctness of the chunk kernel' \
    --hypothesis 'The chunk kernel agrees with the recurrence' --next 'Profile a larger chunk' --json
  out_has '"iteration":"0"'
  expect 0 bash -c '"$0" log append --log-file log.md --from-job - --title second <job.json' "$GDNCTL"
  grep -q '^### Iteration 0 - Correctness of the chunk kernel$' log.md || fail 'no entry 0'
  grep -q '^### Iteration 1 - second$' log.md || fail 'no entry 1'
  grep -q '  - Result: `OK (2 cases, 1 recorded vector: 3 OK)`' log.md || fail 'no verdict'
  [ "$(wc -l <log.records.jsonl)" = 2 ] || fail 'not two records'
  expect 0 "$GDNCTL" log render --check --log-file log.md
  [ -z "$(ls -A | grep -vxE 'log.md|log.records.jsonl|job.json')" ] || fail "left over: $(ls -A)"
}

test_append_failed_and_unfinished_jobs() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  job FAILED 1 WRONG '"JOB_ENTRYPOINT_COMMAND_ERROR"' user >job.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json
  grep -q 'Commit: none (failed attempt)' log.md || fail 'commit'
  grep -q 'FAILED (exit 1, verdict WRONG: 2 cases, 1 recorded vector: 3 WRONG)' log.md || fail 'result'
  # Passed fewer tests than were asked for: the job succeeded, the test did not.
  job SUCCEEDED 0 OK null user >job.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json --json
  out_has '"outcome":"test-fail"'
  job RUNNING null OK >job.json
  expect 2 "$GDNCTL" log append --log-file log.md --from-job job.json
  err_has 'has not ended'
  job BROKEN 0 OK >job.json
  expect 9 "$GDNCTL" log append --log-file log.md --from-job job.json
  err_has 'has an unknown status: BROKEN'
  echo '{"a":1}' >job.json
  expect 9 "$GDNCTL" log append --log-file log.md --from-job job.json
  printf 'not json' >job.json
  expect 9 "$GDNCTL" log append --log-file log.md --from-job job.json
  expect 9 bash -c 'false | "$0" log append --log-file log.md --from-job -' "$GDNCTL"
  err_has 'standard input is empty'
  expect 2 "$GDNCTL" log append --log-file log.md --from-job absent.json
  expect 2 "$GDNCTL" log append --log-file log.md --title x --outcome acepted
  err_has 'did you mean accepted?'
  expect 2 "$GDNCTL" log append --log-file log.md --metric nonsense
  [ "$(wc -l <log.records.jsonl)" = 2 ] || fail 'a refused append left a record'
}

test_a_local_profile_used_no_tpu() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  job SUCCEEDED 0 OK | sed 's/ray-test/ray-profile/; s/"target"/"tpu":"v5p-8","target"/' >job.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json
  ! grep v5p-8 log.md log.records.jsonl || fail 'a TPU is named'
  sed 's/"backend":"local"/"backend":"ray"/' job.json >ray.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job ray.json --title ray
  grep -q v5p-8 log.records.jsonl || fail 'the TPU of a cluster is not named'
}

test_append_masks_secrets_and_homes() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  token=hf_$(printf 'abcdefghijklmnopqrstuvwxyz%.0s' 1 2 | cut -c1-34)
  expect 0 "$GDNCTL" log append --log-file log.md --title t --change "used $token in /home/someone/x.py"
  ! grep -q "$token" log.md log.records.jsonl || fail 'the token is in the log'
  ! grep -q '/home/someone' log.md log.records.jsonl || fail 'the home directory is in the log'
  grep -q '~/x.py' log.md || fail 'no home-relative path'
}

test_append_keeps_prose_about_bearer_headers() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log append --log-file log.md --hypothesis 'bearer credentials in header, or a Bearer authentication header'
  grep -q 'Hypothesis: bearer credentials in header, or a Bearer authentication header' log.md || fail 'masked prose'
  expect 0 "$GDNCTL" lint-log --log-file log.md
  err_lacks L602
}

test_append_metrics_typed_by_hand() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log append --log-file log.md --title one --hypothesis h --next n --metric step_duration_ms=167.5
  tail -1 log.records.jsonl >one.json
  grep -q '"step_duration_ms":{"before":null,"after":167.5,"source":"stated"}' one.json || fail 'looks measured'
  grep -q '"comparison":{"kind":"unknown"' one.json || fail 'no kind'
  expect 0 "$GDNCTL" lint-log --log-file log.md
  err_lacks L408
  expect 0 "$GDNCTL" log append --log-file log.md --title two --hypothesis h --next n --metric step_duration_ms=167.5:160 \
    --metric mine=3:2 --comparison champion
  tail -1 log.records.jsonl | grep -q '"comparison":{"kind":"champion"' || fail 'no kind'
  expect 0 "$GDNCTL" lint-log --log-file log.md
  err_lacks L408
  expect 0 "$GDNCTL" log append --log-file log.md --title three
  tail -1 log.records.jsonl | grep -q '"comparison":{"kind":null' || fail 'a kind without numbers'
  expect 2 "$GDNCTL" log append --log-file log.md --comparison champ
}

test_append_number_goes_on_from_hand_written_entries() {
  printf '# L\n\n## Iterations\n\n### Iteration 41 - by hand\n\n- Date: 2026-03-01\n- Commit: none (x)\n\n## Appendix\n\ntext\n' >log.md
  expect 0 "$GDNCTL" log append --log-file log.md --title next
  grep -q '^### Iteration 42 - next' log.md || fail 'number'
  [ "$(grep -nE '^(### Iteration|## Appendix)' log.md | cut -d: -f2 | tr '\n' '|')" = '### Iteration 41 - by hand|### Iteration 42 - next|## Appendix|' ] ||
    fail 'not behind the last entry'
}

test_append_keeps_crlf() {
  printf '# L\r\n\r\n## Iterations\r\n\r\n### Iteration 3 - a\r\n\r\n- Commit: none (x)\r\n' >log.md
  expect 0 "$GDNCTL" log append --log-file log.md --title next
  [ "$(tr -cd '\n' <log.md | wc -c)" = "$(tr -cd '\r' <log.md | wc -c)" ] || fail 'mixed line endings'
  expect 0 "$GDNCTL" log render --check --log-file log.md
}

test_append_record_with_a_known_id_is_refused() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title first 2>/dev/null
  id=$(sed -n 's/.*"id":"\([^"]*\)".*/\1/p' log.records.jsonl)
  printf '{"schema":"gdnctl.iteration/1","id":"%s","iteration":9,"title":"again"}\n' "$id" >nine.json
  cp log.md before
  expect 7 "$GDNCTL" log append --log-file log.md --record nine.json
  err_has "$id"
  cmp -s before log.md || fail 'the log changed'
  [ "$(wc -l <log.records.jsonl)" = 1 ] || fail 'a record was added'
}

test_append_a_record_with_few_fields() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  printf '{"schema":"gdnctl.iteration/1","id":"20260301T000000Z-4","iteration":4,"title":"few"}\n' >four.json
  expect 0 "$GDNCTL" log append --log-file log.md --record four.json --json
  out_has '"outcome":null'
}

test_append_two_writers_at_once() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  for i in 1 2 3 4 5 6; do "$GDNCTL" log append --log-file log.md --title "writer $i" 2>/dev/null & done
  wait
  [ "$(grep -c '^### Iteration [0-5] - writer' log.md)" = 6 ] || fail 'entries missing'
  [ "$(grep -oE '^### Iteration [0-9]+' log.md | sort -u | wc -l)" = 6 ] || fail 'a number came twice'
  [ "$(wc -l <log.records.jsonl)" = 6 ] || fail 'records missing'
  expect 0 "$GDNCTL" log render --check --log-file log.md
}

test_append_to_a_read_only_folder() {
  mkdir ro && "$GDNCTL" log init --log-file ro/log.md 2>/dev/null
  powerless
  chmod a-w ro ro/log.md
  before=$(sha256sum ro/log.md)
  expect 8 "${as[@]}" "$GDNCTL" log append --log-file ro/log.md --title x
  [ "$before" = "$(sha256sum ro/log.md)" ] || fail 'the log changed'
  [ "$(ls -A ro)" = log.md ] || fail "left over: $(ls -A ro)"
}

test_append_on_a_full_disk_changes_nothing() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title first 2>/dev/null
  head -c 20000 /dev/zero | tr '\0' 'x' | fold -w 80 >>log.md
  cp log.md before.md && cp log.records.jsonl before.jsonl
  # Room for the record, not for the log.
  expect 8 bash -c 'ulimit -f 8; exec "$0" log append --log-file log.md --title second' "$GDNCTL"
  cmp -s before.md log.md || fail 'the log changed'
  cmp -s before.jsonl log.records.jsonl || fail 'the records changed'
  # No room for the record either.
  expect 8 bash -c 'ulimit -f 0; exec "$0" log append --log-file log.md --title second 2>/dev/null' "$GDNCTL"
  cmp -s before.md log.md && cmp -s before.jsonl log.records.jsonl || fail 'something changed'
  expect 0 "$GDNCTL" log append --log-file log.md --title second
}

# kill -9 after the first of its changes to the disk, after the second, ... until it gets through.
test_append_killed_after_each_step_is_repaired() {
  local step=0 code=137 before entries
  # The leak check cannot look into a process that is traced.
  export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title 'before' 2>/dev/null
  while [ $code = 137 ]; do
    step=$((step + 1))
    [ $step -lt 200 ] || fail 'it never got through'
    before=$(grep -c '^### Iteration [0-9]' log.md)
    "$(dirname "$GDNCTL")/kill_after_step" $step "$GDNCTL" log append --log-file log.md --title "killed $step" >out 2>err
    code=$?
    [ $code != 77 ] || skip 'tracing is not allowed here'
    # The log is whole: the old one or the new one.
    entries=$(grep -c '^### Iteration [0-9]' log.md)
    [ "$entries" = "$before" ] || [ "$entries" = $((before + 1)) ] || fail "step $step: $entries entries after $before"
    expect 0 "$GDNCTL" log append --log-file log.md --title "after $step"
    expect 0 "$GDNCTL" log render --check --log-file log.md
    [ "$(wc -l <log.records.jsonl)" = "$(grep -c '^### Iteration [0-9]' log.md)" ] || fail "step $step: records and entries differ"
    [ "$(grep -oE '^### Iteration [0-9]+' log.md | sort | uniq -d | wc -l)" = 0 ] || fail "step $step: a number came twice"
  done
  [ $code = 0 ] || fail "exit code $code after step $step: $(cat err)"
  [ $step -gt 4 ] || fail "only $step steps"
  [ -z "$(ls -A | grep -vxE 'log.md|log.records.jsonl|out|err')" ] || fail "left over: $(ls -A)"
}

test_append_drops_a_torn_record() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title first 2>/dev/null
  printf '{"schema":"gdnctl.iteration/1","id":"20' >>log.records.jsonl
  expect 0 "$GDNCTL" log append --log-file log.md --title second
  err_has 'torn'
  [ "$(wc -l <log.records.jsonl)" = 2 ] || fail 'not two records'
  expect 0 "$GDNCTL" log render --check --log-file log.md
}

test_append_refuses_an_open_fence() {
  printf '## Iterations\n\n### Iteration 1 - a\n\n```text\nopen\n' >log.md
  cp log.md before
  expect 9 "$GDNCTL" log append --log-file log.md --title x
  err_has 'line 5'
  cmp -s before log.md || fail 'the log changed'
  [ ! -e log.records.jsonl ] || fail 'a record was left'
}

test_append_refuses_an_open_comment() {
  printf '## Iterations\n\n### Iteration 1 - a\n\n<!-- open\n' >log.md
  cp log.md before
  expect 9 "$GDNCTL" log append --log-file log.md --title x
  err_has 'the HTML comment that line 5 opens'
  cmp -s before log.md || fail 'the log changed'
}

test_append_refuses_an_unresolved_merge() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title one 2>/dev/null
  for mark in '<<<<<<< HEAD' '>>>>>>> topic'; do
    { cat log.md; printf '%s\n' "$mark"; } >merge.md
    cp log.records.jsonl merge.records.jsonl
    cp merge.md before
    expect 7 "$GDNCTL" log append --log-file merge.md --title x
    err_has "line $(wc -l <merge.md) is an unresolved merge conflict marker"
    err_has 'hint: resolve the merge'
    cmp -s before merge.md || fail 'the log changed'
    cmp -s log.records.jsonl merge.records.jsonl || fail 'a record was written'
  done
  { cat log.md; printf '\n```\n<<<<<<< HEAD\n```\n'; } >merge.md
  expect 0 "$GDNCTL" log append --log-file merge.md --title x
}

test_append_of_nothing_is_a_usage_error() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  cp log.md before
  for options in '' '--comparison previous' '--title= --change=' '--commit none' '--decision promoted' '--slot A' \
    '--outcome rejected --change-class x --starting-commit abcdef1'; do
    expect 2 "$GDNCTL" log append --log-file log.md $options
    err_has 'nothing to append'
    err_has 'hint:'
  done
  cmp -s before log.md || fail 'the log changed'
  [ "$(ls -A | sort | tr '\n' ' ')" = 'before log.md ' ] || fail "something was written: $(ls -A)"
  expect 0 "$GDNCTL" log append --log-file log.md --title x
}

test_append_refuses_a_file_that_is_no_log() {
  printf '# My project\n\nSome words about the log.\n' >README.md
  printf '// the log\nint main() { return 0; }\n' >main.c
  printf 'key = 1\n' >config.toml
  printf '<!--\n# Log\n-->\nText\n' >hidden.md
  head -c 5000 "$GDNCTL" >binary
  for f in README.md main.c config.toml hidden.md binary; do
    cp $f before
    expect 2 "$GDNCTL" log append --log-file $f --title x
    err_has "$f is not a running log"
    cmp -s before $f || fail "$f changed"
    [ ! -e "${f%.md}.records.jsonl" ] && [ ! -e "$f.records.jsonl" ] || fail "a record was left beside $f"
  done
  printf '# Hill-climb log\n' >title.md
  : >empty.md
  printf 'words\n\n## Iterations\n' >section.md
  for f in title.md empty.md section.md; do expect 0 "$GDNCTL" log append --log-file $f --title x; done
}

test_append_experiment() {
  "$GDNCTL" log init --template experiment --log-file e.md 2>/dev/null
  job SUCCEEDED 0 OK >job.json
  expect 0 "$GDNCTL" log append --log-file e.md --from-job job.json --title 'Decode tiling' --goal 'Faster decode' \
    --hypothesis 'A wider tile hides latency' --change 'tile 64 -> 128' --next 'Try 256'
  grep -qE '^## [0-9]{4}-[0-9]{2}-[0-9]{2} - Decode tiling$' e.md || fail 'heading'
  for s in Goal Hypothesis Action Outcome 'Next Step'; do grep -qx "### $s" e.md || fail "no $s"; done
  expect 0 "$GDNCTL" log render --check --log-file e.md
}

test_new_then_append_record() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log new --log-file log.md --title 'Filled in'
  out_has '### Iteration 0 - Filled in'
  out_has '- Next hypothesis:'
  [ -f iteration-000-record.json ] || fail 'no record to fill in'
  expect 0 "$GDNCTL" log new --log-file log.md
  out_has '### Iteration 1'
  sed -i 's/"hypothesis": null/"hypothesis": "It helps"/; s/"my_own": 1//; s/"raw": {}/"raw": {}, "my_own": {"kept": 0.1}/' iteration-000-record.json
  expect 0 "$GDNCTL" log append --log-file log.md --record iteration-000-record.json --commit 'none (measurement only)'
  grep -q -- '- Hypothesis: It helps' log.md || fail 'hypothesis'
  grep -q '"my_own":{"kept":0.1}' log.records.jsonl || fail 'an unknown field was lost'
  [ ! -e iteration-000-record.json ] || fail 'the draft is still there'
  "$GDNCTL" log append --log-file log.md --title 'beside a draft' 2>/dev/null
  grep -q '^### Iteration 2 - beside a draft' log.md || fail 'the number of a draft was given away'
  "$GDNCTL" log new --log-file log.md >/dev/null 2>&1
  sed -i 's/"iteration": 3/"iteration": 0/' iteration-003-record.json
  expect 7 "$GDNCTL" log append --log-file log.md --record iteration-003-record.json
}

test_full_chain_passes_lint() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  job SUCCEEDED 0 OK >job.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json --title 'Correctness' \
    --hypothesis 'The chunk kernel agrees with the recurrence' --next 'Profile a larger chunk'
  expect 0 "$GDNCTL" lint-log --log-file log.md --scope all
  out_has 'log lint passed'
}

test_append_from_a_job_that_was_taken_by_its_id() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  printf 'echo "case   a   OK   0.1 x budget"\necho "vector b   OK   0.1 x budget"\necho "verdict: OK"\n' >job.sh
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "job.sh"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-test --cluster local --no-wait --submission-id taken
  expect 0 "$GDNCTL" ray-wait --cluster local taken --poll 0.05 --json
  cp "$WORK/out" job.json
  grep -q '"kind":"test","target":"t","entrypoint":"sh job.sh"' job.json || fail "the JSON does not say what ran: $(cat job.json)"
  grep -q '"verdict":{"overall":"OK","cases":1,"vectors":1,"counts":{"OK":2}}' job.json || fail "no counts: $(cat job.json)"
  expect 0 "$GDNCTL" log append --log-file log.md --from-job job.json --title 'taken by id'
  grep -q '  - Command: `sh job.sh`' log.md || fail 'the entry does not name the command of the job'
  ! grep -q 'gdnctl ray-wait' log.md || fail 'the entry names the waiting'
  grep -q '  - Result: `OK (1 case, 1 recorded vector: 2 OK)`' log.md || fail 'no counts in the entry'
  # A profile that was waited for is a profile; pytest counts arrive, too.
  sed 's/"kind":"test"/"kind":"profile"/' job.json >profile.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job profile.json --title 'a profile'
  grep -q '^- Profile run' log.md || fail 'not taken for a profile'
  sed 's/"tests":null/"tests":{"passed":87,"failed":0,"skipped":2}/' job.json >tests.json
  expect 0 "$GDNCTL" log append --log-file log.md --from-job tests.json --title 'pytest'
  grep -q '  - Result: `87 passed, 2 skipped`' log.md || fail 'no pytest counts'
}

test_append_through_a_link_keeps_one_set_of_records() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log append --log-file log.md --title first
  ln -s log.md link.md
  expect 0 "$GDNCTL" log append --log-file link.md --title second
  [ -L link.md ] || fail 'the link became a file'
  [ ! -e link.records.jsonl ] || fail 'records beside the link'
  [ "$(wc -l <log.records.jsonl)" = 2 ] || fail 'not two records beside the log'
  expect 0 "$GDNCTL" log render --check --log-file link.md
}

test_append_wants_a_regular_file() {
  mkfifo pipe
  for place in /dev/null pipe; do
    expect 2 "$GDNCTL" log append --log-file "$place" --title x
    err_has 'not a regular file'
    [ ! -e "$place.records.jsonl" ] && [ ! -e "${place%.*}.records.jsonl" ] || fail "records beside $place"
  done
}

test_context_states_changes_as_entries_do() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 0 "$GDNCTL" log append --log-file log.md --metric step_duration_ms=167.09:159.42 --comparison champion
  expect 0 "$GDNCTL" log context --log-file log.md
  out_has 'step_duration_ms 167.09 ms -> 159.42 ms, 1.048x faster (unpaired)'
  grep -q '^### Iteration 0$' "$WORK/out" || fail "a heading without title: $(grep '^###' "$WORK/out")"
}
