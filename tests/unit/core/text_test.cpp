#include "core/text.h"

#include <doctest/doctest.h>

using namespace gdnctl::text;

TEST_CASE("text: trim, split and join") {
    CHECK(trim(" \t a b\r\n") == "a b");
    CHECK(trim("  ").empty());
    CHECK(split("a,,b", ',') == std::vector<std::string_view>{"a", "", "b"});
    CHECK(split("", ',') == std::vector<std::string_view>{""});
    const std::vector<std::string> parts = {"a", "b", "c"};
    CHECK(join(parts, ", ") == "a, b, c");
    CHECK(join(std::vector<std::string>{}, ",").empty());
    CHECK(to_lower("AbÄ9") == "abÄ9");
}

TEST_CASE("text: integers are decimal and whole") {
    CHECK(parse_int("010") == 10);
    CHECK(parse_int("-1") == -1);
    CHECK(parse_int("9223372036854775807") == INT64_MAX);
    for (const char* bad : {"", "0x10", "1 ", " 1", "1.0", "9223372036854775808", "+1", "--1"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_int(bad).has_value());
    }
}

TEST_CASE("text: numbers are finite") {
    CHECK(parse_double("1e-3") == 1e-3);
    CHECK(parse_double("-2.5") == -2.5);
    for (const char* bad : {"", "inf", "nan", "0x1p3", "1e999", "1,5", "1.5x"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_double(bad).has_value());
    }
}

TEST_CASE("text: UTF-8 validity follows the table of well-formed sequences") {
    CHECK(is_valid_utf8("aé€😀"));
    CHECK_FALSE(is_valid_utf8("\xC0\x80"));          // overlong
    CHECK_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
    CHECK_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // beyond U+10FFFF
    CHECK_FALSE(is_valid_utf8("\xE2\x82"));          // cut off
}

TEST_CASE("text: each maximal invalid part becomes one replacement character") {
    CHECK(repair_utf8("ok") == "ok");
    CHECK(repair_utf8("a\xFFz") == "a\xEF\xBF\xBDz");
    CHECK(repair_utf8("\xE2\x82z") == "\xEF\xBF\xBDz");
    CHECK(repair_utf8("\xC0\x80") == "\xEF\xBF\xBD\xEF\xBF\xBD");
    CHECK(is_valid_utf8(repair_utf8("\xF0\x9F\x98\xED\xA0\x80\x80")));
}

TEST_CASE("text: what a terminal would obey is shown instead") {
    CHECK(visible("plain \xCE\xB2, two\n\tlines") == "plain \xCE\xB2, two\n\tlines");
    CHECK(visible("\x1B[31mred\x07\r\x7F") == "\\x1b[31mred\\x07\\x0d\\x7f");
    CHECK(visible("\xC2\x9B"
                  "2J\xC2\xA0") ==
          "\\x9b"
          "2J\xC2\xA0");
    CHECK(visible("\u202Eevil\u2069, a\u200Bb, \uFEFF, \u00AD, \u2028") ==
          "\\u202eevil\\u2069, a\\u200bb, \\ufeff, \\xad, \\u2028");
    CHECK(visible("tag \U000E0041") == "tag \\ue0041");
    CHECK(visible("\u0645\u06CC\u200C\u062E, \U0001F469\u200D\U0001F680, \u2764\uFE0F") ==
          "\u0645\u06CC\u200C\u062E, \U0001F469\u200D\U0001F680, \u2764\uFE0F");
    CHECK(visible_line("\x1B[1;31mred\x1B[0m \x1B]0;title\x07\r") == "red \\x1b]0;title\\x07");
    CHECK(visible(std::string_view("\0", 1)) == "\\x00");
    CHECK(visible("a\xFFz") == "a\xEF\xBF\xBDz");
}

TEST_CASE("text: shell quoting survives a round trip") {
    CHECK(shell_quote("a-b_c/d.e=1") == "a-b_c/d.e=1");
    CHECK(shell_quote("") == "''");
    CHECK(shell_quote("it's") == "'it'\\''s'");
    const std::vector<std::string> words = {"run", "", "a b", "$HOME", "it's", "new\nline", "[ab]", "\\"};
    CHECK(shell_split(shell_join(words)) == words);
}

TEST_CASE("text: shell splitting knows quotes and backslashes") {
    CHECK(shell_split("a \"b c\" 'd e' f\\ g") == std::vector<std::string>{"a", "b c", "d e", "f g"});
    CHECK(shell_split("\"a\\\"b\\n\"") == std::vector<std::string>{"a\"b\\n"});
    CHECK(shell_split("-k 'x and not y'") == std::vector<std::string>{"-k", "x and not y"});
    CHECK(shell_split("") == std::vector<std::string>{});
    CHECK_FALSE(shell_split("'open").has_value());
    CHECK_FALSE(shell_split("a \"b").has_value());
    CHECK_FALSE(shell_split("a\\").has_value());
}

