# No file over 400 lines. (Functions over 60 are a finding of ./dev lint.)
check() { bash "$REPO/tests/structure/check_lengths.sh" "$1"; }
long() { for ((i = 0; i < 401; i++)); do echo "// $i"; done; }
copy() {
    rm -rf tree && mkdir -p tree/tests/structure tree/docs
    cp -r "$REPO/src" "$REPO/include" "$REPO/dev" tree/
    : >tree/tests/structure/long_files.txt
    : >tree/docs/architecture.md
    while read -r path; do [ -z "$path" ] || rm -f "tree/$path"; done <"$REPO/tests/structure/long_files.txt"
}

test_no_file_is_too_long() { expect 0 check "$REPO"; }

test_main_is_under_30_lines() { [ "$(wc -l <"$REPO/src/main.cpp")" -lt 30 ] || fail "src/main.cpp has grown"; }

test_lengths_are_really_checked() {
    copy
    expect 0 check tree
    long >tree/src/core/planted.cpp
    expect 1 check tree
    out_has 'src/core/planted.cpp: 401 lines'
    echo src/core/planted.cpp >tree/tests/structure/long_files.txt
    expect 1 check tree
    out_has 'docs/architecture.md does not say why'
    echo 'src/core/planted.cpp is a table' >tree/docs/architecture.md
    expect 0 check tree
    echo '// short' >tree/src/core/planted.cpp
    expect 1 check tree
    out_has 'take it out'
}
