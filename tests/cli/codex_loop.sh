# codex-loop as scripts see it: exit codes, exact texts, files, what is left in the repository.
repo() {  # a repository with a kernel, and a script that is the agent
  git init -q . && printf 'int speed = 1;\n' >kernel.c && mkdir -p scripts/gdn/session_directives
  printf 'It {{ITERATION}}/{{TOTAL_ITERATIONS}} @ {{HEAD_SHA}}\n\n\n' >scripts/gdn/codex_iteration_prompt.md
  printf 'ours\n' >scripts/gdn/session_directives/ours.md
  git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
agent() {  # LINE...: what the agent does, in the folder where it works
  { printf '#!/bin/bash\nset -e\nprompt=$(cat)\n'; printf '%s\n' "$@"; } >"$WORK/agent" && chmod +x "$WORK/agent"
}
works='n=$(($(git rev-list --count HEAD) + 1)); echo "int speed = $n;" >kernel.c; git commit -qam "step $n"'
loop() {  # CODE OPTION...
  local want=$1
  shift
  expect "$want" "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --retry-sleep-seconds 0 "$@"
}
last_line() { [ "$(tail -n 1 "$WORK/err")" = "[gdnctl] codex-loop stopped: $1" ] || fail "last line is not: $1"; }
logs=.agents/logs/gdn_codex_loop

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
  loop 2 --iterations 1 --hold-dev-tpu
  err_has '[gdnctl] error: --hold-dev-tpu requires --dev-tpu-name.'
  loop 2 --iterations 1 --directive-file no.md
  err_has "directive file not found for no.md: $PWD/no.md"
  loop 2 --iterations 1 --directive-preset nothing
  err_has 'triangular-inversion'
  loop 2 --iterations 1 --prompt-file no.md
  loop 2 --iterations 1 --dev-tpu-ready-timeout 0
  err_has '--dev-tpu-ready-timeout must be > 0.'
  expect 2 "$GDNCTL" codex-loop
  [ ! -e .agents ] || fail 'something was made'
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
  err_has 'the commit is judged'
  [ "$(git log --format=%s -1)" = 'step 2' ] || fail 'commit'
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

test_dirty_tree_is_an_error_of_the_iteration() {
  repo && agent "$works" && echo mine >mine.txt
  loop 2 --iterations 1
  err_has '[gdnctl] iteration 1 raised: Working tree is dirty before starting the iteration. Commit/stash or rerun with --allow-dirty or --dirty-policy stash.'
  last_line 'reason=iteration-error iteration=1 rc=2'
  loop 0 --iterations 1 --allow-dirty
  [ "$(cat mine.txt)" = mine ] || fail 'mine'
  loop 0 --iterations 2 --iteration-error-policy continue
  err_has 'Continuing due to policy=continue.'
}

test_stash_with_log_dir_inside_and_the_agents_own_stash_defects_11_12() {
  repo && agent 'echo tmp >tmp.txt; git stash -q -u' "$works" && echo mine >mine.txt && echo 'int mine;' >>kernel.c
  git checkout -q kernel.c && echo mine >other.txt && git add other.txt
  loop 0 --iterations 2 --dirty-policy stash
  [ "$(cat mine.txt) $(cat other.txt)" = 'mine mine' ] || fail 'mine is lost'
  [ "$(git log --format=%s -1)" = 'step 3' ] || fail 'commits'
  [ "$(git stash list | wc -l)" = 2 ] || fail "stashes: $(git stash list)"
  [ -s $logs/journal.jsonl ] || fail 'the log directory was stashed'
}

test_branch_switched_or_history_rewritten_is_an_error() {
  repo && agent 'git checkout -q -b elsewhere' "$works"
  loop 2 --iterations 1
  last_line 'reason=iteration-error iteration=1 rc=2'
  git checkout -q main && agent 'git commit -q --amend -m changed'
  loop 2 --iterations 1
  err_has 'no longer has the commit'
  git cat-file -e "$base" || fail 'base'
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
  loop 0 --iterations 2 --protected-policy count-failure --max-failures -1
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

test_stop_file_ends_after_the_iteration() {
  repo && agent "$works" "touch $PWD/$logs/STOP"
  loop 0 --iterations 5
  last_line 'reason=stop-file iteration=1 rc=0'
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

test_corrupt_state_stops_with_2_and_nothing_is_rewritten() {
  repo && agent "$works"
  loop 0 --iterations 1
  echo '{' >$logs/state.json
  loop 2 --iterations 2 --resume
  [ "$(cat $logs/state.json)" = '{' ] || fail 'rewritten'
  [ "$(git rev-list --count HEAD)" = 2 ] || fail 'an agent ran'
}

test_second_loop_gets_7() {
  repo && agent "touch $WORK/running; while [ ! -e $WORK/go ]; do sleep 0.05; done" "$works"
  "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 2>"$WORK/first" &
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  loop 7 --iterations 1
  err_has 'another codex-loop is at work'
  loop 7 --iterations 1 --log-dir elsewhere
  touch "$WORK/go"
  wait $! || fail 'the first loop'
}

test_sigterm_ends_the_agent_restores_the_stash_and_resume_goes_on_defect_19() {
  repo && echo mine >mine.txt
  agent "if [ -e $WORK/again ]; then $works; exit 0; fi" "setsid sleep 300 & echo \$! >$WORK/pid; echo half >>kernel.c; touch $WORK/running; sleep 300"
  "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 2 --sleep-seconds 0 --dirty-policy stash 2>"$WORK/err" &
  local pid=$!
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  [ ! -e mine.txt ] || fail 'not stashed'
  kill -TERM $pid
  wait $pid
  [ $? = 143 ] || fail 'exit code'
  last_line 'reason=terminated iteration=1 rc=143'
  [ "$(cat mine.txt)" = mine ] || fail 'mine'
  [ "$(git status --porcelain)" = '?? mine.txt' ] || fail 'half an edit'
  ! kill -0 "$(cat "$WORK/pid")" 2>/dev/null || fail 'a child lives on'
  touch "$WORK/again"
  loop 0 --iterations 2 --dirty-policy stash --resume
  [ "$(git log --format=%s -1) $(cat mine.txt)" = 'step 3 mine' ] || fail 'resumed'
}

test_resilient_shows_what_it_rewrites() {
  repo && agent 'exit 1'
  loop 0 --iterations 1 --resilient
  err_has '[gdnctl] resilient mode active: '
  err_has '--max-failures 0 -> -1'
  [ "$(grep -c 'retrying' "$WORK/err")" = 2 ] || fail 'retries'
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
  [ ! -e .agents ] || fail 'something was made'
}
