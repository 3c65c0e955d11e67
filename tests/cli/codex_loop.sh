# codex-loop as scripts see it: exit codes, exact texts, files, what is left in the repository.
. "$REPO/tests/support/loop_repo.sh"

test_two_iterations_in_place_keep_their_commits() {
  repo && agent "$works" 'echo done'
  loop 0 --iterations 2 --directive ' A ' --directive $'B\nC'
  last_line 'reason=completed iteration=2 rc=0'
  err_has '[gdnctl] session directives: 2 loaded'
  err_has '[gdnctl] === codex iteration 1/2 ==='
  [ "$(git log --format=%s | head -2)" = $'step 3\nstep 2' ] || fail 'commits'
  [ -z "$(git status --porcelain)" ] || fail 'the tree is dirty'
  printf 'It 1/2 @ %s\n\nSession directives for this codex-loop run (must follow unless they conflict with tests/correctness):\n\n[Directive 1]\nA\n[Directive 2]\nB\nC\n' "$base" >"$WORK/want"
  cmp "$WORK/want" $logs/iteration-001-prompt.txt || fail 'another prompt'
  [ "$(cat $logs/iteration-001-last-message.txt)" = "done" ] || fail 'message'
  for f in journal.jsonl state.json iteration-002-prompt.txt; do [ -s $logs/$f ] || fail "no $f"; done
  [ "$(git rev-parse "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/base')")" = "$base" ] || fail 'base'
}

test_a_check_in_a_worktree_gets_no_python_environment_of_the_shell() {
  repo && agent "$works"
  export VIRTUAL_ENV=$WORK/mine UV_PROJECT_ENVIRONMENT=$WORK/mine CONDA_PREFIX=$WORK/mine
  local check='echo "mine: $VIRTUAL_ENV$UV_PROJECT_ENVIRONMENT$CONDA_PREFIX"; test -z "$VIRTUAL_ENV$UV_PROJECT_ENVIRONMENT$CONDA_PREFIX"'
  loop 0 --iterations 1 --isolation worktree --post-check "$check"
  loop 1 --iterations 1 --isolation inplace --post-check "$check"
}

test_prompt_without_directives_stays_as_it_is() {
  repo && agent "$works"
  loop 0 --iterations 1
  printf 'It 1/1 @ %s\n\n\n' "$base" >"$WORK/want"
  cmp "$WORK/want" $logs/iteration-001-prompt.txt || fail 'another prompt'
}

test_directives_come_as_presets_files_inline() {
  repo && agent "$works" && printf '\n from file \n' >extra.md && git add . && git commit -qm extra
  loop 0 --iterations 1 --directive inline --directive-file extra.md --directive-preset ours --directive '  '
  tail -n 6 $logs/iteration-001-prompt.txt >got
  printf '[Directive 1]\nours\n[Directive 2]\nfrom file\n[Directive 3]\ninline\n' | cmp - got || fail 'order'
}

test_usage_errors_exit_2_before_anything() {
  repo && agent "$works"
  loop 2 --iterations 0
  err_has '--iterations must be > 0.'
  last_line 'reason=usage iteration=0 rc=2'
  loop 2 --iterationz 1
  last_line 'reason=usage iteration=0 rc=2'
  loop 2 --iterations 1 --isolation nowhere
  last_line 'reason=usage iteration=0 rc=2'
  printf 'target = [\n' >gdnctl.toml
  loop 2 --iterations 1
  last_line 'reason=config iteration=0 rc=2'
  rm gdnctl.toml
  loop 2 --iterations 1 --hold-dev-tpu
  [ "$(head -n 1 "$WORK/err")" = '[gdnctl] --hold-dev-tpu requires --dev-tpu-name.' ] || fail 'the line begins otherwise'
  loop 2 --iterations 1 --directive-file no.md
  err_has "directive file not found for no.md: $PWD/no.md"
  loop 2 --iterations 1 --directive-preset nothing
  err_has 'triangular-inversion'
  loop 2 --iterations 1 --prompt-file no.md
  loop 2 --iterations 1 --dev-tpu-ready-timeout 0
  err_has '--dev-tpu-ready-timeout must be > 0.'
  loop 2 --iterations 1 --workdir nowhere
  err_has "not a folder: $PWD/nowhere"
  expect 2 "$GDNCTL" codex-loop
  [ ! -e .agents ] || fail 'something was made'
  mkdir "$WORK/other" && cd "$WORK/other" || fail cd
  loop 2 --iterations 1
  err_has 'not inside a git repository'
  err_has 'hint: cd to a checkout, or make one: git init'
  git init -q .
  loop 2 --iterations 1
  err_has 'has no commit yet'
  [ "$(ls -A)" = .git ] || fail "something was made: $(ls -A)"
}

test_options_of_the_first_version_have_their_defaults() {
  expect 0 "$GDNCTL" codex-loop --help
  python3 - "$WORK/out" <<'PY' || fail 'an option or a default is missing'
import re, sys
text = " ".join(open(sys.argv[1]).read().split())
bad = []
for word in """model=gpt-5.3-codex reasoning-effort=xhigh sleep-seconds=5 post-check-policy=fail post-check-retries=0 max-failures=0
codex-retries=0 retry-sleep-seconds=20 log-dir=.agents/logs/gdn_codex_loop dirty-policy=fail stash-restore-policy=warn-keep
no-commit-policy=fail iteration-error-policy=fail hold-dev-tpu-policy=required dev-tpu-cluster=us-central1 dev-tpu-sync-path=.
dev-tpu-ready-timeout=900 dev-tpu-allocate-attempts=1 dev-tpu-allocate-retry-sleep=30 dev-tpu-stop-timeout=120
sync-main-policy=off sync-main-remote=origin sync-main-branch=main sync-main-conflict-policy=fail codex-timeout-seconds=7200
codex-idle-timeout-seconds=900 validation-policy=fail validation-max-attempts=-1 validation-retry-sleep=120
validation-ray-test-timeout=1800 validation-ray-profile-timeout=3600 validation-ray-log-tail=400 validation-tests=both
validation-ray-tpu=auto validation-profile-tpu=v5p-8 validation-profile-size=130m validation-profile-num-steps=20
validation-profile-start-step=2 validation-profile-num-steps-window=6 validation-profile-batch-size=8
validation-profile-ce-implementation=pallas_tpu validation-profile-ce-bwd-mode=pallas
validation-profile-ce-compare-implementation=auto validation-profile-ce-bwd-compare-mode=off
validation-profile-run-name-prefix=gdn_loopgate validation-profile-wandb-mode=online perf-min-improvement-pct=0.25
perf-max-regression-pct=1.0 perf-regression-policy=revert-count-failure perf-max-while-increase-ms=5.0
perf-new-conditional-ms=5.0 perf-max-dispatch-shard-shell-increase-ms=2.0 perf-max-ad-wrapper-shell-increase-ms=1.0
perf-max-xprof-idle-increase-ms=0.5 perf-min-xprof-dispatch-shard-shell-drop-ms=2.0
perf-max-xprof-ad-wrapper-shell-increase-ms=1.0 perf-max-train-path-budget-increase-ms=5.0 perf-min-train-path-drop-ms=1.0
perf-step-duration-improvement-margin-ms=0.2 perf-min-dispatch-shard-shell-drop-ms=1.0
perf-max-remainder-budget-increase-ms=2.0 perf-max-decoder-layer-shell-budget-increase-ms=2.0
perf-min-decoder-layer-shell-drop-ms=1.0 perf-aggregation=history-window perf-history-aggregation=median
perf-history-step-start=10 perf-history-step-end=18 perf-history-min-points=5 perf-wandb-entity=marin-community perf-wandb-project=marin
keep-iterations=200""".split():
    name, value = word.split("=")
    if not re.search(rf"--{name} [A-Z]+ [^()]*(\([^()]*\) )?[^()]*\(default: {re.escape(value)}\)", text): bad.append(word)
for name in """iterations prompt-file workdir codex-bin codex-profile search show-file-updates directive directive-file directive-preset
post-check resilient allow-dirty allow-no-commit hold-dev-tpu dev-tpu-fallback-cluster dev-tpu-name dev-tpu-type
dev-tpu-allocate-log dev-tpu-verbose""".split():
    if not re.search(rf" --{name} ", text): bad.append(name)
if "(repeatable) (repeatable)" in text: bad.append("repeatable twice")
sys.exit(" ".join(bad) or 0)
PY
}

test_no_commit_policies() {
  repo && agent 'true'
  loop 3 --iterations 2
  err_has '[gdnctl] Iteration did not produce a new commit. Use --allow-no-commit or set --no-commit-policy count-failure/continue.'
  last_line 'reason=no-commit iteration=1 rc=3'
  loop 3 --iterations 3 --no-commit-policy count-failure --max-failures 1
  err_has 'Continuing due to policy=count-failure.'
  last_line 'reason=no-commit iteration=2 rc=3'
  loop 0 --iterations 2 --no-commit-policy count-failure --max-failures -1
  loop 0 --iterations 2 --no-commit-policy continue
  last_line 'reason=completed iteration=2 rc=0'
  loop 0 --iterations 2 --allow-no-commit
  loop 3 --iterations 2 --allow-no-commit --fail-if-no-win
  last_line 'reason=no-win iteration=2 rc=3'
}

test_lint_log_accepts_what_an_iteration_can_know_of_its_commit_defect_3() {
  repo && agent 'printf "# Log\n\n### Iteration 1 - wider\n\n- Commit: this commit\n- Hypothesis: wider\n" >log.md' 'git add log.md' "$works"
  loop 0 --iterations 1 --post-check "'$GDNCTL' lint-log --log-file log.md"
  [ -z "$(git status --porcelain)" ] || fail 'the tree is dirty'
  grep -q 'Commit: this commit' log.md || fail 'the log was edited after the commit'
  agent 'sed -i "s/this commit/(pending)/" log.md' "$works"
  loop 1 --iterations 1 --post-check "'$GDNCTL' lint-log --log-file log.md"
}

test_agent_status_is_ours_and_its_work_is_kept_defect_9_10() {
  repo && agent 'echo half >>kernel.c; echo more >new.txt; exit 5'
  loop 5 --iterations 2 --codex-retries 1
  err_has '[gdnctl] codex iteration command failed (attempt 1/2, rc=5); retrying.'
  err_has '[gdnctl] codex iteration failed with exit code 5'
  last_line 'reason=agent-error iteration=1 rc=5'
  [ -z "$(git status --porcelain)" ] || fail 'half an edit is left'
  [ "$(git show "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/leftovers')":new.txt)" = more ] || fail 'leftovers'
  [ "$(git show "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/attempt-1/leftovers')":new.txt)" = more ] || fail 'first attempt'
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'HEAD'
}

test_retry_begins_on_a_clean_tree_defect_10() {
  repo && agent "if [ ! -e $WORK/once ]; then touch $WORK/once; echo half >>kernel.c; exit 1; fi" '[ -z "$(git status --porcelain)" ]' "$works"
  loop 0 --iterations 1 --codex-retries 1
  [ "$(cat kernel.c)" = 'int speed = 2;' ] || fail 'kernel'
}

test_commit_of_a_failed_attempt_is_judged_defect_9() {
  repo && agent "$works" 'exit 4'
  loop 0 --iterations 1 --codex-retries 3
  err_has 'judging the commit'
  [ "$(git log --format=%s -1)" = 'step 2' ] || fail 'commit'
}

test_post_check_that_never_ends() {
  repo && agent "$works"
  loop 124 --iterations 1 --post-check "setsid sleep 300 & echo \$! >$WORK/pid; sleep 300" --post-check-timeout 1
  err_has 'ran longer than 1.0 s'
  last_line 'reason=post-check iteration=1 rc=124'
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'it was kept'
  ! kill -0 "$(cat "$WORK/pid")" 2>/dev/null || fail 'something of it runs on'
}

test_a_failing_check_shows_its_first_failing_case_and_not_all_it_prints() {
  repo && agent "$works"
  local check='for i in $(seq 500); do echo "row $i"; done; echo "FAILED t.py::test_b - AssertionError: 1 != 2"; seq 100; exit 1'
  loop 1 --iterations 1 --post-check "$check"
  err_has '  FAILED t.py::test_b - AssertionError: 1 != 2'
  err_has "all of it: $PWD/$logs/iteration-001-post-check-1.log"
  err_has "more output of this check: $PWD/$logs/iteration-001-post-check-1.log"
  [ "$(grep -c '^row ' "$WORK/err")" = 20 ] || fail 'not the first 20 lines'
  [ "$(wc -l <"$WORK/err")" -lt 45 ] || fail 'all of its output is shown'
  [ "$(wc -l <$logs/iteration-001-post-check-1.log)" = 601 ] || fail 'lines are missing in its log'
}

test_post_check_status_and_bad_commit_taken_back_defect_8() {
  repo && agent "$works"
  loop 6 --iterations 2 --post-check 'grep -q speed kernel.c' --post-check 'exit 6' --post-check 'touch never' --post-check-retries 1
  err_has '[gdnctl] post-check failed (attempt 1/2) for command: exit 6'
  err_has '[gdnctl] post-check failed. Use --post-check-policy count-failure/continue to avoid exiting.'
  last_line 'reason=post-check iteration=1 rc=6'
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'the bad commit is in place'
  [ ! -e never ] || fail 'a check ran after one that failed'
  [ "$(git show "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/head')":kernel.c)" = 'int speed = 2;' ] || fail 'ref'
  loop 0 --iterations 2 --post-check false --post-check-policy count-failure --max-failures 2
  err_has 'Continuing due to policy=count-failure.'
  loop 1 --iterations 3 --post-check false --post-check-policy count-failure --max-failures 1
  last_line 'reason=post-check iteration=2 rc=1'
  loop 0 --iterations 2 --post-check false --post-check-policy continue
}

test_protected_path_ends_the_loop_with_7() {
  repo && printf '[targets.x]\ntest = ["true"]\nprotected = ["tests/**"]\n' >gdnctl.toml && printf 'target = "x"\n' | cat - gdnctl.toml >t && mv t gdnctl.toml
  mkdir tests && echo 1 >tests/a && git add . && git commit -qm tests
  agent 'echo 2 >tests/a; git commit -qam cheat'
  loop 7 --iterations 2
  err_has 'tests/a'
  last_line 'reason=protected iteration=1 rc=7'
  [ "$(git log --format=%s -1)" = tests ] || fail 'the change is in place'
  grep -q '^+2' $logs/iteration-001-protected.diff || fail 'no diff'
  loop 7 --iterations 2 --protected-policy count-failure
  err_lacks Continuing
  last_line 'reason=protected iteration=1 rc=7'
  loop 0 --iterations 2 --protected-policy count-failure --max-failures -1
  err_has 'Continuing due to policy=count-failure.'
}

test_worktree_lands_accepted_work_and_leaves_the_checkout_alone() {
  repo && agent "$works" && echo mine >mine.txt
  loop 0 --iterations 2 --isolation worktree
  [ "$(git log --format=%s -1)" = 'step 3' ] || fail 'commits'
  [ "$(cat kernel.c) $(cat mine.txt)" = 'int speed = 3; mine' ] || fail 'files'
  agent 'touch left; exit 9'
  loop 9 --iterations 1 --isolation worktree
  [ ! -e left ] || fail 'left'
}

test_budget_uses_a_worktree_and_names_itself() {
  repo && agent "$works"
  loop 0 --iterations 5 --plateau 2
  last_line 'reason=plateau iteration=2 rc=0'
  loop 0 --iterations 5 --max-wall 1d
  loop 2 --iterations 5 --max-wall soon
}

test_resume_goes_on_and_total_is_the_runs() {
  repo && agent "$works"
  loop 0 --iterations 1
  loop 0 --iterations 3 --resume
  last_line 'reason=completed iteration=3 rc=0'
  [ "$(git rev-list --count HEAD)" = 4 ] || fail 'commits'
  loop 0 --iterations 3 --resume
  last_line 'reason=completed iteration=3 rc=0'
  [ "$(git rev-list --count HEAD)" = 4 ] || fail 'nothing was left to do'
  loop 0 --iterations 1
  ls $logs/previous/*/iteration-003-prompt.txt >/dev/null || fail 'earlier files'
}

test_resilient_shows_what_it_rewrites() {
  repo && agent 'exit 1'
  loop 0 --iterations 1 --resilient
  grep -Eq '^\[gdnctl\] resilient mode active: [0-9]+ options changed$' "$WORK/err" || fail 'how many'
  grep -Eq '^\[gdnctl\] [0-9:+]{14} --max-failures 0 -> -1$' "$WORK/err" || fail 'not one line each'
  [ "$(grep -c ' -> ' "$WORK/err")" = "$(sed -n 's/.*active: \([0-9]*\) .*/\1/p' "$WORK/err")" ] || fail 'another number'
  [ "$(grep -c 'retrying' "$WORK/err")" = 2 ] || fail 'retries'
}

test_options_that_change_nothing_are_told() {
  repo && agent "$works"
  loop 0 --iterations 1 --allow-dirty --dirty-policy stash --hillclimb-log-file nope.md --worktree-link .venv
  err_has ' --allow-dirty: nothing is stashed, --dirty-policy is not used'
  err_has ' --hillclimb-log-file has no effect: only runs with --validation-*, --perf-* or --stamp-mode write the log'
  err_has ' --worktree-link .venv has no effect: iterations work in place'
  loop 0 --iterations 1 --isolation worktree --worktree-link .venv --resilient --allow-dirty
  err_has " --worktree-link .venv: $PWD/.venv does not exist"
  err_lacks 'has no effect'
}

test_agent_program_that_is_not_there_has_a_hint() {
  repo && printf '#!/bin/sh\n' >my-agent.sh
  loop 0 --iterations 2 --resilient --agent-command ./my-agent.sh
  [ "$(grep -c 'hint: exit status 127: the shell could not find the program. Commit the program' "$WORK/err")" = 1 ] || fail 'no hint, or many'
  git add my-agent.sh && git commit -qm agent
  loop 126 --iterations 1 --isolation worktree --agent-command ./my-agent.sh
  err_has 'hint: exit status 126: the shell is not allowed to run it (chmod +x). '
  loop 3 --iterations 1 --agent-command 'exit 3'
  err_lacks 'hint: exit status'
}

test_log_directory_of_somebody_else() {
  [ "$(id -u)" = 0 ] || skip 'only root can make one'
  repo && agent "$works" && mkdir "$WORK/logs" && chown 12345 "$WORK/logs"
  loop 8 --iterations 1 --log-dir "$WORK/logs"
  err_has 'it belongs to user 12345, not to user 0'
  err_has 'hint: choose another log directory with --log-dir'
}

test_json_summary_is_all_there_is_on_stdout() {
  repo && agent "$works"
  loop 0 --iterations 2 --json
  python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); assert list(d)[0]=="schema" and d["schema"]=="gdnctl.codex-loop/1" and d["outcomes"]=={"accepted":2} and d["reason"]=="completed", d' "$WORK/out" || fail json
}

test_dry_run_shows_and_does_nothing() {
  repo && agent 'touch ran'
  loop 0 --iterations 2 --dry-run --directive X
  out_has "$WORK/agent"
  out_has 'It 1/2 @'
  [ ! -e ran ] && [ ! -e .agents ] || fail 'something was done'
}

test_paths_with_blanks_and_not_ascii() {
  mkdir 'a b é' && cd 'a b é' && repo && agent "$works"
  loop 0 --iterations 1 --log-dir 'lo gs/ü'
  [ -s 'lo gs/ü/iteration-001-prompt.txt' ] || fail 'prompt'
  [ -z "$(git status --porcelain)" ] || fail 'the log directory makes the tree dirty'
}

test_large_prompt_reaches_the_agent() {
  repo && head -c 1048576 /dev/zero | tr '\0' x >scripts/gdn/codex_iteration_prompt.md && git commit -qam prompt
  agent "[ \${#prompt} = 1048576 ]" "$works"
  loop 0 --iterations 1
}

test_each_iteration_is_in_the_ledger_and_the_next_one_is_told() {
  repo && agent "$works"
  loop 0 --iterations 2 --isolation worktree
  [ "$(grep -c '"schema"\|"iteration"' $logs/ledger.jsonl)" = 2 ] || fail "ledger: $(cat $logs/ledger.jsonl)"
  grep -q '"iteration":2' $logs/ledger.jsonl || fail 'the second is not in it'
  grep -q 'accepted' $logs/iteration-002-prompt.txt || fail 'the second was told nothing of the first'
}

test_a_target_without_a_test_cannot_validate_and_nothing_is_touched() {
  repo && agent "$works"
  printf '[targets.bare]\nprofile = "true"\n' >gdnctl.toml
  loop 2 --iterations 1 --target bare --validation-mode required
  err_has 'has no test'
  loop 2 --iterations 1 --target bare --perf-pairs 9
  err_has 'has no test'  # also an option that is given its default asks for gates
  [ ! -e .agents ] || fail 'something was made'
}

test_a_run_that_nothing_checks_says_so_first() {
  repo && agent "$works"
  loop 0 --iterations 1
  [[ $(head -n 1 "$WORK/err") == *' nothing checks this run: every commit is kept'* ]] || fail 'not its first line'
  expect 0 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --dry-run
  err_has 'nothing checks this run'
  loop 0 --iterations 1 --post-check true
  err_lacks 'nothing checks this run'
}
