# Waiting for jobs, their logs, stopping and listing them.

setup() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }
submit() { # ID SCRIPT
  setup "$2"
  "$GDNCTL" ray-test --cluster local --no-wait --submission-id "$1" "${@:3}" >/dev/null 2>"$WORK/err" || fail "cannot submit $1"
}
submit_as_is() { # SCRIPT
  setup "$1"
  expect 0 "$GDNCTL" ray-test --cluster local
}
finish() { "$GDNCTL" ray-wait --cluster local "$1" --poll 0.05 >/dev/null 2>&1; }

test_wait_exit_codes() {
  submit ok '"true"'
  submit bad '"exit 3"'
  submit stopped '"sleep 300"'
  expect 0 "$GDNCTL" ray-wait --cluster local ok --poll 0.05
  expect 1 "$GDNCTL" ray-wait --cluster local bad --poll 0.05
  expect 0 "$GDNCTL" ray-stop --cluster local stopped
  err_has '[gdnctl] Job stopped stop requested'
  expect 3 "$GDNCTL" ray-wait --cluster local stopped --poll 0.05
  err_has 'status=STOPPED Job was intentionally stopped.'
  expect 6 "$GDNCTL" ray-wait --cluster local nobody
  err_has 'Job nobody does not exist'
  expect 2 "$GDNCTL" ray-wait --cluster local latest
  expect 2 "$GDNCTL" ray-wait --cluster local
  expect 2 "$GDNCTL" ray-wait --cluster local ok --poll 0
}

test_last_is_the_newest_job_of_this_machine() {
  expect 6 "$GDNCTL" ray-logs --cluster local last
  err_has 'this machine has submitted no job to local'
  submit first '"echo one"'
  submit second '"echo two"'
  # As a loop names its jobs; people do not mean these.
  submit gdnctl-profile-20261129t053026-e5c7-20261129T053044-b6646df3 '"echo three"'
  expect 0 "$GDNCTL" ray-wait --cluster local last --poll 0.05 --show-logs
  out_has two
  expect 0 "$GDNCTL" ray-logs --cluster local last
  out_has two
  expect 0 "$GDNCTL" ray-stop --cluster local last
  err_has 'Job second had already ended'
}

test_wait_compat_exit() {
  submit bad '"exit 3"'
  submit long '"sleep 300"'
  expect 0 "$GDNCTL" ray-wait --cluster local bad --poll 0.05 --compat-exit
  expect 1 "$GDNCTL" ray-wait --cluster local nobody --compat-exit
  expect 2 "$GDNCTL" ray-wait --cluster local long --poll 0.05 --timeout 0.2 --compat-exit
  expect 0 "$GDNCTL" ray-stop --cluster local long --wait
}

test_wait_timeout_leaves_the_job_alive() {
  submit long '"sleep 300"'
  expect 124 "$GDNCTL" ray-wait --cluster local long --poll 0.05 --timeout 0.3 --json
  out_has '"schema":"gdnctl.ray-wait/1"'
  out_has '"failure_class":"timeout"'
  expect 0 "$GDNCTL" ray-list --cluster local --status RUNNING --json
  out_has '"submission_id":"long"'
  expect 0 "$GDNCTL" ray-stop --cluster local long --wait
}

test_wait_match_takes_the_newest() {
  submit m-old '"echo old"'
  finish m-old
  submit m-new '"echo new"'
  submit other '"true"'
  expect 0 "$GDNCTL" ray-wait --cluster local --match '^m-' --poll 0.05 --show-logs
  err_has '[gdnctl] submission_id=m-new'
  out_has new
  expect 6 "$GDNCTL" ray-wait --cluster local --match '^zzz'
  expect 2 "$GDNCTL" ray-wait --cluster local --match 'a('
}

