# log render, import, stamp, show, summary, context.
hand_log() {
  cat >log.md <<'LOG'
# GDN Pallas TPU Hill-Climb Log

## Iterations

### Iteration 10 - start

- Date: 2026-02-18T12:55:20Z
- Commit: 0123456789abcdef0123456789abcdef01234567
- Coverage slot: A
- Decision: promoted
- Hypothesis: fewer launches
- Correctness checks:
  - Command: `pytest`
  - Result: `87 passed, 2 skipped`
- Hotspots observed (champion vs candidate):
  - Step duration: `167.098 ms -> 160.5 ms`
  - `while: 8.886552 ms -> 8.978471 ms`
- MFU/throughput delta: throughput/mfu: `4.1533 -> 4.2092`
- Next hypothesis: wider

### Iteration 11 - regress

- Date: 2026-02-19
- Commit: this commit
- Decision: regressed
- Hypothesis: wider
- Hotspots observed (champion vs candidate):
  - Step duration: `160.5 ms -> 168.1 ms`
- Next hypothesis: narrower
LOG
}

test_render_repairs_and_checks() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  for t in a b c; do "$GDNCTL" log append --log-file log.md --title $t 2>/dev/null; done
  printf '\nMy own note.\n' >>log.md
  cp log.md want.md
  # entry 1 lost
  awk '/gdnctl:begin .*-1 /{skip=1} !skip{print} /gdnctl:end/{if(skip){getline; skip=0}}' want.md >log.md
  expect 1 "$GDNCTL" log render --check --log-file log.md
  err_has 'iteration 1: its entry is missing'
  expect 0 "$GDNCTL" log render --log-file log.md
  cmp -s want.md log.md || { diff want.md log.md; fail 'not what it was'; }
  # an entry changed by hand is not overwritten
  sed -i 's/^### Iteration 1 - b/### Iteration 1 - bb/' log.md
  expect 1 "$GDNCTL" log render --check --log-file log.md --json
  out_has '"kind":"edited"'
  expect 7 "$GDNCTL" log render --log-file log.md
  grep -q 'Iteration 1 - bb' log.md || fail 'a hand-made change was lost'
  expect 0 "$GDNCTL" log render --force --log-file log.md
  cmp -s want.md log.md || fail 'not forced'
  # a block without a record
  head -n 2 log.records.jsonl >x && mv x log.records.jsonl
  expect 1 "$GDNCTL" log render --check --log-file log.md
  err_has 'there is no such record'
  printf 'garbage\n' >>log.records.jsonl
  expect 9 "$GDNCTL" log render --check --log-file log.md
  expect 2 "$GDNCTL" log render --check --log-file none.md
}

test_import_round_trip() {
  hand_log
  cp log.md before
  expect 0 "$GDNCTL" log import --dry-run --log-file log.md --json
  out_has '"imported":2'
  [ ! -e log.records.jsonl ] || fail '--dry-run wrote'
  expect 0 "$GDNCTL" log import --log-file log.md
  cmp -s before log.md || fail 'import changed the log'
  expect 0 "$GDNCTL" log render --check --log-file log.md
  expect 0 "$GDNCTL" log render --log-file log.md
  cmp -s before log.md || fail 'render changed a hand-written log'
  grep -q '"step_duration_ms":{"before":167.098,"after":160.5' log.records.jsonl || fail 'metric'
  grep -q '"while_ms":{"before":8.886552,"after":8.978471' log.records.jsonl || fail 'spelling C'
  expect 0 "$GDNCTL" log import --log-file log.md --json
  out_has '"unchanged":2'
  sed -i 's/168.1 ms/169.1 ms/' log.md
  expect 1 "$GDNCTL" log render --check --log-file log.md
  err_has 'changed after it was imported'
  expect 0 "$GDNCTL" log import --log-file log.md
  grep -q '"supersedes"' log.records.jsonl || fail 'no correction'
  expect 0 "$GDNCTL" log render --check --log-file log.md
  printf '# empty\n' >empty.md
  expect 3 "$GDNCTL" log import --log-file empty.md
}

