# lint-log --fix: what is written, and what is left alone.
entry() {  # COMMIT [NUMBER]: an entry without a fault
  cat <<TEXT
### Iteration ${2:-1} - wider tiles

- Date: 2026-02-18T12:55:20Z
- Commit: $1
- Hypothesis: wider tiles keep the unit busy
- Change summary: tile of 256
- Correctness checks:
  - Result: \`87 passed, 2 skipped\`
- Profile run:
  - Job ID: raysubmit_0123456789abcdef
- Hotspots observed (champion -> candidate):
  - Step duration: \`167.000 ms -> 160.000 ms\`
- Next hypothesis: overlap the gather

TEXT
}

test_fix_keeps_bytes_mode_endings_and_is_idempotent() {
  printf '\357\273\277# L\r\n\r\n### Iteration 1 \342\200\223 t\r\n- Date: `2026-02-18`\r\n- Note: \377  \r\n- Commit: abcdef1' >log.md
  chmod 640 log.md && ln log.md other.md && ln -s log.md link.md
  expect 0 "$GDNCTL" lint-log --log-file link.md --fix
  err_has '[gdnctl] fixed 3 findings in link.md'
  printf '\357\273\277# L\r\n\r\n### Iteration 1 - t\r\n- Date: 2026-02-18\r\n- Note: \377\r\n- Commit: abcdef1' >"$WORK/want"
  cmp "$WORK/want" log.md || fail "other bytes"
  [ -L link.md ] || fail "the link is gone"
  [ "$(stat -c %a log.md)" = 640 ] || fail "mode changed"
  before=$(stat -c '%i %Y' log.md)
  expect 0 "$GDNCTL" lint-log --log-file link.md --fix
  [ "$before" = "$(stat -c '%i %Y' log.md)" ] || fail "written again"
  [ "$(ls -A | wc -l)" = 3 ] || fail "something is left behind: $(ls -A)"
}

test_fix_unsafe_and_diff() {
  { entry abcdef1; printf -- '- Token: hf_%s\n' "$(printf 'Q%.0s' $(seq 34))"; } >log.md
  cp log.md before.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --fix
  cmp log.md before.md || fail "a safe fix masked it"
  expect 1 "$GDNCTL" lint-log --log-file log.md --fix-unsafe --diff
  out_has '+- Token: ***'
  cmp log.md before.md || fail "--diff wrote"
  expect 0 "$GDNCTL" lint-log --log-file log.md --fix-unsafe
  grep -q -- '- Token: \*\*\*' log.md || fail "not masked"
  sed 's/^- Date: .*/- Date: `2026-02-18`/' before.md >log.md
  cp log.md old.md
  expect 1 "$GDNCTL" lint-log --log-file log.md --diff
  cp "$WORK/out" change.patch
  patch -s -p1 <change.patch || fail "the diff does not apply"
  grep -q -- '^- Date: 2026-02-18$' log.md || fail "the diff changes something else"
}

test_one_fix_is_one_finding() {
  entry abcdef1 | sed 's/tiles$/tiles  /' >log.md
  expect 0 "$GDNCTL" lint-log --log-file log.md --fix
  err_has 'fixed 1 finding in log.md'
}

test_fix_where_nothing_can_be_written() {
  mkdir d && { entry abcdef1 | sed 's/tiles$/tiles  /' >d/log.md; } && cp d/log.md before.md
  ( ulimit -f 0; trap '' XFSZ; exec "$GDNCTL" lint-log --log-file d/log.md --fix ) >"$WORK/out" 2>"$WORK/err"
  code=$?
  [ $code = 8 ] || fail "exit $code on a full disk"
  cmp d/log.md before.md || fail "the log is damaged"
  [ "$(ls -A d)" = log.md ] || fail "left behind: $(ls -A d)"
}

test_fix_in_a_read_only_folder() {
  mkdir d && { entry abcdef1 | sed 's/tiles$/tiles  /' >d/log.md; } && cp d/log.md before.md
  powerless
  chmod 555 d
  expect 8 "${as[@]}" "$GDNCTL" lint-log --log-file d/log.md --fix
  err_has 'Permission denied'
  cmp d/log.md before.md || fail "the log is damaged"
  [ "$(ls -A d)" = log.md ] || fail "left behind: $(ls -A d)"
}

test_fix_waits_for_a_writer() {
  entry abcdef1 1 | sed 's/tiles$/tiles  /' >log.md
  cp log.md before
  mkfifo held release
  ( flock 9; echo >held; read -r _ <release ) 9<. &
  writer=$!
  read -r _ <held
  "$GDNCTL" lint-log --log-file log.md --no-git --fix >fix.out 2>&1 &
  fixer=$!
  sleep 0.5
  kill -0 $fixer || fail 'did not wait for the writer'
  cmp -s before log.md || fail 'replaced the log under a writer'
  echo >release
  wait $writer
  wait $fixer || fail "exit code $?: $(cat fix.out)"
  cmp -s before log.md && fail 'nothing was fixed'
  true
}

test_fix_refuses_a_log_that_changes_meanwhile() {
  for i in $(seq 300); do entry abcdef1 "$i" | sed 's/tiles$/tiles  /'; done >log.md
  ( while :; do printf '\n' >>log.md; done ) &
  writer=$!
  expect 7 "$GDNCTL" lint-log --log-file log.md --scope all --no-git --fix
  kill $writer
  wait $writer 2>/dev/null
  err_has 'changed while it was checked'
  grep -q 'tiles  $' log.md || fail "written all the same"
}