test_logs_tail_and_grep() {
  submit l '"for i in 1 2 3 4 5; do echo a $i; echo b $i; done; printf last"'
  finish l
  expect 0 "$GDNCTL" ray-logs --cluster local l --tail 2
  printf 'b 5\nlast' | cmp - "$WORK/out" || fail "tail"
  expect 0 "$GDNCTL" ray-logs --cluster local l --grep '^a|nothing' --tail 2
  printf 'a 4\na 5\n' | cmp - "$WORK/out" || fail "grep comes before tail"
  expect 2 "$GDNCTL" ray-logs --cluster local l --grep 'a('
  err_has -- '--grep'
  expect 6 "$GDNCTL" ray-logs --cluster local nobody
  expect 0 "$GDNCTL" ray-logs --cluster local l --tail 1 --json
  out_has '"schema":"gdnctl.ray-logs/1"'
  out_has '"logs":"last"}'
}

test_logs_as_json_are_whole_however_long() {
  # 3 MB of characters of one to four bytes; the last one is cut, and one byte is no UTF-8 at all.
  submit big '"printf '"'\\\\377\\\\n'"'; yes aé漢😀 | head -c 3000001"'
  finish big
  for extra in '' '--follow' '--grep=.'; do
    expect 0 "$GDNCTL" ray-logs --cluster local big --tail 1000000 --json $extra
    python3 - "$WORK/out" "$XDG_STATE_HOME/gdnctl/local/jobs/big/log" <<'P' || fail "the logs differ ($extra)"
import json, sys
shown = json.load(open(sys.argv[1], "rb"))
assert list(shown)[-1] == "logs" and shown["schema"] == "gdnctl.ray-logs/1" and shown["status"] == "SUCCEEDED", list(shown)
log = open(sys.argv[2], "rb").read()
assert len(log) == 3000003 and log.startswith(b"\377\n"), len(log)
assert shown["logs"] == log.decode("utf-8", "replace"), "other text"
P
  done
  [ -z "$(ls -A "$TMPDIR")" ] || fail "left over: $(ls -A "$TMPDIR")"
  TMPDIR=$WORK/nowhere expect 0 "$GDNCTL" ray-logs --cluster local big --tail 1 --json
  expect 8 bash -c 'ulimit -f 100; exec "$0" ray-logs --cluster local big --tail 1000000 --json' "$GDNCTL"
  out_empty
}

test_logs_follow_gives_each_byte_once() {
  submit f '"i=0; while [ $i -lt 40 ]; do echo same; printf x; echo; i=$((i+1)); sleep 0.02; done; printf end"'
  expect 0 "$GDNCTL" ray-logs --cluster local f --follow --tail 1000
  expect 0 "$GDNCTL" ray-logs --cluster local f --tail 1000
  cp "$WORK/out" "$WORK/whole"
  [ "$(wc -c <"$WORK/whole")" = 283 ] || fail "$(wc -c <"$WORK/whole") bytes"
  submit g '"i=0; while [ $i -lt 40 ]; do echo same; printf x; echo; i=$((i+1)); sleep 0.02; done; printf end"'
  expect 0 "$GDNCTL" ray-logs --cluster local g -f --tail 1000
  cmp "$WORK/out" "$WORK/whole" || fail "followed bytes differ"
}

test_logs_to_a_closed_pipe_end_quietly() {
  submit p '"seq 200000"'
  finish p
  "$GDNCTL" ray-logs --cluster local p --tail 200000 2>"$WORK/err" | head -1 >"$WORK/out"
  [ "$(cat "$WORK/out")" = 1 ] || fail "first line"
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
}

test_stop_of_an_ended_job_is_no_error() {
  submit s '"true"'
  finish s
  expect 0 "$GDNCTL" ray-stop --cluster local s --json
  out_has '"schema":"gdnctl.ray-stop/1"'
  out_has '"stopped":false}'
  expect 6 "$GDNCTL" ray-stop --cluster local nobody
}

