# ./dev itself: what it says, and how it installs what is missing, on fakes of the package tools.

# fakes ID MISSING...: a PATH of fakes in which MISSING packages are not installed and the user's id is ID.
fakes() {
    local id=$1
    shift
    mkdir -p fake
    printf '%s\n' "$@" >missing
    : >calls
    printf '#!/bin/sh\necho %s\n' "$id" >fake/id
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nfor last; do :; done\ngrep -qxF "$last" "%s/missing" || printf installed\n' "$PWD" >fake/dpkg-query
    printf '#!/bin/sh\necho "dpkg $*" >>"%s/calls"\n' "$PWD" >fake/dpkg
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho "apt-get $* [$DEBIAN_FRONTEND]" >>"%s/calls"\n[ "$1" != install ] || [ ! -e "%s/broken" ] || { rm "%s/broken"; exit 100; }\n' \
        "$PWD" "$PWD" "$PWD" >fake/apt-get
    chmod +x fake/*
    local tool
    for tool in bash dirname cat env grep rm mkdir tail; do ln -sf "$(command -v "$tool")" "fake/$tool"; done
}
dev() { PATH="$PWD/fake" bash "$REPO/dev" "$@"; }

test_without_arguments_it_explains_itself() {
    expect 0 "$REPO/dev"
    for word in run test check build coverage lint fmt fuzz bench conformance bare dist; do out_has "  $word"; done
}
test_unknown_word_exits_2() {
    expect 2 "$REPO/dev" tset
    err_has "no such word: 'tset'"
}
test_unknown_preset_exits_2() {
    expect 2 "$REPO/dev" build nothing
    err_has "no preset 'nothing'"
}
test_nothing_is_asked_for_when_all_is_there() {
    fakes 1000
    expect 0 dev deps test
    [ ! -s calls ] || fail "called: $(cat calls)"
}
test_installs_only_what_is_missing() {
    fakes 0 libgit2-dev ninja-build
    expect 0 dev deps run
    err_has 'installing ninja-build libgit2-dev'
    [ "$(sed -n 1p calls)" = 'dpkg --configure -a' ] || fail "first call: $(sed -n 1p calls)"
    case $(sed -n 2p calls) in
        *'install -y --no-install-recommends'*' ninja-build libgit2-dev [noninteractive]') ;;
        *) fail "second call: $(sed -n 2p calls)" ;;
    esac
    [ "$(wc -l <calls)" = 2 ] || fail "more calls: $(cat calls)"
}
test_tries_once_more_with_fresh_lists() {
    fakes 0 g++
    : >broken
    expect 0 dev deps run
    grep -q '^apt-get update' calls || fail "no update in: $(cat calls)"
    [ "$(grep -c '^apt-get install' calls)" = 2 ] || fail "not two attempts: $(cat calls)"
}
test_says_so_without_root_and_sudo() {
    fakes 1000 g++ cmake
    expect 1 dev deps run
    err_has 'takes root or sudo: g++ cmake'
    err_has 'hint: ask an administrator for: apt-get install g++ cmake'
    [ ! -s calls ] || fail "called: $(cat calls)"
}
test_uses_sudo_when_there_is_one() {
    fakes 1000 g++
    # shellcheck disable=SC2016
    printf '#!/bin/sh\necho sudo >>"%s/calls"\nexec "$@"\n' "$PWD" >fake/sudo
    chmod +x fake/sudo
    expect 0 dev deps run
    [ "$(grep -c '^sudo' calls)" = 2 ] || fail "calls: $(cat calls)"
}

# part FUNCTION: defines one function of ./dev here.
part() { eval "$(sed -n "/^$1() {/,/^}/p" "$REPO/dev")"; }
test_echoed_commands_can_be_pasted() {
    part quoted
    local words=(build/release/gdnctl -C 'a b' "it's" '$x' '*' '' --min=1,2) line
    line=$(quoted "${words[@]}")
    [ "$line" = "build/release/gdnctl -C 'a b' 'it'\\''s' '\$x' '*' '' --min=1,2" ] || fail "echoed: $line"
    eval "set -- $line"
    [ "$#" = ${#words[@]} ] && [ "$4" = "it's" ] && [ "$5" = '$x' ] && [ "$7" = '' ] || fail "pasted: $*"
}
test_a_step_shows_what_matters_and_keeps_the_rest() {
    part quoted
    part step
    say() { printf '%s\n' "$*"; }
    mkdir -p build/release build/run
    printf '#!/bin/sh\necho "[gdnctl] 05:30:00+00:00 verdict: $1"; seq 20; exit $2\n' >build/release/gdnctl
    chmod +x build/release/gdnctl
    set -o pipefail
    expect 0 step judge '^verdict|verdict:' 'all OK' 0
    [ "$(cat "$WORK/out")" = "\$ build/release/gdnctl 'all OK' 0
  verdict: all OK" ] || fail 'other lines'
    [ "$(wc -l <build/run/judge.log)" = 21 ] || fail 'the log is not whole'
    expect 4 step judge '^nothing' bad 4
    err_has 20
    out_has 'it failed with 4; the end of build/run/judge.log:'
    expect 3 step judge '^nothing' 'nothing kept' 3
    out_lacks 'it failed'
}

tally() { bash "$REPO/tests/support/tally.sh" "$@"; }
# entry NAME RESULT LINE...: one entry of ctest's LastTest.log.
entry() {
    local name=$1 result=$2
    shift 2
    printf '1/9 Testing: %s\n1/9 Test: %s\nOutput:\n-----\n' "$name" "$name"
    [ $# = 0 ] || printf '%s\n' "$@"
    printf '<end of output>\nTest time =   0.03 sec\n-----\nTest %s.\n"%s" end time: now\n' "$result" "$name"
}
test_closing_line_counts_the_cases_of_each_entry() {
    {
        entry unit/a Passed '[doctest] test cases:  5 |  5 passed | 0 failed | 90 skipped'
        entry unit/b Failed '[doctest] test cases:  3 |  1 passed | 2 failed | 92 skipped'
        entry cli/c Passed 'test_x: skipped: no sudo' '4 passed, 0 failed, 1 skipped'
        entry fuzz/d Passed
        entry unit/crashed Failed
    } >log
    expect 0 tally log
    [ "$(cat "$WORK/out")" = '11 3 1' ] || fail "got: $(cat "$WORK/out")"
    printf '3 3 1\n4 0 0\n' >sum
    expect 1 tally --sum sum
    [ "$(cat "$WORK/out")" = '7 passed, 3 failed, 1 skipped' ] || fail "got: $(cat "$WORK/out")"
    printf '4 0 0\n' >sum
    expect 0 tally --sum sum
    [ "$(cat "$WORK/out")" = '4 passed, 0 failed' ] || fail "got: $(cat "$WORK/out")"
}
test_closing_line_of_a_run_that_broke_off_is_a_failure() {
    : >log
    expect 0 tally log
    [ "$(cat "$WORK/out")" = '0 1 0' ] || fail "got: $(cat "$WORK/out")"
    entry unit/a Passed | sed '/^Test Passed/,$d' >log
    expect 0 tally log
    [ "$(cat "$WORK/out")" = '0 1 0' ] || fail "got: $(cat "$WORK/out")"
    : >sum
    expect 1 tally --sum sum
}
