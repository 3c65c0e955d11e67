# init marin: what it puts into a checkout, what it leaves alone, and the script that runs this program.
marin() {  # a checkout as far as init needs one
  git init -q . && mkdir -p lib/levanter/src/levanter/layers
  : >lib/levanter/src/levanter/layers/gated_deltanet.py
}

test_puts_script_prompt_and_presets_in_place_and_lists_them() {
  marin
  mkdir sub
  cd sub || fail cd
  expect 0 "$GDNCTL" init marin
  out_empty
  err_has 'scripts/gdn/codex_iteration_prompt.md: created'
  err_has 'scripts/gdn/session_directives/triangular-inversion.md: created'
  cd ../scripts/gdn || fail 'no scripts/gdn'
  cmp "$REPO/prompts/marin.md" codex_iteration_prompt.md || fail 'another prompt'
  diff -r "$REPO/session_directives" session_directives || fail 'other presets'
  [ -x gdnctl.py ] || fail 'the script cannot be run'
  cd ../.. || fail cd
  expect 0 "$GDNCTL" prompts render --head-sha 0123456789abcdef0123456789abcdef01234567 --directive-preset triangular-inversion
  out_has '[Directive 1]'
}
test_the_skill_for_agents_is_the_one_of_the_docs() {
  marin
  expect 0 "$GDNCTL" init marin
  err_has '.agents/skills/gdnctl/SKILL.md: created'
  cmp "$REPO/prompts/skill/SKILL.md" .agents/skills/gdnctl/SKILL.md || fail 'another skill'
  sed -n '/^````markdown$/,/^````$/p' "$REPO/docs/agents.md" | sed '1d;$d' | cmp - "$REPO/prompts/skill/SKILL.md" || fail 'the docs have another one'
  local command
  sed -n 's/.*| `gdnctl \([a-z-]*\( [a-z]*\)\{0,1\}\)[ `].*/\1/p' "$REPO/prompts/skill/SKILL.md" >commands
  [ "$(wc -l <commands)" = 5 ] || fail "not five commands: $(cat commands)"
  while read -r command; do expect 0 "$GDNCTL" help $command; done <commands
}
test_the_diff_can_be_applied() {
  marin
  expect 0 "$GDNCTL" init marin --dry-run
  [ ! -e scripts ] || fail 'a dry run wrote'
  err_has 'scripts/gdn/gdnctl.py: would be created'
  out_has '+++ b/scripts/gdn/session_directives/triangular-inversion.md'
  patch -p1 -s <"$WORK/out" || fail 'the diff does not apply'
  expect 0 "$GDNCTL" init marin
  out_empty
  err_has 'everything is in place'
}
test_twice_is_once() {
  marin
  expect 0 "$GDNCTL" init marin
  find scripts -type f -exec sha256sum {} + | sort >before
  expect 0 "$GDNCTL" init marin
  out_empty
  find scripts -type f -exec sha256sum {} + | sort >after
  cmp before after || fail 'the second call changed something'
}
test_a_file_that_differs_is_kept_and_the_others_are_written() {
  marin
  mkdir -p scripts/gdn
  printf 'print("mine")\n' >scripts/gdn/gdnctl.py
  expect 7 "$GDNCTL" init marin
  [ "$(cat scripts/gdn/gdnctl.py)" = 'print("mine")' ] || fail 'it was overwritten'
  err_has 'scripts/gdn/gdnctl.py: kept, it differs'
  err_has 'then pass --force'
  out_has '-print("mine")'
  out_lacks 'session_directives'
  [ -f scripts/gdn/session_directives/matmul-batching.md ] || fail 'the others were not written'
  expect 7 "$GDNCTL" init marin --dry-run --json
  [ "$(jq -r '.schema, .dry_run, (.files | map(.action) | group_by(.) | map("\(.[0])=\(length)") | join(","))' "$WORK/out" | tr '\n' ' ')" = \
    'gdnctl.init-marin/1 true kept=1,unchanged=11 ' ] || fail "$(cat "$WORK/out")"
  expect 0 "$GDNCTL" init marin --force
  err_has 'scripts/gdn/gdnctl.py: replaced'
  out_has '-print("mine")'
  grep -q execv scripts/gdn/gdnctl.py || fail 'it was not replaced'
  expect 0 "$GDNCTL" init marin
}
test_refuses_elsewhere() {
  expect 2 "$GDNCTL" init marin
  err_has 'not inside a git repository'
  git init -q .
  expect 2 "$GDNCTL" init marin
  err_has 'is not a Marin checkout'
  [ ! -e scripts ] || fail 'something was written'
}
test_leads_nowhere_outside_of_the_checkout() {
  marin
  mkdir "$WORK/elsewhere" && ln -s "$WORK/elsewhere" scripts
  expect 8 "$GDNCTL" init marin
  [ -z "$(ls "$WORK/elsewhere")" ] || fail 'it wrote through the link'
}
test_a_folder_that_cannot_be_written_is_said() {
  marin
  powerless
  mkdir scripts && chmod 555 scripts
  chmod a+rwx .
  expect 8 "${as[@]}" "$GDNCTL" init marin
  err_has 'scripts/gdn'
}

shim() {
  command -v python3 >/dev/null || skip 'no python3'
  marin
  "$GDNCTL" init marin >"$WORK/out" 2>"$WORK/err" || fail init
  mkdir fake other
  # shellcheck disable=SC2016
  printf '#!/bin/sh\nprintf "%%s\\n" fake "$@"\nexit 7\n' >fake/gdnctl
  # shellcheck disable=SC2016
  printf '#!/bin/sh\necho other\n' >other/gdnctl
  chmod +x fake/gdnctl other/gdnctl
  python3=$(python3 -c 'import sys; print(sys.executable)')  # and no wrapper of it
}
test_the_script_hands_everything_to_the_program() {
  shim
  expect 7 env -u GDNCTL PATH="$PWD/fake:$PATH" "$python3" scripts/gdn/gdnctl.py ray-wait 'a b' --tail 400
  printf 'fake\nray-wait\na b\n--tail\n400\n' >want
  cmp want "$WORK/out" || fail "got: $(cat "$WORK/out")"
  expect 0 env PATH="$PWD/fake:$PATH" GDNCTL="$PWD/other/gdnctl" "$python3" scripts/gdn/gdnctl.py
  out_has other
  expect 0 "$python3" scripts/gdn/gdnctl.py --version
  out_has gdnctl
}
test_the_script_says_what_is_missing() {
  shim
  for name in '' /no/such/gdnctl; do
    expect 2 env PATH=/no/such GDNCTL="$name" "$python3" scripts/gdn/gdnctl.py lint-log
    out_empty
    err_has '[gdnctl] no program'
    err_has 'put gdnctl on PATH, or its path into GDNCTL'
  done
  ln -s "$PWD/scripts/gdn/gdnctl.py" "$WORK/gdnctl"
  expect 2 env GDNCTL="$WORK/gdnctl" "$python3" scripts/gdn/gdnctl.py  # itself: not for ever
  err_has 'no program'
}
