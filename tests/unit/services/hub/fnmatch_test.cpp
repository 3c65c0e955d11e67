#include "services/hub/transfer/fnmatch.h"

#include <string>

#include <doctest/doctest.h>

namespace gdnctl::hub {

// As Python 3.11's fnmatch.fnmatchcase answers.
TEST_CASE("fnmatch: what matches") {
    const std::pair<const char*, const char*> pairs[] = {
        {"*.gz", "a/b.gz"}, {"a/*", "a/b/c"}, {"**/x", "a/x"},      {"[!a]b", "/b"},
        {"[^a]b", "^b"},    {"[^a]b", "ab"},  {"[]]x", "]x"},       {"[!]a]", "b"},
        {"[a-]", "-"},      {"?", "/"},       {"[a", "[a"},         {"a[", "a["},
        {"[]", "[]"},       {"[!]", "[!]"},   {"a\\*", "a\\b"},     {"path/to/", "path/to/f"},
        {"", ""},           {"*", ""},        {"a*b*c", "aXbYbZc"}, {"[a-c]x", "bx"},
        {"[a-ce-g]", "f"},  {"[--0]", "."},   {"[!c-a]", "x"},      {"?", "\xc3\xbc"},
        {".*", ".x"},       {"*", ".x"},      {"a\nb", "a\nb"},     {"[a-c-e]", "-"},
        {"[*]", "*"},       {"x[*?]", "x?"},
    };
    for (const auto& [pattern, path] : pairs) {
        CAPTURE(pattern);
        CAPTURE(path);
        CHECK(fnmatch(pattern, path));
    }
}

TEST_CASE("fnmatch: what does not") {
    const std::pair<const char*, const char*> pairs[] = {
        {"**/x", "x"},  {"[!a]b", "ab"},       {"[^a]b", "bb"},
        {"[c-a]", "b"}, {"*.MD", "README.md"}, {"path/to/", "nested/path/to/f"},
        {"", "x"},      {"a", "ab"},           {"[a-c-e]", "d"},
        {"?", ""},      {"??", "\xc3\xbc"},    {"path/to/", "path/to"},
    };
    for (const auto& [pattern, path] : pairs) {
        CAPTURE(pattern);
        CAPTURE(path);
        CHECK_FALSE(fnmatch(pattern, path));
    }
}

TEST_CASE("fnmatch: many stars end") { CHECK_FALSE(fnmatch("*a*a*a*a*a*a*a*a*a*a*b", std::string(3000, 'a'))); }

}  // namespace gdnctl::hub
