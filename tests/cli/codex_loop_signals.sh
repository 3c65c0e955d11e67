# codex-loop and its ends: a held TPU is released on each of them, a job that was submitted is stopped, exit codes hold.

. "$REPO/tests/support/loop_repo.sh"
# Bash acts on a signal at once in `wait`, and may lose one that comes while it starts a program. A second SIGINT (to the
# group, and at our death) can run the trap again before its exit: so one file each, however often.
allocator() {
  cat >"$WORK/allocator" <<SH
#!/bin/bash
echo held >>$WORK/held
trap ': >$WORK/released.\$\$; exit 0' INT
[ -e $WORK/slow ] && { touch $WORK/allocating; while :; do sleep 0.05 & wait \$!; done; }
echo 'TPU allocated successfully!'
while :; do sleep 0.05 & wait \$!; done
SH
  chmod +x "$WORK/allocator"
}
tpu=(--hold-dev-tpu --dev-tpu-name me --dev-tpu-allocator "$WORK/allocator")
released() { # CASE: as often as it was held, and nothing of it runs
  local held ended
  held=$(wc -l <"$WORK/held")
  until ended=$(find "$WORK" -maxdepth 1 -name 'released.*' | wc -l) && [ "$ended" = "$held" ]; do
    [ $((SECONDS - since)) -lt 20 ] || fail "released $ended of $held: $1"
    sleep 0.05
  done
  pgrep -f "$WORK/allocator" >/dev/null && fail "the allocator runs: $1"
  return 0
}
start() { # OPTION...: with a held TPU, in the background, until the agent is at work
  since=$SECONDS
  rm -f "$WORK/running"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 "${tpu[@]}" "$@"
  until [ -e "$WORK/running" ] || [ -e "$WORK/allocating" ]; do sleep 0.05; done
}
ends() { # CODE REASON
  wait $pid
  local got=$?
  [ $got = "$1" ] || fail "exit code $got, not $1"
  grep -q "codex-loop stopped: reason=$2 " "$WORK/err" || fail "reason is not $2"
}

test_a_held_tpu_is_released_whatever_ends_the_run() {
  repo && allocator
  since=$SECONDS
  agent "$works" && echo mine >mine.txt
  loop 2 --iterations 1 "${tpu[@]}" && released 'a dirty tree'
  rm mine.txt
  loop 1 --iterations 1 "${tpu[@]}" --post-check false && released 'a post-check that failed'
  git reset -q --hard "$base" && rm -rf $logs
  agent 'exit 9' && loop 9 --iterations 1 "${tpu[@]}" && released 'an agent that failed'
  agent "$works" "touch $PWD/$logs/STOP"
  loop 0 --iterations 5 "${tpu[@]}" && released 'a file STOP'
  last_line 'reason=stop-file iteration=1 rc=0'
  rm $logs/STOP
  agent "$works" && loop 0 --iterations 1 "${tpu[@]}" && released 'the last iteration'
}

test_a_held_tpu_is_released_on_each_signal() {
  repo && allocator && agent "touch $WORK/running; sleep 60"
  start && kill -INT $pid && ends 130 interrupted && released SIGINT
  err_has ' Ctrl-C: the agent is being stopped, and what it did so far is kept; --resume continues. Ctrl-C again ends at once.'
  start && kill -HUP $pid && ends 130 interrupted && released SIGHUP
  start && kill -TERM $pid && ends 143 terminated && released SIGTERM
  err_has ' SIGTERM: the agent is being stopped'
  touch "$WORK/slow"
  start && kill -TERM $pid && ends 143 terminated && released 'SIGTERM while it is allocated'
}

test_what_a_signal_ends_is_said_in_the_pauses_too() {
  local case
  repo
  for case in 'false:retry-sleep-seconds:the pause before the next attempt is cut short' "$works:sleep-seconds:the pause between iterations is cut short"; do
    agent "${case%%:*}"
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --codex-retries 1 --iterations 2 "--$(cut -d: -f2 <<<"$case")" 60
    until grep -q 'retrying\.$\|iteration 1: accepted' "$WORK/err"; do sleep 0.05; done
    sleep 0.5 && kill -TERM $pid && ends 143 terminated
    err_has " SIGTERM: ${case##*:}"
    err_has 'A second SIGTERM ends at once.'
    err_lacks 'Ctrl-C'
    rm -rf $logs
  done
}

test_a_second_signal_ends_at_once_and_lets_the_tpu_go() {
  repo && allocator
  # Deaf to all but a kill: the first signal would wait for the whole ladder.
  agent "trap '' INT TERM; touch $WORK/running; while :; do sleep 0.1; done"
  start && kill -INT $pid && sleep 0.3
  err_has ' Ctrl-C: the agent is being stopped'  # at once, while the agent still runs
  kill -INT $pid
  wait $pid
  [ $? = 130 ] || fail 'SIGINT twice'
  released 'SIGINT twice'
  pgrep -f "$WORK/agent" >/dev/null && fail 'the agent runs'
  start && kill -TERM $pid && sleep 1.2 && kill -TERM $pid
  wait $pid
  [ $? = 143 ] || fail 'SIGTERM twice'
  released 'SIGTERM twice'
}

test_a_signal_while_a_validation_job_runs_stops_the_job_and_keeps_its_code() {
  repo && agent "$works"
  cat >gdnctl.toml <<TOML
target = "mine"
[targets.mine]
test = ["sh", "-c", "touch $WORK/running; sleep 300"]
[targets.mine.profile]
argv = ["true"]
TOML
  git add . && git commit -qm target
  for signal in TERM:143:terminated INT:130:interrupted; do
    rm -rf $logs "$WORK/running"
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --perf-mode off --validation-ray-cluster local
    until [ -e "$WORK/running" ]; do sleep 0.05; done
    kill -"${signal%%:*}" $pid
    local rest=${signal#*:}
    ends "${rest%:*}" "${rest#*:}"
    pgrep -f "touch $WORK/running" >/dev/null && fail 'the job runs'
    expect 0 "$GDNCTL" ray-list --cluster local --json
    out_lacks '"RUNNING"'
  done
}

test_more_errors_than_allowed_end_with_2() {
  repo && agent 'git checkout -q -b elsewhere || git checkout -q --orphan else$RANDOM; git commit -q --allow-empty -m x'
  loop 2 --iterations 5 --iteration-error-policy count-failure --max-failures 1
  last_line 'reason=iteration-error iteration=2 rc=2'
}
