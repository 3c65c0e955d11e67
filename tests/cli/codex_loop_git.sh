# codex-loop and the user's git: settings that hide files, what an agent changes in git itself, locks of living programs.
. "$REPO/tests/support/loop_repo.sh"
same() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
subjects() { git log --format=%s | tr '\n' ' '; }

# ---- settings that change what git shows

mine() { mkdir -p notes && echo mine >notes/plan.md && echo mine >results.csv; }
is_mine() { same "$1" "$(cat notes/plan.md results.csv 2>&1)" $'mine\nmine'; }

test_untracked_files_that_a_setting_hides_stay() {
  repo && git config --global status.showUntrackedFiles no && mine
  agent "touch $WORK/ran" "$works"
  loop 2 --iterations 1 --isolation inplace
  err_has 'Working tree is dirty before starting the iteration'
  [ ! -e "$WORK/ran" ] || fail 'an agent ran'
  is_mine refused
  agent "$works"
  loop 1 --iterations 1 --isolation inplace --dirty-policy stash --post-check false
  is_mine 'failed check'
  agent "[ -e $WORK/once ] || { touch $WORK/once; exit 1; }" "$works"
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash --codex-retries 1
  is_mine retry
  loop 0 --iterations 1 --isolation worktree
  is_mine worktree
  same stashes "$(git stash list)" ''
}

# ---- what an agent changes in git itself

# Whatever the user's git would show or run, as text.
shape() {
  cat .git/config .git/info/exclude .git/info/attributes .git/info/grafts .git/shallow .git/objects/info/alternates 2>&1
  ls .git/hooks .git/config.worktree 2>&1 | grep -v sample
  git replace -l
  git ls-files -v
  cat "$HOME/.gitconfig" "$XDG_CONFIG_HOME/git/config" 2>&1
}
harms=(
  'git replace HEAD:kernel.c "$(echo x | git hash-object -w --stdin)"'
  'git config core.worktree /nowhere'
  'git config core.hooksPath /tmp; git config alias.st "!false"; git config url.https://evil/.insteadOf https://'
  'git config core.excludesFile /tmp/x; git config core.attributesFile /tmp/y; git config include.path /tmp/z'
  'd=$(git rev-parse --git-common-dir); echo "* binary" >$d/info/attributes; git rev-parse HEAD >$d/info/grafts; echo "*" >>$d/info/exclude'
  'd=$(git rev-parse --git-common-dir); git rev-parse HEAD >$d/shallow; echo x >$d/hooks/post-checkout; chmod +x $d/hooks/post-checkout'
  'git -C "$repo" config extensions.worktreeConfig true; git -C "$repo" config --worktree core.sparseCheckout true'
  'git -C "$repo" update-index --assume-unchanged user.c'
)

test_what_an_agent_changes_in_git_is_put_back() {
  local how harm before
  for how in worktree inplace stash; do
    for harm in "${harms[@]}"; do
      rm -rf "$WORK/cwd" && mkdir "$WORK/cwd" && cd "$WORK/cwd" && echo user >user.c && repo
      git config --global --unset-all alias.st || true
      git config user.name t && echo '/.agents/logs/gdn_codex_loop/' >>.git/info/exclude
      before=$(shape)
      agent "repo=$PWD" "$works" "$harm"
      case $how in
        stash) echo mine >mine.txt && loop 0 --iterations 1 --isolation inplace --dirty-policy stash && same mine "$(cat mine.txt)" mine ;;
        *) loop 0 --iterations 1 --isolation $how ;;
      esac
      same "$how: $harm" "$(shape)" "$before"
      same "$how: $harm" "$(subjects)" 'step 2 base '
      err_has "git's settings were changed while the agent worked, and are put back: "
      git fsck --no-dangling >"$WORK/fsck" 2>&1 || fail "$(cat "$WORK/fsck")"
    done
  done
}

