# The examples of the pages that take long with sanitizers.

test_examples_of_the_slow_pages_print_what_they_show() {
    command -v python3 >/dev/null || skip 'no python3'
    command -v "${CC:-cc}" >/dev/null || skip 'no C compiler'
    expect 0 python3 "$REPO/tests/support/check_examples.py" --slow "$GDNCTL" "$REPO"/README.md "$REPO"/docs/*.md
}
