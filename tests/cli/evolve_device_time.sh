# codex-loop --mode evolve on a target whose metric is in the trace of its profile.

world() { # kernel.txt: STEP_MS WALL_S
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE
  git init -q . && mkdir tests
  cat >gdnctl.toml <<'TOML'
target = "mine"
[targets.mine]
kernel = ["kernel.txt"]
protected = ["tests/**"]
test = ["true"]
metric = { name = "mine/device", from = "trace:step" }
[targets.mine.profile]
argv = ["sh", "tests/profile.sh"]
trace = "out/x.trace.json"
trace_device = "v5p"
TOML
  cat >tests/profile.sh <<SH
read -r step wall <kernel.txt
python3 "$REPO/tests/support/profile_trace.py" out/x.trace.json "\$step"
echo "throughput/duration=\$wall"
SH
  echo '10 0.5' >kernel.txt && git add . && git commit -qm base
}
agent() { printf '#!/bin/bash\nread -r _ _ n _ <<<"$(cat)"\n%s\n' "$1" >"$WORK/agent" && chmod +x "$WORK/agent"; }
evolve() { # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 \
    --perf-pairs 3 --log-dir "$WORK/log" --lineages 1 --seed 1 --validation-ray-cluster local --max-attempts 1 "$@"
}
verdicts() { jq -r 'select(.type=="verdict") | "\(.attempt) \(.verdict)"' "$WORK/log/journal.jsonl" | xargs; }

test_an_attempt_is_kept_by_its_device_time() {
  world && agent 'echo "8 0.4" >kernel.txt; git commit -qam faster'
  evolve 0
  [ "$(verdicts)" = '1 kept' ] || fail "$(verdicts)"
  [ -z "$(find "$XDG_STATE_HOME/gdnctl/local/jobs" -name x.trace.json)" ] || fail 'traces are left'
}

test_faster_on_the_device_and_slower_by_wall_time_is_quarantined_and_measured_once_more() {
  world && agent 'echo "8 0.8" >kernel.txt; git commit -qam moved'
  evolve 3
  [ "$(verdicts)" = '1 quarantined 1 rejected' ] || fail "$(verdicts)"
  grep -q 'faster on the device, but slower by wall time' "$WORK/log/journal.jsonl" || fail 'no reason'
}
