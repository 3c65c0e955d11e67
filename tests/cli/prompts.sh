# prompts list, show and render: names, places, bytes.
sha=0123456789abcdef0123456789abcdef01234567

test_list_names_what_the_program_carries() {
  expect 0 "$GDNCTL" prompts list
  for name in '* cpu-gdn' '  cpu-ce' '  marin' triangular-inversion tpu-layout-and-dtypes emit-pipeline-fullseq fla-style-decomposition \
    expdiff-outer-product matmul-batching associative-summaries xla-first-train-path ejkernel-recompute-backward; do
    out_has "$name"
  done
  awk 'length > 100 { exit 1 }' "$WORK/out" || fail 'a line is longer than 100 columns'
  expect 0 "$GDNCTL" prompts list --json
  [ "$(jq -r '.schema, .target, (.documents | length), ([.documents[] | select(.default)] | length)' "$WORK/out" | tr '\n' ' ')" = \
    'gdnctl.prompts-list/1 cpu-gdn 12 1 ' ] || fail "$(cat "$WORK/out")"
  [ "$(jq -c '.documents[] | select(.name == "matmul-batching") | [.kind, .slot, .applies, .file]' "$WORK/out")" = \
    '["directive","H",["tpu","cpu"],null]' ] || fail "$(cat "$WORK/out")"
}

test_the_repositorys_own_come_first() {
  git init -q . && mkdir -p scripts/gdn/session_directives sub
  printf -- '---\ntitle: Mine\nslot: Z\n---\ntext\n' >scripts/gdn/session_directives/matmul-batching.md
  printf 'It {{ITERATION}}\n' >scripts/gdn/codex_iteration_prompt.md
  cd sub || fail cd
  expect 0 "$GDNCTL" prompts list
  out_has 'in scripts/gdn/session_directives/matmul-batching.md'
  out_has '* codex_iteration_prompt'
  expect 0 "$GDNCTL" prompts show matmul-batching
  [ "$(cat "$WORK/out")" = text ] || fail 'another text'
  expect 0 "$GDNCTL" prompts render --head-sha $sha
  [ "$(cat "$WORK/out")" = 'It 1' ] || fail 'another prompt'
}

test_show_prints_what_an_agent_gets() {
  expect 0 "$GDNCTL" prompts show triangular-inversion
  [ "$(head -1 "$WORK/out")" = '# Get rid of the explicit triangular inverse' ] || fail 'the front matter is in it'
  expect 0 "$GDNCTL" prompts show marin
  cmp "$REPO/prompts/marin.md" "$WORK/out" || fail 'another prompt'
  expect 0 "$GDNCTL" prompts show triangular-inversion --json
  [ "$(jq -r '.schema, .kind, .slot' "$WORK/out" | tr '\n' ' ')" = 'gdnctl.prompts-show/1 directive K ' ] || fail "$(cat "$WORK/out")"
  expect 2 "$GDNCTL" prompts show triangular-inverson
  out_empty
  err_has 'did you mean `triangular-inversion`?'
}

test_render_gives_the_recipes_example_byte_for_byte() {
  # shellcheck disable=SC1083
  printf 'It {{ITERATION}}/{{TOTAL_ITERATIONS}} @ {{HEAD_SHA}}\n\n\n' >t.md
  expect 0 "$GDNCTL" prompts render ./t.md --iteration 2 --total 5 --head-sha $sha --directive A --directive ' ' --directive '
B
C '
  printf 'It 2/5 @ %s\n\nSession directives for this codex-loop run (must follow unless they conflict with tests/correctness):\n\n[Directive 1]\nA\n[Directive 2]\nB\nC\n' $sha >want
  cmp want "$WORK/out" || fail 'other bytes'
  expect 0 "$GDNCTL" prompts render t.md --iteration 2 --total 5 --head-sha $sha
  printf 'It 2/5 @ %s\n\n\n' $sha >want
  cmp want "$WORK/out" || fail 'other bytes without directives'
  expect 2 "$GDNCTL" prompts render t.md --iteration 9 --total 5 --head-sha $sha
  err_has '--iteration 9: the run has 5 iterations (--total)'
  expect 0 "$GDNCTL" prompts render t.md --iteration 9 --head-sha $sha
  out_has 'It 9/9 @'
}

