# codex-loop with agents that do harm, and in surroundings that are not as they should be: nothing is lost, the words are clear.
. "$REPO/tests/support/loop_repo.sh"
same() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
ref() { git for-each-ref --format='%(refname)' "refs/gdnctl/*/$1"; }
last_ref() { git rev-parse "refs/gdnctl/$(sed -n '1s/.*"run":"\([^"]*\)".*/\1/p' $logs/journal.jsonl)/$1"; }  # of the last run
subjects() { git log --format=%s | tr '\n' ' '; }
tidy_tree() { same 'the tree' "$(git status --porcelain)" "${1:-}"; }

# ---- in the repository

test_git_variables_of_the_caller_reach_neither_agent_nor_checks() {
  local how other=$WORK/other
  git init -q "$other" && git -C "$other" commit -q --allow-empty -m elsewhere
  for how in inplace worktree; do
    mkdir "$how" && cd "$how" && repo && agent "$works" "env >$WORK/agents"
    GIT_DIR=$other/.git GIT_WORK_TREE=$other GIT_INDEX_FILE=$other/index GIT_COMMON_DIR=$other/.git GIT_PREFIX=sub/ \
      GIT_OBJECT_DIRECTORY=$other/.git/objects GIT_NAMESPACE=n GIT_CONFIG_PARAMETERS="'core.bare=true'" \
      loop 0 --iterations 1 --isolation $how --agent-env GIT_DIR --post-check "env >$WORK/checks"
    same commits "$(subjects)" 'step 2 base '
    tidy_tree
    grep -hE '^GIT_(DIR|WORK_TREE|INDEX_FILE|COMMON_DIR|PREFIX|OBJECT_DIRECTORY|NAMESPACE|CONFIG_PARAMETERS)=' "$WORK/agents" "$WORK/checks" &&
      fail "$how: a child gets them"
    grep -q '^PATH=' "$WORK/agents" && grep -q '^PATH=' "$WORK/checks" || fail 'nothing was seen'
    cd ..
  done
  same 'commits of the other' "$(git -C "$other" rev-list --count --all)" 1
}

test_index_deleted() {
  repo && agent "$works" 'rm "$(git rev-parse --git-path index)"'
  loop 0 --iterations 2 --isolation worktree
  same commits "$(subjects)" 'step 3 step 2 base '
  tidy_tree
  echo mine >mine.txt
  loop 0 --iterations 2 --isolation inplace --dirty-policy stash
  same commits "$(subjects)" 'step 5 step 4 step 3 step 2 base '
  tidy_tree '?? mine.txt'
}

test_objects_that_nothing_reaches_are_collected() {
  repo && agent "$works" 'echo left >left.txt; git gc -q --prune=now; git reflog expire --expire=now --all; git gc -q --prune=now'
  echo mine >mine.txt
  loop 0 --iterations 2 --isolation worktree
  loop 0 --iterations 2 --isolation inplace --dirty-policy stash
  same commits "$(subjects)" 'step 5 step 4 step 3 step 2 base '
  same mine "$(cat mine.txt)" mine
  same leftovers "$(git show "$(ref iter-001/leftovers | head -1):left.txt")" left
}

test_stashes_cleared_and_popped() {
  repo && echo mine >mine.txt && agent 'git stash clear; git gc -q --prune=now' "$works"
  loop 0 --iterations 1 --dirty-policy stash
  same mine "$(cat mine.txt)" mine
  agent 'git stash pop -q' "$works"
  loop 0 --iterations 1 --dirty-policy stash
  same mine "$(cat mine.txt)" mine
  agent 'git stash pop -q; git add mine.txt' "$works"
  loop 0 --iterations 1 --dirty-policy stash
  same mine "$(cat mine.txt)$(git show HEAD:mine.txt)" minemine
  same stashes "$(git stash list)" ''
}

test_refs_of_the_loop_deleted() {
  repo && echo mine >mine.txt
  agent "git for-each-ref --format='delete %(refname)' refs/gdnctl | git update-ref --stdin; git gc -q --prune=now" "$works" 'echo left >left.txt'
  loop 0 --iterations 2 --isolation worktree
  same leftovers "$(git show "$(ref iter-002/leftovers):left.txt")" left
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same leftovers "$(git show "$(ref iter-001/leftovers):left.txt")" left
  same commits "$(subjects)" 'step 4 step 3 step 2 base '
  same mine "$(cat mine.txt)" mine
}

test_other_branches_tags_and_stashes_of_the_user() {
  local how harm='git stash clear; git branch -q -D topic; git branch -q -f moved main; git tag -d v1 >/dev/null; git reflog expire --expire=now --all; git gc -q --prune=now'
  for how in inplace worktree; do
    mkdir "$how" && cd "$how" && repo && git branch same && git checkout -q -b topic && git commit -q --allow-empty -m "on topic" && git tag v1
    git checkout -q -b moved && git commit -q --allow-empty -m "on moved" && git checkout -q main
    echo stashed >s.txt && git add s.txt && git stash -q && echo mine >mine.txt
    local topic moved stash
    topic=$(git rev-parse topic) moved=$(git rev-parse moved) stash=$(git rev-parse stash)
    agent 'git branch -f same; git branch -f of-the-agent' "$works" "case \$prompt in 'It 2/'*) $harm;; esac"
    loop 0 --iterations 3 --isolation $how --dirty-policy stash
    same commits "$(subjects)" 'step 4 step 3 step 2 base '
    same mine "$(cat mine.txt)" mine
    err_has "gone: the branch topic, which was at ${topic:0:12}"
    err_has "hint: git update-ref refs/heads/topic $topic"
    err_has "rewritten: the branch moved, which was at ${moved:0:12}"
    err_has "gone: the tag v1, which was at ${topic:0:12}"
    err_has "gone: the stash ${stash:0:12} (WIP on main:"
    err_has "hint: git stash store $stash"
    grep -qE 'the branch (same|main|of-the-agent)' "$WORK/err" && fail 'it accuses without need'
    local kept
    kept=$(sed -n 's/.*they are kept at //p' "$WORK/err")
    same 'one ref keeps them' "$(git for-each-ref --format='%(refname)' refs/gdnctl-others)" "$kept"
    eval "$(sed -n 's/.*hint: \(git update-ref\|git stash store\)/\1/p' "$WORK/err")"
    same topic "$(git rev-parse topic) $(git rev-parse moved) $(git rev-parse v1)" "$topic $moved $topic"
    git stash pop -q
    same stashed "$(cat s.txt)" stashed
    git fsck --no-dangling >"$WORK/fsck" 2>&1 || fail "$(cat "$WORK/fsck")"
    expect 0 "$GDNCTL" loop-explain 2
    out_has "the branch topic, which was at ${topic:0:12}"
    cd ..
  done
}

test_what_the_users_own_git_would_run_is_told_and_undone() {
  local how
  for how in inplace worktree; do
    mkdir "$how" && cd "$how" && repo && git config alias.old 'log'
    agent "$works" 'd=$(git rev-parse --git-common-dir); echo "touch $PWD/sprung" >$d/hooks/pre-push; echo x >$d/hooks/a.sample' \
      'git config core.fsmonitor false; git config alias.st "!false"; git config commit.gpgsign false; git config user.email other@x'
    loop 0 --iterations 2 --isolation $how
    same told "$(grep -c 'are put back: alias.st, commit.gpgsign, core.fsmonitor, user.email, hooks/pre-push' "$WORK/err")" 2
    same undone "$(git config --get-regexp 'alias|fsmonitor|gpgsign' | tr '\n' ' ')" 'alias.old log '
    [ ! -e .git/hooks/pre-push ] || fail 'the hook is left'
    cd ..
  done
}

test_branch_deleted_or_renamed() {
  repo && git commit -q --allow-empty -m second
  local harm
  for harm in 'git checkout -q -b other && git branch -q -D main' 'git branch -q -m main trunk'; do
    agent "$works" "(cd $PWD && $harm)"
    loop 2 --iterations 1 --isolation worktree
    err_has 'accepted work cannot land: refs/heads/main was deleted or renamed'
    last_line 'reason=landing iteration=1 rc=2'
    same kept "$(git log -1 --format=%s "$(last_ref iter-001/head)")" 'step 3'
    git checkout -q -B main
  done
}

test_slot_deleted_or_no_worktree_any_more() {
  repo && echo mine >mine.txt
  local harm kept
  while read -r kept harm; do
    git reset -q --hard "$base"
    agent "$works" "case \$prompt in 'It 1/'*) ${harm//WORK/$WORK};; esac"
    loop 0 --iterations 2 --isolation worktree --iteration-error-policy continue --no-commit-policy continue
    [ "$kept" = - ] && same "$harm" "$(subjects)" 'step 2 base ' || same "$harm" "$(subjects)" 'step 3 step 2 base '
    tidy_tree '?? mine.txt'
  done <<'END'
step_3 rm -rf "$PWD"
- git worktree remove --force "$PWD"
- rm .git; git -C WORK/cwd worktree prune
- rm -rf "$(git rev-parse --git-dir)"
step_3 rm .git; git init -q .; echo 1 >f; git add f; git commit -qm inner
step_3 git worktree move "$PWD" "$PWD-elsewhere"
END
}

test_orphan_branch() {
  repo && echo mine >mine.txt && agent 'git checkout -q --orphan other; echo left >left.txt'
  loop 3 --iterations 1 --isolation worktree
  err_has 'refs/heads/other, which has no commit'
  same kept "$(git show "$(ref iter-001/leftovers):left.txt")" left
  loop 3 --iterations 1 --isolation inplace --dirty-policy stash
  err_has 'refs/heads/other, which has no commit'
  same branch "$(git symbolic-ref HEAD) $(git rev-parse main)" "refs/heads/main $base"
  tidy_tree '?? mine.txt'
  agent 'git checkout -q --orphan more; git commit -qm orphan'
  loop 2 --iterations 1 --isolation worktree
  err_has 'no longer contains the commit'
  same kept "$(git log -1 --format=%s "$(sed -n 's/.*its commits stay at //p' "$WORK/err")")" orphan
  git update-ref -d refs/heads/more
  loop 2 --iterations 1 --isolation inplace --dirty-policy stash
  err_has 'the checkout is on refs/heads/more, the iteration started on refs/heads/main'
  same mine "$(cat mine.txt) $(git rev-parse main)" "mine $base"
}

test_log_directory_deleted() {
  repo && echo mine >mine.txt
  local how harm n=1
  for how in inplace worktree; do
    for harm in 'git clean -qfdx' "rm -rf $PWD/.agents"; do
      agent "$works" "case \$prompt in 'It 2/'*) $harm;; esac"
      loop 0 --iterations 3 --isolation $how --dirty-policy stash
      n=$((n + 3))
      same commits "$(git log -1 --format=%s)" "step $n"
      tidy_tree '?? mine.txt'
      expect 0 "$GDNCTL" loop-status --json
      grep -q '"accepted":3' "$WORK/out" || fail 'the journal is not whole'
    done
  done
  loop 0 --iterations 4 --isolation worktree --dirty-policy stash --resume
  same commits "$(git log -1 --format=%s)" "step $((n + 1))"
}

test_log_directory_closed() {
  repo && echo mine >mine.txt && agent "$works" "[ -e $WORK/closed ] || { : >$WORK/closed; chmod 0 $PWD/$logs; }" && powerless
  chown -R 65534:65534 "$WORK" 2>/dev/null
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
  set -- --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 --dirty-policy stash
  expect 8 "${as[@]}" "$GDNCTL" codex-loop "$@"
  err_has "$logs"
  err_has 'Permission denied'
  [ -e mine.txt ] || err_has "$(git rev-parse refs/stash)"
  chmod 700 $logs
  expect 0 "${as[@]}" "$GDNCTL" codex-loop "$@" --resume
  same mine "$(cat mine.txt) $(git log -1 --format=%s)" 'mine step 3'
}

test_files_that_nobody_may_read_or_remove() {
  repo && powerless
  chown -R 65534:65534 "$WORK" 2>/dev/null
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
  agent "$works" 'echo 1 >closed; chmod 0 closed; mkdir dir; echo 1 >dir/x; chmod 0 dir; mkdir full; echo 1 >full/x; chmod 500 full'
  set -- --agent command --agent-command "$WORK/agent" --sleep-seconds 0
  expect 0 "${as[@]}" "$GDNCTL" codex-loop "$@" --iterations 2 --isolation worktree
  same commits "$(subjects)" 'step 3 step 2 base '
  same leftovers "$(git ls-tree -r --name-only "$(ref iter-002/leftovers)" | grep -v scripts/ | tr '\n' ' ')" 'closed dir/x full/x kernel.c '
  expect 8 "${as[@]}" "$GDNCTL" codex-loop "$@" --iterations 1 --isolation inplace
  err_has 'open("closed"): Permission denied'
  chmod -R u+rwX . && expect 0 "${as[@]}" "$GDNCTL" codex-loop "$@" --iterations 1 --isolation inplace --resume
}

test_special_files() {
  repo && agent "$works" 'mkfifo pipe; ln -s /dev/zero zero; ln -s /nowhere lost; python3 -c "import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")"'
  loop 0 --iterations 2 --isolation worktree
  loop 0 --iterations 1 --isolation inplace
  same commits "$(subjects)" 'step 4 step 3 step 2 base '
}

test_configuration_that_breaks_git() {
  repo && echo mine >mine.txt && cp .git/config "$WORK/config"
  local how harm
  for harm in 'git config core.repositoryFormatVersion 99' 'echo "[broken" >>"$(git rev-parse --git-common-dir)/config"'; do
    for how in worktree inplace; do
      agent "$works" "$harm"
      loop 0 --iterations 1 --isolation $how --dirty-policy stash
      err_has 'are put back: '
      cmp .git/config "$WORK/config" || fail "config after: $harm"
      same mine "$(cat mine.txt)" mine
    done
  done
  for harm in 'git config core.bare true' 'git config core.worktree /nowhere'; do
    agent "$works" "$harm"
    loop 0 --iterations 1 --isolation worktree
    cmp .git/config "$WORK/config" || fail "config after: $harm"
    tidy_tree '?? mine.txt'
  done
}

test_repository_deleted() {
  repo && agent "$works" 'rm -rf .git'
  loop 2 --iterations 2 --isolation inplace
  err_has 'not a git repository'
  rm -rf .agents && repo && agent "rm -rf $WORK/cwd"
  loop 2 --iterations 2 --isolation inplace
  err_has 'not a git repository'
}

test_repositories_of_other_shapes() {
  local shape
  for shape in sha256 shallow shared separate link split many; do
    rm -rf "$WORK/cwd" "$WORK/from" "$WORK/apart" && mkdir "$WORK/cwd" && cd "$WORK/cwd"
    case $shape in
      sha256) git init -q --object-format=sha256 . && repo ;;
      shallow) git init -q "$WORK/from" && (cd "$WORK/from" && repo && git commit -q --allow-empty -m 2) && git clone -q --depth 1 "file://$WORK/from" . ;;
      shared) git init -q "$WORK/from" && (cd "$WORK/from" && repo) && git clone -q --shared "$WORK/from" . ;;
      separate) git init -q --separate-git-dir "$WORK/apart" . && repo ;;
      link) repo && mv .git "$WORK/apart" && ln -s "$WORK/apart" .git ;;
      split) repo && git config core.splitIndex true && git update-index --split-index ;;
      many) repo && git config feature.manyFiles true && git config core.untrackedCache true && git config index.version 4 && git update-index --untracked-cache ;;
    esac
    base=$(git rev-parse HEAD) && agent "$works" 'echo left >left.txt' && echo mine >mine.txt
    loop 0 --iterations 2 --isolation worktree
    loop 1 --iterations 1 --isolation worktree --post-check false
    loop 0 --iterations 1 --isolation inplace --dirty-policy stash
    loop 1 --iterations 1 --isolation inplace --dirty-policy stash --post-check false
    same "$shape" "$(git rev-list --count "$base"..HEAD) $(cat mine.txt)" '3 mine'
    same "$shape stashes" "$(git stash list)" ''
  done
}

