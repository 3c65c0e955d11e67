# Three iterations on the loss kernel of examples/cpu-ce, decided by the gates of its target: the oracle's verdict on a few
# cases, and paired times at a small shape. (In this binary, because sanitizers would take half a minute.)
test_a_gain_is_kept_a_wrong_kernel_and_a_slower_one_are_not_and_the_log_says_so() {
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  unset GIT_AUTHOR_DATE GIT_COMMITTER_DATE  # the log's dates are compared with the commits'
  git init -q . && mkdir -p examples prompts && cp -r "$REPO"/examples/cpu-ce "$REPO"/examples/cpu-gdn examples/
  cp "$REPO/prompts/cpu-ce.md" prompts/
  sed -e '/^test = .*linear-ce/s/\]$/, "--case", "upstream_blocks", "--case", "layout_vh"]/' \
    -e 's/"64", "--hidden", "128", "--vocab", "4000"/"16", "--hidden", "64", "--vocab", "1000"/' \
    -e 's/"--rounds", "2", "--runs", "3", "--json"/"--rounds", "1", "--runs", "25", "--json"/' "$REPO/gdnctl.toml" >gdnctl.toml
  [ "$(grep -c '"layout_vh"\|"1000"\|"--rounds", "1"' gdnctl.toml)" = 4 ] || fail 'gdnctl.toml has other words'
  git add -A && git commit -qm base
  base=$(git rev-parse HEAD)
  cp -r examples/cpu-ce/agent "$WORK/records" && rm "$WORK"/records/3-*
  git apply "$WORK"/records/1-*.patch
  { printf 'Read w column by column\n\n'; git diff -R; } >"$WORK/records/3-columns.patch"
  git apply examples/cpu-ce/agent/3-*.patch || fail 'the third record does not apply to the first'
  expect 0 "$GDNCTL" oracle verify linear-ce --kernel src:examples/cpu-ce/kernel.c --case upstream_blocks --case layout_vh
  git checkout -q .
  expect 0 "$GDNCTL" --target cpu-ce codex-loop --iterations 3 --agent command \
    --agent-command "sh examples/cpu-gdn/agent/agent.sh '$WORK/records'" --sleep-seconds 0 --max-failures -1 \
    --validation-mode required --validation-policy count-failure --validation-ray-cluster local --perf-mode required
  [ "$(git log --format=%s "$base"..HEAD -- examples/cpu-ce/kernel.c)" = 'Read w in the order in which it lies' ] || fail "$(git log --oneline)"
  err_has 'performance champion promoted: '
  err_has 'Iteration failed required TPU validation/profile gate.'
  [ "$(grep '^- Decision: ' examples/cpu-ce/log.md | cut -d' ' -f3 | xargs)" = 'promoted rejected regression' ] || fail "$(cat examples/cpu-ce/log.md)"
  grep -q '^  - linear-ce/gradients_ms: `' examples/cpu-ce/log.md || fail 'no figure in the log'
  expect 0 "$GDNCTL" --target cpu-ce lint-log --scope all --strict
}
