# How a loop stands, from its journal.

dir=.agents/logs/gdn_codex_loop
record() { python3 "$REPO/tests/support/loop_journal.py" "$@" || fail "no journal"; }
# A process that has the lock of a log directory as codex-loop has it, until hold is killed.
hold() { # FOLDER
  python3 - "$1" <<'P' &
import fcntl, json, os, sys, time
lock = open(sys.argv[1] + "/codex-loop.lock", "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.truncate(0)
lock.write(f"{os.getpid()}\n")
lock.flush()
ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
who = {"pid": os.getpid(), "start_ticks": ticks, "started_at": "2026-03-10T16:53:07Z", "log_dir": sys.argv[1]}
json.dump(who, open(sys.argv[1] + "/codex-loop.lock.json", "w"))
open(sys.argv[1] + "/held", "w").close()
time.sleep(100)
P
  holder=$!
  for _ in $(seq 600); do [ -e "$1/held" ] && return; sleep 0.05; done
  fail "the lock was not taken"
}

test_status_of_a_run_that_ended() {
  record $dir
  expect 0 "$GDNCTL" loop-status
  out_has 'run        20260310t165307z ended: iterations (exit code 0)'
  out_has 'ended      3: 1 promoted, 2 rejected; 2 counted as failures'
  out_has 'Skip the last decay: tests failed: case'
  out_has 'promotions 1, the last in iteration 1; 2 iterations since'
  out_has "49,380 tokens"
  out_has 'case t_long: WRONG'
  [ "$(awk 'length > 100' "$WORK/out")" = '' ] || fail "lines wider than 100 columns"
  COLUMNS=50 expect 0 "$GDNCTL" loop-status --log-dir $dir
  [ "$(awk 'length > 52' "$WORK/out")" = '' ] || fail "lines wider than 50 columns"
}

test_a_narrow_terminal_cuts_the_title_before_the_reason() {
  record $dir
  COLUMNS=80 expect 0 "$GDNCTL" loop-status
  grep -q '^   2 .*  Skip the…: tests failed: case…$' "$WORK/out" || fail "$(cat "$WORK/out")"
  # Nothing is said of what no attempt reports.
  sed -i 's/,"tokens":12345//' $dir/journal.jsonl
  python3 - $dir/journal.jsonl <<'P'
import hashlib, json, sys
lines, prev = [], "0" * 64
for line in open(sys.argv[1]):
    record = json.loads(line)
    record["prev"] = prev
    lines.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")))
    prev = hashlib.sha256(lines[-1].encode()).hexdigest()
open(sys.argv[1], "w").write("\n".join(lines) + "\n")
P
  for view in loop-status 'loop-explain 2' loop-report; do
    expect 0 "$GDNCTL" $view
    ! grep -Ei 'tokens|unknown' "$WORK/out" || fail "tokens in $view"
  done
  COLUMNS=80 expect 0 "$GDNCTL" loop-status
  out_has 'Skip the last…: tests failed: case t_long: WRONG'
}

test_status_as_json() {
  record logs --iterations 5 --total 7 --open
  expect 0 "$GDNCTL" loop-status --log-dir logs --json
  python3 - "$WORK/out" <<'P' || fail "other facts"
import json, sys
s = json.load(open(sys.argv[1]))
assert list(s)[0] == "schema" and s["schema"] == "gdnctl.loop-status/1"
assert (s["status"], s["pid"], s["iterations_total"], s["iterations_ended"], s["iteration_open"]) == ("interrupted", None, 7, 4, 5), s
assert s["outcomes"] == {"accepted": 2, "rejected": 1, "test-fail": 1} and s["next_step"] == "judge"
assert s["tokens"] == 7 * 12345 and s["agent_ms"] == 7 * 90000 and s["tpu_ms"] == 170000
assert [i["iteration"] for i in s["iterations"]] == [1, 2, 3, 4, 5] and s["iterations"][1]["attempts"] == 2
assert s["stop_reason"] is None and s["stop_exit_code"] is None
P
  expect 2 "$GDNCTL" loop-status --log-dir logs --json --watch
}

test_status_of_an_interrupted_run_says_how_to_go_on() {
  record logs --iterations 2 --open
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has 'interrupted in iteration 2; --resume continues it'
  out_has '2 of 2: stage protected has ended: pass'
}

test_status_of_a_loop_at_work_names_its_process() {
  record logs --iterations 2 --open
  hold logs
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has "running, process $holder since 2026-03-10 16:53"
  out_lacks 'now        '
  echo 'pair 3 of at most 9, the candidate 1.012x as fast so far' >logs/now.txt
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has 'now        pair 3 of at most 9, the candidate 1.012x as fast so far'
  touch -d '2020-01-01' logs/now.txt
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_lacks 'now        '
  touch logs/STOP
  expect 0 "$GDNCTL" loop-status --log-dir logs --json
  out_has '"status":"stopping"'
  out_has "\"pid\":$holder"
  # Killed, it leaves its name behind: nobody is taken for it.
  kill -9 "$holder"
  wait "$holder" 2>/dev/null
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has 'interrupted in iteration 2'
}

test_watch_prints_what_happens_and_ends_with_the_loop() {
  record whole
  record logs --iterations 2 --open
  hold logs
  "$GDNCTL" loop-status --log-dir logs --watch >watched 2>&1 &
  watcher=$!
  for _ in $(seq 600); do grep -q 'stage protected' watched && break; sleep 0.05; done
  # The rest of iteration 2 is the same in both journals, byte for byte, up to the total in the first record.
  python3 "$REPO/tests/support/loop_journal.py" next --iterations 2
  head -c "$(wc -c <logs/journal.jsonl)" next/journal.jsonl | cmp -s - logs/journal.jsonl || fail "not a continuation"
  cp next/journal.jsonl logs/journal.jsonl
  kill -9 "$holder"
  wait "$watcher" || fail "watch ended with $?"
  grep -q 'iteration 2: stage test: fail: case t_long: WRONG' watched || fail "$(cat watched)"
  grep -q 'the loop ends: iterations (exit code 0)' watched || fail "$(cat watched)"
  grep -q 'began' watched && fail "what was before is told again: $(cat watched)"
  expect 0 "$GDNCTL" loop-status --log-dir whole --watch
}

test_watch_redraws_on_a_terminal() {
  command -v script >/dev/null || skip 'no script(1)'
  record logs
  TERM=xterm script -qec "$GDNCTL loop-status --log-dir logs --watch" typescript >/dev/null </dev/null || fail "watch: $?"
  grep -q 'ended: iterations' typescript || fail "$(cat typescript)"
}

test_watch_stops_when_it_is_asked_to() {
  record logs --iterations 2 --open
  hold logs
  "$GDNCTL" loop-status --log-dir logs --watch >watched 2>&1 &
  watcher=$!
  for _ in $(seq 600); do grep -q 'stage protected' watched && break; sleep 0.05; done
  kill -TERM "$watcher"
  wait "$watcher"
  status=$?
  [ $status = 143 ] || fail "exit code $status"
  kill -9 "$holder"
}

test_a_state_that_does_not_parse_is_exit_2_and_rebuilt_only_when_asked() {
  record logs
  printf '{"half' >logs/state.json
  expect 2 "$GDNCTL" loop-status --log-dir logs
  err_has 'state.json does not parse'
  err_has '--rebuild-state'
  [ "$(cat logs/state.json)" = '{"half' ] || fail "it was changed"
  expect 0 "$GDNCTL" loop-status --log-dir logs --rebuild-state
  err_has 'rebuilt state.json from'
  out_has 'ended      3:'
  [ "$(cat logs/state.json.bak)" = '{"half' ] || fail "what was there is lost"
  python3 -c 'import json; s = json.load(open("logs/state.json")); assert (s["iterations_ended"], s["promotions"], s["journal_records"]) == (3, 1, len(open("logs/journal.jsonl").readlines())), s' || fail "$(cat logs/state.json)"
  expect 0 "$GDNCTL" loop-status --log-dir logs
}

test_a_state_is_not_rebuilt_under_a_loop_at_work() {
  record logs --open
  printf 'x' >logs/state.json
  hold logs
  expect 7 "$GDNCTL" loop-status --log-dir logs --rebuild-state
  err_has "is held by process $holder"
  [ "$(cat logs/state.json)" = x ] || fail "it was changed"
  kill -9 "$holder"
  expect 2 "$GDNCTL" loop-status --log-dir logs --rebuild-state --watch
}

test_where_no_loop_has_run() {
  expect 6 "$GDNCTL" loop-status
  err_has "no run of codex-loop in $PWD/$dir"
  err_has 'hint:'
  expect 2 "$GDNCTL" loop-status --log-dir nowhere
  mkdir empty
  expect 6 "$GDNCTL" loop-status --log-dir empty
  : >empty/journal.jsonl
  expect 6 "$GDNCTL" loop-status --log-dir empty
  [ -z "$(find empty -newer empty/journal.jsonl -type f)" ] || fail "something was written"
}

test_a_torn_last_line_is_fine_a_changed_one_is_exit_7_and_a_newer_one_2() {
  record logs
  cp logs/journal.jsonl whole
  printf '{"v":1,"seq":99,"ty' >>logs/journal.jsonl
  expect 0 "$GDNCTL" loop-status --log-dir logs
  sed -i 's/"main"/"fain"/; s/refs.heads.main/refs\/heads\/fain/' logs/journal.jsonl
  expect 7 "$GDNCTL" loop-status --log-dir logs
  err_has 'the journal is damaged'
  sed 's/"v":1/"v":2/' whole >logs/journal.jsonl
  expect 2 "$GDNCTL" loop-status --log-dir logs
}

test_from_below_the_root_and_read_only() {
  git init -q . && mkdir -p sub
  record $dir
  expect 0 "$GDNCTL" -C sub loop-status
  record logs
  expect 0 "$GDNCTL" -C sub loop-status --log-dir logs
  powerless
  chmod -R a-w logs
  expect 0 "${as[@]}" "$GDNCTL" loop-status --log-dir logs
  expect 8 "${as[@]}" "$GDNCTL" loop-status --log-dir logs --rebuild-state
}

test_secrets_and_control_characters_are_not_shown() {
  record logs --nasty
  for words in '' --json --watch; do
    expect 0 "$GDNCTL" loop-status --log-dir logs $words
    out_lacks hf_abcdefgh
    ! grep -q $'\x1b\|\xe2\x80\xae\|\xc2\x9b\|\xe2\x80\x8b' "$WORK/out" || fail "an escape sequence comes through ($words)"
  done
  COLUMNS=200 expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has 'case t_long: WRONG <b>&\n\x1b[31m'
}

test_a_thousand_iterations() {
  record logs --iterations 1000
  expect 0 "$GDNCTL" loop-status --log-dir logs
  out_has '1000: 334 promoted, 666 rejected; 666 counted as failures'
  [ "$(wc -l <"$WORK/out")" -lt 20 ] || fail "too many lines"
}
