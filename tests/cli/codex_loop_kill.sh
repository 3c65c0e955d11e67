# kill -9 in the middle of codex-loop, or a full disk, then --resume: the end is that of an undisturbed run.
# GDNCTL_TEST_KILLS=200: the slow suite, with every record of the journal.
kills=${GDNCTL_TEST_KILLS:-20}
all=$([ "$kills" -ge 200 ] && echo 1000)
sweep() { python3 "$REPO/tests/support/loop_kills.py" "$GDNCTL" "$WORK" "$@" >"$WORK/out" 2>"$WORK/err" || fail "after a kill"; tail -n 1 "$WORK/out"; }

test_kill_in_place_with_a_held_tpu() { sweep held $((kills / 4)) "${all:-4}"; }
test_kill_in_a_worktree() { sweep worktree $((kills / 4)) "${all:-4}"; }
test_kill_with_gates_on() { sweep gates $((kills / 5)) "${all:-2}"; }
test_full_disk() {
  unshare -m mount -t tmpfs -o size=1m tmpfs "$TMPDIR" 2>/dev/null || skip 'no disk can be mounted here'
  unshare -m python3 "$REPO/tests/support/loop_kills.py" "$GDNCTL" "$WORK" disk $((kills >= 200 ? 60 : 4)) 0 >"$WORK/out" 2>"$WORK/err" || fail 'on a full disk'
  tail -n 1 "$WORK/out"
}
