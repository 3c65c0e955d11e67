# codex-loop --mode evolve when it is killed or its disk is full: nothing is lost, nobody is blamed, nothing runs on.
# GDNCTL_TEST_DISKS=48 and GDNCTL_TEST_KILLS=200: the slow suite. unit/loop/evolve has the kills of the default one.
# shellcheck disable=SC2154
. "$REPO/tests/cli/evolve.sh"

slow() { [ -n "${GDNCTL_TEST_DISKS:-}${GDNCTL_TEST_KILLS:-}" ] || skip 'GDNCTL_TEST_DISKS and GDNCTL_TEST_KILLS run it'; }
disks() { # FULL
  local own=()
  if [ "$1" != files ]; then
    unshare -m mount -t tmpfs -o size=1m tmpfs "$TMPDIR" 2>/dev/null || skip 'no disk can be mounted here'
    own=(unshare -m)
  fi
  "${own[@]}" python3 -B "$REPO/tests/support/evolve_disks.py" "$GDNCTL" "$WORK" "$1" "${GDNCTL_TEST_DISKS:-1}" >"$WORK/out" 2>"$WORK/err" ||
    fail "$1"
  tail -n 1 "$WORK/out"
}
test_full_disk() { disks start; }
test_disk_that_the_agent_fills() { slow && disks agent; }
test_limit_on_the_size_of_files() { slow && disks files; }

test_kill_at_random_instants_leaves_nothing_running() {
  slow
  world && agent 'setsid sleep 300 >/dev/null 2>&1 &
sleep 0.0$((RANDOM % 10))
case $((n % 3)) in 0) echo "$n wrong" >kernel.txt ;; 1) echo "$((20 + n))" >kernel.txt ;; esac'
  : >mine.txt && git stash -qu && stash=$(git rev-parse stash)
  kills=${GDNCTL_TEST_KILLS:-4} done=0 RANDOM=6
  while [ "$done" -lt "$kills" ]; do
    launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
      --log-dir "$WORK/log" --lineages 2 --max-attempts 9999 --seed 4 --resume
    sleep "$((RANDOM % 3)).$((RANDOM % 10))"
    kill -9 "$pid" 2>/dev/null && done=$((done + 1))
    wait "$pid" 2>/dev/null
  done
  attempts=$("$GDNCTL" loop-status --log-dir "$WORK/log" --json 2>/dev/null | jq .spent.attempts)
  evolve 3 --max-attempts $((${attempts:-0} + 2)) --seed 4 --resume
  jq -s -e --argjson n $((${attempts:-0} + 2)) '[.[] | select(.type=="verdict" and .verdict!="abandoned")] |
    length == $n and all(.[]; .verdict == (if .attempt % 3 == 0 then "invalid" elif .attempt % 3 == 1 then "rejected" else "noop" end))' \
    "$WORK/log/journal.jsonl" >/dev/null || fail "$(verdicts "$WORK/log")"
  loop=$(jq -r .loop_id "$WORK/log/journal.jsonl" | head -n 1)
  left=$(grep -lzs "^GDNCTL_LOOP_ID=$loop" /proc/[0-9]*/environ)
  [ -z "$left" ] || fail "left: $left"
  [ "$(git rev-parse HEAD)" = "$base" ] && [ -z "$(git status --porcelain)" ] || fail 'the checkout was touched'
  [ "$(git rev-parse stash)" = "$stash" ] && [ "$(git stash list | wc -l)" = 1 ] || fail 'the stash was touched'
  [ "$(git worktree list | wc -l)" = 1 ] && [ -z "$(git fsck --no-dangling 2>&1)" ] || fail 'the repository'
  expect 0 "$GDNCTL" evolve fsck --log-dir "$WORK/log"
}

test_the_agents_worktree_is_locked_missing_dirty_or_on_another_branch() {
  world && agent 'pwd >"'"$WORK"'/where.new" && mv "'"$WORK"'/where.new" "'"$WORK"'/where"; sleep 60'
  for harm in locked missing dirty branch; do
    rm -f "$WORK/where"
    launch "$GDNCTL" codex-loop --mode evolve --agent command --agent-command "$WORK/agent" --sleep-seconds 0 --perf-pairs 3 \
      --log-dir "$WORK/log" --lineages 2 --max-attempts 1 --resume
    for _ in $(seq 600); do [ -s "$WORK/where" ] && break; sleep .05; done
    kill -9 "$pid" && wait "$pid" 2>/dev/null
    where=$(cat "$WORK/where") || fail "$harm: no worktree"
    case $harm in
      locked) git worktree lock "$where" && touch "$(git -C "$where" rev-parse --git-dir)/index.lock" ;;
      missing) rm -rf "$where" ;;
      dirty) echo other >"$where/kernel.txt" && git -C "$where" add -A && mkdir "$where/new" && touch "$where/new/file" && rm "$where/tests/judge.sh" ;;
      branch) git -C "$where" checkout -qb theirs && git -C "$where" commit -q --allow-empty -m theirs ;;
    esac
  done
  agent 'grep -qx 10 kernel.txt && [ -e tests/judge.sh ] && [ ! -e new ] && echo 9 >kernel.txt'
  evolve 0 --max-attempts 1 --resume
  [ "$(verdicts "$WORK/log")" = '1 abandoned 2 abandoned 3 abandoned 4 abandoned 5 kept' ] || fail "$(verdicts "$WORK/log")"
  [ "$(git log -1 --format=%s theirs)" = theirs ] && [ "$(git rev-parse HEAD)" = "$base" ] || fail 'the branches'
  [ "$(git worktree list | wc -l)" = 1 ] && [ -z "$(git status --porcelain)" ] || fail 'the checkout'
}
