# The tree on the host of a held TPU (this machine), and several commands at once on one hold.
. "$REPO/tests/support/dev_tpu_local.sh"

running() { for _ in $(seq 600); do [ -e "$WORK/on" ] && rm "$WORK/on" && return; sleep 0.05; done; fail 'the command does not run'; }
until_it() { for _ in $(seq 600); do grep -q "$1" "${@:2}" 2>/dev/null && return; sleep 0.05; done; fail "never said: $1"; }

test_sync_removes_what_it_brought_and_nothing_else() {
  tree
  mkdir -p sub/deep && echo x >sub/deep/gone && echo y >'with space' && printf z >"$(printf 'new\nline')" && echo d >-dash
  printf 'ignored\n.venv_x\n' >.gitignore && echo i >ignored && ln -s note link && chmod +x gdnctl.toml
  detach a
  there=$(folder a)/marin
  [ -f "$there/sub/deep/gone" ] && [ -f "$there/with space" ] && [ -f "$there/$(printf 'new\nline')" ] && [ -f "$there/-dash" ] || fail 'names'
  [ ! -e "$there/ignored" ] && [ ! -e "$there/.git" ] || fail 'too much'
  [ -x "$there/gdnctl.toml" ] && [ "$(cat "$there/link")" = first ] || fail 'modes and links'
  mkdir "$there/.venv_x" && touch "$there/.venv_x/mine" "$there/sub/mine"
  rm -r sub ./-dash 'with space' && mkdir 'with space' && echo f >'with space/file'
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a true
  [ ! -e "$there/sub/deep" ] && [ ! -e "$there/-dash" ] && [ -f "$there/with space/file" ] || fail 'deletions'
  [ -f "$there/.venv_x/mine" ] && [ -f "$there/sub/mine" ] || fail 'removed what it did not bring'
  ln -s /etc/passwd out
  expect 8 "$GDNCTL" dev-tpu-execute --tpu-name a true
  err_has 'the link out leads out of the working tree'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_results_that_become_ignored_stay() {
  tree
  mkdir results && echo 'started here' >results/run.log
  detach a
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'echo measured >>results/run.log'
  echo results/ >.gitignore
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat results/run.log
  out_has measured
  rm -r results .gitignore
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat results/run.log
  out_has measured
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_elsewhere_the_tree_of_the_host_stays() {
  tree
  detach a
  mkdir "$WORK/empty" "$WORK/plain" "$WORK/other" && cd "$WORK/empty" || exit
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat note
  out_has first
  err_has 'has no files to sync: the tree on the TPU'
  cd "$WORK/plain" && echo mine >mine
  expect 2 "$GDNCTL" dev-tpu-execute --tpu-name a true
  err_has "was synced from $WORK/cwd, and $WORK/plain is not a copy of that repository"
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync cat note
  cd "$WORK/other" && git init -q . && echo other >note && git add . && git commit -qm other
  expect 2 "$GDNCTL" dev-tpu-execute --tpu-name a true
  err_has "--sync-path $WORK/other"
  [ "$(cat "$(folder a)/marin/note")" = first ] || fail 'replaced'
  git -C "$WORK/cwd" worktree add -q "$WORK/worktree" && cd "$WORK/worktree" && echo second >note && git rm -qf gdnctl.toml
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat note
  out_has second
  [ ! -e "$(folder a)/marin/gdnctl.toml" ] || fail 'a worktree of the repository removes nothing'
  cd "$WORK/other" || exit
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a --sync-path "$WORK/other" cat note
  out_has other
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_commands_at_once() {
  tree
  detach a
  for i in $(seq 40); do echo "$i" >"file$i"; done
  pids=
  for i in 1 2 3 4 5 6; do
    "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'cat file* | wc -l' >"$WORK/out.$i" 2>"$WORK/err.$i" &
    pids="$pids $!"
    [ $((i % 2)) = 0 ] && rm "file$i"
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/err.*)"; done
  [ "$(ls "$(folder a)/marin" | grep -c ^file)" = 37 ] || fail "files: $(ls "$(folder a)/marin")"
  [ -z "$(ls "$(folder a)/incoming")" ] || fail 'an unfinished sync is left'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

# Two trees, one TPU: each command sees its own.
test_commands_of_two_trees_at_once() {
  tree
  detach a
  git worktree add -q "$WORK/second" && echo second >"$WORK/second/note"
  pids=
  for i in 1 2 3 4; do
    for word in first second; do
      cd "$([ $word = first ] && echo "$WORK/cwd" || echo "$WORK/second")" || exit
      "$GDNCTL" dev-tpu-test --tpu-name a >"$WORK/out.$word.$i" 2>&1 &
      pids="$pids $!"
    done
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/out.*)"; done
  for i in 1 2 3 4; do
    for word in first second; do grep -qx "$word" "$WORK/out.$word.$i" || fail "not its own tree: $(cat "$WORK/out.$word.$i")"; done
  done
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_a_running_command_keeps_its_tree() {
  tree
  detach a
  git worktree add -q "$WORK/second" && echo second >"$WORK/second/note"
  pids=
  for i in 1 2 3 4; do
    for word in first second; do
      cd "$([ $word = first ] && echo "$WORK/cwd" || echo "$WORK/second")" || exit
      "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c 'cat note; sleep 1; cat note' >"$WORK/out.$word.$i" 2>"$WORK/err.$word.$i" &
      pids="$pids $!"
    done
  done
  for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/err.*)"; done
  for i in 1 2 3 4; do
    for word in first second; do
      [ "$(cat "$WORK/out.$word.$i")" = "$(printf '%s\n%s' $word $word)" ] || fail "not its own tree: $(cat "$WORK/out.$word.$i")"
    done
  done
  cd "$WORK/cwd" || exit
  launch "$GDNCTL" dev-tpu-execute --tpu-name a -- sh -c "touch $WORK/on; until [ -e $WORK/go ]; do sleep 0.1; done; cat note"
  running
  expect_beside() { "$GDNCTL" dev-tpu-execute --tpu-name a "$@" >"$WORK/beside" 2>&1 || fail "it waits: $*"; }
  expect_beside cat note
  expect_beside --no-sync cat note
  (cd "$WORK/second" && exec "$GDNCTL" dev-tpu-execute --tpu-name a cat note) >"$WORK/later" 2>&1 &
  later=$!
  "$GDNCTL" dev-tpu-test --tpu-name a >"$WORK/third" 2>&1 &
  third=$!
  until_it "waiting for another command that uses the tree on the TPU's host to end" "$WORK/later"
  until_it 'waiting for another command that uses the TPU of a to end' "$WORK/third"
  touch "$WORK/go"
  wait "$pid" || fail 'the first command'
  grep -qx first "$WORK/out" || fail 'another tree came under a running command'
  wait "$later" && grep -qx second "$WORK/later" || fail "later: $(cat "$WORK/later")"
  wait "$third" && grep -qx first "$WORK/third" || fail "third: $(cat "$WORK/third")"
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_only_what_was_moved_is_said_to_be() {
  tree
  mkdir -p sub/deep kept && echo x >sub/deep/x && echo x >kept/x
  detach a
  rm -r sub kept && echo file >sub && echo file >kept
  touch "$(folder a)/marin/kept/result"
  expect 0 "$GDNCTL" dev-tpu-execute --tpu-name a cat sub kept
  grep -qx "\[gdnctl\] in the way on the TPU's host, and moved to .*/kept there: kept" "$WORK/err" || fail "$(cat "$WORK/err")"
  ! grep -q 'there: .*sub' "$WORK/err" || fail "nothing was moved: $(cat "$WORK/err")"
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_a_loop_of_lines() {
  tree
  detach a
  seq 3 >list
  while read -r x; do "$GDNCTL" dev-tpu-execute --tpu-name a -- echo "line $x" </dev/null 2>/dev/null; done <list >"$WORK/lines"
  [ "$(cat "$WORK/lines")" = "$(printf 'line %s\n' 1 2 3)" ] || fail "$(cat "$WORK/lines")"
  "$GDNCTL" dev-tpu-execute --help | grep -q '</dev/null; done <list' || fail 'the help does not show it'
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_a_test_has_the_tree_for_itself() {
  tree
  sed -i "s|echo tested|echo tested; touch $WORK/on; until [ -e $WORK/go ]; do sleep 0.1; done|" gdnctl.toml
  detach a
  launch "$GDNCTL" dev-tpu-test --tpu-name a
  running
  "$GDNCTL" dev-tpu-execute --tpu-name a --no-sync cat note >"$WORK/beside" 2>&1 || fail 'a command without a sync waits'
  echo second >note
  "$GDNCTL" dev-tpu-execute --tpu-name a cat note >"$WORK/later" 2>&1 &
  later=$!
  until_it "waiting for another command that uses the tree on the TPU's host" "$WORK/later"
  "$GDNCTL" dev-tpu-test --tpu-name a --no-sync >"$WORK/third" 2>&1 &
  third=$!
  until_it 'waiting for another command that uses the TPU of a' "$WORK/third"
  ! grep -q second "$WORK/later" || fail 'the tree changed below a test'
  touch "$WORK/go"
  wait "$pid" || fail 'the test'
  grep -hqx first "$WORK/out" "$WORK/err" || fail 'the test saw another tree'
  wait "$later" || fail "later: $(cat "$WORK/later")"
  grep -qx second "$WORK/later" || fail 'the change was not synced'
  wait "$third" || fail "third: $(cat "$WORK/third")"
  # A client that is killed leaves no lock.
  rm "$WORK/go"
  launch "$GDNCTL" dev-tpu-test --tpu-name a
  running
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  touch "$WORK/go"
  expect 0 "$GDNCTL" dev-tpu-test --tpu-name a
  "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null
}

test_allocations_of_one_name_at_once_make_one_hold() {
  for round in 1 2 3; do
    pids=
    for i in 1 2 3; do
      "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name a --no-sync --detach --json >"$WORK/out.$i" 2>"$WORK/err.$i" &
      pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || fail "exit code $?: $(cat "$WORK"/err.*)"; done
    [ "$(held)" = 1 ] || fail "round $round: holds $(held)"
    [ "$(grep -ho 'gdnctl-hold-[^"]*' "$WORK"/out.* | sort -u | wc -l)" = 1 ] || fail 'they name different holds'
    [ "$(grep -l '"adopted":false' "$WORK"/out.* | wc -l)" = 1 ] || fail 'not exactly one has made it'
    "$GDNCTL" dev-tpu-release --tpu-name a 2>/dev/null || fail release
    [ "$(held)" = 0 ] || fail 'still held'
  done
}
