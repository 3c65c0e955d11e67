# What people see while they wait, in which colours results appear, and how lines fit a terminal.
. "$REPO/tests/support/ray_server.sh"

in_terminal() { # CODE COMMAND...
  local want=$1 got
  shift
  command -v python3 >/dev/null || skip 'python3 is not installed'
  python3 -B "$REPO/tests/support/in_terminal.py" "$@" >"$WORK/out" 2>"$WORK/err" </dev/null
  got=$?
  [ "$got" = "$want" ] || fail "exit code $got, expected $want"
}

# A program that waits: a second for each of its calls.
slow_kernel() {
  printf '#!/bin/sh\nsleep 1\ncp "$1" "$2"\n' >slow.sh
  chmod +x slow.sh
}

test_a_case_at_work_is_counted_on_a_terminal() {
  slow_kernel
  in_terminal 1 "$GDNCTL" oracle verify gdn --kernel "cmd:./slow.sh" --case golden
  out_has 'cmd:./slow.sh: ['
  grep -qE '[0-9]+ of [0-9]+' "$WORK/out" || fail 'no case is counted'
  in_terminal 1 "$GDNCTL" oracle verify gdn --kernel "cmd:./slow.sh" --case golden -q
  out_lacks 'cmd:./slow.sh: ['
}

test_bench_counts_its_turns_on_a_terminal() {
  cat >slow.sh <<'S'
sleep 1
"$GDNCTL" oracle run gdn --inputs "$1" --out "$2" >/dev/null
S
  in_terminal 0 "$GDNCTL" oracle bench gdn --kernel 'cmd:sh slow.sh' --shape 1,2,4,64,16,16 --rounds 4 --runs 1
  out_has 'timing: ['
  out_has 'turns'
  expect 0 "$GDNCTL" oracle bench gdn --shape 1,2,4,64,16,16 --rounds 1 --runs 1
  err_lacks timing
}

test_lines_fit_a_terminal_of_80_columns() {
  export COLUMNS=80
  slow_kernel
  in_terminal 1 "$GDNCTL" oracle verify gdn --kernel "cmd:./slow.sh" --case golden
  tr '\r' '\n' <"$WORK/out" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -F 'slow.sh: [' | awk 'length($0) > 79' >long
  [ ! -s long ] || fail "too long: $(head -1 long)"
}

test_gcloud_is_not_waited_for_in_silence() {
  mkdir bin
  printf '#!/bin/sh\nsleep 3\necho "ERROR: no" >&2\nexit 1\n' >bin/gcloud
  chmod +x bin/gcloud
  printf 'cluster_name: big\nprovider:\n  type: gcp\n  project_id: p\n  region: r\n  availability_zone: r-a\n' >big.yaml
  PATH=$PWD/bin:$PATH in_terminal 4 "$GDNCTL" cluster check --cluster-config big.yaml
  out_has 'gcloud secrets versions access latest: 2 s'
}

test_results_have_colours_where_they_are_asked_for() {
  expect 0 "$GDNCTL" --color always oracle verify gdn --kernel builtin:chunk --case golden
  grep -q $'\x1b\\[32mOK' "$WORK/out" || fail 'OK is not green'
  expect 0 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --case golden
  ! grep -q $'\x1b' "$WORK/out" || fail 'colours in a file'
  expect 0 "$GDNCTL" --color always oracle selftest linear-ce
  grep -q $'\x1b\\[32mpassed' "$WORK/out" || fail 'passed is not green'
}

test_a_good_end_is_not_yellow() {
  git init -q . && git commit -q --allow-empty -m one
  printf 'target = "t"\n[targets.t]\ntest = ["true"]\n' >gdnctl.toml
  echo prompt >prompt.md
  git add -A && git commit -qm two
  expect 0 "$GDNCTL" --color always codex-loop --iterations 1 --agent command --agent-command true --allow-no-commit \
    --prompt-file prompt.md
  grep -q '^\[gdnctl\] codex-loop stopped: ' "$WORK/err" || fail 'the last line has a colour'
  expect 2 "$GDNCTL" --color always codex-loop --iterations 1 --agent command --agent-command true --prompt-file none.md
  ! grep -q '^\[gdnctl\] codex-loop stopped: ' "$WORK/err" || fail 'a bad end has no colour'
}

# FILE has TEXT in this colour (31 red, 32 green), and nothing in another than those.
coloured() { # FILE CODE TEXT
  grep -qF -- $'\x1b['"$2m$3"$'\x1b[0m' "$1" || fail "$3 has no colour $2 in $1: $(cat -v "$1")"
  ! grep -qE $'\x1b\\[(1|33)m' "$1" || fail "another colour in $1: $(cat -v "$1")"
}
plain() { ! grep -q $'\x1b' "$1" || fail "colours in $1"; }