test_what_was_found_is_kept_and_named() {
  repo && agent "$works" 'git config alias.st "!false"; git replace HEAD:kernel.c "$(echo other | git hash-object -w --stdin)"'
  loop 0 --iterations 1 --isolation worktree
  local kept
  kept=$(sed -n 's/.*If you made these changes, copies are in //p' "$WORK/err")
  same alias "$(git config --file "$kept/config" alias.st)" '!false'
  same replacement "$(git cat-file blob "$(git for-each-ref --format='%(objectname)' 'refs/gdnctl-others/*/replace/**')")" other
  same show "$(git show HEAD:kernel.c)" 'int speed = 2;'
  expect 0 "$GDNCTL" loop-explain 1
}

test_a_check_that_runs_the_agents_code_changes_nothing_in_git_either() {
  repo && agent "echo 'git config alias.st x; git replace HEAD:kernel.c HEAD:sh.sh' >sh.sh" 'git add sh.sh' "$works"
  loop 0 --iterations 1 --isolation worktree --post-check 'sh sh.sh'
  same replacements "$(git replace -l)$(git config alias.st)" ''
  same commits "$(subjects)" 'step 2 base '
}

test_what_a_killed_run_could_not_put_back_is_put_back_by_the_next() {
  repo && agent "[ -e $WORK/once ] || { git config alias.st x; git config core.worktree /nowhere; git replace HEAD:kernel.c \$(echo x | git hash-object -w --stdin); touch $WORK/once; sleep 60; }" "$works"
  "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --retry-sleep-seconds 0 --iterations 1 \
    --isolation worktree >"$WORK/out" 2>"$WORK/first" &
  local loop=$!
  for _ in $(seq 200); do [ ! -e "$WORK/once" ] || break; sleep 0.1; done
  kill -9 $loop
  wait $loop 2>/dev/null
  same 'the agent changed it' "$(git config --file .git/config alias.st)" x
  loop 0 --iterations 1 --resume
  same replacements "$(git replace -l)$(git config alias.st)" ''
  err_has 'are put back: alias.st, core.worktree, refs/replace/'
  same commits "$(subjects)" 'step 2 base '
  ls .git/gdnctl-settings/before-* 2>/dev/null && fail 'the copy is left'
  return 0
}

