# codex-loop among people, strange repositories and broken surroundings: nothing is lost, the words are clear.
. "$REPO/tests/support/loop_repo.sh"
repo() {  # a repository with a kernel, and a script that is the agent
  git init -q . && printf 'int speed = 1;\n' >kernel.c && printf 'It {{ITERATION}}\n' >prompt.md && git add . && git commit -qm base
  base=$(git rev-parse HEAD)
}
works='n=$(($(git rev-list --count HEAD) + 1)); echo "int speed = $n;" >kernel.c; git commit -qm "step $n" kernel.c'
loop() {  # CODE OPTION...
  local want=$1
  shift
  expect "$want" "${as[@]}" "$GDNCTL" codex-loop --prompt-file prompt.md --agent command --agent-command "$WORK/agent" \
    --sleep-seconds 0 --retry-sleep-seconds 0 --iterations 1 "$@"
}
as=()
same() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
ref() { git for-each-ref --format='%(refname)' "refs/gdnctl/*/$1"; }
last_ref() { git rev-parse "refs/gdnctl/$(sed -n '1s/.*"run":"\([^"]*\)".*/\1/p' $logs/journal.jsonl)/$1"; }  # of the last run
files() { git ls-tree -r -z --name-only "$1" | tr '\0' '|'; }

# ---- two at once

test_two_loops_at_once_on_a_repository_or_a_log_directory() {
  repo && git worktree add -q "$WORK/linked" && git init -q "$WORK/other" && cp prompt.md "$WORK/other" &&
    git -C "$WORK/other" add . && git -C "$WORK/other" commit -qm other
  agent "touch $WORK/running; while [ ! -e $WORK/go ]; do sleep 0.05; done" "$works"
  "$GDNCTL" codex-loop --prompt-file prompt.md --agent command --agent-command "$WORK/agent" --iterations 1 --isolation worktree 2>"$WORK/first" &
  until [ -e "$WORK/running" ]; do sleep 0.05; done
  loop 7 --isolation inplace
  err_has 'another codex-loop is running with the log directory'
  [ "$(grep -oF "$logs" "$WORK/err" | wc -l)" = 1 ] || fail 'the directory is named twice'
  loop 7 --log-dir "$WORK/logs2" --isolation inplace
  err_has 'another codex-loop is running on the repository of'
  err_has 'hint: '
  (cd "$WORK/linked" && loop 7 --isolation worktree) || exit 1
  err_has 'another codex-loop is running on the repository of'
  (cd "$WORK/other" && loop 7 --log-dir "$WORK/cwd/$logs") || exit 1
  err_has 'another codex-loop is running with the log directory'
  touch "$WORK/go"
  wait $! || fail 'the first loop'
  same commits "$(git log --format=%s | head -1)" 'step 2'
}

# ---- disks

test_read_only_log_directory_and_repository() {
  repo && agent "touch $WORK/ran" "$works" && mkdir "$WORK/logs" && powerless
  chown -R 65534:65534 "$WORK" 2>/dev/null
  chmod 500 "$WORK/logs"
  loop 8 --log-dir "$WORK/logs"
  err_has "$WORK/logs"
  chmod 500 .git
  loop 8 --log-dir "$WORK/logs2"
  err_has "$WORK/cwd/.git"
  chmod 700 .git && chmod -R a-w .git/objects .git/refs
  loop 8 --log-dir "$WORK/logs3"
  err_has 'make the repository writable'
  [ ! -e "$WORK/ran" ] || fail 'an agent ran'
  chmod -R u+w .git && same 'the tree' "$("${as[@]}" git -c safe.directory='*' status --porcelain)" ''
}

test_read_only_folder_in_the_tree_leaves_no_half_of_a_landing() {
  mkdir -p dir && echo 1 >dir/a && repo && agent 'echo 2 >kernel.c; echo 2 >dir/a; git commit -qam both'
  powerless
  chown -R 65534:65534 "$WORK" 2>/dev/null
  chmod 500 dir
  loop 8 --isolation worktree
  err_has 'Permission denied'
  err_has 'iteration 1 is unfinished: --resume finishes or repeats it'
  same head "$("${as[@]}" git rev-parse HEAD)" "$base"
  same 'the tree' "$("${as[@]}" git status --porcelain)" ''
  chmod 700 dir
  loop 0 --isolation worktree --resume
  same landed "$(cat dir/a kernel.c | tr '\n' ' ')" '2 2 '
}

test_read_only_files_are_changed_all_the_same() {
  repo && chmod 444 kernel.c && agent 'rm kernel.c' "$works"
  loop 0 --iterations 2 --isolation worktree
  same kernel "$(cat kernel.c)" 'int speed = 3;'
}

# ---- somebody else at work

test_branch_moved_by_someone_else_in_a_worktree_is_followed() {
  repo && agent "git -C $WORK/cwd commit -q --allow-empty -m theirs" "$works"
  loop 0 --isolation worktree
  err_has 'the branch moved to'
  same commits "$(git log --format=%s | tr '\n' ' ')" 'step 2 theirs base '
  same 'the tree' "$(git status --porcelain)" ''
}

test_branch_moved_to_what_conflicts_keeps_both() {
  repo && agent "(cd $WORK/cwd && echo theirs >kernel.c && git commit -qam theirs)" "$works"
  loop 2 --isolation worktree
  err_has 'conflicts with the current branch'
  last_line 'reason=landing iteration=1 rc=2'
  same kernel "$(cat kernel.c)" theirs
  same 'kept work' "$(git show "$(ref iter-001/head)":kernel.c)" 'int speed = 2;'
}

test_branch_moved_in_place_while_a_check_ran_is_left_alone() {
  repo && agent "$works"
  loop 1 --post-check 'git commit -q --allow-empty -m theirs; false'
  err_has 'the branch was moved by someone else'
  same commits "$(git log --format=%s | tr '\n' ' ')" 'theirs step 2 base '
  same 'kept work' "$(git show "$(ref iter-001/head)":kernel.c)" 'int speed = 2;'
}

test_uncommitted_work_and_ignored_files_in_the_way_of_a_landing_stay() {
  repo && echo '*.dat' >.gitignore && git add . && git commit -qm ignore && echo mine >out.dat
  agent 'echo theirs >out.dat; git add -f out.dat; git commit -qm data'
  loop 2 --isolation worktree
  err_has 'out.dat'
  same 'ignored file' "$(cat out.dat)" mine
  same 'kept work' "$(git show "$(ref iter-001/head)":out.dat)" theirs
  rm out.dat && echo mine >kernel.c && agent "$works"
  loop 2 --isolation worktree
  err_has 'in the way: kernel.c'
  same 'uncommitted work' "$(cat kernel.c)" mine
}

test_worktree_whose_making_was_killed_is_made_again() {
  repo && agent "$works"
  loop 0 --isolation worktree
  rm -r "$XDG_STATE_HOME"/gdnctl/worktrees/* && echo initializing >"$(echo .git/worktrees/*)/locked"
  loop 0 --isolation worktree
  same commits "$(git log --format=%s | head -1)" 'step 3'
}

test_index_lock_of_a_killed_git_is_no_end() {
  repo && agent "$works" && touch .git/index.lock
  loop 2
  err_has 'another program may be changing the index of '
  err_has 'if there is none: rm '
  [ -e .git/index.lock ] || fail 'its owner may be alive'
  touch -d '-11 minutes' .git/index.lock
  loop 0
  err_has 'index.lock'
  same commits "$(git log --format=%s | head -1)" 'step 2'
}

# ---- an operation that is not finished

test_merge_and_rebase_in_progress_are_refused_before_an_agent_runs() {
  repo && agent "touch $WORK/ran" "$works"
  git checkout -q -b side && echo side >side.c && git add . && git commit -qm side && git checkout -q main
  git merge -q --no-ff --no-commit side >/dev/null
  for how in inplace worktree; do
    loop 2 --isolation $how --dirty-policy stash
    err_has 'a merge is in progress'
  done
  [ -e .git/MERGE_HEAD ] && [ -e side.c ] || fail 'the merge is gone'
  git merge --abort
  git -c sequence.editor='sed -i s/^pick/edit/' rebase -q -i --root 2>/dev/null
  loop 2 --isolation worktree
  err_has 'a rebase is in progress'
  [ -d .git/rebase-merge ] || fail 'the rebase is gone'
  [ ! -e "$WORK/ran" ] || fail 'an agent ran'
}

test_merge_that_the_agent_left_unfinished() {
  repo && git checkout -q -b side && echo side >kernel.c && git commit -qam side && git checkout -q main
  agent "$works" 'git merge side || true'
  loop 0 --isolation worktree
  same commits "$(git log --format=%s | head -1)" 'step 2'
  same 'the tree' "$(git status --porcelain)" ''
  git show "$(ref iter-001/leftovers)":kernel.c | grep -q '<<<<<<<' || fail 'the conflict is not kept'
}

# ---- repositories of all kinds

test_repository_without_a_commit() {
  git init -q . && echo go >prompt.md && agent "touch $WORK/ran"
  loop 2
  err_has 'no commit yet'
  loop 2 --isolation worktree
  [ ! -e "$WORK/ran" ] || fail 'an agent ran'
}

test_detached_head() {
  repo && agent "$works" && git checkout -q --detach && git branch -D main -q
  loop 0 --isolation inplace
  loop 0 --isolation worktree
  same commits "$(git log --format=%s | tr '\n' ' ')" 'step 3 step 2 base '
  same branches "$(git branch --format='%(refname)' | grep -c refs)" 0
}

test_linked_worktree_as_the_checkout() {
  repo && agent "$works" && git worktree add -q "$WORK/linked" -b topic && cd "$WORK/linked" && echo mine >mine.txt
  loop 0 --isolation inplace --dirty-policy stash
  loop 0 --isolation worktree
  same topic "$(git log --format=%s topic | head -1)" 'step 3'
  same main "$(git rev-parse main)" "$base"
  same status "$(git status --porcelain)" '?? mine.txt'
  same stashes "$(git stash list)" ''
}

test_sparse_checkout_loses_nothing() {
  mkdir -p a b && echo 1 >a/x && echo 1 >b/x && repo && git sparse-checkout set a && [ ! -e b ]
  agent "$works" 'echo left >>a/x'
  echo mine >a/mine
  loop 0 --isolation worktree
  loop 0 --isolation inplace --dirty-policy stash
  same files "$(files HEAD)" 'a/x|b/x|kernel.c|prompt.md|'
  same mine "$(cat a/mine)" mine
  [ ! -e b ] || fail 'it is not sparse any more'
  same leftovers "$(git show "$(ref iter-001/leftovers | head -1)":a/x)" $'1\nleft'
}

test_submodules_dirty_and_moved() {
  git init -q "$WORK/lib" && (cd "$WORK/lib" && echo 1 >f && git add . && git commit -qm lib)
  repo && git -c protocol.file.allow=always submodule --quiet add "$WORK/lib" lib && git commit -qm submodule
  agent 'cd lib' 'echo 2 >f' 'git -c user.name=A -c user.email=a@example.org commit -qam deeper' 'cd ..' 'git commit -qam moved'
  loop 0 --isolation worktree
  same pointer "$(git log --format=%s -1 -- lib)" moved
  git -C lib cat-file -e "$(git rev-parse HEAD:lib)" || fail 'the commit of the submodule is lost'
  git submodule --quiet update
  same 'in the submodule' "$(cat lib/f)" 2
  echo mine >lib/f && agent "$works"
  loop 2 --isolation inplace
  err_has 'Working tree is dirty'
  loop 2 --isolation inplace --dirty-policy stash
  err_has 'git cannot stash lib'
  loop 0 --isolation worktree
  same 'in the submodule' "$(cat lib/f)" mine
}

test_untracked_repository_inside() {
  repo && git init -q inner && (cd inner && echo 1 >f && git add . && git commit -qm inner) && agent "$works"
  loop 2 --isolation inplace --dirty-policy stash
  err_has 'git cannot stash inner/'
  same inner "$(cat inner/f)" 1
  agent "$works" 'git init -q made; (cd made; echo 2 >f; git add .; git -c user.name=A -c user.email=a@b commit -qm made)'
  loop 0 --isolation worktree
  same 'made inside' "$(cat $logs/iteration-001-repositories/made/f)" 2
  same inner "$(cat inner/f)" 1
}

# ---- files of all kinds

test_names_with_newlines_quotes_blanks_and_no_text() {
  repo
  agent 'for n in $'"'"'a\nb'"'"' "q\"uote" " blank " $'"'"'\xff\xfe'"'"' "-dash" ":(top)x" "*"; do echo 1 >"./$n"; done' \
    'git add -A; git commit -qm names; for n in $'"'"'left\nover'"'"' $'"'"'l\xff'"'"'; do echo 2 >"./$n"; done'
  for how in worktree inplace; do
    loop 0 --isolation $how
    same files "$(git ls-tree -r --name-only -z HEAD | tr '\0' '\n' | wc -l)" 10
    same leftovers "$(git show "$(last_ref iter-001/leftovers):"$'left\nover')" 2
    [ -s $logs/iteration-001-leftovers.patch ] || fail patch
    git apply -R --check --binary $logs/iteration-001-leftovers.patch 2>/dev/null || git apply --check --binary $logs/iteration-001-leftovers.patch || fail 'the patch does not apply'
    git reset -q --hard "$base" && git clean -qfd
  done
  expect 0 "$GDNCTL" loop-status --json
  expect 0 "$GDNCTL" loop-explain 1
}

test_files_become_folders_links_loop_and_modes_change() {
  mkdir d && echo 1 >d/x && echo 1 >f && echo 1 >run.sh && repo
  agent 'rm -r d f; echo 2 >d; mkdir f; echo 2 >f/x; ln -s loop loop; chmod +x run.sh; git add -A; git commit -qm shapes' \
    'rm -r f d; ln -s . f; mkdir d; ln -s ../d d/self; chmod -x run.sh; echo left >>kernel.c'
  loop 0 --isolation worktree
  same shapes "$(cat d) $(cat f/x) $(readlink loop) $([ -x run.sh ] && echo x)" '2 2 loop x'
  same leftovers "$(files "$(ref iter-001/leftovers)")" 'd/self|f|kernel.c|loop|prompt.md|run.sh|'
  git apply --check --binary $logs/iteration-001-leftovers.patch || fail 'the patch does not apply'
  git reset -q --hard "$base" && rm -r d && echo mine >d && rm f && ln -s . f && chmod +x run.sh && ln -s a b && ln -s b a
  agent "$works"
  loop 0 --isolation inplace --dirty-policy stash
  same mine "$(cat d) $(readlink f) $(readlink a) $(readlink b) $([ -x run.sh ] && echo x)" 'mine . b a x'
  same stashes "$(git stash list)" ''
}

test_filters_and_line_endings() {
  printf '*.txt text eol=crlf\n*.up filter=up\n' >.gitattributes && repo
  git config filter.up.clean "tr A-Z a-z" && git config filter.up.smudge "tr a-z A-Z"
  printf 'one\r\n' >a.txt && echo WORD >w.up && git add . && git commit -qm filtered
  same stored "$(git show HEAD:w.up)" word
  agent 'printf "one\r\ntwo\r\n" >a.txt; echo "MORE WORDS" >w.up; git commit -qam more' 'echo LEFT >>w.up'
  loop 0 --isolation worktree
  same stored "$(git show HEAD:w.up)" 'more words'
  same checked-out "$(cat w.up)" 'MORE WORDS'
  same endings "$(od -An -c a.txt | tr -d ' \n')" 'one\r\ntwo\r\n'
  same leftovers "$(git show "$(ref iter-001/leftovers)":w.up)" $'more words\nleft'
  echo MINE >>w.up && printf 'mine\r\n' >>a.txt && agent "$works"
  loop 0 --isolation inplace --dirty-policy stash
  same mine "$(tail -n 1 w.up)" MINE
  same stashes "$(git stash list)" ''
}

test_filter_that_is_not_there_is_an_error_that_loses_nothing() {
  echo '*.big filter=lfs' >.gitattributes && repo && echo pointer >data.big && git add . && git commit -qm big
  git config filter.lfs.clean 'no-such-program %f' && git config filter.lfs.smudge 'no-such-program %f' && git config filter.lfs.required true
  agent "$works"
  loop 2 --isolation worktree
  err_has 'no-such-program'
  err_has 'hint: a filter named in .gitattributes does not work'
  same head "$(git rev-list --count HEAD)" 2
}

test_hooks_that_fail_are_the_agents_affair() {
  repo && mkdir -p .git/hooks && printf '#!/bin/sh\necho no >&2\nexit 1\n' >.git/hooks/pre-commit && chmod +x .git/hooks/pre-commit
  cp .git/hooks/pre-commit .git/hooks/pre-merge-commit && cp .git/hooks/pre-commit .git/hooks/reference-transaction
  agent "$works"
  loop 1 --isolation worktree
  same head "$(git rev-parse HEAD)" "$base"
  rm .git/hooks/reference-transaction
  agent 'echo 2 >kernel.c' 'git commit -qam two --no-verify'
  loop 0 --isolation worktree
  same kernel "$(cat kernel.c)" 2
}

test_large_file_left_behind() {
  repo && agent "$works" 'head -c 40000000 /dev/urandom >core'
  loop 0 --isolation worktree
  same leftovers "$(git cat-file -s "$(ref iter-001/leftovers):core")" 40000000
  [ "$(du -sk $logs | cut -f1)" -lt 20000 ] || fail "the log directory has $(du -sk $logs)"
  err_has 'core'
}

test_log_directory_inside_the_tree_that_git_tracks() {
  mkdir -p logs && echo kept >logs/notes.md && repo && agent "$works" 'echo more >>logs/notes.md; git commit -qam notes'
  loop 0 --isolation inplace --log-dir logs
  same notes "$(git show HEAD:logs/notes.md)" $'kept\nmore'
  same status "$(git status --porcelain)" ''
  loop 0 --isolation worktree --log-dir logs
  same status "$(git status --porcelain)" ''
  loop 2 --isolation inplace --log-dir .
}
