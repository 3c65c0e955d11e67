# Three iterations on the example kernel with the recorded agent: a gain stays, a wrong kernel goes.
test_a_wrong_kernel_is_taken_back_and_the_next_change_builds_on_the_gain() {
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  git init -q . && mkdir -p examples prompts && cp -r "$REPO/examples/cpu-gdn" examples/ && cp "$REPO/gdnctl.toml" .
  cp "$REPO/prompts/cpu-gdn.md" prompts/
  git add -A && git commit -qm base
  base=$(git rev-parse HEAD)
  expect 0 "$GDNCTL" codex-loop --iterations 3 --agent command --agent-command 'sh examples/cpu-gdn/agent/agent.sh' \
    --isolation worktree --sleep-seconds 0 --max-failures -1 --post-check-policy count-failure \
    --post-check "'$GDNCTL' oracle verify gdn --kernel src:examples/cpu-gdn/kernel.c --case g1 --case odd_dims"
  git log --format=%s "$base"..HEAD -- examples/cpu-gdn/kernel.c >subjects
  printf 'Sweep over the state once a token, with the token'"'"'s own write\nWalk a panel of columns through the whole sequence\n' >want
  cmp want subjects || fail "commits: $(cat subjects)"
  err_has 'codex-loop stopped: reason='
  grep -q 'Iteration: 2 / 3' .agents/logs/gdn_codex_loop/iteration-002-prompt.txt || fail 'no prompt of iteration 2'
  "$GDNCTL" prompts render --iteration 1 --total 3 --head-sha "$base" | cmp - .agents/logs/gdn_codex_loop/iteration-001-prompt.txt ||
    fail 'prompts render gives other bytes'
}
