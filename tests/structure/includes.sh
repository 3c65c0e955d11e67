# The arrows between rooms and the one place of every third-party header.
check() { bash "$REPO/tests/structure/check_includes.sh" "$1"; }

# A small tree of the real one's shape, into which one line is planted.
copy() { mkdir tree && cp -r "$REPO/src" "$REPO/include" tree/ && mkdir tree/cmake && cp "$REPO/cmake/arrows.txt" tree/cmake/; }
plant() {  # FILE LINE EXPECTED
    [ -d tree ] || copy
    mkdir -p "tree/$(dirname "$1")"
    [ ! -f "tree/$1" ] || cp "tree/$1" as_it_was
    printf '%s\n' "$2" >>"tree/$1"
    expect 1 check tree
    out_has "$3"
    [ "$(wc -l <"$WORK/out")" = 1 ] || fail 'more than what was planted'
    rm "tree/$1"
    [ ! -f as_it_was ] || mv as_it_was "tree/$1"
}

test_every_include_follows_the_arrows() { expect 0 check "$REPO"; }

test_arrows_are_really_checked() {
    plant src/core/text.cpp '#include "platform/clock.h"' 'core may not include platform/clock.h'
    plant src/platform/clock.cpp '#include "cli/args.h"' 'platform may not include cli/args.h'
    plant src/oracle/judge/planted.cpp '#include "platform/env.h"' 'oracle/judge may not include platform/env.h'
    plant src/cli/run.cpp '#include "commands/table.h"' 'cli may not include commands/table.h'
    plant src/services/git/planted.cpp '  #  include "services/ray/x.h"' 'services/git may not include'
    plant src/services/local/planted.cpp '#include "services/git/repository.h"' 'services/local may not include'
    plant src/commands/table.cpp '#include "table.h"' 'named from src/'
    plant src/main.cpp '#include "elsewhere/text.h"' 'main may not include elsewhere/text.h'
    plant include/gdn/gdn.h '#include "core/text.h"' 'an installed header may not include core/text.h'
    plant src/elsewhere/planted.cpp '#include <vector>' 'has no line in cmake/arrows.txt'
    plant src/planted.cpp '#include <vector>' 'has no line in cmake/arrows.txt'
}

test_third_party_headers_are_really_checked() {
    plant src/commands/table.cpp '#include <CLI/CLI.hpp>' '<CLI/CLI.hpp> belongs to src/cli/args_cli11.cpp'
    plant src/core/text.cpp '#include <toml++/toml.h>' 'belongs to src/platform/toml.cpp'
    plant src/services/local/planted.cpp '#include <curl/curl.h>' 'belongs to src/platform'
    plant src/oracle/judge/planted.cpp '#include <zlib.h>' 'belongs to src/platform'
    plant src/cli/run.cpp '#include <openssl/evp.h>' 'belongs to src/platform'
    plant src/commands/table.cpp '#include <git2.h>' 'belongs to src/services/git'
    plant src/platform/clock.cpp '#include <spdlog/spdlog.h>' 'belongs to src/core/log.cpp'
    plant src/core/text.cpp '#include <fmt/format-inl.h>' 'belongs to src/core/fmt.cpp'
    plant src/core/text.h '#include <nlohmann/json.hpp>' 'belongs to src/core/json.cpp'
    plant src/core/text.cpp '#include <boost/regex.hpp>' 'has no row among the third-party headers'
    printf '#include <re2/re2.h>\n' | tee -a tree/src/core/text.cpp >>tree/src/commands/table.cpp
    expect 1 check tree
    out_has 'is already in'
}

test_circles_of_folders_are_seen() {
    copy
    mkdir -p tree/src/runlog/planted
    echo '#include "runlog/parse/log.h"' >>tree/src/runlog/planted/planted.h
    echo '#include "runlog/planted/planted.h"' >>tree/src/runlog/parse/planted.cpp
    expect 1 check tree
    out_has 'folders in a circle'
}

test_circles_of_arrows_are_seen() {
    copy
    echo 'core -> commands' >>tree/cmake/arrows.txt
    expect 1 check tree
    out_has 'a circle through core'
}
