// Joining looks at a log, and the text in {"logs": ...}.
#include "services/ray/log_join.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "services/ray/agent_file.h"
#include "services/ray/log_tail.h"

namespace gdnctl::ray {

namespace {

Joint joint(std::string_view window, std::string_view text, std::size_t& next) {
    next = 999;
    return find_joint(window, text, next);
}

std::string decoded(std::string_view json, std::size_t piece, bool& complete) {
    std::string out;
    LogsField field([&](std::string_view bytes) {
        out += bytes;
        return true;
    });
    for (std::size_t at = 0; at < json.size(); at += piece) {
        if (!field.feed(json.substr(at, piece))) break;
    }
    complete = field.complete();
    return out;
}

}  // namespace

TEST_CASE("joint: found once, not at all, or more than once") {
    std::size_t next = 0;
    CHECK(joint("abc", "xxabcyy", next) == Joint::found);
    CHECK(next == 5);
    CHECK(joint("abc", "abc", next) == Joint::found);
    CHECK(next == 3);
    CHECK(joint("abc", "abxabdab", next) == Joint::absent);
    CHECK(joint("abc", "ab", next) == Joint::absent);
    CHECK(joint("", "ab", next) == Joint::absent);
    CHECK(joint("aba", "xababax", next) == Joint::ambiguous);
    CHECK(joint("aaa", "aaaa", next) == Joint::ambiguous);
    CHECK(joint("aab", "aaaab", next) == Joint::found);
    CHECK(next == 5);
}

TEST_CASE("joint: a window that repeats itself costs no more than it is long") {
    const std::string window(k_window, 'a');
    const std::string text = std::string(k_window - 1, 'a') + "b" + std::string(4 * k_window, 'a');
    std::size_t next = 0;
    CHECK(joint(window, text, next) == Joint::ambiguous);
}

TEST_CASE("lines are counted as servers do") {
    CHECK(count_lines("") == 0);
    CHECK(count_lines("a") == 1);
    CHECK(count_lines("a\n") == 1);
    CHECK(count_lines("a\nb") == 2);
    CHECK(count_lines("\n\n") == 2);
}

TEST_CASE("a look begins in the head of a log at the start of one of its lines") {
    const std::string head = "one\ntwo\nthree\n";
    CHECK(begins_in(head, "one\ntw"));
    CHECK(begins_in(head, "two\nthr"));
    CHECK_FALSE(begins_in(head, "wo\nthree"));
    CHECK_FALSE(begins_in(head, "three\nfour"));  // the head ends before it can be told
    CHECK(begins_in(head, head + "four\n"));
    CHECK_FALSE(begins_in(head, ""));
    CHECK_FALSE(begins_in("", "one"));
}

TEST_CASE("position: lines as servers count them") {
    LogPosition position;
    CHECK(position.lines_with("") == 0);
    position.advance("a\nb");
    CHECK(position.lines_with("") == 2);
    CHECK(position.lines_with("c") == 2);
    CHECK(position.lines_with("\n") == 2);
    CHECK(position.lines_with("\nc\nd") == 4);
    CHECK(position.head() == "a\nb");
    CHECK(position.knows_start());
    LogPosition later;
    later.jump(100);
    later.advance("x");
    CHECK_FALSE(later.knows_start());
}

TEST_CASE("position: bytes, and bytes with line ends folded, over pieces of any size") {
    const std::string text = "a\r\nb\rc\n\r\n\r\r\nd\r";
    for (std::size_t size = 1; size <= text.size(); ++size) {
        LogPosition position;
        for (std::size_t at = 0; at < text.size(); at += size)
            position.advance(std::string_view(text).substr(at, size));
        CHECK(position.bytes() == text.size());
        CHECK(position.folded_bytes() == text.size() - 3);
        CHECK(position.window() == text);
    }
    LogPosition position;
    position.advance(std::string(k_window, 'a'));
    position.advance("tail");
    CHECK(position.window().size() == k_window);
    CHECK(position.window().ends_with("atail"));
}

TEST_CASE("logs field: decoded in pieces of any size as a JSON parser does") {
    const std::string text = "tab\t quote\" back\\ slash/ nl\n cr\r \x01 \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 end";
    for (const bool ascii : {false, true}) {
        const std::string json = nlohmann::json{{"logs", text}}.dump(-1, ' ', ascii);
        for (std::size_t size = 1; size <= json.size(); ++size) {
            bool complete = false;
            CHECK(decoded(json, size, complete) == text);
            CHECK(complete);
        }
    }
}

TEST_CASE("logs field: halves of a pair become a sign, other objects are refused, a cut is noticed") {
    bool complete = false;
    CHECK(decoded(R"({"logs": "\ud83d"})", 1, complete) == "\xef\xbf\xbd");
    CHECK(decoded(R"({"logs": "\ud83dx\ude00"})", 2, complete) == "\xef\xbf\xbdx\xef\xbf\xbd");
    CHECK(decoded(R"({"logs": "\ud83d\n"})", 3, complete) == "\xef\xbf\xbd\n");
    CHECK(complete);
    for (const char* other :
         {"<html>", "[]", R"({"log": "x"})", R"({"logs": 7})", R"({"logs": "\x"})", R"({"logs": "\u12g4"})"}) {
        decoded(other, 1, complete);
        CHECK_FALSE(complete);
    }
    CHECK(decoded(R"({"logs": "cut he)", 4, complete) == "cut he");
    CHECK_FALSE(complete);
    CHECK(decoded(R"({"logs": ""})", 1, complete).empty());
    CHECK(complete);
}

TEST_CASE("last lines: as many as asked for, whatever the pieces") {
    const std::string text = "one\ntwo\n\nfour\nfive";
    const auto last = [&](std::size_t lines, std::size_t piece) {
        LastLines held(lines, 1 << 20);
        for (std::size_t at = 0; at < text.size(); at += piece) held.feed(std::string_view(text).substr(at, piece));
        return held.take();
    };
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        CHECK(last(0, piece).empty());
        CHECK(last(1, piece) == "five");
        CHECK(last(3, piece) == "\nfour\nfive");
        CHECK(last(99, piece) == text);
    }
    LastLines small(10, 100);
    for (int i = 0; i < 1000; ++i) small.feed("0123456789");
    CHECK(small.take().size() <= 200);
}

TEST_CASE("content range: of a piece, of nothing, and nonsense") {
    CHECK(parse_content_range("bytes 100-289/290")->first == 100);
    CHECK(parse_content_range("bytes 100-289/290")->size == 290);
    CHECK_FALSE(parse_content_range("bytes */290")->first);
    for (const char* bad :
         {"", "bytes", "bytes 5-3/9", "bytes 0-9/9", "bytes -1-2/9", "bytes 0-1/*", "items 0-1/2", "bytes 0x1-2/9"}) {
        CHECK_FALSE(parse_content_range(bad));
    }
}

}  // namespace gdnctl::ray
