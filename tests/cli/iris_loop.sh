# codex-loop with its gates and its held TPU on an Iris cluster.
. "$REPO/tests/support/iris_server.sh"
. "$REPO/tests/support/loop_gates.sh"

cluster() { # `c` is the scripted controller, by a table of the user's configuration
  serve
  trap 'leave_nothing; kill $server $more 2>/dev/null; wait $server 2>/dev/null; cleanup' EXIT
  mkdir -p "$XDG_CONFIG_HOME/gdnctl"
  printf '[clusters.c]\nkind = "iris"\nurl = "http://127.0.0.1:%s"\ntpu = "v5p-8"\n' "$PORT" >"$XDG_CONFIG_HOME/gdnctl/config.toml"
}
leave_nothing() {
  for id in $(sed -n 's|.*"name": "/[^/]*/\(gdnctl-hold-[A-Za-z0-9_-]*\)".*|\1|p' "$SRV/launched" 2>/dev/null); do
    rm -rf "/tmp/gdnctl-run/$id" "/tmp/gdnctl-hold/$id" "/tmp/gdnctl-hold/$id".*
  done
}
on_iris() { # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --retry-sleep-seconds 0 \
    --validation-retry-sleep 0 --validation-ray-cluster c "$@"
}
# preempts NAME: prints the command line that takes the machine away from a job; NAME may be a shell expression.
preempts() {
  cat >"$WORK/kick.py" <<P
import http.client, json, sys
def say(order):
    c = http.client.HTTPConnection("127.0.0.1", $PORT)
    c.request("POST", "/__control", json.dumps(order))
    c.getresponse()
for order in sys.argv[2:]:
    say(json.loads(order))
say({"kick": sys.argv[1], "reason": "Preempted by /you/big/0"})
P
  echo "python3 $WORK/kick.py $1"
}

test_gates_run_as_jobs_of_the_cluster() {
  cluster && world && agent 9:ok 8:wrong
  on_iris 0 --iterations 2 --perf-mode off --validation-policy count-failure --max-failures -1
  kept 1
  [ "$(wc -l <"$WORK/tests_run")" -ge 2 ] || fail 'the tests did not run'
  grep -qx 'verdict: OK' .agents/logs/gdn_codex_loop/iteration-001-validation-tests.log || fail 'the log of the first'
  [ "$(asked LaunchJob)" -ge 2 ] || fail "$(asked LaunchJob) launches"
  no_complaints
}

test_a_held_tpu_runs_what_gates_ask_for() {
  cluster && world && agent 9:ok
  on_iris 0 --iterations 1 --perf-mode off --hold-dev-tpu --dev-tpu-name me --dev-tpu-cluster c --dev-tpu-type v5p-8
  kept 1
  err_has '$ gdnctl dev-tpu-test --cluster c --tpu-name me'
  [ "$(wc -l <"$WORK/tests_run")" = 1 ] || fail 'the tests did not run once'
  grep -qx 'verdict: OK' .agents/logs/gdn_codex_loop/iteration-001-validation-tests.log || fail 'the log of the tests'
  err_has 'TPU allocation released.'
  [ "$(asked CompleteJob)" = 1 ] || fail 'not given back'
  no_complaints
}

test_preempted_in_a_test_and_tried_again() {
  cluster && world && agent 9:ok
  # The first test loses its machine.
  sed -i "1i [ -e $WORK/lost ] || { : >$WORK/lost; $(preempts '"${IRIS_TASK_ID%/*}"'); sleep 30; }" judge.sh
  git commit -qam waits && base=$(git rev-parse HEAD)
  on_iris 0 --iterations 1 --perf-mode off
  kept 1
  [ -e "$WORK/lost" ] || fail 'nothing was preempted'
  err_has 'Preempted by /you/big/0'
}

test_a_preempted_hold_goes_on_elsewhere() {
  . "$REPO/tests/support/loop_repo.sh"
  cluster && repo
  agent "n=\$(ls $WORK/prompt.* 2>/dev/null | wc -l); printf %s \"\$prompt\" >$WORK/prompt.\$n" 'if [ "$n" = 0 ]; then' \
    "$(preempts "\$(sed -n '\$s/.*\"name\": \"\([^\"]*\)\".*/\1/p' $SRV/launched)") '{\"tpus\": 0, \"offered\": {}}'" "until grep -q 'was preempted' $WORK/err; do sleep 0.1; done" 'fi' "$works"
  loop 0 --iterations 2 --hold-dev-tpu --dev-tpu-name me --dev-tpu-cluster c --dev-tpu-fallback-cluster local --dev-tpu-type v5p-8 \
    --dev-tpu-ready-timeout 60 --self-command gdnctl
  err_has 'dev TPU me on c was preempted'
  err_has 'it was lost: allocating a dev TPU again'
  grep -q 'gdnctl dev-tpu-test --cluster c --tpu-name me' "$WORK/prompt.0" || fail 'the first directive'
  grep -q 'gdnctl dev-tpu-test --cluster local --tpu-name me' "$WORK/prompt.1" || fail 'the directive was not written anew'
  err_has 'TPU allocation released.'
}
