# The arrows between folders and the one place of every third-party header.
check() { bash "$REPO/tests/structure/check_includes.sh" "$1"; }

# A small tree of the real one's shape, into which one line is planted.
copy() { mkdir tree && cp -r "$REPO/src" "$REPO/include" tree/; }
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
    plant src/core/text.cpp '#include "gdnctl/platform/clock.h"' 'core may not include gdnctl/platform/clock.h'
    plant src/platform/clock.cpp '#include "gdnctl/cli/args.h"' 'platform may not include gdnctl/cli/args.h'
    plant src/oracle/planted.cpp '#include "gdnctl/platform/env.h"' 'oracle may not include gdnctl/platform/env.h'
    plant src/cli/run.cpp '#include "gdnctl/commands/table.h"' 'cli may not include gdnctl/commands/table.h'
    plant src/services/git/planted.cpp '  #  include "gdnctl/services/runlog/x.h"' 'services/git may not include'
    plant src/services/jobs/planted.cpp '#include "services/git/repository.h"' 'is private to its folder'
    plant src/commands/table.cpp '#include "cli/help.h"' 'is private to its folder'
    plant src/commands/table.cpp '#include "table.h"' 'named from src/'
    plant src/main.cpp '#include "gdnctl/core/text.h"' 'main may not include gdnctl/core/text.h'
    plant include/gdnctl/core/text.h '#include "core/nearest.h"' 'may not include the private header'
    plant src/elsewhere/planted.cpp '#include <vector>' 'has no row in the arrows'
    plant src/planted.cpp '#include <vector>' 'has no row in the arrows'
}

test_third_party_headers_are_really_checked() {
    plant src/commands/table.cpp '#include <CLI/CLI.hpp>' '<CLI/CLI.hpp> belongs to src/cli/args_cli11.cpp'
    plant src/core/text.cpp '#include <toml++/toml.h>' 'belongs to src/cli/config_toml.cpp'
    plant src/services/jobs/planted.cpp '#include <curl/curl.h>' 'belongs to src/platform'
    plant src/oracle/planted.cpp '#include <zlib.h>' 'belongs to src/platform'
    plant src/cli/run.cpp '#include <openssl/evp.h>' 'belongs to src/platform'
    plant src/commands/table.cpp '#include <git2.h>' 'belongs to src/services/git'
    plant src/platform/clock.cpp '#include <spdlog/spdlog.h>' 'belongs to src/core/log.cpp'
    plant src/core/text.cpp '#include <fmt/format-inl.h>' 'belongs to src/core/fmt.cpp'
    plant include/gdnctl/core/text.h '#include <nlohmann/json.hpp>' 'belongs to .cpp files'
    plant include/gdnctl/core/text.h '#include <nlohmann/json_fwd.hpp>' 'belongs to gdnctl/core/json.h'
    plant src/core/text.cpp '#include <boost/regex.hpp>' 'has no row among the third-party headers'
    printf '#include <re2/re2.h>\n' | tee -a tree/src/core/text.cpp >>tree/src/commands/table.cpp
    expect 1 check tree
    out_has 'is already in'
}
