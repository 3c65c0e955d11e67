# How codex-loop ends, and what becomes of the user's work: stashes, signals, errors of an iteration, STOP, the lock.
. "$REPO/tests/support/loop_repo.sh"

test_a_run_of_failures_says_so_although_it_ends_with_0_defect_25() {
  repo && agent 'exit 1'
  loop 0 --iterations 2 --max-failures -1
  err_has ' 2 of 2 iterations: 2 failed'
  last_line 'reason=completed iteration=2 rc=0'
  loop 3 --iterations 2 --max-failures -1 --fail-if-no-win --json
  grep -q '"failures":2' "$WORK/out" && grep -q '"promotions":0' "$WORK/out" || fail 'the summary counts otherwise'
  last_line 'reason=no-win iteration=2 rc=3'
}

test_dirty_tree_is_an_error_of_the_iteration() {
  repo && agent "$works" && echo mine >mine.txt
  loop 2 --iterations 1
  err_has '[gdnctl] iteration 1 raised: Working tree is dirty before starting the iteration. Commit/stash or rerun with --allow-dirty or --dirty-policy stash.'
  err_has 'changed: mine.txt'
  last_line 'reason=iteration-error iteration=1 rc=2'
  rm mine.txt && git checkout -q -b other && echo 'int other;' >kernel.c && git commit -qam other && git checkout -q main
  echo 'int main;' >kernel.c && git commit -qam main && ! git merge -q other 2>/dev/null >&2
  loop 2 --iterations 1
  err_has 'a merge is in progress'
  git merge --abort && git reset -q --hard "$base" && echo mine >mine.txt
  loop 0 --iterations 1 --allow-dirty
  [ "$(cat mine.txt)" = mine ] || fail 'mine'
  loop 0 --iterations 2 --iteration-error-policy continue
  err_has 'Continuing due to policy=continue.'
}

test_a_start_that_a_dirty_tree_refuses_leaves_the_earlier_run_in_place() {
  repo && agent "$works"
  loop 0 --iterations 1
  local journal
  journal=$(md5sum <$logs/journal.jsonl)
  echo mine >mine.txt
  loop 2 --iterations 1
  err_has '[gdnctl] iteration 1 raised: Working tree is dirty before starting the iteration. Commit/stash or rerun with --allow-dirty or --dirty-policy stash.'
  err_has 'changed: mine.txt'
  last_line 'reason=iteration-error iteration=1 rc=2'
  [ "$(md5sum <$logs/journal.jsonl)" = "$journal" ] && [ ! -e $logs/previous ] || fail 'the earlier run was moved'
  loop 0 --iterations 1 --iteration-error-policy continue
  [ -e $logs/previous ] || fail 'a run that begins moves it'
}

test_work_that_does_not_fit_any_more_stays_in_its_stash() {
  repo && agent "$works" && echo 'int mine;' >kernel.c
  loop 0 --iterations 1 --dirty-policy stash
  local stash
  stash=$(git rev-parse 'stash@{0}')
  err_has "it stays in the stash $stash"
  err_has "hint: \`cp -a $PWD/.git/gdnctl-shelf/"
  [ "$(git show "$stash:kernel.c")" = 'int mine;' ] || fail 'mine is lost'
  [ "$(cat kernel.c)" = 'int speed = 2;' ] || fail 'half of it is in the tree'
  echo 'int mine2;' >kernel.c
  loop 2 --iterations 2 --dirty-policy stash --stash-restore-policy fail
  err_has '[gdnctl] iteration 1 raised: the stash could not be restored'
  last_line 'reason=stash-restore iteration=1 rc=2'
  git stash list | grep -q 'gdnctl-codex-loop-iter-001-[0-9]*$' || fail "stashes: $(git stash list)"
  echo 'int mine3;' >kernel.c
  loop 0 --iterations 2 --dirty-policy stash --stash-restore-policy fail --iteration-error-policy continue
  [ "$(git stash list | wc -l)" = 3 ] || fail "stashes: $(git stash list)"
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
  err_has 'no longer contains the commit'
  git cat-file -e "$base" || fail 'base'
}