test_findings_of_severity_error_are_red() {
  printf '### Iteration 3 - a\n\n- Commit: abc1234\n- Note: ghp_abcdefghijklmnopqrstuvwxyz0123456789\n' >log.md
  expect 1 "$GDNCTL" --color always lint-log --no-git log.md
  coloured "$WORK/out" 31 error
  grep -q ': warning L' "$WORK/out" || fail 'a warning has a colour'
  plain "$WORK/err"
  expect 1 "$GDNCTL" --color always lint-log --no-git log.md --output findings.txt
  plain findings.txt
  expect 1 "$GDNCTL" --color always lint-log --no-git log.md --diff
  coloured "$WORK/err" 31 error
  for format in json github sarif; do
    expect 1 "$GDNCTL" --color always lint-log --no-git log.md --format $format
    plain "$WORK/out"
  done
  GITHUB_ACTIONS=true expect 1 "$GDNCTL" --color always lint-log --no-git log.md
  ! grep '^::' "$WORK/out" | grep -q $'\x1b' || fail 'an annotation has a colour'
  expect 1 "$GDNCTL" lint-log --no-git log.md
  plain "$WORK/out"
  # What scripts match keeps its letters.
  printf '### Iteration 3 - a\n\n- Commit: (pending)\n' >log.md
  expect 1 "$GDNCTL" --color always lint-log --no-git log.md
  err_has '[gdnctl] unresolved `Commit: (pending)` entries in log.md:'
  plain "$WORK/err"
  expect 0 "$GDNCTL" --color always lint-log --no-git --allow-pending log.md
  out_has '[gdnctl] log lint passed: log.md'
}

test_limits_of_a_trace_have_colours() {
  (cd "$REPO/tests/support" && python3 -B -c "from make_trace import *; write(tpu_step_trace(), '$WORK/cwd/t.json')") || fail 'no trace'
  echo '{"rules":[{"metric":"step.median_ms","min":0},{"metric":"step.median_ms","max":0}]}' >rules.json
  expect 1 "$GDNCTL" --color always trace check --expect rules.json t.json
  coloured "$WORK/out" 32 ok
  coloured "$WORK/out" 31 FAIL
  expect 1 "$GDNCTL" trace check --expect rules.json t.json
  plain "$WORK/out"
}

test_verdicts_of_a_policy_have_colours() {
  cat >s.json <<'JSON'
{"version": 2, "champion": null, "history": [
 {"iteration": 1, "commit": "1111111111111111", "metric": "throughput/mfu", "metric_value": 4.0, "decision": "baseline"},
 {"iteration": 2, "commit": "2222222222222222", "metric": "throughput/mfu", "metric_value": 4.2, "decision": "promoted"},
 {"iteration": 3, "commit": "3333333333333333", "metric": "throughput/mfu", "metric_value": 4.14, "decision": "promoted"}]}
JSON
  expect 1 "$GDNCTL" --color always policy test s.json
  grep -q $'\x1b\\[32mpromoted *\x1b\\[0m' "$WORK/out" || fail 'promoted is not green'
  coloured "$WORK/out" 31 regression
  expect 1 "$GDNCTL" policy test s.json
  plain "$WORK/out"
}

