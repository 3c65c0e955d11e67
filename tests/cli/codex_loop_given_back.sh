# codex-loop: repositories that an agent makes inside are kept, and uncommitted files of people come back as they were.
. "$REPO/tests/support/loop_repo.sh"
same() { [ "$2" = "$3" ] || fail "$1: '$2' instead of '$3'"; }
ref() { git for-each-ref --format='%(refname)' "refs/gdnctl/*/$1"; }
subjects() { git log --format=%s | tr '\n' ' '; }
tidy_tree() { same 'the tree' "$(git status --porcelain)" ''; }

# ---- repositories that an agent makes inside

# What the repository, the log directory and the state directory have of the only copy of a text.
kept_somewhere() { grep -rqs "$1" .agents/logs "$XDG_STATE_HOME" || git log --all -p --format= | grep -q "$1" || fail "nowhere: $1"; }

test_repository_committed_as_a_bare_link() {
  local how makes='mkdir front; (cd front; git init -q .; echo the only copy >page.txt; git add .; git commit -qm inner; echo uncommitted copy >>page.txt); git add front 2>/dev/null; git commit -qm "scaffold front"'
  for how in worktree inplace; do
    mkdir "$how" && cd "$how" && repo
    agent "case \$prompt in 'It 1/'*) $makes;; *) $works;; esac"
    loop 0 --iterations 3 --isolation $how
    err_has 'front was committed as a link to a nested repository'
    same commits "$(subjects)" 'step 3 step 2 base '
    same 'links on the branch' "$(git ls-tree -r HEAD | grep -c '^160000')" 0
    tidy_tree
    [ ! -e front ] || fail "$how: front is left"
    kept_somewhere 'the only copy' && kept_somewhere 'uncommitted copy'
    git cat-file -e "$(git ls-tree "$(ref iter-001/head)" front | awk '{print $3}')^{commit}" || fail "$how: the link leads nowhere"
    cd ..
  done
}

test_repository_that_is_only_staged_or_in_an_attempt_that_failed() {
  local how makes='mkdir front; (cd front; git init -q .; echo the only copy >page.txt; git add .; git commit -qm inner); git add front 2>/dev/null'
  for how in worktree inplace; do
    mkdir "$how" && cd "$how" && repo
    agent "case \$prompt in 'It 1/'*) $makes; exit 3;; *) $works;; esac"
    loop 0 --iterations 2 --isolation $how --max-failures -1 --codex-retries 1
    same commits "$(subjects)" 'step 2 base '
    tidy_tree
    [ ! -e front ] || fail "$how: front is left"
    kept_somewhere 'the only copy'
    cd ..
  done
}

test_repository_around_files_that_are_tracked() {
  local how makes='cd src; git init -q .; git add .; git commit -qm inner; cd ..'
  for how in worktree inplace; do
    mkdir "$how" && cd "$how" && repo && mkdir src && echo a >src/a.txt && git add . && git commit -qm src
    agent "case \$prompt in 'It 1/'*) $makes;; esac" '[ "$(git -C src rev-parse --show-prefix)" = src/ ] || case $prompt in "It 2/"*) exit 1;; esac' "echo more >>src/a.txt; git add src/a.txt; $works"
    loop 0 --iterations 2 --isolation $how
    same commits "$(subjects)" 'step 4 step 3 src base '
    tidy_tree
    [ ! -e src/.git ] || fail "$how: src/.git is left"
    same inner "$(git --git-dir $logs/iteration-001-repositories/src/.git log --format=%s)" inner
    cd ..
  done
}

test_users_own_repositories_inside_stay_in_place() {
  repo && mkdir vendor src && echo a >src/a.txt && echo /deps/ >.gitignore && git add . && git commit -qm src
  (cd src && git init -q . && git add . && git commit -qm around) && mkdir deps && (cd deps && git init -q . && git commit -q --allow-empty -m dep)
  agent "$works" 'mkdir front; (cd front; git init -q .; git commit -q --allow-empty -m inner)'
  loop 0 --iterations 2 --isolation inplace
  same around "$(git -C src log --format=%s)" around
  same dep "$(git -C deps log --format=%s)" dep
  same inner "$(git -C $logs/iteration-002-repositories/front log --format=%s)" inner
  (cd vendor && git init -q . && git commit -q --allow-empty -m users)
  loop 0 --iterations 2 --isolation inplace --allow-dirty
  same users "$(git -C vendor log --format=%s)" users
  [ ! -e front ] || fail 'front is left'
}