where() { [ "$(git symbolic-ref HEAD) $(git log --format=%s | tr '\n' ' ')" = "refs/heads/$1" ] || fail "on $(git symbolic-ref HEAD): $(git log --oneline)"; }

test_what_an_agent_does_to_the_branch_ends_with_its_iteration() {
  local harm
  for harm in 'git checkout -q -b elsewhere' 'git commit -q --amend -m changed' 'git checkout -q --detach' 'git branch -q -m trunk'; do
    mkdir w && cd w && repo && agent "case \$prompt in 'It 1/'*) $harm;; esac" "$works"
    loop 0 --iterations 2 --isolation inplace --iteration-error-policy continue
    err_has 'returning the checkout to refs/heads/main'
    where "main step 2 base "
    [ "$(cat kernel.c)" = 'int speed = 2;' ] || fail "kernel: $(cat kernel.c)"
    git diff --quiet HEAD || fail 'the tree is another'
    git log -1 "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/head')" >/dev/null || fail 'its work is lost'
    cd .. && rm -rf w
  done
}

test_a_failed_attempt_that_switched_the_branch_is_repeated_on_its_own() {
  repo && agent "[ -e $WORK/once ] || { touch $WORK/once; git checkout -q -b elsewhere; echo half >kernel.c; exit 9; }; $works"
  loop 0 --iterations 1 --isolation inplace --codex-retries 1
  where "main step 2 base "
}

test_a_run_stays_on_its_branch() {
  repo && agent "$works"
  loop 0 --iterations 1 --isolation inplace
  git checkout -q -b feature
  loop 2 --iterations 2 --isolation inplace --resume
  err_has 'the checkout is on refs/heads/feature, this run works on refs/heads/main'
  err_has 'hint: git switch main'
  where "feature step 2 base "
  rm -rf $logs && git checkout -q main
  loop 0 --iterations 1 --isolation worktree
  git checkout -q feature && echo mine >mine.txt
  loop 0 --iterations 2 --isolation worktree --resume
  where "feature step 2 base "
  [ "$(git log --format=%s main | tr '\n' ' ')" = 'step 4 step 3 step 2 base ' ] || fail "main: $(git log --oneline main)"
  [ "$(cat mine.txt)" = mine ] || fail 'mine'
}

test_stop_file_ends_after_the_iteration() {
  repo && agent "$works" "touch $PWD/$logs/STOP"
  loop 0 --iterations 5
  last_line 'reason=stop-file iteration=1 rc=0'
  # While it is there nothing begins, and nothing of the run is moved.
  loop 0 --iterations 5
  err_has "$PWD/$logs/STOP ends the run"
  last_line 'reason=stop-file iteration=0 rc=0'
  loop 0 --iterations 5 --resume
  last_line 'reason=stop-file iteration=1 rc=0'
  rm $logs/STOP && agent "$works"
  loop 0 --iterations 2 --resume
  last_line 'reason=completed iteration=2 rc=0'
}

test_where_the_work_is_that_a_signal_broke_off() {
  repo && agent "$works" "echo more >more.c; touch $WORK/running; sleep 60"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  kill -TERM $pid; wait $pid
  err_has 'its work is kept at refs/gdnctl/'
  err_has '/iter-001/attempt-1/head, refs/gdnctl/'
  expect 0 "$GDNCTL" loop-status
  out_has 'resume'
  expect 0 "$GDNCTL" loop-explain 1
  out_has '/iter-001/attempt-*'
  where "main base "
  # In a check: the commit is on the branch.
  rm -rf $logs "$WORK/running" && agent "$works"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 --post-check "touch $WORK/running; sleep 60; false"
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  kill -TERM $pid; wait $pid
  err_has "refs/heads/main has its commits up to $(git rev-parse --short=12 HEAD), which are not judged yet; git reset --keep $(git rev-parse --short=12 "$base")"
}

test_a_resumed_run_keeps_its_checks() {
  repo && agent "$works"
  loop 0 --iterations 1 --post-check true --isolation inplace
  loop 2 --iterations 2 --resume --post-check true --post-check true --isolation worktree
  err_has '--post-check true true (the run has true)'
  err_has '--isolation worktree (the run has inplace)'
  last_line 'reason=usage iteration=0 rc=2'
  loop 0 --iterations 2 --resume
  err_has 'continuing run '
  [ "$(git log --format=%s | tr '\n' ' ')" = 'step 3 step 2 base ' ] || fail 'commits'
  rm -rf $logs && loop 0 --iterations 1 --resume
  err_has 'no run to continue in '
}

