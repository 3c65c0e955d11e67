#include "core/json.h"

#include <limits>

#include <doctest/doctest.h>

#include "core/text.h"

using namespace gdnctl;

TEST_CASE("json: a parse failure names the text and the byte, and throws nothing") {
    const auto bad = parse_json("{\"a\": }", "job.json");
    REQUIRE_FALSE(bad.has_value());
    CHECK(bad.error().kind == ErrorKind::bad_input);
    CHECK(bad.error().message == "job.json: not valid JSON at byte 7");
    CHECK_FALSE(parse_json("", "x").has_value());
    CHECK_FALSE(parse_json("\"\xFF\"", "x").has_value());
}

TEST_CASE("json: keys keep their order and bad UTF-8 is repaired on the way out") {
    const auto value = parse_json(R"({"z":1,"a":[2,null]})", "x");
    REQUIRE(value.has_value());
    CHECK(to_text(*value) == R"({"z":1,"a":[2,null]})");
    CHECK(to_text(Json("a\xFFz")) == "\"a\xEF\xBF\xBDz\"");
}

TEST_CASE("json: characters that a terminal obeys or does not show are escaped, and read back the same") {
    const std::string text = "\x1B[2J \u009B2J \x7F \u202E \u200B \U000E0041 \u03B2";
    const std::string json = to_text(Json(text));
    CHECK(json == R"("\u001b[2J \u009b2J \u007f \u202e \u200b \udb40\udc41 )"
                  "\u03B2\"");
    CHECK(parse_json(json, "x")->get<std::string>() == text);
}

TEST_CASE("result: every error kind has its exit code, and context grows outward") {
    CHECK(exit_code_of(ErrorKind::config) == ExitCode::usage);
    CHECK(exit_code_of(ErrorKind::bad_input) == ExitCode::bad_input);
    CHECK(exit_code_of(ErrorKind::internal) == ExitCode::internal);
    CHECK(exit_code_of(ErrorKind::terminated) == ExitCode::terminated);
    const Error error = Error{ErrorKind::local_io, "disk full", "", ""}.within("writing x").within("log append");
    CHECK(error.text() == "log append: writing x: disk full");
}

namespace gdnctl {

TEST_CASE("json fields: what is missing, null or of another type is nothing") {
    const Json value = {{"text", "t"},
                        {"number", 1.5},
                        {"count", 3},
                        {"null", nullptr},
                        {"flag", true},
                        {"list", {"a", 1, "b"}},
                        {"inner", {{"deep", {{"text", "d"}}}}}};
    CHECK(json::text(value, "text") == "t");
    CHECK(json::number(value, "count") == 3.0);
    CHECK(json::integer(value, "count") == 3);
    CHECK(json::texts(value, "list") == std::vector<std::string>{"a", "b"});
    for (const char* name : {"none", "null", "flag"}) {
        CAPTURE(name);
        CHECK(json::text(value, name).empty());
        CHECK(!json::maybe_text(value, name));
        CHECK(!json::number(value, name));
        CHECK(!json::integer(value, name));
        CHECK(json::texts(value, name).empty());
        CHECK(json::object(value, name) == nullptr);
        CHECK(json::array(value, name) == nullptr);
        CHECK(json::find_at(value, "/" + std::string(name) + "/x") == nullptr);
    }
    CHECK(!json::integer(value, "number"));
    CHECK(json::boolean(Json{{"yes", true}}, "yes") == true);
    CHECK(!json::boolean(Json{{"yes", 1}}, "yes"));
    CHECK(json::find(value, "null") == nullptr);
    for (const Json& other : {Json(), Json(1), Json("text"), Json::array({value})}) {
        CHECK(json::find(other, "text") == nullptr);
        CHECK(json::text(other, "text").empty());
    }
}

TEST_CASE("json fields: a pointer leads through fields and lists") {
    const Json value = {{"inner", {{"deep", {{"text", "d"}, {"a/b", 1}}}, {"sizes", {1.5, 2, "x"}}}},
                        {"null", nullptr}};
    CHECK(json::text_at(value, "/inner/deep/text") == "d");
    CHECK(json::number_at(value, "/inner/sizes/0") == 1.5);
    CHECK(json::integer_at(value, "/inner/sizes/1") == 2);
    CHECK(!json::integer_at(value, "/inner/sizes/0"));
    CHECK(json::texts_at(value, "/inner/sizes") == std::vector<std::string>{"x"});
    CHECK(json::object_at(value, "/inner/deep") != nullptr);
    CHECK(json::object_at(value, "/inner/sizes") == nullptr);
    CHECK(json::array_at(value, "/inner/sizes") != nullptr);
    CHECK(json::array_at(value, "/inner/deep") == nullptr);
    CHECK(json::field_at(value, "/inner/deep/text") == "d");
    CHECK(json::find_at(value, "") == &value);
    for (const char* pointer : {"/null", "/none", "/inner/sizes/3", "/inner/sizes/-1", "/inner/sizes/x",
                                "/inner/sizes/0/0", "/inner/deep/a~1b", "/inner/deep/text/0"}) {
        CAPTURE(pointer);
        CHECK(json::find_at(value, pointer) == nullptr);
        CHECK(json::field_at(value, pointer).is_null());
        CHECK(json::text_at(value, pointer).empty());
        CHECK(!json::number_at(value, pointer));
    }
}

TEST_CASE("json fields: null is written for nothing") {
    CHECK(json::or_null(std::optional<double>()).is_null());
    CHECK(json::or_null(std::optional(std::numeric_limits<double>::infinity())).is_null());
    CHECK(json::or_null(std::optional(1.5)) == 1.5);
    CHECK(json::or_null(std::string()).is_null());
    CHECK(json::or_null(std::optional(std::string())) == "");
}

TEST_CASE("the last lines of a text") {
    using text::last_lines;
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
    using text::end_within;
    CHECK(end_within("a\nbc\n", 5) == "a\nbc\n");
    CHECK(end_within("a\nbc\n", 4) == "bc\n");
    CHECK(end_within("abcdef", 3) == "def");
    CHECK(end_within("abc\n", 1).empty());
}

}  // namespace gdnctl
