# No file over 400 lines. (Functions over 60 are a finding of ./dev lint.)
check() { bash "$REPO/tests/structure/check_lengths.sh" "$1"; }
long() { for ((i = 0; i < 401; i++)); do echo "// $i"; done; }
tree() {
    mkdir -p tree/src/core tree/include tree/tests/structure tree/docs
    echo '// short' >tree/src/core/short.cpp
    echo '# short' >tree/dev
    : >tree/tests/structure/long_files.txt
    : >tree/docs/architecture.md
}

test_no_file_is_too_long() { expect 0 check "$REPO"; }

test_main_is_under_30_lines() { [ "$(wc -l <"$REPO/src/main.cpp")" -lt 30 ] || fail "src/main.cpp has grown"; }

test_lengths_are_really_checked() {
    tree
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