test_a_run_that_was_broken_off_is_not_lost_to_a_start_that_fails() {
  repo && agent "echo half >kernel.c; touch $WORK/running; sleep 60"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 2
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  kill -9 $pid; wait $pid 2>/dev/null
  local journal
  journal=$(md5sum <$logs/journal.jsonl)
  # No agent; a dirty tree, which the agent has left.
  expect 2 "$GDNCTL" codex-loop --iterations 2 --codex-bin /nowhere/codex
  loop 2 --iterations 2
  err_has 'was interrupted in iteration 1: --resume continues it'
  last_line 'reason=config iteration=0 rc=2'
  [ "$(md5sum <$logs/journal.jsonl)" = "$journal" ] || fail 'the journal is another'
  agent "$works"
  expect 0 "$GDNCTL" codex-loop --resume --sleep-seconds 5
  where "main step 3 step 2 base "
  # One that begins all the same says so.
  agent "touch $WORK/again; sleep 60"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 2
  until [ -e "$WORK/again" ]; do sleep 0.05; done
  kill -9 $pid; wait $pid 2>/dev/null
  agent "$works"
  loop 0 --iterations 1
  err_has 'was interrupted in iteration 1 and is not continued; its work is at refs/gdnctl/'
}

test_corrupt_state_stops_with_2_and_nothing_is_rewritten() {
  repo && agent "$works"
  loop 0 --iterations 1
  echo '{' >$logs/state.json
  loop 2 --iterations 2 --resume
  loop 2 --iterations 2
  [ "$(cat $logs/state.json)" = '{' ] || fail 'rewritten'
  [ "$(git rev-list --count HEAD)" = 2 ] || fail 'an agent ran'
}

test_second_loop_gets_7() {
  repo && agent "touch $WORK/running; while [ ! -e $WORK/go ]; do sleep 0.05; done" "$works"
  "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 1 2>"$WORK/first" &
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  loop 7 --iterations 1
  err_has 'another codex-loop is running'
  loop 7 --iterations 1 --log-dir elsewhere
  touch "$WORK/go"
  wait $! || fail 'the first loop'
}

test_sigterm_ends_the_agent_restores_the_stash_and_resume_goes_on_defect_19() {
  repo && echo mine >mine.txt
  agent "if [ -e $WORK/again ]; then $works; exit 0; fi" "setsid sleep 300 & echo \$! >$WORK/pid; echo half >>kernel.c; touch $WORK/running; sleep 300"
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 2 --sleep-seconds 0 --dirty-policy stash
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
  expect 0 "$GDNCTL" codex-loop --resume
  [ "$(git log --format=%s -1) $(cat mine.txt)" = 'step 3 mine' ] || fail 'resumed'
}

test_a_signal_in_a_check_in_the_pause_and_before_a_retry_defect_19() {
  repo && agent "$works"
  for phase in check pause retry; do
    rm -f "$WORK/there"
    case $phase in
      check) set -- --post-check "echo \$\$ >$WORK/pid; touch $WORK/there; sleep 300" ;;
      pause) set -- --post-check "touch $WORK/there" --sleep-seconds 300 ;;
      retry) agent "touch $WORK/there; exit 1" && set -- --codex-retries 1 --retry-sleep-seconds 300 ;;
    esac
    local signal=TERM code=143
    [ $phase = pause ] && signal=INT code=130
    echo mine >mine.txt
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --iterations 2 --dirty-policy stash "$@"
    until [ -e "$WORK/there" ]; do sleep 0.05; done
    [ $phase = check ] || sleep 0.5
    kill -$signal $pid
    wait $pid
    [ $? = $code ] || fail "$phase: exit code"
    [ "$(cat mine.txt) $(git stash list)" = 'mine ' ] || fail "$phase: mine"
    ! kill -0 "$(cat "$WORK/pid")" 2>/dev/null || fail "$phase: the check lives on"
    rm mine.txt
  done
}
