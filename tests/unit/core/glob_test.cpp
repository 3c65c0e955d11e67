#include "core/glob.h"

#include <vector>

#include <doctest/doctest.h>

using namespace gdnctl;

TEST_CASE("glob: stars, folders, sets and escapes") {
    CHECK(glob_matches("gdnctl.toml", "gdnctl.toml"));
    CHECK_FALSE(glob_matches("gdnctl.toml", "a/gdnctl.toml"));
    CHECK(glob_matches("examples/cases/**", "examples/cases/a/b.npz"));
    CHECK_FALSE(glob_matches("examples/cases/**", "examples/casesx"));
    CHECK(glob_matches("*.md", "log.md"));
    CHECK_FALSE(glob_matches("*.md", "docs/log.md"));
    CHECK(glob_matches("**/*.md", "log.md"));
    CHECK(glob_matches("**/*.md", "a/b/log.md"));
    CHECK_FALSE(glob_matches("**/b.md", "ab.md"));
    CHECK(glob_matches("a/**/z", "a/z"));
    CHECK(glob_matches("a/**/z", "a/b/c/z"));
    CHECK(glob_matches("test_?[0-9].py", "test_x7.py"));
    CHECK_FALSE(glob_matches("test_?[!0-9].py", "test_x7.py"));
    CHECK(glob_matches("a\\*", "a*"));
    CHECK_FALSE(glob_matches("a\\*", "ab"));
    CHECK(glob_matches("new\n*", "new\nline"));
    CHECK(glob_matches("[", "["));
    CHECK_FALSE(glob_matches("", "a"));
    CHECK_FALSE(glob_matches(std::string(200, '*') + "b", std::string(2000, 'a')));
}

TEST_CASE("glob: a pattern covers what is below the folder that it names") {
    const std::vector<std::string> patterns = {"tests/", "./lib/*.py", "cfg"};
    CHECK(glob_covers(patterns, "tests/a/b"));
    CHECK(glob_covers(patterns, "tests"));
    CHECK(glob_covers(patterns, "lib/x.py"));
    CHECK(glob_covers(patterns, "lib/x.py/y"));
    CHECK(glob_covers(patterns, "cfg/deep/er"));
    CHECK_FALSE(glob_covers(patterns, "lib/x/y.py"));
    CHECK_FALSE(glob_covers(patterns, "testsuite"));
    CHECK_FALSE(glob_covers({}, "a"));
}