test_files_outside_the_repository_are_reported_and_left() {
  repo && agent "$works" 'git config --global alias.st "!false"'
  git config --global alias.ll log
  loop 0 --iterations 1 --isolation worktree
  same alias "$(git config --global alias.st)" '!false'
  err_has "settings outside the repository were changed while the agent worked, and are not put back: alias.st in $GIT_CONFIG_GLOBAL"
  same before "$(git config --file "$(echo .git/gdnctl-settings/*/before-*)" --list)" "$(git config --global --list | grep -v alias.st)"
  same subjects "$(subjects)" 'step 2 base '
}

# An interrupted run, what the user changes, and the rest of the run.
test_what_the_user_changes_between_sessions_stays() {
  repo && agent "[ -e $WORK/once ] || { git config alias.bad x; touch $WORK/once; sleep 60; }" "$works"
  local signal
  for signal in INT KILL; do
    rm -f "$WORK/once"
    launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --retry-sleep-seconds 0 \
      --iterations 1 --isolation worktree
    for _ in $(seq 200); do [ ! -e "$WORK/once" ] || break; sleep 0.1; done
    kill -$signal $pid
    wait $pid 2>/dev/null
    same "exit code after $signal" $? $([ $signal = INT ] && echo 130 || echo 137)
    [ $signal = INT ] || find .agents/logs -type f -exec touch -d '-1 minute' {} +
    git config alias.mine status && echo mine >.git/hooks/pre-push
    loop 0 --iterations 1 --resume
    same "alias after $signal" "$(git config alias.mine)" status
    same "hook after $signal" "$(cat .git/hooks/pre-push)" mine
    ls .git/gdnctl-settings/before-* 2>/dev/null && fail 'the copy is left'
    rm .git/hooks/pre-push && git config --remove-section alias
  done
  err_has "git's settings were changed after the run was interrupted, and are not put back: alias.bad, alias.mine, hooks/pre-push"
}

test_what_the_user_changes_between_iterations_stays() {
  repo && agent "$works"
  loop 0 --iterations 1 --isolation worktree
  git config alias.st status && loop 0 --iterations 1 --isolation worktree
  same alias "$(git config alias.st)" status
  grep 'put back' "$WORK/err" && fail 'nobody changed anything'
  return 0
}

# ---- repositories and branches

test_worktree_of_a_bare_repository_with_its_own_worktree_config() {
  repo && git clone -q --bare . "$WORK/proj/.git" && cd "$WORK/proj" && git worktree add -q wt main 2>/dev/null && cd wt
  git sparse-checkout set --no-cone '/*'
  same 'core.bare' "$(git config --file ../.git/config.worktree core.bare)" true
  agent "$works"
  loop 0 --iterations 2 --isolation worktree
  loop 0 --iterations 1 --isolation inplace
  same commits "$(git log --format=%s main | tr '\n' ' ')" 'step 4 step 3 step 2 base '
  same status "$(git status --porcelain)" ''
}

test_commit_that_the_user_amends_meanwhile_gets_the_work_on_top() {
  repo && agent "git -C $PWD commit -q --amend --allow-empty -m amended" "$works"
  loop 0 --iterations 1 --isolation worktree
  err_has 'the branch moved to'
  same commits "$(subjects)" 'step 2 amended '
  agent "git -C $PWD reset -q --hard HEAD~" 'echo other >other.c; git add other.c; git commit -qm other'
  loop 0 --iterations 1 --isolation worktree
  same commits "$(subjects)" 'other amended '
}

# ---- locks

# A program that is not called git has the lock, or has closed it, and works in the folder or elsewhere.
holder() {  # CODE
  python3 -c "$1
import time
time.sleep(60)" &
  holder=$!
  for _ in $(seq 100); do [ ! -e .git/index.lock ] || return 0; sleep 0.1; done
  fail 'no lock'
}

test_lock_of_a_living_program_is_neither_removed_nor_fatal_for_the_work() {
  local code
  for code in 'f = open(".git/index.lock", "x")' 'open(".git/index.lock", "x").close()' \
    'import os; open(".git/index.lock", "x").close(); os.chdir("/")' \
    'import os; f = open(".git/index.lock", "x"); os.utime(".git/index.lock", (1, 1)); os.chdir("/")' \
    'import os; os.chdir(".git"); open("index.lock", "x").close(); os.utime("index.lock", (1, 1))'; do
    rm -rf "$WORK/cwd" && mkdir "$WORK/cwd" && cd "$WORK/cwd" && repo
    echo '*.dat' >.gitignore && git add . && git commit -qm ignore && echo mine >out.dat
    agent 'echo theirs >out.dat; git add -f out.dat' "$works"
    holder "$code"
    loop 2 --iterations 1 --isolation worktree
    [ -e .git/index.lock ] || fail "removed: $code"
    kill $holder
    wait $holder 2>/dev/null
    rm .git/index.lock
    err_has 'index.lock'
    same mine "$(cat out.dat) $(cat kernel.c)" 'mine int speed = 1;'
    same status "$(git status --porcelain)" ''
    same commits "$(subjects)" 'ignore base '
    same work "$(git show "$(git for-each-ref --format='%(refname)' 'refs/gdnctl/*/iter-001/head')":kernel.c)" 'int speed = 3;'
  done
}

test_lock_that_an_agent_left_that_was_stopped_is_removed_at_once() {
  repo && agent "[ -e $WORK/once ] || { touch $WORK/once .git/index.lock; exec sleep 60; }" "$works"
  loop 0 --iterations 1 --isolation inplace --codex-timeout-seconds 2 --codex-retries 1
  err_has 'removing '
  same commits "$(subjects)" 'step 2 base '
}
