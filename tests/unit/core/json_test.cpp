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

TEST_CASE("result: every error kind has its exit code, and context grows outward") {
    CHECK(exit_code_of(ErrorKind::config) == ExitCode::usage);
    CHECK(exit_code_of(ErrorKind::bad_input) == ExitCode::bad_input);
    CHECK(exit_code_of(ErrorKind::internal) == ExitCode::internal);
    CHECK(exit_code_of(ErrorKind::terminated) == ExitCode::terminated);
    const Error error = Error{ErrorKind::local_io, "disk full", "", ""}.within("writing x").within("log append");
    CHECK(error.text() == "log append: writing x: disk full");
}
