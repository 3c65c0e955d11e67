# What people see while they wait, and in which colours results appear.

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
  in_terminal 0 "$GDNCTL" oracle bench gdn --shape 1,2,4,1024,64,64 --rounds 40 --runs 3 --threads 1
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

# Tables lose columns, sentences are folded; only words that are longer than a line stay.
test_reports_fit_a_terminal_of_80_columns() {
  export COLUMNS=80
  local trace=$REPO/examples/traces/before.xplane.pb command
  sed 's/beta \* (v\[j\] - d\[j\])/(v[j] - d[j])/' "$REPO/examples/cpu-gdn/kernel.c" >wrong.c
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
oracle cases gdn
oracle cases linear-ce
oracle adapter
prompts list
cluster list
COMMANDS
}
