# Help pages.

each_command() { # FUNCTION
  local name
  command_names >"$WORK/names" || fail "no list of commands"
  while read -r name; do "$1" "$name"; done <"$WORK/names"
}

# The overview, whose name is empty, the pages of the groups, and those of the commands.
each_page() { # FUNCTION
  local group
  "$1" ''
  command_names | sed -n 's/ .*//p' | sort -u >"$WORK/groups"
  [ -s "$WORK/groups" ] || fail "no groups"
  while read -r group; do "$1" "$group"; done <"$WORK/groups"
  each_command "$1"
}

page_is_whole() {
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" $1 --help
  [ ! -s "$WORK/err" ] || fail "$1: stderr is not empty"
  head -1 "$WORK/out" | grep -q "^gdnctl${1:+ $1}: ." || fail "$1: no purpose on the first line"
  ! head -1 "$WORK/out" | grep -q 'a group of commands' || fail "$1: a purpose that says nothing"
  for heading in Usage Examples 'Exit codes' 'See also'; do
    grep -qx "$heading:" "$WORK/out" || fail "$1: no heading $heading"
  done
  grep -qE "^  .*gdnctl .*${1##* }" "$WORK/out" || fail "$1: no example of itself"
  local code
  for code in 0 2 8 70 '130, 143'; do
    grep -qE "^  $code +[a-z-]" "$WORK/out" || fail "$1: no exit code $code"
  done
}
test_every_page_has_purpose_usage_example_exit_codes_and_see_also() { each_page page_is_whole; }

has_global_options() {
  # shellcheck disable=SC2086
  "$GDNCTL" $1 --help | grep -qx 'Global options:' || fail "$1: no global options"
}
test_every_command_shows_the_global_options() { each_command has_global_options; }

page_fits() {
  for columns in 80 100; do
    # shellcheck disable=SC2086
    COLUMNS=$columns expect 0 "$GDNCTL" $1 --help
    # An example is copied by people and therefore never broken; it fits the width of the documentation.
    awk -v page="$1" 'length($0) > 100 { print page ": " length($0) " columns: " $0; bad = 1 } END { exit bad }' \
      "$WORK/out" >&2 || fail "$1 does not fit 100 columns"
    sed '/^Examples:/,/^$/d' "$WORK/out" | awk -v max=$columns -v page="$1" \
      'length($0) > max { print page ": " length($0) " columns: " $0; bad = 1 } END { exit bad }' >&2 ||
      fail "$1 does not fit $columns columns"
    grep -q $'\e' "$WORK/out" && fail "$1: escape sequences in a pipe"
  done
  true
}
test_every_page_fits_80_and_100_columns() { each_page page_fits; }

same_page() {
  # shellcheck disable=SC2086
  "$GDNCTL" $1 --help >"$WORK/long"
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" $1 -h
  [ "$1" = codex-loop ] || cmp -s "$WORK/long" "$WORK/out" || fail "$1: -h and --help differ"
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" help $1
  cmp -s "$WORK/long" "$WORK/out" || fail "$1: help $1 and $1 --help differ"
}
test_the_three_ways_to_ask_give_the_same_page() { each_page same_page; }

test_short_page_of_codex_loop_has_the_common_options_in_one_column() {
  COLUMNS=80 expect 0 "$GDNCTL" codex-loop -h
  [ "$(wc -l <"$WORK/out")" -le 64 ] || fail "$(wc -l <"$WORK/out") lines"
  [ "$(grep -c '^      --' "$WORK/out")" = 12 ] || fail "$(grep -c '^      --' "$WORK/out") options, not 12"
  for option in --iterations --resume --model --post-check --resilient; do out_has "      $option"; done
  out_has '`gdnctl codex-loop --help` shows all'
  for page in -h --help; do
    "$GDNCTL" codex-loop $page | sed -n 's/^\(      --[^ ]*\( [^ ]*\)\?   *\)[^ ].*/\1/p' | awk '{ print length($0) }' | sort -u >"$WORK/columns"
    [ "$(wc -l <"$WORK/columns")" = 1 ] || fail "$page: texts begin in columns $(xargs <"$WORK/columns")"
  done
}

