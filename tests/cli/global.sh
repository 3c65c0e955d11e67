# Options that every command has.

test_version_names_version_commit_and_libraries() {
  expect 0 "$GDNCTL" --version
  grep -qE '^gdnctl [0-9]+\.[0-9]+\.[0-9]+ \((release|commit ([0-9a-f]{12}|unknown))\)$' "$WORK/out" || fail "no version line"
  for library in libcurl libgit2 libcrypto isa-l; do out_has "$library"; done
}

test_version_as_json() {
  expect 0 "$GDNCTL" --version --json
  out_has '"release":'
  head -c 40 "$WORK/out" | tr -d ' \n' | grep -q '^{"schema":"gdnctl.version/1"' || fail "schema is not first"
  expect 0 "$GDNCTL" --json config show --version
  out_has '"gdnctl.version/1"'
}

test_directory_option_changes_where_things_happen() {
  mkdir there
  expect 0 "$GDNCTL" -C there config init
  [ -f there/gdnctl.toml ] || fail "not written there"
  [ ! -e gdnctl.toml ] || fail "written here"
  expect 0 "$GDNCTL" config init -C there --force
  expect 2 "$GDNCTL" -C nowhere config show
  err_has 'error: -C needs a directory: nowhere'
  touch file
  expect 2 "$GDNCTL" -C file config show
  expect 2 "$GDNCTL" -C '' config init
  [ ! -e gdnctl.toml ] || fail "written here"
}

test_quiet_hides_progress_but_no_error() {
  expect 0 "$GDNCTL" -q config init
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
  expect 7 "$GDNCTL" --quiet config init
  err_has '[gdnctl] error: '
  err_has '[gdnctl] hint: --force replaces it'
}

test_colour_is_off_for_pipes_and_on_when_asked() {
  expect 2 "$GDNCTL" docter
  err_lacks $'\e['
  expect 2 "$GDNCTL" docter --color always
  err_has $'\e['
  expect 2 "$GDNCTL" --color=never docter
  err_lacks $'\e['
  expect 0 "$GDNCTL" --color always doctor --help
  out_has $'\e[1m'
}

test_no_color_in_the_environment() {
  command -v script >/dev/null || skip 'script(1) is not installed'
  TERM=xterm script -qec "'$GDNCTL' doctor --help" /dev/null >"$WORK/out" </dev/null
  out_has $'\e[1m'
  NO_COLOR=1 TERM=xterm script -qec "'$GDNCTL' doctor --help" /dev/null >"$WORK/out" </dev/null
  out_lacks $'\e['
}

test_unknown_target_is_an_error_with_a_suggestion() {
  expect 2 "$GDNCTL" --target cpu-gdm config show
  err_has "error: option --target: unknown target 'cpu-gdm'"
  err_has 'did you mean `cpu-gdn`?'
}

test_full_disk_on_stdout_is_reported() {
  [ -e /dev/full ] || skip 'no /dev/full'
  "$GDNCTL" doctor --help >/dev/full 2>"$WORK/err"
  [ $? = 8 ] || fail "exit code"
  err_has 'error: cannot write to standard output'
}

test_broken_pipe_is_quiet() {
  "$GDNCTL" completion bash 2>"$WORK/err" | head -1 >"$WORK/out"
  [ "${PIPESTATUS[0]}" = 0 ] || fail "exit code ${PIPESTATUS[0]}"
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
}

test_working_directory_that_is_gone() {
  mkdir gone && cd gone && rmdir ../gone
  expect 8 "$GDNCTL" config show
  err_has 'error: the working directory no longer exists'
  expect 0 "$GDNCTL" --version
}

test_lost_output_is_said_beside_another_failure() {
  [ -w /dev/full ] || skip 'no /dev/full'
  printf '### Iteration 1\n\n- Commit: (pending)\n' >log.md
  "$GDNCTL" lint-log --log-file log.md --format json >/dev/full 2>"$WORK/err"
  status=$?
  [ $status = 1 ] || fail "exit code $status"
  err_has 'error:'
  err_has 'No space left'
}

# bash does not expand the ~ of --option=~/x. A folder named ~ in the working directory invites `rm -r ~`.
test_the_home_folder_in_paths() {
  expect 0 bash -c '"$GDNCTL" log init --log-file=~/log.md'
  [ -s "$HOME/log.md" ] || fail 'not in the home folder'
  expect 0 bash -c '"$GDNCTL" lint-log --log-file=~/log.md --repo=~ --no-git --output=~/findings --records=~/none.jsonl || [ $? = 2 ]'
  expect 2 "$GDNCTL" lint-log --log-file '~/none.md'
  err_has "log file not found: $HOME/none.md"
  mkdir -p "$HOME/there" && expect 0 "$GDNCTL" -C '~/there' config init
  [ -s "$HOME/there/gdnctl.toml" ] || fail '-C'
  GDNCTL_CONFIG='~/there/gdnctl.toml' GDNCTL_STATE_DIR='~/state' expect 0 "$GDNCTL" config show
  expect 2 "$GDNCTL" lint-log --log-file=./~/none.md
  err_has "/~/none.md"
  [ ! -e '~' ] || fail 'a folder named ~'
}
