# The generated pages.

test_cli_reference_is_up_to_date() {
  expect 0 "$GDNCTL" __docs markdown --out new
  diff "$REPO/docs/reference/cli-reference.md" new/cli-reference.md >"$WORK/out" 2>"$WORK/err" ||
    fail "docs/reference/cli-reference.md is stale; renew it with: gdnctl __docs markdown --out docs/reference"
}

test_man_pages_one_for_each_command() {
  expect 0 "$GDNCTL" __docs man --out man
  [ -f man/gdnctl.1 ] || fail "no gdnctl.1"
  command_names >names || fail "no list of commands"
  while read -r name; do [ -s "man/gdnctl-${name// /-}.1" ] || fail "no page for $name"; done <names
}

test_man_pages_have_no_roff_errors() {
  command -v groff >/dev/null || skip 'groff is not installed'
  "$GDNCTL" __docs man --out man
  for page in man/*.1; do
    groff -man -Tutf8 -ww -z "$page" 2>"$WORK/err" || fail "$page"
    [ ! -s "$WORK/err" ] || fail "$page"
  done
}

test_every_see_also_exists() {
  command_names >names || fail "no list of commands"
  while read -r name; do
    # shellcheck disable=SC2086
    "$GDNCTL" $name --help | sed '1,/^See also:/d' | tr ',' '\n' | sed 's/^ *//; /^$/d' >others
    while read -r other; do
      case $other in
        docs/*) [ -f "$REPO/$other" ] || fail "$name refers to $other";;
        *) grep -qxF "${other#gdnctl }" names || fail "$name refers to '$other'";;
      esac
    done <others
  done <names
}

test_pages_to_a_place_that_cannot_be_written() {
  : >file
  expect 8 "$GDNCTL" __docs man --out file/x
  err_has 'error: '
}

examples_of() {
  command -v python3 >/dev/null || skip 'no python3'
  command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
  expect 0 python3 "$REPO/tests/support/check_examples.py" "$GDNCTL" "${@/#/$REPO/}"
}
test_examples_of_the_readme_print_what_it_shows() { examples_of README.md; }
test_examples_of_the_pages_print_what_they_show() {
  cd "$REPO" && pages=(docs/*.md docs/reference/*.md) && cd "$WORK/cwd" || fail 'no pages'
  examples_of "${pages[@]}"
}
test_an_example_that_prints_something_else_is_found() {
  printf '<!-- setup: -->\n```console\n$ echo a; echo b\na\n...\nc\n```\n' >page.md
  expect 1 python3 "$REPO/tests/support/check_examples.py" "$GDNCTL" page.md
  out_has '1 examples, 1 differ'
  sed -i 's/^c$/b/' page.md
  expect 0 python3 "$REPO/tests/support/check_examples.py" "$GDNCTL" page.md
}
