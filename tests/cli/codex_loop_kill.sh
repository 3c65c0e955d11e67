# kill -9 in the middle of codex-loop, then --resume: the end is that of an undisturbed run. GDNCTL_TEST_KILLS: how many.
kills=${GDNCTL_TEST_KILLS:-20}
sweep() { python3 "$REPO/tests/support/loop_kills.py" "$GDNCTL" "$WORK" "$@" >"$WORK/out" 2>"$WORK/err" || fail "after a kill"; }

test_kill_at_random_instants_in_place() { sweep inplace instants $((kills / 2)); }
test_kill_at_random_instants_in_a_worktree() { sweep worktree instants $((kills / 2)); }
test_kill_at_records_in_place() { sweep inplace records $((kills > 100 ? 100 : kills / 4)); }
test_kill_at_records_in_a_worktree() { sweep worktree records $((kills > 100 ? 100 : kills / 4)); }