# ---- processes

test_agent_that_kills_its_parent() {
  repo && echo mine >mine.txt
  for how in inplace worktree; do
    agent "$works" "[ -e $WORK/killed ] || { touch $WORK/killed; kill -9 \$PPID; sleep 20; }"
    "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 --isolation $how --dirty-policy stash 2>"$WORK/err"
    same 'exit code' $? 137
    expect 0 "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --iterations 2 --isolation $how --dirty-policy stash --resume
    same mine "$(cat mine.txt)" mine
    tidy_tree '?? mine.txt'
    rm "$WORK/killed"
    agent "$works" "[ -e $WORK/killed ] || { touch $WORK/killed; kill -TERM \$PPID; sleep 20; }"
    loop 143 --iterations 2 --isolation $how --dirty-policy stash
    same mine "$(cat mine.txt)" mine
    loop 0 --iterations 2 --isolation $how --dirty-policy stash --resume
    rm "$WORK/killed"
  done
  same commits "$(subjects)" 'step 9 step 8 step 7 step 6 step 5 step 4 step 3 step 2 base '
}

# ---- surroundings

test_paths_with_blanks_newlines_and_other_bytes() {
  for name in 'a b  c' ' lead' $'tab\there' 'quote"s'"'" 'umlaut-ü' $'bytes-\xff' '-dash' '$(touch x)' '%s{}'; do
    mkdir "$WORK/$name" && cd "$WORK/$name" && repo && agent "$works" 'echo left >left.txt'
    export GDNCTL_STATE_DIR="$WORK/state $name"
    loop 0 --iterations 1 --isolation worktree
    loop 0 --iterations 1 --isolation inplace --log-dir "logs of $name"
    same "$name" "$(subjects)" 'step 3 step 2 base '
    expect 0 "$GDNCTL" loop-status --json
  done
  mkdir "$WORK/"$'new\nline' && cd "$WORK/"$'new\nline' && repo
  loop 2 --iterations 1 --isolation worktree
  err_has 'the path of the repository contains a newline'
  cd "$WORK/cwd" && repo && agent "$works"
  loop 2 --iterations 1 --log-dir $'new\nline'
  err_has 'the log directory cannot be kept out of git'
  tidy_tree
  GDNCTL_STATE_DIR="$WORK/"$'st\nate' loop 0 --iterations 1 --isolation worktree
  loop 0 --iterations 1 --log-dir "$WORK/"$'outside\nlogs'
  same commits "$(subjects)" 'step 3 step 2 base '
}