test_stop_of_a_pending_job_is_immediate() {
  GDNCTL_LOCAL_RESOURCES='{"CPU":1}' submit p '"echo never"' --tpu v5p-8
  err_has 'can never offer'
  expect 0 "$GDNCTL" ray-stop --cluster local p --json
  out_has '"status":"STOPPED"'
  expect 0 "$GDNCTL" ray-logs --cluster local p
  out_empty
}

test_start_timeout_is_exit_4() {
  RAY_JOB_START_TIMEOUT_SECONDS=0.3 submit late '"echo never"' --tpu v6e-4
  expect 4 "$GDNCTL" ray-wait --cluster local late --poll 0.05
  err_has 'Job supervisor actor failed to start within 0.3 seconds.'
}

test_supervisor_killed_is_exit_4() {
  submit left-alone '"echo up; setsid sleep 311 & sleep 312"'
  local f=$XDG_STATE_HOME/gdnctl/local/jobs/left-alone
  for _ in $(seq 600); do grep -q up "$f/log" && break; sleep 0.05; done
  kill -9 "$(sed -n '/"supervisor"/,/}/s/.*"pid": \([0-9]*\).*/\1/p' "$f/supervisor.json" | head -1)"
  expect 4 "$GDNCTL" ray-wait --cluster local left-alone --poll 0.05
  err_has 'Job supervisor actor died: local supervisor'
  ! grep -lsa 'GDNCTL_SUBMISSION_ID=left-alone' /proc/[0-9]*/environ 2>/dev/null | grep -q . || fail "processes left"
}

test_list_filters() {
  expect 0 "$GDNCTL" ray-list --cluster local --json
  out_has '{"schema":"gdnctl.ray-list/1","jobs":[]}'
  export USER=alice
  submit a '"true"'
  finish a
  USER=bob submit b '"exit 1"'
  finish b
  expect 0 "$GDNCTL" ray-list --cluster local
  [ "$(awk 'NR>1{print $NF}' "$WORK/out" | tr '\n' ' ')" = "b a " ] || fail "newest first"
  awk 'length > 100 {exit 1}' "$WORK/out" || fail "too wide"
  expect 0 "$GDNCTL" ray-list --cluster local --mine
  out_has ' a'
  out_lacks ' b'
  expect 0 "$GDNCTL" ray-list --cluster local --status FAILED
  out_lacks SUCCEEDED
  expect 0 "$GDNCTL" ray-list --cluster local --limit 1
  err_has '1 more'
  # Jobs of loops and sweeps are for --all.
  submit gdnctl-test-20260310t165307-ab12-20260310T165307-0a1b2c3d '"true"'
  finish gdnctl-test-20260310t165307-ab12-20260310T165307-0a1b2c3d
  expect 0 "$GDNCTL" ray-list --cluster local
  out_lacks t165307
  err_has '1 job of loops and sweeps not shown; --all shows them'
  expect 0 "$GDNCTL" ray-list --cluster local --all
  out_has t165307
  expect 0 "$GDNCTL" ray-list --cluster local --json
  out_has t165307
  expect 2 "$GDNCTL" ray-list --cluster local --limit 0
  expect 2 "$GDNCTL" ray-list --cluster local --status SLEEPING
}

test_the_user_is_named_without_user_variables() {
  unset USER LOGNAME
  submit_as_is '"true"'
  err_has "Job submitted with ID: gdnctl-test-$(id -un)-"
  expect 0 "$GDNCTL" ray-list --cluster local --mine
  out_has "gdnctl-test-$(id -un)-"
}

