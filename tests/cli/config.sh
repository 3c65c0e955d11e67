# config show, config init, and how a configuration reaches commands.

test_show_prints_values_with_origins() {
  printf 'cluster = "mine"\n' >gdnctl.toml
  expect 0 "$GDNCTL" config show
  out_has 'cluster = "mine"  # gdnctl.toml:1'
  GDNCTL_CLUSTER=other expect 0 "$GDNCTL" config show
  out_has 'cluster = "other"  # environment GDNCTL_CLUSTER'
  expect 0 "$GDNCTL" --target cpu-gdn config show
  out_has 'target = "cpu-gdn"  # option --target'
}

test_show_has_the_options_of_codex_loop() {
  printf '[codex-loop]\nmodel = "m"\npost-check = ["a", "b"]\nresilient = true\n' >gdnctl.toml
  expect 0 "$GDNCTL" config show
  out_has 'codex-loop.model = "m"'
  out_has '# gdnctl.toml:2'
  expect 0 "$GDNCTL" config show --json
  tr -d ' \n' <"$WORK/out" | grep -qF '{"key":"codex-loop.post-check","value":["a","b"],"origin":"gdnctl.toml:3"}' || fail 'no list'
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
}

test_show_without_any_file() {
  expect 0 "$GDNCTL" config show
  out_has 'cluster = "local"  # built-in'
  out_has '# target is not set; detected here: cpu-gdn'
}

test_show_as_json() {
  mkdir -p "$XDG_CONFIG_HOME/gdnctl"
  printf 'target = "cpu-gdn"\n' >"$XDG_CONFIG_HOME/gdnctl/config.toml"
  expect 0 "$GDNCTL" config show --json
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
  out_has '"schema":"gdnctl.config-show/1"'
  out_has "\"origin\":\"$XDG_CONFIG_HOME/gdnctl/config.toml:1\""
  out_has '"target_detected":false'
}

test_unknown_key_is_a_warning_once() {
  printf 'clutser = "x"\n' >gdnctl.toml
  expect 0 "$GDNCTL" config show
  err_has '[gdnctl] warning: gdnctl.toml:1: unknown key '"'clutser'"'; did you mean `cluster`?'
  [ "$(grep -c clutser "$WORK/err")" = 1 ] || fail "said more than once"
}

test_unknown_key_in_a_target_is_an_error() {
  printf '[targets.mine]\ntest = ["true"]\nprotekted = ["a"]\n' >gdnctl.toml
  expect 2 "$GDNCTL" config show
  err_has 'error: gdnctl.toml:3: unknown key targets.mine.protekted'
  err_has 'did you mean `protected`?'
}

test_wrong_type_and_broken_syntax_exit_2_with_the_line() {
  printf '\ncluster = 1\n' >gdnctl.toml
  expect 2 "$GDNCTL" config show
  err_has "error: gdnctl.toml:2: 'cluster' must be a string"
  printf 'cluster = "x\n' >gdnctl.toml
  expect 2 "$GDNCTL" config show
  err_has 'error: gdnctl.toml:1:'
  err_has 'not valid TOML'
}

test_a_file_that_is_too_large_exits_2() {
  head -c 2000000 /dev/zero | tr '\0' '#' >gdnctl.toml
  expect 2 "$GDNCTL" config show
  err_has 'gdnctl.toml is larger than the limit of 1048576 bytes'
  err_has 'hint: check that this is the right file'
}

test_unreadable_file_is_local_io() {
  powerless
  printf '' >gdnctl.toml
  chmod 000 gdnctl.toml
  expect 8 "${as[@]}" "$GDNCTL" config show
}

