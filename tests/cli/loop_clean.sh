# loop-clean: what loops leave behind goes, what a loop needs stays.
. "$REPO/tests/support/loop_repo.sh"

state=$XDG_STATE_HOME/gdnctl
listed() { git worktree list | wc -l; }

test_a_run_that_completes_leaves_no_worktree() {
  repo && agent "$works"
  loop 0 --iterations 2 --isolation worktree
  last_line 'reason=completed iteration=2 rc=0'
  [ "$(listed)" = 1 ] || fail 'a worktree is registered'
  [ -z "$(ls "$state/worktrees" 2>/dev/null)" ] || fail 'a folder is left'
  # The next run makes it again.
  loop 0 --iterations 1 --isolation worktree
  [ "$(git rev-list --count HEAD)" = 4 ] || fail 'commits'
  [ "$(listed)" = 1 ] || fail 'a worktree is registered after the second run'
}

test_an_interrupted_run_keeps_its_worktree_until_it_is_continued() {
  repo && agent 'touch "$WORK/begun"' 'sleep 30' "$works"
  export WORK
  launch "$GDNCTL" codex-loop --agent command --agent-command "$WORK/agent" --agent-env WORK --iterations 1 --isolation worktree
  for _ in $(seq 600); do [ -e "$WORK/begun" ] && break; sleep 0.05; done
  expect 7 "$GDNCTL" loop-clean --older-than 0d
  err_has 'loop'
  kill -9 "$pid" && wait "$pid" 2>/dev/null
  [ "$(listed)" = 2 ] || fail 'the worktree is gone'
  expect 0 "$GDNCTL" loop-clean --older-than 0d
  err_has 'was interrupted; --resume continues it: its worktree and refs are kept'
  [ "$(listed)" = 2 ] || fail 'the worktree of an interrupted run was removed'
  agent "$works"
  expect 0 "$GDNCTL" codex-loop --resume
  [ "$(listed)" = 1 ] || fail 'the worktree stays after the run'
  expect 0 "$GDNCTL" loop-clean --dry-run
  out_has 'would remove 0 worktrees, '
}

test_old_refs_and_caches_go_and_new_ones_stay() {
  repo && agent "$works"
  loop 0 --iterations 1 --isolation worktree
  git for-each-ref refs/gdnctl | grep -q . || fail 'the run has no refs'
  local old=refs/gdnctl/20200101t000000-ab12/iter-001/head rescued=refs/gdnctl/rescued/$base
  git update-ref $old HEAD && git update-ref refs/gdnctl-others/20200101t000000-ab12/last HEAD && git update-ref "$rescued" HEAD
  mkdir -p "$state/loops/20200101t000000-ab12/codex-home" "$state/traces/new" "$state/traces/old"
  touch "$state/traces/old/t.json" "$state/traces/new/t.json"
  find "$state/loops" "$state/traces/old" -exec touch -d '-40 days' {} +
  expect 0 "$GDNCTL" loop-clean --dry-run
  out_has "ref       $old"
  out_has "cache     $state/traces/old"
  out_has 'would remove 0 worktrees, 2 refs, 2 caches'
  git rev-parse -q --verify $old >/dev/null || fail 'a dry run removed a ref'
  expect 0 "$GDNCTL" loop-clean --json
  jq -e '.schema == "gdnctl.loop-clean/1" and (.refs | length) == 2 and (.caches | length) == 2 and .kept == null' "$WORK/out" >/dev/null || fail "$(cat "$WORK/out")"
  ! git rev-parse -q --verify $old >/dev/null || fail 'the ref is left'
  [ ! -e "$state/traces/old" ] && [ ! -e "$state/loops/20200101t000000-ab12" ] && [ -e "$state/traces/new/t.json" ] || fail 'caches'
  git for-each-ref refs/gdnctl | grep -q /iter-001/ || fail 'the refs of the new run are gone'
  git rev-parse -q --verify "$rescued" >/dev/null || fail 'rescued work is gone'
  expect 2 "$GDNCTL" loop-clean --older-than soon
}

test_work_without_a_ref_in_a_stale_worktree_is_rescued() {
  repo && agent "$works"
  loop 0 --iterations 1 --isolation worktree
  # As a killed gdnctl of an older version left it: a worktree at the slot, and a commit that only it has.
  local slot=$state/worktrees/cwd-$(printf '%s' "$(pwd -P)/.git" | sha256sum | cut -c1-12)
  git worktree add -q --detach "$slot" && (cd "$slot" && echo 'int speed = 99;' >kernel.c && git commit -qam lost)
  local lost=$(git -C "$slot" rev-parse HEAD)
  expect 0 "$GDNCTL" loop-clean
  out_has 'removed 1 worktree, 0 refs, 0 caches'
  err_has "is kept at refs/gdnctl/rescued/$lost"
  [ "$(git rev-parse "refs/gdnctl/rescued/$lost")" = "$lost" ] || fail 'the work is lost'
  [ "$(listed)" = 1 ] || fail 'the worktree is registered'
}
