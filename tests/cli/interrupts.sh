# Signals in every phase of the commands that take their time: the exit code is 130 (SIGINT) or 143 (SIGTERM), nothing is
# half written, jobs are left as documented, and no process stays behind.

setup() { printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml; }
jobs=$XDG_STATE_HOME/gdnctl/local/jobs

# Starts a command that can be found by its mark.
start() { PHASE_MARK=$WORK launch "$@" 8<&-; }
until_() { # COMMAND...
  for _ in $(seq 3000); do
    "$@" 2>/dev/null && return
    kill -0 $pid 2>/dev/null || fail "it ended before: $*"
    sleep 0.01
  done
  fail "never: $*"
}
has_open() { find /proc/$pid/fd -lname "$1" | grep -q .; }
listens() { local caught; caught=$(sed -n 's/^SigCgt:\t*//p' /proc/$pid/status) && ((0x$caught & 2)); }
says() { grep -qF -- "$2" "$WORK/$1"; }
signal_it() { # SIGNAL CODE
  kill "-$1" $pid
  wait $pid
  local got=$?
  [ $got = "$2" ] || fail "exit code $got of SIG$1, expected $2"
}
nothing_runs() {
  for _ in $(seq 500); do
    grep -qsz "^PHASE_MARK=$WORK" /proc/[0-9]*/environ || return 0
    sleep 0.02
  done
  fail "still running: $(grep -lsz "^PHASE_MARK=$WORK" /proc/[0-9]*/environ | xargs -n1 dirname | sed 's,$,/cmdline,' | xargs cat | tr '\0' ' ')"
}
no_job() {
  [ -z "$(ls -A "$jobs" 2>/dev/null)" ] || fail "left behind: $(ls -A "$jobs")"
  [ ! -e "$XDG_STATE_HOME/gdnctl/jobs.jsonl" ] || fail "on record: $(cat "$XDG_STATE_HOME/gdnctl/jobs.jsonl")"
  err_lacks 'Job submitted'
  out_empty
  nothing_runs
}
status_is() { # ID STATUS
  expect 0 "$GDNCTL" ray-list --cluster local --status "$2" --json
  out_has "\"submission_id\":\"$1\""
}
end_jobs() {
  for id in "$@"; do expect 0 "$GDNCTL" ray-stop --cluster local "$id" --wait; done
  nothing_runs
}
submit_endless() { # ID
  setup '"echo up; sleep 300"'
  PHASE_MARK=$WORK expect 0 "$GDNCTL" ray-test --cluster local --no-wait --submission-id "$1"
  for _ in $(seq 3000); do grep -qs up "$jobs/$1/log" && return; sleep 0.01; done
  fail "$1 does not start"
}

test_while_git_lists_the_working_tree() {
  git init -q . && setup '"true"'
  mkdir "$WORK/bin" && printf '#!/bin/sh\ntouch "$WORK/asked"\nexec sleep 300\n' >"$WORK/bin/git" && chmod +x "$WORK/bin/git"
  PATH=$WORK/bin:$PATH start "$GDNCTL" ray-test --cluster local
  until_ [ -e "$WORK/asked" ]
  signal_it INT 130
  no_job
}

big_tree() { setup '"true"' && truncate -s 400M big; }
exists() { [ -e "$1" ]; }
test_while_the_working_tree_is_packed() {
  big_tree
  start "$GDNCTL" ray-test --cluster local
  until_ eval 'exists "$jobs"/.new-*/package.zip'
  signal_it INT 130
  no_job
}
test_while_the_working_tree_is_unpacked() {
  big_tree
  start "$GDNCTL" ray-test --cluster local
  until_ eval 'exists "$jobs"/.new-*/*/big'
  signal_it TERM 143
  no_job
}

hold_the_jobs() { mkdir -p "$jobs" && chmod -R go-rwx "$XDG_STATE_HOME" && exec 8>"$XDG_STATE_HOME/gdnctl/local/lock" && flock 8; }
test_while_a_submit_waits_for_its_lock() {
  setup '"true"'
  hold_the_jobs
  start "$GDNCTL" ray-test --cluster local --no-wait
  until_ has_open '*/local/lock'
  signal_it INT 130
  no_job
  exec 8>&-
  expect 0 "$GDNCTL" ray-test --cluster local
}
test_while_a_stop_waits_for_its_lock() {
  submit_endless one
  hold_the_jobs
  start "$GDNCTL" ray-stop --cluster local one
  until_ has_open '*/local/lock'
  signal_it TERM 143
  err_lacks 'stop requested'
  exec 8>&-
  status_is one RUNNING
  end_jobs one
}