test_a_user_folder_without_permission_is_local_io() {
  mkdir -p "$XDG_CONFIG_HOME/gdnctl" && powerless
  [ ${#as[@]} = 0 ] || chown 65534:65534 "$XDG_CONFIG_HOME/gdnctl"
  chmod 000 "$XDG_CONFIG_HOME/gdnctl"
  expect 8 "${as[@]}" "$GDNCTL" config show
  err_has "cannot read $XDG_CONFIG_HOME/gdnctl/config.toml: Permission denied"
  err_has "hint: check owner and mode: ls -ld '$XDG_CONFIG_HOME/gdnctl'"
  # As with sudo -u, which may keep the HOME of another user.
  chmod 700 "$XDG_CONFIG_HOME"
  [ ${#as[@]} = 0 ] && chmod 000 "$XDG_CONFIG_HOME"
  expect 0 "${as[@]}" "$GDNCTL" config show
}

test_config_option_and_variable_name_the_file() {
  printf 'cluster = "a"\n' >a.toml
  expect 0 "$GDNCTL" --config a.toml config show
  out_has 'cluster = "a"  # a.toml:1'
  GDNCTL_CONFIG=a.toml expect 0 "$GDNCTL" config show
  out_has 'cluster = "a"  # a.toml:1'
  expect 2 "$GDNCTL" --config b.toml config show
  err_has 'error: --config: no such file: b.toml'
}

test_show_masks_secrets() {
  printf '[targets.t]\n[targets.t.test]\nargv = ["run", "hf_abcdefghijklmnopqrstuvwx"]\n[targets.t.test.env]\nRAY_AUTH_TOKEN = "0123456789abcdefghij"\nWANDB_API_KEY = "wandbkey0123"\nPLAIN = "shown"\n' >gdnctl.toml
  for form in '' --json; do
    expect 0 "$GDNCTL" --target t config show $form
    out_lacks abcdefghijklmnopqrstuvwx
    out_lacks 0123456789abcdefghij
    out_lacks wandbkey0123
    out_has shown
  done
}

test_file_is_found_upward() {
  printf 'cluster = "up"\n' >gdnctl.toml
  mkdir -p deep/er
  expect 0 "$GDNCTL" -C deep/er config show
  out_has 'cluster = "up"'
}

test_init_writes_a_file_that_changes_nothing() {
  expect 0 "$GDNCTL" config show
  cp "$WORK/out" before
  expect 0 "$GDNCTL" config init
  err_has "[gdnctl] wrote $PWD/gdnctl.toml"
  out_empty
  expect 0 "$GDNCTL" config show
  cmp -s before "$WORK/out" || fail "the values changed"
}

test_init_refuses_to_overwrite() {
  echo 'cluster = "mine"' >gdnctl.toml
  expect 7 "$GDNCTL" config init
  err_has "error: $PWD/gdnctl.toml already exists"
  grep -q mine gdnctl.toml || fail "the file was changed"
  expect 0 "$GDNCTL" config init --force --json
  out_has '"schema":"gdnctl.config-init/1"'
  ! grep -q mine gdnctl.toml || fail "the file was not replaced"
}

test_init_does_not_replace_a_directory() {
  mkdir gdnctl.toml
  for force in '' --force; do
    expect 8 "$GDNCTL" config init $force
    err_has "$PWD/gdnctl.toml is a directory"
    err_lacks 'replaces it'
  done
}

test_init_user_makes_the_folder() {
  expect 0 "$GDNCTL" config init --user
  [ -f "$XDG_CONFIG_HOME/gdnctl/config.toml" ] || fail "not written"
}

test_init_works_beside_a_broken_file() {
  echo '[' >gdnctl.toml
  expect 0 "$GDNCTL" config init --force
}

test_init_where_nothing_can_be_written() {
  mkdir ro && powerless
  chmod 555 ro
  expect 8 "${as[@]}" "$GDNCTL" -C ro config init
}

test_init_on_a_full_disk_leaves_nothing() {
  (
    ulimit -f 0
    expect 8 "$GDNCTL" config init 2>/dev/null
  ) 2>/dev/null
  [ ! -s gdnctl.toml ] || fail "a file was left"
}
