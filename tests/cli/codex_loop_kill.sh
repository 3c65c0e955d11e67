# kill -9 in the middle of codex-loop, then --resume: the end is that of an undisturbed run.
# GDNCTL_TEST_KILLS=200: the slow suite, with every record of the journal.
kills=${GDNCTL_TEST_KILLS:-20}
all=$([ "$kills" -ge 200 ] && echo 1000)
sweep() { python3 -B "$REPO/tests/support/loop_kills.py" "$GDNCTL" "$WORK" "$@" >"$WORK/out" 2>"$WORK/err" || fail "after a kill"; tail -n 1 "$WORK/out"; }

test_kill_in_place_with_a_held_tpu() { sweep held $((kills / 4)) "${all:-4}"; }
test_kill_while_an_upstream_is_merged() { sweep sync $((kills / 10)) "${all:-2}"; }
test_kill_in_a_worktree() { sweep worktree $((kills / 4)) "${all:-4}"; }
test_kill_with_gates_on() { sweep gates $((kills / 5)) "${all:-2}"; }