test_while_the_job_is_pending() {
  printf 'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", "echo up; sleep 300"]\nresources = { SLOT = 1 }\n' >gdnctl.toml
  export GDNCTL_LOCAL_RESOURCES='{"SLOT":1}'
  PHASE_MARK=$WORK expect 0 "$GDNCTL" ray-test --cluster local --no-wait --submission-id holder
  start "$GDNCTL" ray-test --cluster local --submission-id waits
  until_ says err status=PENDING
  signal_it INT 130
  err_has 'gdnctl ray-wait --cluster local waits'
  status_is waits PENDING
  start "$GDNCTL" ray-test --cluster local --submission-id stopped --auto-stop
  until_ says err status=PENDING
  signal_it TERM 143
  err_has 'Job stopped stop requested'
  status_is stopped STOPPED
  [ ! -s "$jobs/stopped/log" ] || fail 'it ran'
  # The one that was left alone gets its turn.
  expect 0 "$GDNCTL" ray-stop --cluster local holder --wait
  for _ in $(seq 3000); do grep -qs up "$jobs/waits/log" && break; sleep 0.01; done
  status_is waits RUNNING
  end_jobs waits
}

test_while_waiting_for_a_job() {
  submit_endless one
  for signal in INT:130 TERM:143 HUP:130; do
    start "$GDNCTL" ray-wait --cluster local one --json
    until_ says err status=RUNNING
    signal_it ${signal/:/ }
    out_has '"status":"RUNNING"'
    [ "$(wc -l <"$WORK/out")" = 1 ] || fail 'not one object'
    status_is one RUNNING
  done
  end_jobs one
}

test_while_following_a_log() {
  submit_endless one
  for signal in INT:130 TERM:143; do
    start "$GDNCTL" ray-logs --cluster local one --follow
    until_ says out up
    signal_it ${signal/:/ }
    printf 'up\n' | cmp - "$WORK/out" || fail 'not what the job wrote'
    start "$GDNCTL" ray-logs --cluster local one --follow --json
    until_ listens
    signal_it ${signal/:/ }
    out_empty
    status_is one RUNNING
  done
  end_jobs one
}

logs() { mkdir d && "$GDNCTL" log init --log-file d/log.md 2>/dev/null && cp -a d before; }
hold_the_logs() { exec 8<d && flock 8; }
unchanged() { diff -r d before || fail 'something changed'; nothing_runs; }

test_while_an_append_waits_for_its_lock() {
  logs
  hold_the_logs
  for signal in INT:130 TERM:143; do
    start "$GDNCTL" log append --log-file d/log.md --title one
    until_ has_open "$PWD/d*"
    signal_it ${signal/:/ }
    unchanged
  done
  exec 8<&-
  expect 0 "$GDNCTL" log append --log-file d/log.md --title one
  [ "$(wc -l <d/log.records.jsonl)" = 1 ] || fail 'not one record'
}

test_while_an_append_waits_for_its_input() {
  logs
  mkfifo pipe && exec 7<>pipe
  start "$GDNCTL" log append --log-file d/log.md --from-job pipe 7<&-
  until_ has_open '*/pipe'
  signal_it INT 130
  unchanged
}

test_while_a_fix_waits_for_its_lock() {
  mkdir d && printf '### Iteration 1 - t\n- Date: 2026-03-10T12:00:00Z  \n- Commit: abcdef1\n' >d/log.md && cp -a d before
  hold_the_logs
  start "$GDNCTL" lint-log --log-file d/log.md --fix
  until_ has_open "$PWD/d*"
  signal_it INT 130
  unchanged
  exec 8<&-
  "$GDNCTL" lint-log --log-file d/log.md --fix >/dev/null 2>&1
  ! cmp -s d/log.md before/log.md || fail 'there was nothing to fix'
}

test_while_the_oracle_computes() {
  for signal in INT:130 TERM:143; do
    printf old >x.safetensors
    start "$GDNCTL" oracle run gdn --shape 1,4,4,16384,64,64 --out x.safetensors
    until_ listens
    signal_it ${signal/:/ }
    [ "$(cat x.safetensors)" = old ] || fail 'the file changed'
    [ "$(ls)" = x.safetensors ] || fail "left behind: $(ls)"
    out_empty
  done
  nothing_runs
}
