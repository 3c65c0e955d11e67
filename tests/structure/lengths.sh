# One idea a file: none is longer than a reader can hold in the head. (Functions over 60 lines are a finding of ./dev lint.)

# longer_than LINES ROOT: sources, headers and scripts of ROOT with more lines.
longer_than() {
  (cd "$2" && find dev src include tests \( -name '*.cpp' -o -name '*.h' -o -name '*.c' -o -name '*.sh' -o -name '*.py' -o -name dev \) \
    -not -path 'tests/fixtures/*' -type f -print0 | xargs -0 wc -l | awk -v most="$1" '$2 != "total" && $1 > most')
}

test_no_file_has_more_than_1300_lines() {
  longer_than 1300 "$REPO" >long
  [ ! -s long ] || fail "too long: $(cat long)"
}
test_a_long_file_would_be_found() {
  mkdir -p tree/src/core tree/include tree/tests
  : >tree/dev
  seq 1301 >tree/src/core/planted.cpp
  seq 1300 >tree/src/core/short.cpp
  longer_than 1300 tree >long
  [ "$(cat long)" = '   1301 src/core/planted.cpp' ] || [ "$(awk '{ print $2 }' long)" = src/core/planted.cpp ] || fail "found: $(cat long)"
}
test_main_is_under_30_lines() { [ "$(wc -l <"$REPO/src/main.cpp")" -lt 30 ] || fail "src/main.cpp has grown"; }