test_ignored_repository_with_commits_of_its_own() {
  repo && echo /build/ >.gitignore && git add . && git commit -qm ignore
  agent "case \$prompt in 'It 1/'*) mkdir -p build/deps/own build/plain; (cd build/deps/own; git init -q .; echo the only copy >f; git add .; git commit -qm own); git clone -q build/deps/own build/deps/cloned;; esac" "$works"
  loop 0 --iterations 2 --isolation worktree
  same own "$(git -C $logs/iteration-001-repositories/build/deps/own log --format=%s)" own
  [ ! -e $logs/iteration-001-repositories/build/deps/cloned ] || fail 'a clone that has nothing of its own is kept'
}

test_new_submodule_lands_where_its_remote_has_the_commit() {
  local inside
  git init -q lib && git -C lib commit -q --allow-empty -m lib
  for inside in local pushed; do
    mkdir $inside && cd $inside && repo
    agent "case \$prompt in 'It 1/'*) git -c protocol.file.allow=always submodule add -q $PWD/../lib dep 2>/dev/null; git -C dep commit -q --allow-empty -m 'commit inside'; [ $inside = local ] || git -C dep push -q origin HEAD:refs/heads/more; git add dep; git commit -qm submodule;; *) $works;; esac"
    loop 0 --iterations 2 --isolation worktree
    if [ $inside = pushed ]; then
      same commits "$(subjects)" 'step 3 submodule base '
      git -c protocol.file.allow=always submodule -q update --init || fail 'the submodule cannot be updated'
    else
      err_has 'the new submodule dep is committed at a commit that its remote does not have'
      same commits "$(subjects)" 'step 2 base '
      git cat-file -e "$(git ls-tree "$(ref iter-001/head)" dep | awk '{print $3}')^{commit}" || fail 'the commit inside is nowhere'
    fi
    tidy_tree
    cd ..
  done
}

test_old_iterations_are_pruned_but_not_the_repositories_of_an_agent() {
  local how makes='mkdir front; (cd front; git init -q .; echo 1 >1; git add .; git commit -qm inner; git checkout -qb side; echo the side copy >2; git add .; git commit -qm side; git checkout -q -; echo uncommitted copy >3)'
  for how in worktree inplace; do
    mkdir "$how" && cd "$how" && repo
    agent "case \$prompt in 'It 1/'*) $makes;; esac; $works"
    loop 0 --iterations 4 --isolation $how --keep-iterations 1
    [ ! -e $logs/iteration-001-prompt.txt ] || fail "$how: nothing is pruned"
    same side "$(git -C $logs/iteration-001-repositories/front log -1 --format=%s side)" side
    kept_somewhere 'uncommitted copy'
    err_has 'iteration-001-repositories: it contains repositories of the agent'
    same 'how often' "$(grep -c 'it contains repositories' "$WORK/err")" 1
    cd ..
  done
}

test_no_repository_inside_spoils_the_next_iteration() {
  local how shape makes
  for shape in around bare; do
    makes='cd src; git init -q .; echo the only copy >n.txt; git add .; git commit -qm inner; cd ..'
    [ $shape = around ] || makes='git init -q --bare store.git; git clone -q store.git tmp 2>/dev/null; cd tmp; echo the only copy >n.txt; git add .; git commit -qm inner; git push -q origin HEAD; cd ..; rm -rf tmp'
    for how in worktree inplace; do
      mkdir "$shape-$how" && cd "$shape-$how" && repo && mkdir src && echo a >src/a.txt && git add . && git commit -qm src
      agent "case \$prompt in 'It 1/'*) $makes;; esac; echo more >>src/a.txt; git add src/a.txt; $works"
      loop 0 --iterations 2 --isolation $how
      same commits "$(subjects | wc -w)" 6
      tidy_tree
      if [ $shape = around ]; then
        kept_somewhere 'the only copy'
      else
        same "$how bare" "$(git --git-dir $logs/iteration-001-repositories/store.git log --all --format=%s)" inner
      fi
      cd ..
    done
  done
}

