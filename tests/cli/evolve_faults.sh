# codex-loop --mode evolve when agents and people misbehave: what a run survives, and what it leaves alone.
# shellcheck disable=SC2154
. "$REPO/tests/cli/evolve.sh"

test_agents_that_misbehave_end_no_run() {
  world && agent "
repo=$PWD
"'case $n in
1) head -c 10000000 /dev/urandom | tr -d "\n"; echo ;;
2) setsid sleep 30127 & sleep 30127 & sleep 30127 ;;
3) echo 5 >kernel.txt; rm tests/judge.sh ;;
4) echo 5 >kernel.txt; ln -sf /etc/passwd tests/judge.sh ;;
5) echo exit 0 >tests/judge.sh; git commit -qam worse; git checkout -q HEAD~ -- tests/judge.sh; echo 9.5 >kernel.txt; git commit -qam better ;;
6) git -C "$repo" gc -q --prune=now; echo 9 >kernel.txt ;;
7) rm -rf .git ./*; mkdir -p kernel.txt; git init -q inner ;;
8) git checkout -q -b mine; echo 8.5 >kernel.txt; echo x >big ;;
9) rm -rf "$PWD" ;;
10) head -c 6000000 /dev/zero >kernel.txt ;;
11) printf "\377\376 9\n" ;;
esac'
  evolve 0 --max-attempts 11 --operator-mix explore=1 --codex-timeout-seconds 15
  [ "$(verdicts "$WORK/log" | sed 's/ 7 [a-z]*//; s/ 9 [a-z]*//')" = '1 noop 2 invalid 3 tampered 4 tampered 5 kept 6 kept 8 kept 10 invalid 11 noop' ] || fail "$(verdicts "$WORK/log")"
  has '(.type=="proposal" and .attempt==2) and (.class=="timeout" and .tokens==null)' || fail 'no time-out'
  has '(.type=="proposal" and .attempt==5) and .agent_commits==2' || fail 'commits of the agent'
  has '(.type=="proposal" and .attempt==8) and (.forbidden_paths==["big"])' || fail 'what was dropped'
  has '(.type=="snapshot" and .attempt==10) and (.refused==["kernel.txt"])' || fail 'what was refused'
  pgrep -f 'sleep 30127' >/dev/null && fail 'a process is left'
  [ "$(git rev-parse HEAD)" = "$base" ] && [ -z "$(git status --porcelain)" ] || fail 'the checkout was touched'
  [ "$(git branch --format='%(refname)')" = refs/heads/main ] || fail "branches: $(git branch)"
  [ "$(git worktree list | wc -l)" = 1 ] && [ -z "$(git fsck --no-dangling 2>&1)" ] || fail 'the repository'
}

test_a_branch_that_an_agent_is_on_is_removed_also_at_the_base() {
  world && agent "git checkout -q -b mine; git -C '$PWD' branch theirs; echo 9 >kernel.txt"
  evolve 0 --max-attempts 1 --operator-mix explore=1
  err_has 'undid changes by the agent: refs/heads/mine was made'
  [ "$(git branch --format='%(refname:short)' | xargs)" = 'main theirs' ] || fail "branches: $(git branch)"
  has '(.type=="verdict" and .attempt==1) and .verdict=="kept"' || fail "$(verdicts "$WORK/log")"
}

test_names_that_an_agent_changes_are_put_back_and_the_users_are_left() {
  world
  git branch keep && git branch gone && git tag v1 && echo mine >kernel.txt && git stash -q && echo 10 >kernel.txt
  agent "
repo=$PWD
"'case $n in
1) echo 9 >kernel.txt; git commit -qam w; git branch -f keep HEAD; git branch -D gone -q; git branch new; git tag -f v1 HEAD >/dev/null; git stash drop -q ;;
2) echo 8 >kernel.txt; git commit -qam v; echo 7 >kernel.txt; git stash -q; git -C "$repo" branch theirs; git -C "$repo" commit -q --allow-empty -m theirs ;;
esac'
  git for-each-ref refs/heads refs/tags >"$WORK/names" && git stash list >"$WORK/stashes"
  evolve 0 --max-attempts 1 --operator-mix explore=1
  git for-each-ref refs/heads refs/tags | cmp - "$WORK/names" || fail "names: $(git for-each-ref refs/heads refs/tags)"
  git stash list | cmp - "$WORK/stashes" || fail "stashes: $(git stash list)"
  err_has 'undid changes by the agent: refs/heads/keep was moved'
  has '.type=="proposal" and (.put_back | length == 5)' || fail 'no record'
  # What somebody else does meanwhile stays, and the branch is not theirs to move any more.
  evolve 0 --max-attempts 2 --operator-mix explore=1 --resume
  [ "$(git log -1 --format=%s)" = theirs ] && git rev-parse -q --verify theirs >/dev/null || fail 'the work of somebody else is gone'
  git stash list | cmp - "$WORK/stashes" || fail "stashes: $(git stash list)"
  expect 7 "$GDNCTL" evolve promote best --log-dir "$WORK/log"
}