test_render_puts_presets_before_files_before_texts() {
  git init -q . && printf 'x' >a && git add a && git commit -qm a
  printf 'P\n' >p.md
  printf 'from a file\n' >d.md
  printf '[targets.cpu-gdn]\npresets = ["matmul-batching"]\n' >gdnctl.toml
  expect 0 "$GDNCTL" prompts render p.md --directive text --directive-file d.md --directive-preset expdiff-outer-product
  grep -A1 '^\[Directive' "$WORK/out" | grep -v '^--' >order
  printf '[Directive 1]\n# Stack left operands that share a right one\n[Directive 2]\n# Decay ratios as centred outer products\n[Directive 3]\nfrom a file\n[Directive 4]\ntext\n' >want
  cmp want order || fail "order: $(cat order)"
  out_lacks 'slot:'
  expect 0 "$GDNCTL" prompts render cpu-gdn
  out_has "Starting commit: $(git rev-parse HEAD)"
  expect 0 "$GDNCTL" prompts render cpu-gdn --json
  [ "$(jq -r '.schema, .head_sha, .directives' "$WORK/out" | tr '\n' ' ')" = "gdnctl.prompts-render/1 $(git rev-parse HEAD) 1 " ] ||
    fail "$(cat "$WORK/out")"
}

test_render_says_what_nothing_replaces() {
  # shellcheck disable=SC1083
  printf '{{OTHER}} {{OTHER}} {{ITERATION}}\n' >p.md
  expect 0 "$GDNCTL" prompts render p.md
  [ "$(cat "$WORK/out")" = '{{OTHER}} {{OTHER}} 1' ] || fail 'another prompt'
  [ "$(grep -c 'unknown placeholder {{OTHER}}' "$WORK/err")" = 1 ] || fail 'not said once'
}

test_render_refuses_what_it_cannot_do() {
  printf 'P' >p.md
  : >empty.md
  expect 2 "$GDNCTL" prompts render nope
  err_has 'unknown prompt `nope`'
  err_has 'cpu-ce, cpu-gdn, marin'
  expect 2 "$GDNCTL" prompts render ./nope.md
  err_has "prompt file not found: $PWD/./nope.md"
  expect 2 "$GDNCTL" prompts render p.md --directive-preset nope
  err_has 'unknown directive preset `nope`'
  err_has 'triangular-inversion'
  expect 2 "$GDNCTL" prompts render p.md --directive-file gone.md
  err_has "directive file not found for gone.md: $PWD/gone.md"
  expect 2 "$GDNCTL" prompts render p.md --directive-file empty.md
  err_has "directive file is empty for empty.md: $PWD/empty.md"
  expect 2 "$GDNCTL" prompts render p.md --iteration 0
  expect 2 "$GDNCTL" prompts render p.md --head-sha abc
  expect 2 "$GDNCTL" prompts render cpu-gdn
  err_has 'pass the commit with --head-sha'
  out_empty
}

test_names_are_completed() {
  [ "$("$GDNCTL" __complete -- prompts render '' | tr '\n' ' ')" = 'cpu-ce cpu-gdn marin ' ] || fail 'prompts'
  [ "$("$GDNCTL" __complete -- prompts render --directive-preset '' | wc -l)" = 9 ] || fail 'presets'
  [ "$("$GDNCTL" __complete -- prompts show '' | wc -l)" = 12 ] || fail 'documents'
}

# commands_named FILE: what its text calls this program with, a command a line; in lines that are wrapped, too.
commands_named() {
  tr '\n' ' ' <"$1" | tr -s ' ' | grep -oE '\bgdnctl(\.py)? [a-z][a-z-]*( [a-z][a-z-]*)?' | sed 's/^[^ ]* //' | sort -u
}

test_prompts_and_directives_name_only_commands_that_there_are() {
  local name command group seen=0
  expect 0 "$GDNCTL" prompts list --json
  for name in $(jq -r '.documents[].name' "$WORK/out"); do
    expect 0 "$GDNCTL" prompts show "$name"
    cp "$WORK/out" text
    while read -r command; do
      group=${command%% *}
      case $group in oracle | log | policy | prompts | config | cluster) ;; *) command=$group ;; esac
      # shellcheck disable=SC2086
      "$GDNCTL" $command --help >/dev/null 2>&1 || fail "$name names 'gdnctl $command', which there is not"
      seen=$((seen + 1))
    done < <(commands_named text)
  done
  [ $seen -ge 10 ] || fail "only $seen were looked at"
  # That a missing one would be found:
  printf 'run `gdnctl\ntrace hotspots x`, uv run gdnctl.py dev-tpu-profile --x\n' >text
  [ "$(commands_named text | tr '\n' ' ')" = 'dev-tpu-profile trace hotspots ' ] || fail "$(commands_named text)"
  expect 2 "$GDNCTL" dev-tpu-frobnicate --help
}