test_users_bare_repository_stays_in_place() {
  repo && git init -q --bare users.git
  agent "$works" 'git init -q --bare agents.git'
  loop 0 --iterations 2 --isolation inplace --allow-dirty
  [ -e users.git/HEAD ] && [ ! -e agents.git ] || fail 'bare repositories'
}

# ---- uncommitted files of people

everything() { find . -path ./.git -prune -o -path ./.agents -prune -o -mindepth 1 \( -type f -printf '%M %T@ %p ' -exec md5sum {} \; -o -type d -printf '%M %p\n' -o -printf '%M %T@ %p %l\n' \) | LC_ALL=C sort; }

test_uncommitted_files_are_given_back_as_they_were() {
  local how
  repo && echo '* text=auto' >.gitattributes && echo ignored/ >.gitignore && echo b >b.txt && echo g >gone.txt && echo s >staged.txt && git add . && git commit -qm files
  printf 'r1\r\nr2\r\n' >fixture.csv && printf 'a\nb\r\n' >b.txt && rm gone.txt && echo more >staged.txt && git add staged.txt && printf 'more\r\n' >staged.txt
  echo TOKEN=abc >.env && chmod 600 .env && mkdir -m 700 private && echo s >private/key && chmod 400 private/key && ln -s key private/link
  mkfifo private/pipe && mkdir -p build/out empty/a/b ignored/empty && chmod 750 empty/a && echo i >ignored/file && chmod 600 ignored/file
  touch -d '2020-01-02 03:04:05.678901234' fixture.csv .env private/key b.txt && touch -h -d 2021-01-01 private/link && touch -d 2022-02-02 private
  everything >"$WORK/before"
  git status --porcelain >"$WORK/status"
  for how in "--post-check false" "--post-check true"; do
    agent "git add -A; $works; rm -rf build empty"
    [ "$how" = '--post-check true' ] || echo 'echo left >left.txt' >>"$WORK/agent"
    # shellcheck disable=SC2086
    loop "$([ "$how" = '--post-check true' ] && echo 0 || echo 1)" --iterations 1 --isolation inplace --dirty-policy stash $how
    everything | grep -v kernel.c >"$WORK/after"
    grep -v kernel.c "$WORK/before" | diff - "$WORK/after" >&2 || fail "$how: not as it was"
    git status --porcelain | diff "$WORK/status" - >&2 || fail "$how: another status"
    same stashes "$(git stash list)" ''
    [ ! -e .git/gdnctl-shelf ] || fail 'the shelf is left'
  done
}

test_what_the_branch_changed_too_is_merged_with_its_mode() {
  repo && seq 9 >n.txt && git add . && git commit -qm n && echo mine >>n.txt && chmod 600 n.txt
  agent 'sed -i s/1/one/ n.txt; git commit -qam one'
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same n "$(head -1 n.txt) $(tail -1 n.txt) $(stat -c %a n.txt)" 'one mine 600'
  same stashes "$(git stash list)" ''
}

test_files_that_cannot_come_back_exactly_stay_in_the_stash() {
  repo && echo mine >mine.txt && chmod 600 mine.txt
  agent "$works" 'rm -rf .git/gdnctl-shelf'
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same mine "$(cat mine.txt)" mine
  err_has 'but not completely; it also stays in the stash'
  same stashes "$(git stash list | wc -l)" 1
}