test_what_an_agent_changes_in_git_is_put_back_also_after_a_kill() {
  world && cp .git/config "$WORK/config"
  agent 'd=$(git rev-parse --git-common-dir)
echo 9 >kernel.txt; git replace "HEAD:tests/judge.sh" "$(echo true | git hash-object -w --stdin)"
git config core.worktree /nowhere; git config alias.st "!false"; echo exit >$d/hooks/pre-push; git rev-parse HEAD >$d/info/grafts
[ ! -e "'"$WORK/armed"'" ] || { touch "'"$WORK/changed"'"; sleep 60; }'
  unchanged() {
    cmp .git/config "$WORK/config" || fail "$1: the configuration"
    [ -z "$(git replace -l)" ] && [ ! -e .git/hooks/pre-push ] && [ ! -e .git/info/grafts ] || fail "$1: something is left"
  }
  evolve 0 --max-attempts 1 --operator-mix explore=1
  unchanged 'after the agent'
  err_has 'are put back: alias.st, core.worktree, hooks/pre-push, info/grafts, refs/replace/'
  [ "$(verdicts "$WORK/log")" = '1 kept' ] || fail "$(verdicts "$WORK/log")"
  has '.type=="proposal" and (.put_back | contains(["alias.st"]))' || fail 'no record'
  touch "$WORK/armed"
  "$GDNCTL" codex-loop --mode evolve --resume --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 --log-dir "$WORK/log" \
    --lineages 2 --max-attempts 2 --operator-mix explore=1 >"$WORK/out" 2>"$WORK/err" &
  local loop=$!
  for _ in $(seq 300); do [ ! -e "$WORK/changed" ] || break; sleep 0.1; done
  kill -9 $loop
  wait $loop 2>/dev/null
  rm "$WORK/armed"
  [ -n "$(git config --file .git/config alias.st)" ] || fail 'the agent changed nothing'
  evolve 0 --max-attempts 2 --operator-mix explore=1 --resume
  unchanged 'after a kill'
}

# The test runs what the agent wrote: from the second line of the kernel.
test_what_a_candidate_changes_in_git_while_it_is_verified_is_put_back() {
  world && agent "
repo=$PWD"'
printf "%s.5\n%s\n" $((10 - n)) "git -C $repo config alias.st \"!false\"; echo exit >$repo/.git/hooks/pre-push; echo x >>'"$WORK/ran"'" >kernel.txt'
  echo 'sed 1d kernel.txt | env -u GIT_DIR sh; echo "verdict: OK"' >tests/judge.sh && git commit -qam runs && base=$(git rev-parse HEAD)
  evolve 0 --max-attempts 1 --operator-mix explore=1 # git excludes the log directory
  cp .git/config "$WORK/config"
  unchanged() { # WHEN
    [ -s "$WORK/ran" ] && rm "$WORK/ran" || fail "$1: the candidate did not run"
    cmp .git/config "$WORK/config" && [ ! -e .git/hooks/pre-push ] || fail "$1: something is left"
    [ -z "$(find .git/gdnctl-settings -name 'before-*')" ] || fail "$1: what was remembered is left"
  }
  [ -z "$(git config alias.st)" ] || fail 'the stages of an attempt'
  unchanged 'an attempt'
  expect 0 "$GDNCTL" evolve replay best --log-dir "$WORK/log"
  unchanged replay
  err_has 'are put back: alias.st, hooks/pre-push'
  expect 0 "$GDNCTL" evolve promote best --log-dir "$WORK/log"
  unchanged promote
  git reset -q --hard "$base" && rm -rf "$WORK/log"
  evolve 0 --max-attempts 1 --max-wall 3600 --operator-mix explore=1
  has '.type=="verify" and .pass' || fail 'not verified'
  unchanged 'the final verification'
}

