# A disk that becomes full somewhere in codex-loop, or a limit on the size of files: it ends with 8 and says why, and
# after --resume the end is that of an undisturbed run. GDNCTL_TEST_DISKS=48: the slow suite.
disks=${GDNCTL_TEST_DISKS:-2}
sweep() { # KIND FULL [SIZES]
  local own=()
  if [ "$2" != files ]; then
    unshare -m mount -t tmpfs -o size=1m tmpfs "$TMPDIR" 2>/dev/null || skip 'no disk can be mounted here'
    own=(unshare -m)
  fi
  "${own[@]}" python3 -B "$REPO/tests/support/loop_disks.py" "$GDNCTL" "$WORK" "$1" "$2" "${3:-$disks}" >"$WORK/out" 2>"$WORK/err" || fail "$1, $2"
  tail -n 1 "$WORK/out"
}

test_full_disk_in_place() { sweep inplace start; }
test_full_disk_in_a_worktree() { sweep worktree start; }
test_full_disk_in_place_with_gates() { sweep gates-inplace start; }
test_full_disk_in_a_worktree_with_gates() { sweep gates start; }
test_disk_that_the_agent_fills_in_place() { sweep inplace agent $((2 * disks)); }
test_disk_that_the_agent_fills_in_a_worktree_with_gates() { sweep gates agent; }
test_full_disk_of_the_log_directory() { sweep worktree logs; }
test_limit_on_the_size_of_files_in_place() { sweep inplace files; }
test_limit_on_the_size_of_files_in_a_worktree_with_gates() { sweep gates files; }