test_ignored_files_that_an_agent_commits_by_force_stay_when_that_is_refused() {
  repo && mkdir sub && printf '*.key\n' >.gitignore && printf 'out\n' >sub/.gitignore && git add . && git commit -qm rules
  echo mine >my.key && echo mine >sub/out && chmod 600 my.key && touch -d 2020-01-01 my.key
  agent ': >.gitignore; rm sub/.gitignore; echo new >new.txt; git add -A; git commit -qm "all of it"' "$works"
  loop 1 --iterations 1 --isolation inplace --post-check false
  same 'ignored files' "$(cat my.key sub/out | tr '\n' ' ')$(stat -c '%a %y' my.key | cut -c 1-14)" 'mine mine 600 2020-01-01'
  [ ! -e new.txt ] || fail 'new.txt is left'
  same commits "$(subjects)" 'rules base '
  tidy_tree
}

test_empty_folders_stay_where_nothing_is_stashed() {
  repo && mkdir -p build/out && chmod 700 build
  agent "$works" 'echo left >left.txt'
  loop 1 --iterations 1 --isolation inplace --post-check false
  same build "$(stat -c %a build) $(ls build)" '700 out'
  tidy_tree
}

test_files_that_conflict_are_named_with_their_exact_copies_and_a_hint_that_works() {
  local hint
  repo && echo '* text=auto' >.gitattributes && git add . && git commit -qm attributes
  printf 'TOKEN=1\r\n' >new.env && chmod 600 new.env && mkdir -m 700 keep && printf 'q\r\n' >'keep/a file' && mkdir empty
  touch -d 2020-01-01 new.env keep
  everything >"$WORK/before"
  agent 'echo agent >new.env; git add .; git commit -qm w'
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same 'the branch' "$(cat new.env)" agent
  err_has "your uncommitted work conflicts with the iteration's result; it stays in the stash"
  err_has 'changed by you and by the branch: new.env'
  err_has "exact copies of your files are in $PWD/.git/gdnctl-shelf/"
  hint=$(sed -n 's/.*hint: `\(cp -a .*\)` copies all of them back.*/\1/p' "$WORK/err")
  rmdir empty && bash -c "$hint" || fail "the hint fails: $hint"
  everything | diff "$WORK/before" - >&2 || fail 'not as it was'
  # A stash of its owner's has its shelf; it goes once both are gone.
  agent "$works"
  git stash drop -q && git update-ref -d "$(ref iter-001/stash)" && git checkout -q . && rm -rf keep empty && echo mine >mine.txt
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  [ ! -e .git/gdnctl-shelf ] || fail 'a shelf without a stash is left'
}

test_files_that_the_iteration_makes_git_ignore_come_back_as_they_were() {
  repo && echo mine >u.tmp && chmod 600 u.tmp && touch -d 2020-01-01 u.tmp && everything >"$WORK/before"
  agent 'echo "*.tmp" >.gitignore; git add .gitignore; git commit -qm w'
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  everything | grep -v .gitignore | diff "$WORK/before" - >&2 || fail 'not as it was'
  err_lacks 'but not completely'
  same stashes "$(git stash list)" ''
  # One that the iteration itself left at that path is nobody's to overwrite.
  git rm -q --cached .gitignore && git commit -qm r && rm .gitignore
  agent 'echo "*.tmp" >.gitignore; echo built >u.tmp; git add .gitignore; git commit -qm w'
  loop 0 --iterations 1 --isolation inplace --dirty-policy stash
  same built "$(cat u.tmp)" built
  same mine "$(cat .git/gdnctl-shelf/*/files/u.tmp)" mine
}

test_a_stash_that_git_refuses_leaves_no_second_name_of_a_file() {
  repo && echo b >b.txt && git add . && git commit -qm b
  echo mine >int.txt && git add -N int.txt && echo more >other.txt && git rm -q --cached b.txt
  agent "$works"
  loop 2 --iterations 1 --isolation inplace --dirty-policy stash
  err_has 'hint: git cannot stash a file added with `git add -N`: run git add -- int.txt'
  [ ! -e .git/gdnctl-shelf ] || fail 'the shelf is left'
  same names "$(stat -c %h int.txt other.txt | tr '\n' ' ')" '1 1 '
}
