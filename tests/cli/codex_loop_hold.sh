# codex-loop --hold-dev-tpu with a TPU that it holds itself: on this machine.

. "$REPO/tests/support/loop_repo.sh"
tpu=(--hold-dev-tpu --dev-tpu-name me --dev-tpu-cluster local)
held() { "$GDNCTL" dev-tpu-list --cluster local --json 2>/dev/null | grep -o '"tpu_name"' | wc -l; }
free() { # CASE
  for _ in $(seq 100); do [ "$(held)" = 0 ] && return; sleep 0.1; done
  fail "still held: $1"
}
start() { # OPTION...: in the background, until the agent is at work
  rm -f "$WORK/running"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 "${tpu[@]}" "$@"
  for _ in $(seq 400); do [ -e "$WORK/running" ] && return; sleep 0.05; done
  fail 'the agent never ran'
}

test_held_for_the_run_and_given_back() {
  repo && agent "$works" "'$GDNCTL' dev-tpu-list --cluster local >$WORK/seen" "cat >$WORK/prompt <<<\"\$prompt\""
  loop 0 --iterations 1 "${tpu[@]}" --self-command gdnctl --post-check "'$GDNCTL' dev-tpu-execute --cluster local --tpu-name me true" \
    --post-check 'true ray-test'
  grep -q '^me ' "$WORK/seen" || fail 'it was not held while the agent worked'
  grep -q 'gdnctl dev-tpu-test --cluster local --tpu-name me --tests both' "$WORK/prompt" || fail 'no directive'
  err_has 'WARNING: --hold-dev-tpu is active but --post-check contains a Ray TPU command.'
  err_has 'TPU allocation released.'
  free 'the end of the run'
  log=$logs/dev_tpu_allocate.log
  grep -q 'TPU allocated successfully!' $log && grep -qF 'TPU allocation is active. Press Ctrl-C to release...' $log || fail "the log: $(cat $log)"
  tail -n 1 $log | grep -qF '[gdnctl] dev TPU became active; suppressing further allocation log output' || fail 'its end'
  grep -q 'synced [0-9]* files' $log || fail "not all that was said: $(cat $log)"
  err_lacks 'run: sh -c'
  loop 0 --iterations 1 "${tpu[@]}" --dev-tpu-verbose
  grep -q '^\[gdnctl\] run: sh -c .*touch -c -h' $log && grep -q '^\[gdnctl\] TPU allocated successfully!' $log || fail "not verbose: $(cat $log)"
  err_has 'touch -c -h'
}

test_given_back_on_every_way_out() {
  repo && agent "touch $WORK/running" 'sleep 60'
  for signal in INT TERM HUP; do
    start
    [ "$(held)" = 1 ] || fail "not held: $signal"
    kill -$signal "$pid"
    wait "$pid"
    free "SIG$signal"
  done
  agent 'exit 9' && loop 9 --iterations 1 "${tpu[@]}" && free 'an agent that failed'
  agent "$works" && loop 1 --iterations 1 "${tpu[@]}" --post-check false && free 'a post-check that failed'
}

test_none_to_be_had() {
  repo && agent "$works"
  export GDNCTL_LOCAL_RESOURCES='{"CPU":2,"TPU":4,"TPU-v5p-8-head":1}'
  "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name other --no-sync --detach 2>/dev/null || fail allocate
  loop 1 --iterations 1 "${tpu[@]}" --dev-tpu-ready-timeout 1
  last_line 'reason=dev-tpu-hold iteration=0 rc=1'
  err_has 'dev TPU me on local (attempt 1): dev TPU me was not ready on local within 1.0 s; log '
  loop 0 --iterations 1 "${tpu[@]}" --dev-tpu-ready-timeout 1 --hold-dev-tpu-policy best-effort
  "$GDNCTL" dev-tpu-release --tpu-name other 2>/dev/null
  free 'the other'
}

test_lost_and_adopted() {
  repo && agent "touch $WORK/running" "'$GDNCTL' dev-tpu-release --tpu-name me" 'sleep 3' "$works"
  loop 0 --iterations 1 "${tpu[@]}"
  err_has 'dev TPU me on local was released by another command'
  free 'a hold that was lost'
  agent "touch $WORK/running" 'sleep 60'
  start
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  [ "$(held)" = 1 ] || fail 'gone with its loop'
  agent "$works"
  expect 0 "$GDNCTL" codex-loop --resume --iterations 1
  err_has 'taking over your hold'
  free 'the resumed run'
}

test_preempted_and_held_again_elsewhere() {
  . "$REPO/tests/support/dev_tpu_host.sh"
  host
  metadata good /instance/network-interfaces/0/access-configs/0/external-ip=127.0.0.1
  printf '#!/bin/sh\ncase $3 in list) printf "10.128.0.5\\t203.0.113.7\\n" ;; esac\n' >"$WORK/bin/gcloud" && chmod +x "$WORK/bin/gcloud"
  there curl <<<'exit 6'
  export FAKE_SSH_DIR=$WORK FAKE_SSH_TO=$PORT
  mkdir infra && printf 'cluster_name: marin-a\nprovider: {availability_zone: us-east5-b}\n' >infra/marin-a.yaml
  repo
  printf '%s' '{"fault": {"match": "GET /api/version", "status": 403, "body": "Forbidden", "times": -1}}' >"$WORK/refuse"
  agent "n=\$(ls $WORK/prompt.* 2>/dev/null | wc -l); printf %s \"\$prompt\" >$WORK/prompt.\$n" 'if [ "$n" = 0 ]; then' \
    "python3 -c 'import http.client; c = http.client.HTTPConnection(\"127.0.0.1\", $PORT); c.request(\"POST\", \"/__control\", open(\"$WORK/refuse\").read()); c.getresponse()'" \
    "echo preempt >$WORK/metadata.in" "until grep -q 'was preempted' $WORK/err; do sleep 0.1; done" "echo restore >$WORK/metadata.in" 'fi' "$works"
  loop 0 --iterations 2 --hold-dev-tpu --dev-tpu-name me --dev-tpu-cluster a --dev-tpu-fallback-cluster local --dev-tpu-type v5p-8 \
    --dev-tpu-ready-timeout 60 --self-command gdnctl
  err_has 'dev TPU me on a was preempted: its machine was taken away'
  err_has 'it was lost: allocating a dev TPU again'
  grep -q 'gdnctl dev-tpu-test --cluster a --tpu-name me' "$WORK/prompt.0" || fail 'the first directive'
  grep -q 'gdnctl dev-tpu-test --cluster local --tpu-name me' "$WORK/prompt.1" || fail 'the directive was not written anew'
  err_has 'TPU allocation released.'
  free 'the end of the run'
}
