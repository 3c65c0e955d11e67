#include "core/json.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

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