test_stamp_last_entry() {
  printf '### Iteration 1 - a\n\n- Commit: abc123\n\n### Iteration 2 - b\n\n- Commit: this commit' >log.md
  expect 0 "$GDNCTL" log stamp --commit deadbeef --log-file log.md
  err_has '[gdnctl] stamped last hill-climb log entry with commit deadbeef'
  printf '### Iteration 1 - a\n\n- Commit: abc123\n\n### Iteration 2 - b\n\n- Commit: deadbeef\n' | cmp -s - log.md || fail 'text'
  cp log.md before
  expect 3 "$GDNCTL" log stamp --commit cafecafe --log-file log.md
  cmp -s before log.md || fail 'a stamped entry changed'
  printf '### Iteration 2 - b\r\n\r\n  - Commit: (pending)\r\n' >log.md
  expect 0 "$GDNCTL" log stamp --commit 0123456789abcdef0123456789abcdef01234567 --log-file log.md
  err_has 'with commit 0123456789ab'
  printf '### Iteration 2 - b\r\n\r\n  - Commit: 0123456789abcdef0123456789abcdef01234567\r\n' | cmp -s - log.md || fail 'CRLF'
  printf '# no entry\n' >log.md
  expect 3 "$GDNCTL" log stamp --commit deadbeef --log-file log.md
  expect 3 "$GDNCTL" log stamp --commit deadbeef --log-file none.md
  expect 2 "$GDNCTL" log stamp --commit nonsense --log-file log.md
  expect 2 "$GDNCTL" log stamp --log-file log.md
}

test_stamp_a_recorded_entry() {
  git init -q . && "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title a --commit 'this commit' 2>/dev/null
  id=$(grep -o '"id":"[^"]*"' log.records.jsonl | head -1 | cut -d'"' -f4)
  "$GDNCTL" log append --log-file log.md --title b --commit 'none (x)' 2>/dev/null
  git add -A && git commit -qm one
  sha=$(git rev-parse HEAD)
  expect 3 "$GDNCTL" log stamp --commit "$sha" --log-file log.md
  expect 0 "$GDNCTL" log stamp --commit HEAD --record "$id" --log-file log.md
  grep -q -- "- Commit: $sha" log.md || fail 'not stamped'
  grep -q "\"supersedes\":\"$id\"" log.records.jsonl || fail 'no correction'
  expect 0 "$GDNCTL" log render --check --log-file log.md
  expect 3 "$GDNCTL" log stamp --commit "$sha" --record "$id" --log-file log.md
  expect 3 "$GDNCTL" log stamp --commit "$sha" --record other --log-file log.md
}

test_stamp_the_last_record() {
  git init -q . && "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 3 "$GDNCTL" log stamp --commit deadbeef --record last --log-file log.md
  err_has 'no record last'
  for title in a b; do "$GDNCTL" log append --log-file log.md --title $title --commit 'this commit' 2>/dev/null; done
  printf '\n### Iteration 7 - by hand\n\n- Date: 2026-03-01\n- Commit: this commit\n' >>log.md
  git add -A && git commit -qm one
  expect 0 "$GDNCTL" log stamp --record last --log-file log.md
  sed -n '/Iteration 1/,/Iteration 7/p' log.md | grep -q -- "- Commit: $(git rev-parse HEAD)" || fail 'the newest record is not stamped'
  [ "$(grep -c 'Commit: this commit' log.md)" = 2 ] || fail 'another entry was stamped'
}

