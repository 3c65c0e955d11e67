# Usage errors: exit 2, one style, a suggestion, and nothing done.

test_misspelt_global_option_with_a_value_is_named() {
  expect 2 "$GDNCTL" --colr never lint-log
  err_has "unknown option '--colr'"
  err_has 'did you mean `--color`?'
  expect 2 "$GDNCTL" --color never lint-lg
  err_has "unknown command 'lint-lg'"
}

test_no_command_shows_the_overview_on_stderr_and_exits_2() {
  expect 2 "$GDNCTL"
  out_empty
  err_has 'gdnctl COMMAND [OPTIONS]'
  err_has 'config show'
}

test_a_group_alone_lists_its_members_and_exits_2() {
  expect 2 "$GDNCTL" config
  out_empty
  err_has 'config init'
}

test_unknown_command_is_suggested() {
  expect 2 "$GDNCTL" docter
  out_empty
  err_has "[gdnctl] error: unknown command 'docter'"
  err_has '[gdnctl] hint: did you mean `gdnctl doctor`?'
}

test_typo_of_every_command_suggests_it() {
  local name typo
  command_names >names || fail "no list of commands"
  [ -s names ] || fail "the list of commands is empty"
  while read -r name; do
    typo=${name:0:1}${name:2}
    # shellcheck disable=SC2086
    expect 2 "$GDNCTL" $typo
    # Another command may be as near (ray-logs, ray-list): then that one is no worse an answer.
    grep -qE 'did you mean `gdnctl |has: ' "$WORK/err" || fail "no suggestion for: $typo"
  done <names
}

test_unknown_option_of_every_command_is_an_error() {
  local name
  command_names >names || fail "no list of commands"
  while read -r name; do
    # shellcheck disable=SC2086
    expect 2 "$GDNCTL" $name --qiuet
    err_has "[gdnctl] error: unknown option '--qiuet'"
    err_has '[gdnctl] hint: did you mean `--quiet`?'
    out_empty
  done <names
}

test_usage_error_without_suggestion_points_to_the_help_page() {
  expect 2 "$GDNCTL" completion
  err_has 'error: the argument SHELL is missing'
  expect 2 "$GDNCTL" config show surplus
  err_has "error: unexpected argument 'surplus'"
  err_has 'hint: `gdnctl config show --help` shows the options'
}

test_usage_errors_come_before_any_side_effect() {
  expect 2 "$GDNCTL" config init --forse
  [ ! -e gdnctl.toml ] || fail "a file was written"
  expect 2 "$GDNCTL" config init --color sometimes
  [ ! -e gdnctl.toml ] || fail "a file was written"
}

test_value_outside_a_closed_set() {
  expect 2 "$GDNCTL" completion fihs
  err_has "error: invalid value 'fihs' for SHELL: not one of bash, zsh, fish"
  err_has 'hint: did you mean `fish`?'
}

test_a_missing_argument_of_a_closed_set_names_the_set() {
  expect 2 "$GDNCTL" oracle compare
  err_has 'the argument OP is missing'
  err_has 'gdn, gdn-layer, linear-ce'
}
