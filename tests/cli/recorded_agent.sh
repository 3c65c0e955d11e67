# The agent without a model of examples/cpu-gdn: its recorded changes apply one after the other, and are what they say.

# A repository with the example in it, as a loop would give it to an agent.
repository() {
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  git init -q . && mkdir -p examples prompts && cp -r "$REPO/examples/cpu-gdn" examples/ && cp "$REPO/gdnctl.toml" .
  cp "$REPO/prompts/cpu-gdn.md" prompts/
  git add -A && git commit -qm base
}
iteration() {  # N: one iteration; a rejected one is taken back as a loop does it, by the caller
  "$GDNCTL" prompts render cpu-gdn --iteration "$1" --total 4 --directive 'Iteration: 9 / 9' >"$WORK/prompt" || fail 'no prompt'
  expect 0 sh examples/cpu-gdn/agent/agent.sh <"$WORK/prompt"
}
one_commit_on_the_kernel_alone() {  # BASE
  [ "$(git rev-list --count "$1"..HEAD)" = 1 ] || fail "$(git rev-list --count "$1"..HEAD) commits"
  [ "$(git diff --name-only "$1" HEAD)" = examples/cpu-gdn/kernel.c ] || fail "changed: $(git diff --name-only "$1" HEAD)"
  [ -z "$(git status --porcelain)" ] || fail "left in the tree: $(git status --porcelain)"
}
verify() {  # EXPECTED: on cases that tell tails, heads, packed and empty sequences apart
  expect "$1" "$GDNCTL" oracle verify gdn --kernel src:examples/cpu-gdn/kernel.c --case g1 --case g1_tiled --case odd_dims \
    --case d128 --case varlen_empty_passthrough --case varlen_nan_padding --case no_tokens --case gate_inf
}

test_three_iterations_right_wrong_right() {
  repository
  verify 0
  local base kept
  base=$(git rev-parse HEAD)
  iteration 1
  one_commit_on_the_kernel_alone "$base"
  out_has 'iteration 1: Walk a panel of columns through the whole sequence'
  verify 0
  kept=$(git rev-parse HEAD)
  iteration 2
  one_commit_on_the_kernel_alone "$kept"
  verify 1
  out_has 'verdict: WRONG'
  out_has 'stage: order'
  git reset -q --hard "$kept"
  iteration 3
  one_commit_on_the_kernel_alone "$kept"
  verify 0
}
test_an_iteration_without_a_record_changes_nothing() {
  repository
  local base
  base=$(git rev-parse HEAD)
  iteration 4
  out_has 'nothing is recorded for iteration 4'
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'a commit was made'
  [ -z "$(git status --porcelain)" ] || fail 'the tree was changed'
}
test_a_prompt_without_a_number_is_refused() {
  repository
  printf 'do something\n' >"$WORK/prompt"
  expect 2 sh examples/cpu-gdn/agent/agent.sh <"$WORK/prompt"
  err_has 'no line "- Iteration: N / M"'
}
test_a_change_that_does_not_apply_leaves_the_tree_alone() {
  repository
  sed -i 's/one_head/a_head/' examples/cpu-gdn/kernel.c && git commit -qam other
  local base
  base=$(git rev-parse HEAD)
  printf -- '- Iteration: 1 / 3\n' >"$WORK/prompt"
  expect 1 sh examples/cpu-gdn/agent/agent.sh <"$WORK/prompt"
  [ "$(git rev-parse HEAD)" = "$base" ] || fail 'a commit was made'
  [ -z "$(git status --porcelain)" ] || fail 'the tree was changed'
}
test_it_commits_where_git_knows_nobody() {
  repository
  : >"$GIT_CONFIG_GLOBAL"
  iteration 1
  [ "$(git log -1 --format=%an)" = 'recorded agent' ] || fail "author: $(git log -1 --format=%an)"
}
test_an_attempt_begins_its_answer_with_what_it_tried() {
  repository
  printf '# Attempt 1 of run 20260101t000000-0000\n' >"$WORK/prompt"
  expect 0 sh examples/cpu-gdn/agent/agent.sh <"$WORK/prompt"
  [ "$(head -1 "$WORK/out" | jq -r .technique)" = 'Walk a panel of columns through the whole sequence' ] || fail "$(cat "$WORK/out")"
}