test_no_home_and_no_place_for_temporary_files() {
  repo && agent "$works"
  unset HOME XDG_STATE_HOME XDG_CONFIG_HOME
  loop 0 --iterations 1 --isolation worktree
  export TMPDIR=/nowhere
  GDNCTL_STATE_DIR=$WORK/state loop 0 --iterations 1 --isolation worktree
  loop 0 --iterations 1 --isolation inplace
  same commits "$(subjects)" 'step 4 step 3 step 2 base '
}

test_signed_commits_hooks_and_line_endings() {
  repo && git config commit.gpgSign true && git config gpg.program false && git config core.autocrlf true && git config tag.gpgSign true
  mkdir hooks && for hook in pre-commit post-checkout post-merge reference-transaction post-index-change pre-rebase post-rewrite; do
    printf '#!/bin/sh\necho %s >>%s/hooked\nexit 1\n' $hook "$WORK" >hooks/$hook && chmod +x hooks/$hook
  done
  printf 'one\r\ntwo\r\n' >crlf.txt && git -c commit.gpgSign=false -c core.safecrlf=false add . && git -c commit.gpgSign=false commit -qm more
  git config core.hooksPath "$PWD/hooks"
  agent 'export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null GIT_CONFIG_KEY_1=commit.gpgSign GIT_CONFIG_VALUE_1=false' \
    "$works" 'printf "one\r\nleft\r\n" >crlf.txt'
  printf 'one\r\nmine\r\n' >mine.txt && printf 'mine\r\n' >>crlf.txt
  loop 0 --iterations 2 --isolation worktree
  same mine "$(od -An -c crlf.txt mine.txt | tr -d ' \n')" 'one\r\ntwo\r\nmine\r\none\r\nmine\r\n'
  git config core.safecrlf true
  agent 'export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_2=core.safecrlf GIT_CONFIG_VALUE_2=false GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null GIT_CONFIG_KEY_1=commit.gpgSign GIT_CONFIG_VALUE_1=false' "$works"
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same mine "$(od -An -c crlf.txt mine.txt | tr -d ' \n')" 'one\r\ntwo\r\nmine\r\none\r\nmine\r\n'
  loop 1 --iterations 1 --isolation inplace --dirty-policy stash --post-check false
  same mine "$(od -An -c crlf.txt mine.txt | tr -d ' \n')" 'one\r\ntwo\r\nmine\r\none\r\nmine\r\n'
  same commits "$(subjects)" 'step 5 step 4 step 3 more base '
  [ ! -e "$WORK/hooked" ] || fail "hooks ran: $(cat "$WORK/hooked")"
}