test_stamp_leaves_records_alone_when_a_person_wrote_the_last_entry() {
  git init -q . && "$GDNCTL" log init --log-file log.md 2>/dev/null
  "$GDNCTL" log append --log-file log.md --title recorded --commit 'this commit' 2>/dev/null
  printf '\n### Iteration 7 - by hand\n\n- Date: 2026-03-01\n- Commit: this commit\n' >>log.md
  git add -A && git commit -qm one
  sha=$(git rev-parse HEAD)
  cp log.records.jsonl before
  expect 0 "$GDNCTL" log stamp --commit "$sha" --log-file log.md
  sed -n '/Iteration 7/,$p' log.md | grep -qx -- "- Commit: $sha" || fail 'the last entry is not stamped'
  sed -n '/Iteration 0/,/Iteration 7/p' log.md | grep -q 'Commit: this commit' || fail 'another entry was stamped'
  cmp -s before log.records.jsonl || fail 'a record was changed'
}

test_show_last_of_an_empty_log() {
  "$GDNCTL" log init --log-file log.md 2>/dev/null
  expect 3 "$GDNCTL" log show last --log-file log.md
  err_has 'the log has no iteration yet'
  err_lacks 'iteration last'
}

test_show_summary_context() {
  hand_log
  expect 0 "$GDNCTL" log show 11 --log-file log.md
  out_has '### Iteration 11 - regress'
  expect 0 "$GDNCTL" log show last --json --log-file log.md
  out_has '"schema":"gdnctl.log-show/1"'
  out_has '"iteration":11'
  expect 3 "$GDNCTL" log show 99 --log-file log.md
  expect 2 "$GDNCTL" log show x --log-file log.md
  expect 0 "$GDNCTL" log summary --log-file log.md
  out_has 'entries: 2 (iterations 10 to 11)'
  out_has 'throughput/mfu'
  out_has 'failures: rejected 1'
  expect 0 "$GDNCTL" log summary --json --log-file log.md
  out_has '"schema":"gdnctl.log-summary/1"'
  out_has '"slot":"A"'
  expect 0 "$GDNCTL" log context --log-file log.md
  out_has 'Champion: iteration 10 (0123456789ab)'
  out_has 'Next hypothesis: narrower'
  for n in 64 100 300 700; do
    expect 0 "$GDNCTL" log context --bytes $n --log-file log.md
    [ "$(wc -c <"$WORK/out")" -le $n ] || fail "more than $n bytes"
  done
  expect 2 "$GDNCTL" log context --bytes 1 --log-file log.md
  expect 2 "$GDNCTL" log summary --log-file none.md
}

test_default_log_is_the_targets() {
  git init -q .
  mkdir -p lib/levanter/src/levanter/layers && touch lib/levanter/src/levanter/layers/gated_deltanet.py
  expect 0 "$GDNCTL" log init
  [ -f lib/levanter/.agents/projects/gdn_pallas_tpu_hillclimb.md ] || fail 'not at the default path'
  cd lib/levanter && expect 0 "$GDNCTL" log append --title x
  grep -q '^### Iteration 0 - x' .agents/projects/gdn_pallas_tpu_hillclimb.md || fail 'not found from a subfolder'
}

test_entries_whose_record_is_lost_are_read_from_the_log() {
  printf '# Log\n' >log.md
  for title in one two; do expect 0 "$GDNCTL" log append --log-file log.md --title $title --commit 'none (failed attempt)' --outcome rejected; done
  : >log.records.jsonl
  for harm in true 'rm log.records.jsonl'; do
    $harm
    expect 0 "$GDNCTL" log summary --log-file log.md
    out_has 'entries: 2 (iterations 0 to 1)'
    out_has 'commits: none 2'
    err_has '2 generated entries have no record'
    expect 0 "$GDNCTL" log show last --log-file log.md --json
    jq -e '.record.title == "two" and .record.iteration == 1' "$WORK/out" >/dev/null || fail 'another record'
    expect 0 "$GDNCTL" log context --log-file log.md
    out_lacks 'no iterations yet'
  done
  # An import still leaves generated entries alone.
  expect 3 "$GDNCTL" log import --log-file log.md --dry-run
  err_has 'would import 0 of 2 entries'
}