test_results_of_a_sweep_have_colours() {
  seed=$FIXTURES/sweep/seed003
  expect 0 "$GDNCTL" --color always sweep report "$seed"/*.log --comparisons xla
  coloured "$WORK/out" 32 ok
  grep -qE $'\x1b\\[32m +\\+[0-9.]+ %' "$WORK/out" || fail 'a gain is not green'
  grep -qE $'\x1b\\[31m +-[0-9.]+ %' "$WORK/out" || fail 'a loss is not red'
  grep -qE $'\x1b\\[31m[a-z_]+' "$WORK/out" || fail 'what failed is not red'
  for format in markdown html patch; do
    expect 0 "$GDNCTL" --color always sweep report "$seed"/*.log --format $format
    plain "$WORK/out"
  done
  expect 0 "$GDNCTL" sweep report "$seed"/*.log
  plain "$WORK/out"
}

# On a terminal of so many columns: the lines that COMMAND writes there, in $WORK/out, without colours.
on_terminal() { # COLUMNS CODE COMMAND...
  COLUMNS=$1 in_terminal "${@:2}"
  sed -i 's/\x1b\[[0-9;]*[A-Za-z]//g; s/\r$//' "$WORK/out"
}
# Continuation lines joined to their first ones.
joined() { sed -e ':a' -e '$!N' -e 's/\n         \([^ ]\)/ \1/' -e 'ta' -e 'P' -e 'D' "$WORK/out"; }

test_long_lines_are_wrapped_at_words_on_a_terminal() {
  expect 2 "$GDNCTL" --color never codex-loop --iterations 1 --max-wall 12345678901234
  cp "$WORK/err" whole
  awk 'length($0) > 80 { found = 1 } END { exit !found }' whole || fail 'no line is long'
  on_terminal 80 2 "$GDNCTL" --color never codex-loop --iterations 1 --max-wall 12345678901234
  awk 'length($0) > 80' "$WORK/out" >long
  [ ! -s long ] || fail "too long: $(head -1 long)"
  joined | cmp - whole || fail 'other words'
}

test_a_command_in_a_hint_is_not_broken() {
  log=a-folder-with-a-long-name/and-another-one/log.md
  expect 2 "$GDNCTL" lint-log --log-file $log
  cp "$WORK/err" whole
  grep -q '`gdnctl log init ' whole || fail 'no command'
  on_terminal 60 2 "$GDNCTL" lint-log --log-file $log
  out_has "\`gdnctl log init --log-file $log\`"
  joined | cmp - whole || fail 'other words'
}

test_the_clock_of_a_submission_ticks() {
  target '"true"'
  serve
  ctl '{"fault": {"match": "PUT /api/packages/", "hang": 4}}'
  in_terminal 0 "$GDNCTL" ray-test $RAY --submission-id slow --no-wait
  out_has 'submitting slow: 3 s'
  expect 0 "$GDNCTL" ray-test $RAY --submission-id other --no-wait
  err_lacks 'submitting other: '
}

test_the_clock_of_a_silent_job_ticks() {
  target '"echo begun; sleep 5; printf half; sleep 4; echo \" done\""'
  in_terminal 0 "$GDNCTL" ray-test --cluster local --submission-id silent
  out_has 'waiting for silent: 3 s'
  out_has 'half done'
  tr '\r' '\n' <"$WORK/out" | grep -q 'half.*waiting' && fail 'beside an unfinished line'
  in_terminal 0 "$GDNCTL" ray-test --cluster local --submission-id quiet -q
  out_lacks 'waiting for quiet'
  expect 0 "$GDNCTL" ray-test --cluster local --submission-id other
  err_lacks 'waiting for other'
}

test_the_clock_of_a_loops_profile_ticks() {
  git init -q .
  cat >gdnctl.toml <<'TOML'
target = "t"
[targets.t]
kernel = ["k"]
test = ["true"]
profile = ["sh", "-c", "sleep 4; echo '{\"ms\": 1}'"]
metric = { name = "ms", better = "lower", unit = "ms", from = "json:/ms" }
TOML
  echo 1 >k && echo prompt >prompt.md && git add -A && git commit -qm one
  in_terminal 0 "$GDNCTL" codex-loop --iterations 1 --agent command --agent-command 'cat >/dev/null; echo 2 >k; git commit -qam two' \
    --prompt-file prompt.md --validation-mode profile-only --validation-ray-cluster local --perf-mode off
  out_has 'validation profile on local: 3 s'
}

# Tables lose columns, sentences are folded; only words that are longer than a line stay.
test_reports_fit_a_terminal_of_80_columns() {
  export COLUMNS=80
  local trace=$REPO/examples/traces/before.xplane.pb command
  sed 's/beta \* (v\[j\] - d\[j\])/(v[j] - d[j])/' "$REPO/examples/cpu-gdn/kernel.c" >wrong.c
  "$GDNCTL" oracle run gdn --shape 2,1,1,4096,16,16 --out x.safetensors >/dev/null 2>&1
  while read -r command; do
    # shellcheck disable=SC2086
    python3 -B "$REPO/tests/support/in_terminal.py" "$GDNCTL" $command >"$WORK/out" 2>/dev/null </dev/null
    tr '\r' '\n' <"$WORK/out" | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' |
      python3 -c 'import sys
for line in sys.stdin.read().split("\n"):
    if len(line) > 80 and " " in line.strip(): print(line)' >long
    [ ! -s long ] || fail "$command: too long: $(head -1 long)"
  done <<COMMANDS
trace hotspots $trace
trace kernels $trace
trace info $trace
trace steps $trace
trace diff $trace $REPO/examples/traces/after.xplane.pb
oracle verify gdn --kernel src:wrong.c --case g1
oracle bench gdn --shape 1,2,4,64,16,16 --rounds 1 --runs 1
oracle compare gdn --inputs x.safetensors --outputs x.safetensors --heatmap
oracle cases gdn
oracle cases linear-ce
oracle adapter
sweep report $(echo "$FIXTURES"/sweep/seed003/*.log) --comparisons xla
prompts list
cluster list
COMMANDS
}

test_the_json_of_a_linted_log_is_indented_on_a_terminal() {
  "$GDNCTL" log init --log-file log.md >/dev/null 2>&1
  in_terminal 0 "$GDNCTL" lint-log --log-file log.md --json
  tr -d '\r' <"$WORK/out" | grep -q '^  "schema": "gdnctl.lint/1"' || fail "$(head -c 200 "$WORK/out")"
}