test_a_user_without_a_name_is_called_by_number() {
  unset USER LOGNAME
  [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || skip 'only root can become a user that the user database does not know'
  chmod a+rX "$WORK" && mkdir strange && chmod 777 strange && chown 54321 strange
  (cd strange && setup '"true"' && chmod a+r gdnctl.toml)
  HOME=$PWD/strange XDG_STATE_HOME=$PWD/strange expect 0 setpriv --reuid 54321 --regid 54321 --clear-groups \
    "$GDNCTL" -C strange ray-test --cluster local --working-dir none
  err_has 'Job submitted with ID: gdnctl-test-uid54321-'
}

test_state_directory_others_may_write_to_is_exit_8() {
  mkdir -p "$XDG_STATE_HOME/gdnctl" && chmod 777 "$XDG_STATE_HOME/gdnctl"
  setup '"true"'
  expect 8 "$GDNCTL" ray-test --cluster local
  expect 8 "$GDNCTL" ray-list --cluster local
}

test_a_state_directory_that_cannot_be_written_to_is_exit_8() {
  powerless
  mkdir -p "$XDG_STATE_HOME/gdnctl"
  setup '"true"' && chmod -R a+rX "$WORK"
  [ ${#as[@]} = 0 ] || chown 65534:65534 "$XDG_STATE_HOME/gdnctl"
  chmod 500 "$XDG_STATE_HOME/gdnctl"
  expect 8 "${as[@]}" "$GDNCTL" ray-test --cluster local
  err_has 'Permission denied'
  [ -z "$(ls -A "$XDG_STATE_HOME/gdnctl")" ] || fail "left over: $(ls -A "$XDG_STATE_HOME/gdnctl")"
}

test_a_state_directory_that_cannot_be_read_is_exit_8() {
  local state=$XDG_STATE_HOME/gdnctl folder
  mkdir -p "$state/local/jobs" && powerless
  chmod -R go= "$state" && { [ ${#as[@]} = 0 ] || chown -R 65534:65534 "$state"; }
  for folder in "$state" "$state/local" "$state/local/jobs"; do
    chmod 000 "$folder"
    expect 8 "${as[@]}" "$GDNCTL" ray-list --cluster local
    err_has "cannot read $state/local/jobs: Permission denied"
    expect 8 "${as[@]}" "$GDNCTL" dev-tpu-list
    chmod 700 "$folder"
  done
  touch "$state/holds.json" && chmod 000 "$state/holds.json"
  expect 8 "${as[@]}" "$GDNCTL" dev-tpu-list
  err_has "cannot read $state/holds.json: Permission denied"
}

# The state directory on a file system of 512 KB, in a mount namespace of its own; TEXT is a script that runs in it.
on_a_small_disk() { # TEXT
  local ns=(unshare -m)
  [ "$(id -u)" = 0 ] || ns=(unshare -rm)
  mkdir -p "$XDG_STATE_HOME"
  "${ns[@]}" sh -c 'mount -t tmpfs -o size=512k,mode=700 none "$XDG_STATE_HOME"' 2>/dev/null || skip 'cannot mount a file system here'
  "${ns[@]}" bash -c 'mount -t tmpfs -o size=512k,mode=700 none "$XDG_STATE_HOME" && cd "$WORK/cwd" && . "$0" && eval "$1"' \
    "$REPO/tests/cli/jobs_watch.sh" "$(declare -f fail expect out_has err_has out_lacks); set -u; $1" || exit 1
}
fill() { cat /dev/zero >"$XDG_STATE_HOME/fill" 2>/dev/null; }

test_no_room_is_exit_8_and_no_half_job() {
  on_a_small_disk '
    jobs=$XDG_STATE_HOME/gdnctl/local/jobs
    submit before "\"true\"" && finish before
    # Not a byte is free.
    fill
    expect 8 "$GDNCTL" ray-test --cluster local --submission-id full
    err_has "No space left on device"
    err_has "hint: free space there"
    [ "$(ls -A $jobs)" = before ] || fail "left-overs: $(ls -A $jobs)"
    expect 6 "$GDNCTL" ray-wait --cluster local full
    # Looking needs no room.
    expect 0 "$GDNCTL" ray-list --cluster local
    out_has before
    rm $XDG_STATE_HOME/fill
    # Room for the record, not for the working directory.
    head -c 600000 /dev/urandom >big
    expect 8 "$GDNCTL" ray-test --cluster local --submission-id full
    err_has "No space left on device"
    [ "$(ls -A $jobs)" = before ] || fail "left-overs: $(ls -A $jobs)"
    rm big
    expect 0 "$GDNCTL" ray-test --cluster local --submission-id full'
}

test_no_room_at_the_end_of_a_job_delays_its_record() {
  on_a_small_disk '
    submit late "\"echo up; while [ ! -e $WORK/go ]; do sleep 0.05; done\""
    for _ in $(seq 600); do grep -q up $XDG_STATE_HOME/gdnctl/local/jobs/late/log && break; sleep 0.05; done
    fill
    touch $WORK/go
    sleep 1
    expect 0 "$GDNCTL" ray-list --cluster local
    out_has "RUNNING"
    rm $XDG_STATE_HOME/fill
    expect 0 "$GDNCTL" ray-wait --cluster local late --poll 0.05'
}

test_a_file_size_limit_is_exit_8_and_no_half_job() {
  setup '"true"'
  head -c 300000 /dev/zero >big
  (ulimit -f 100; "$GDNCTL" ray-test --cluster local --submission-id full >"$WORK/out" 2>"$WORK/err" </dev/null)
  [ $? = 8 ] || fail "exit code"
  [ ! -e "$XDG_STATE_HOME/gdnctl/local/jobs/full" ] || fail "half a job"
  [ -z "$(ls -A "$XDG_STATE_HOME/gdnctl/local/jobs")" ] || fail "left-overs: $(ls -A "$XDG_STATE_HOME/gdnctl/local/jobs")"
}

supervisor_of() { sed -n '/"supervisor"/,/}/s/.*"pid": \([0-9]*\).*/\1/p' "$XDG_STATE_HOME/gdnctl/local/jobs/$1/supervisor.json" | head -1; }

test_damaged_records_are_named_and_hide_no_other_job() {
  local jobs=$XDG_STATE_HOME/gdnctl/local/jobs kind words
  submit good '"true"'
  finish good
  for kind in truncated binary empty newer; do
    submit $kind '"true"'
    finish $kind
  done
  head -c 100 $jobs/truncated/job.json >cut && cp cut $jobs/truncated/job.json
  head -c 5000 /dev/urandom >$jobs/binary/job.json
  : >$jobs/empty/job.json
  sed -i 's/"status": "SUCCEEDED"/"status": "PAUSED", "attempts": 3/' $jobs/newer/job.json
  expect 0 "$GDNCTL" ray-list --cluster local --json
  out_has '"submission_id":"good"'
  for kind in truncated binary empty newer; do
    words="the record of job $kind is damaged"
    [ $kind != newer ] || words='the record of job newer has a format that this version does not know'
    expect 0 "$GDNCTL" ray-list --cluster local
    out_has good
    out_lacks $kind
    err_has "$words"
    for command in ray-wait ray-stop ray-logs; do
      expect 8 "$GDNCTL" $command --cluster local $kind
      err_has "$words"
      err_has 'hint: '
    done
  done
  err_has 'hint: use the gdnctl that submitted it, or a newer one'
  # They are in nobody's way, and nothing of them is touched.
  expect 0 "$GDNCTL" ray-test --cluster local
  cmp -s cut $jobs/truncated/job.json || fail 'a damaged record was changed'
}

test_a_damaged_supervisor_record_ends_no_job() {
  submit r '"echo up; while [ ! -e '"$WORK"'/go ]; do sleep 0.05; done; echo end"'
  local f=$XDG_STATE_HOME/gdnctl/local/jobs/r
  for _ in $(seq 600); do grep -q up "$f/log" && break; sleep 0.05; done
  for damage in '' '{' '{"supervisor":{"pid":"newer"}}'; do
    printf '%s' "$damage" >"$f/supervisor.json"
    expect 0 "$GDNCTL" ray-list --cluster local
    out_has RUNNING
  done
  touch "$WORK/go"
  expect 0 "$GDNCTL" ray-wait --cluster local r --poll 0.05 --show-logs
  out_has end
}

test_a_read_only_state_directory() {
  local state=$XDG_STATE_HOME/gdnctl
  mkdir -p "$XDG_STATE_HOME" && powerless
  chmod -R a+rwX "$WORK"
  setup '"[ $GDNCTL_SUBMISSION_ID = ended ] || { echo up; sleep 300; }"' && chmod a+r gdnctl.toml
  for id in ended running dead; do
    "${as[@]}" "$GDNCTL" ray-test --cluster local --no-wait --submission-id $id >/dev/null 2>"$WORK/err" || fail "cannot submit $id"
  done
  "${as[@]}" "$GDNCTL" ray-wait --cluster local ended --poll 0.05 >/dev/null 2>&1
  for id in running dead; do
    for _ in $(seq 600); do grep -q up "$state/local/jobs/$id/log" && break; sleep 0.05; done
  done
  chmod -R a-w "$state"
  kill -9 "$(supervisor_of dead)"
  # What has ended, and what runs, can be looked at.
  expect 0 "${as[@]}" "$GDNCTL" ray-wait --cluster local ended
  expect 0 "${as[@]}" "$GDNCTL" ray-logs --cluster local ended
  expect 0 "${as[@]}" "$GDNCTL" ray-stop --cluster local ended
  expect 0 "${as[@]}" "$GDNCTL" ray-list --cluster local
  out_has ' ended'
  out_has ' running'
  err_has 'cannot '
  # Nothing can be changed.
  expect 8 "${as[@]}" "$GDNCTL" ray-stop --cluster local running
  err_has 'Permission denied'
  err_has 'hint: check owner and mode'
  expect 8 "${as[@]}" "$GDNCTL" ray-wait --cluster local dead
  err_has 'Permission denied'
  expect 8 "${as[@]}" "$GDNCTL" ray-test --cluster local
  chmod -R u+w "$state"
  expect 0 "${as[@]}" "$GDNCTL" ray-stop --cluster local running --wait
  expect 4 "${as[@]}" "$GDNCTL" ray-wait --cluster local dead
}

test_a_state_directory_of_someone_else_is_exit_8() {
  [ "$(id -u)" = 0 ] || skip 'only root can make one'
  submit theirs '"true"'
  finish theirs
  for folder in local/jobs local .; do
    chown 12345 "$XDG_STATE_HOME/gdnctl/$folder"
    for words in ray-list 'ray-wait theirs' 'ray-stop theirs' 'ray-logs theirs' ray-test; do
      expect 8 "$GDNCTL" $words --cluster local
      err_has 'it belongs to user 12345, not to user 0'
      err_has 'hint: choose another state directory with GDNCTL_STATE_DIR'
    done
  done
}

test_time_limit_holds_while_a_job_floods_its_log() {
  printf 'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", "yes"]\ntimeout_s = 1\n' >gdnctl.toml
  timeout 60 "$GDNCTL" ray-test --cluster local --submission-id flood --json >"$WORK/out" 2>/dev/null
  status=$?
  [ $status = 124 ] || fail "exit code $status"
  out_has '"failure_class":"timeout"'
  rm -f "$XDG_STATE_HOME/gdnctl/local/jobs/flood/log"
}

test_closed_stdout_hides_no_verdict() {
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", "echo one; sleep 1; echo two; exit 3"]\n' >gdnctl.toml
  { "$GDNCTL" ray-test --cluster local 2>err; echo $? >code; } | head -1 >first
  [ "$(cat code)" = 1 ] || fail "exit code $(cat code): $(cat err)"
}

test_wait_that_runs_out_of_time_names_the_next_commands() {
  printf 'target = "t"\n[targets.t]\ntest = ["sleep", "60"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" ray-test --cluster local --no-wait --submission-id slow
  expect 124 "$GDNCTL" ray-wait --cluster local slow --timeout 0.2
  for word in ray-wait ray-logs ray-stop; do err_has "gdnctl $word --cluster local slow"; done
  expect 0 "$GDNCTL" ray-stop --cluster local slow --wait
}
