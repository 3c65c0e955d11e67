# codex-loop whose target has an oracle: a kernel in Python is judged before the tests, and the next attempt is told.

. "$REPO/tests/support/loop_repo.sh"
. "$REPO/tests/support/loop_gates.sh"

for each in /usr/bin/python3 python3; do "$each" -c 'import numpy' 2>/dev/null && PY=$each && break; done

kernel() { # right|wrong: the adapter of the docs, with or without its mistake; only the shortest shapes
  printf 'def supports(case):\n    return case["T"] <= 64 and case["dk"] == 64 and case["dv"] == 64 or "long"\n\n\n'
  if [ "$1" = wrong ]; then cat "$FIXTURES/python/my_gdn.py"; else tac "$FIXTURES/python/my_gdn.py" | awk '/S = S \* decay/ && !n++ {next} 1' | tac; fi
}
judged() { # a repository like world's, with an oracle
  world
  kernel right >kernel.py
  printf 'kernel = ["kernel.py"]\n' >"$WORK/extra"
  sed -i '/^log = /r '"$WORK/extra" gdnctl.toml
  printf '[targets.mine.oracle]\nkernel = "py:kernel.py"\npython = ["%s"]\n' "$PY" >>gdnctl.toml
  git add -A && git commit -qm 'an oracle'
  base=$(git rev-parse HEAD)
  kernel right >"$WORK/right.py" && kernel wrong >"$WORK/wrong.py" && echo 'import no_such_module' >"$WORK/import.py"
}
writes() { # KERNEL per iteration
  { printf '#!/bin/bash\nset -e\nprompt=$(cat)\ncase $prompt in\n'
    local n=0 one
    for one in "$@"; do
      n=$((n + 1))
      printf '"It %d"*) cp %s kernel.py ;;\n' $n "$WORK/$one.py"
    done
    printf 'esac\necho "# $(date +%%N)" >>kernel.py; git add -A; git commit -qm "Kernel"\n'
  } >"$WORK/agent" && chmod +x "$WORK/agent"
}
oracle_loop() { loop "$@" --max-failures -1 --validation-policy count-failure --perf-pairs 1; }
tests_run() { [ "$(wc -l <"$WORK/tests_run" 2>/dev/null || echo 0)" = "$1" ] || fail "the tests ran $(cat "$WORK/tests_run" 2>/dev/null | wc -l) times, not $1"; }

test_a_wrong_kernel_fails_before_the_tests_and_the_next_prompt_says_why() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged && writes wrong right
  oracle_loop 0 --iterations 2
  err_has 'the oracle judges each candidate before its tests; the base is OK'
  tests_run 1
  local prompt=$logs/iteration-002-prompt.txt
  grep -q 'What the oracle found wrong in the last candidate' $prompt || fail 'the next prompt says nothing of it'
  grep -q '^- .*stage .*; [0-9]* cases\?' $prompt || fail 'no group in the prompt'
  grep -q '^- first wrong token: ' $prompt || fail 'no token in the prompt'
  grep -q '^- reproduce: gdnctl oracle verify gdn --kernel py:kernel.py --case ' $prompt || fail 'no command in the prompt'
  expect 0 "$GDNCTL" loop-explain 1 --json
  python3 - "$WORK/out" <<'PY' || fail 'not the record'
import json, sys
stage = [s for s in json.load(open(sys.argv[1]))["stages"] if s["name"] == "oracle"][0]
oracle = stage["oracle"]
assert stage["outcome"] == "test-fail" and oracle["verdict"] == "WRONG", stage
assert {"tensor", "stage", "hint", "case", "cases", "error_x_budget"} <= set(oracle["groups"][0]), oracle
assert oracle["environment"]["framework"] == "numpy", oracle
assert "oracle" not in stage["facts"]
PY
  expect 0 "$GDNCTL" loop-explain 1
  out_has 'reproduce: gdnctl oracle verify gdn'
  log_has '  - Oracle: `'
  expect 0 "$GDNCTL" loop-explain 2
  out_has 'pass  oracle'
  clean_log
}

test_a_kernel_that_cannot_be_imported_any_more_is_the_candidates_fault() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged && writes import
  oracle_loop 0 --iterations 1 --json
  out_has '"test-fail":1'
  tests_run 0
  expect 0 "$GDNCTL" loop-explain 1
  out_has "ModuleNotFoundError: No module named 'no_such_module'"
}

test_a_base_that_the_oracle_cannot_run() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged && writes import
  cp "$WORK/import.py" kernel.py && git commit -qam 'cannot be imported'
  oracle_loop 0 --iterations 1
  err_has 'the oracle cannot run py:kernel.py'
  err_has 'candidates are judged without it'
  tests_run 1
  rm -rf $logs "$WORK/tests_run"
  loop 2 --iterations 1 --validation-oracle required
  err_has 'the oracle cannot run py:kernel.py'
  tests_run 0
}

test_a_base_that_is_wrong_judges_nobody_unless_it_must() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged && writes wrong
  cp "$WORK/wrong.py" kernel.py && git commit -qam 'wrong'
  oracle_loop 0 --iterations 1
  err_has 'the oracle judges the base WRONG'
  tests_run 1
  rm -rf $logs "$WORK/tests_run"
  oracle_loop 0 --iterations 1 --validation-oracle required
  err_has 'candidates must be OK'
  tests_run 0
}

test_the_base_is_asked_once() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged && writes right right
  oracle_loop 0 --iterations 1
  [ "$(ls $logs/iteration-000-oracle-base*.log | wc -l)" = 1 ] || fail 'not asked'
  git reset -q --hard "$base"
  oracle_loop 0 --iterations 1
  err_lacks 'judging the base'
}

test_the_oracle_can_be_off_and_must_be_there_to_be_required() {
  judged && writes wrong
  oracle_loop 0 --iterations 1 --validation-oracle off
  err_lacks 'oracle judges'
  tests_run 1
  git reset -q --hard "$base"
  sed -i '/targets.mine.oracle/,$d' gdnctl.toml && git commit -qam 'no oracle'
  loop 2 --iterations 1 --validation-oracle required
  err_has "target 'mine' has no oracle"
  err_has '[targets.mine.oracle]'
  printf '[targets.mine.oracle]\npython = "python3"\n' >>gdnctl.toml && git commit -qam 'half an oracle'
  loop 2 --iterations 1
  err_has 'targets.mine.oracle.kernel must be given'
}

test_evolve_asks_the_oracle_before_anything_is_timed() {
  [ -n "${PY-}" ] || skip 'no python3 with numpy'
  judged
  printf '#!/bin/bash\nread -r _ _ n _\ncase $n in 1) cp %s kernel.py ;; *) cp %s kernel.py; echo "# $n" >>kernel.py ;; esac\n' "$WORK/wrong.py" "$WORK/right.py" >"$WORK/agent" && chmod +x "$WORK/agent"
  expect 3 "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir "$WORK/log" --max-attempts 2 --validation-ray-cluster local
  stage() { jq -se --argjson n "$1" "[.[] | select(.type == \"eval_stage\" and .attempt == \$n and .stage == \"$2\")] | $3" "$WORK/log/journal.jsonl" >/dev/null; }
  stage 1 oracle 'last | .verdict == "fail" and .oracle.verdict == "WRONG" and (.oracle.groups[0] | has("tensor") and has("stage") and has("case"))' || fail 'not judged'
  stage 1 bench 'length == 0' || fail 'it was timed'
  stage 2 oracle 'last | .verdict == "pass" and .oracle.verdict == "OK"' || fail 'the second was not judged'
  stage 2 bench 'length > 0' || fail 'the second was not timed'
}