test_log_and_state_directories_on_another_file_system() {
  local other
  for other in /dev/shm /var/tmp ''; do [ ! -w "$other" ] || [ "$(stat -c %d "$other")" = "$(stat -c %d "$WORK")" ] || break; done
  [ -n "$other" ] || skip 'no other file system'
  other=$(mktemp -d "$other/gdnctl-test.XXXXXX")
  repo && echo mine >mine.txt
  agent "$works" 'git init -q inner; echo 1 >inner/f; git -C inner add .; git -C inner commit -qm inner; echo left >left.txt; [ ! -e .git.old ]'
  export GDNCTL_STATE_DIR=$WORK/state
  loop 0 --iterations 2 --isolation worktree --log-dir "$other/logs"
  same 'inner' "$(git -C "$other/logs/iteration-001-repositories/inner" log --format=%s)" inner
  GDNCTL_STATE_DIR=$other/state loop 0 --iterations 2 --isolation worktree --log-dir "$WORK/logs3"
  same 'inner' "$(git -C "$WORK/logs3/iteration-002-repositories/inner" log --format=%s)" inner
  same commits "$(subjects)" 'step 5 step 4 step 3 step 2 base '
  rm -rf "$other"
}

test_one_line_of_many_megabytes() {
  repo && agent "$works" 'head -c 12000000 /dev/zero | tr "\0" x' 'head -c 300000 /dev/zero | tr "\0" "\n"; echo end'
  loop 0 --iterations 1 --isolation worktree
  same commits "$(subjects)" 'step 2 base '
  [ "$(du -sk $logs | cut -f1)" -lt 1000 ] || fail "the log directory has $(du -sk $logs)"
}