test_names_that_an_agent_changes_are_put_back_after_a_kill() {
  world
  git branch keep && git branch gone && echo mine >kernel.txt && git stash -q
  agent "
[ ! -e \"$WORK/armed\" ] || { rm \"$WORK/armed\""'
echo 9 >kernel.txt; git commit -qam w; git branch -f keep HEAD; git branch -D gone -q; git branch new; git stash drop -q
'"kill -9 \$(cat \"$WORK/pid\"); sleep 60; }
echo 8 >kernel.txt"
  git for-each-ref refs/heads refs/tags >"$WORK/names" && git stash list >"$WORK/stashes"
  evolve 0 --max-attempts 1 --operator-mix explore=1
  : >"$WORK/armed"
  launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir "$WORK/log" --lineages 2 --operator-mix explore=1 --resume --max-attempts 2
  echo "$pid" >"$WORK/pid"
  wait "$pid"
  [ $? = 137 ] || fail 'not killed'
  git for-each-ref refs/heads refs/tags | cmp -s - "$WORK/names" && fail 'the agent changed nothing'
  evolve 0 --max-attempts 3 --operator-mix explore=1 --resume
  # What is new may be somebody else's, who has looked at what was left.
  git branch -q -D new || fail 'a name was removed'
  git for-each-ref refs/heads refs/tags | cmp - "$WORK/names" || fail "names: $(git for-each-ref refs/heads refs/tags)"
  git stash list | cmp - "$WORK/stashes" || fail "stashes: $(git stash list)"
  err_has 'undid changes by the agent: refs/heads/keep was moved'
  [ -z "$(ls -R "$WORK/log" | grep names.json)" ] || fail 'the file of names is left'
}

test_infrastructure_is_never_the_candidates_fault_and_the_reserve_is_kept() {
  world && agent 'echo "$((10 - n))" >kernel.txt'
  # The third profile of an attempt is lost once; a pair that is lost is taken again.
  cat >tests/profile.sh <<SH
if [ -e "$WORK/armed" ] && rm "$WORK/armed"; then echo 'RayActorError: The actor died unexpectedly: node lost' >&2; sleep 1; kill -9 \$PPID; fi
sleep 0.05
printf '{"ms": %s}\n' "\$(head -n 1 kernel.txt)"
SH
  git commit -qam profile
  evolve 3 --max-wall 1 --max-attempts 3
  last_line 'reason=max-wall attempt=0 rc=3'
  rm -rf "$WORK/log"
  evolve 0 --max-attempts 1 --max-device-seconds 100000 --reserve-final 50%
  [ "$(verdicts "$WORK/log")" = '1 kept' ] || fail "$(verdicts "$WORK/log")"
  # What the run has spent is at least half: what is left is for the last verification.
  spent=$("$GDNCTL" loop-status --log-dir "$WORK/log" --json | jq '.spent.device_s * 2 | floor')
  evolve 0 --max-attempts 9 --max-device-seconds "$spent" --reserve-final 50% --resume
  last_line 'reason=max-device-seconds attempt=1 rc=0'
}

test_another_device_is_not_compared_with() {
  unshare -Ur --uts true 2>/dev/null || skip 'no namespace for another host name'
  world && agent 'echo "$((10 - n))" >kernel.txt'
  evolve 0 --max-attempts 1
  there() { unshare -Ur --uts sh -c 'hostname elsewhere && exec "$@"' sh "$@"; }
  expect 2 there "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir "$WORK/log" --lineages 2 --resume --max-attempts 2
  err_has '--accept-device-change'
  lines=$(wc -l <"$WORK/log/journal.jsonl")
  expect 0 there "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
    --log-dir "$WORK/log" --lineages 2 --resume --max-attempts 2 --accept-device-change
  [ "$(tail -n +$((lines + 1)) "$WORK/log/journal.jsonl" | jq -r 'select(.type=="eval_stage") | .stage' | head -n 1)" = noise ] || fail 'no new baseline'
  [ "$(verdicts "$WORK/log")" = '1 kept 2 kept' ] || fail "$(verdicts "$WORK/log")"
}
