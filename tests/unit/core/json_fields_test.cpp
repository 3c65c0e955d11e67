#include "core/json_fields.h"

#include <limits>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/last_lines.h"

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