test_overview_lists_every_command() {
  expect 0 "$GDNCTL" --help
  cp "$WORK/out" overview
  listed() { grep -qE "^  $1( |\$)" overview || fail "not listed: $1"; }
  each_command listed
  ! grep -q '__' overview || fail "a hidden command is listed"
  expect 0 "$GDNCTL" help
  cmp -s overview "$WORK/out" || fail "help and --help differ"
}

test_help_of_a_group() {
  expect 0 "$GDNCTL" config --help
  out_has 'config show'
  expect 0 "$GDNCTL" help config
  out_has 'config init'
}

test_second_names() {
  expect 0 "$GDNCTL" --help
  out_has 'ray-wait       wait for a job and return its verdict (also: job wait)'
  "$GDNCTL" ray-logs --help >page
  out_lacks '  job logs'
  for words in 'job logs --help' 'help job logs' 'job logs -h'; do
    # shellcheck disable=SC2086
    expect 0 "$GDNCTL" $words
    cmp -s page "$WORK/out" || fail "$words: another page"
  done
  out_has '  gdnctl ray-logs [OPTIONS] ID'
  out_has '  gdnctl job logs [OPTIONS] ID'
  expect 0 "$GDNCTL" job --help
  for word in test profile wait logs stop list; do out_has "  job $word "; done
  expect 2 "$GDNCTL" job wiat x
  err_has 'did you mean `gdnctl job wait`?'
  expect 2 "$GDNCTL" jog wait x
  err_has 'did you mean `gdnctl job wait`?'
  expect 0 "$GDNCTL" job list --cluster local
  expect 6 "$GDNCTL" job wait nothing --cluster local
}

test_help_wins_over_missing_arguments_and_a_broken_configuration() {
  echo 'target = [' >gdnctl.toml
  expect 0 "$GDNCTL" completion --help
  expect 0 "$GDNCTL" config show --help
  expect 0 "$GDNCTL" --version
}

test_help_and_version_open_no_library_that_is_opened_on_first_use() {
  ldd "$GDNCTL" | grep -qE 'lib(curl|git2)\.so' && skip 'this build links its libraries'
  LD_DEBUG=libs "$GDNCTL" doctor 2>"$WORK/trace" >/dev/null
  grep -q 'libcurl\.so' "$WORK/trace" || skip 'the loader does not tell what it opens'
  for page in '--help' '--version' 'doctor --help' 'config show'; do
    # shellcheck disable=SC2086
    LD_DEBUG=libs "$GDNCTL" $page 2>"$WORK/trace" >/dev/null
    ! grep -E 'lib(curl|git2|crypto|isal)\.so' "$WORK/trace" || fail "$page opens a library"
  done
}

lists_code() { # CODE PATTERN COMMAND...
  # shellcheck disable=SC2086
  "$GDNCTL" ${*:3} --help | sed -n '/^Exit codes:/,/^$/p' | grep -qE "^  $1 +.*$2" || fail "${*:3}: no code $1: $2"
}
test_local_faults_are_named_where_files_are_used() {
  lists_code 8 'leads out' ray-test
  lists_code 8 'leads out' ray-profile
  for command in ray-wait ray-logs ray-stop ray-list; do lists_code 8 'state directory' $command; done
  lists_code 8 compiler oracle verify
  lists_code 8 compiler oracle bench
  for command in show summary context; do lists_code 8 'cannot be read' log $command; done
  lists_code 8 'cannot be read' config show
  for code in 1 3 4 5 6 7 9 124; do lists_code $code . ''; done
}

test_the_codes_of_local_faults_occur() {
  echo 'int x;' >kernel.c
  CC=/no/such/compiler expect 8 "$GDNCTL" oracle verify gdn --kernel src:kernel.c --case g1
}