TEST_CASE("text: edit distance counts swaps as one and stops at the limit") {
    CHECK(edit_distance("lint", "lint", 3) == 0);
    CHECK(edit_distance("lnit", "lint", 3) == 1);
    CHECK(edit_distance("", "abc", 5) == 3);
    CHECK(edit_distance("kitten", "sitting", 5) == 3);
    CHECK(edit_distance("aaaa", "bbbb", 2) == 3);
}

TEST_CASE("text: nearest suggests what was meant and nothing else") {
    const std::vector<std::string> names = {"lint-log", "log append", "ray-test", "ray-wait", "--iterations"};
    CHECK(nearest("lintlog", names) == "lint-log");
    CHECK(nearest("ray-tset", names) == "ray-test");
    CHECK(nearest("--iter", names) == "--iterations");
    CHECK_FALSE(nearest("ray-", names).has_value());
    CHECK_FALSE(nearest("zzz", names).has_value());
    CHECK_FALSE(nearest("", names).has_value());
}

TEST_CASE("text: lines are folded at blanks for a terminal") {
    CHECK(folded("one two three\nfour\n", 80) == "one two three\nfour\n");
    CHECK(folded("one two three", 8) == "one two\n  three");
    CHECK(folded("  one two three", 9) == "  one two\n    three");
    CHECK(folded("name  one two three\n", 12, 6) == "name  one\n      two\n      three\n");
    CHECK(folded("why  one two three four", 18) == "why  one two three\n     four");
    CHECK(folded("/a/path/that/is/long is whole", 10) == "/a/path/that/is/long\n  is whole");
    CHECK(folded("\x1b[31mred\x1b[0m and blue", 12) == "\x1b[31mred\x1b[0m and blue");
    CHECK(folded("hidden 94 %; 0 excluded", 10) == "hidden\n  94 %; 0\n  excluded");
    CHECK(folded("äöü äöü", 7) == "äöü äöü");
    CHECK(folded("out  0.3 x budget  rms 1e-7", 26) == "out  0.3 x budget\n  rms 1e-7");
    CHECK(folded("\n\n", 40) == "\n\n");
    CHECK(folded("", 40).empty());
}

TEST_CASE("the last lines of a text") {
    CHECK(last_lines("a\nb\nc\n", 2) == "b\nc\n");
    CHECK(last_lines("a\nb\nc", 2) == "b\nc");
    CHECK(last_lines("a\nb", 2) == "a\nb");
    CHECK(last_lines("a\nb", 9) == "a\nb");
    CHECK(last_lines("\n\na\n", 2) == "\na\n");
    CHECK(last_lines("\n", 1) == "\n");
    CHECK(last_lines("a\n", 0).empty());
    CHECK(last_lines("", 3).empty());
}

TEST_CASE("the end of a text within a number of bytes") {
    CHECK(end_within("a\nbc\n", 5) == "a\nbc\n");
    CHECK(end_within("a\nbc\n", 4) == "bc\n");
    CHECK(end_within("abcdef", 3) == "def");
    CHECK(end_within("abc\n", 1).empty());
}

TEST_CASE("text: a long message is folded at blanks, words and commands stay whole") {
    CHECK(folded_message("[gdnctl] one two", 16) == "[gdnctl] one two");
    CHECK(folded_message("[gdnctl] one two", 15) == "[gdnctl] one\n         two");
    CHECK(folded_message("[gdnctl]   one two", 15) == "[gdnctl]   one\n           two");
    CHECK(folded_message("one  two three", 8) == "one  two\nthree");
    CHECK(folded_message("[gdnctl] hint: `a b c d e f`, or g", 20) ==
          "[gdnctl] hint:\n         `a b c d e f`,\n         or g");
    CHECK(folded_message("[gdnctl] it's `a b c d e f", 20) == "[gdnctl] it's `a b c\n         d e f");
    CHECK(folded_message("[gdnctl] next: gdnctl trace report x", 30) ==
          "[gdnctl] next:\n         gdnctl trace report x");
    CHECK(folded_message("[gdnctl] next: gdnctl trace report x", 20) == "[gdnctl] next: gdnctl trace report x");
    CHECK(folded_message("[gdnctl] 12:00:00 next: a b c d e f", 30) == "[gdnctl] 12:00:00 next:\n         a b c d e f");
    CHECK(folded_message("[gdnctl]   gdnctl ray-wait --cluster a b", 20) == "[gdnctl]   gdnctl ray-wait --cluster a b");
    CHECK(folded_message("[gdnctl] \x1b[31mone\x1b[0m two", 16) == "[gdnctl] \x1b[31mone\x1b[0m two");
    CHECK(folded_message("[gdnctl] äöü äöü", 16) == "[gdnctl] äöü äöü");
    CHECK(folded_message("[gdnctl] toolongaword x", 12) == "[gdnctl] toolongaword\n         x");
}

TEST_CASE("text: percent-encoding keeps what it is told to") {
    CHECK(percent_encode("a b/ü", "/") == "a%20b/%C3%BC");
    CHECK(percent_decode("%41%2f") == "A/");
}
