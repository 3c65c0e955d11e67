#include "core/json.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

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

TEST_CASE("json: a list of pairs that begin with strings is an object, any other is an array") {
    CHECK(Json{{"a", 1}, {"b", "x"}}.dump() == R"({"a":1,"b":"x"})");
    CHECK(Json{1, "x", nullptr, true, 2.5}.dump() == R"([1,"x",null,true,2.5])");
    CHECK(Json({{"a", {1, 2}}, {"b", {{"c", nullptr}}}}).dump() == R"({"a":[1,2],"b":{"c":null}})");
    CHECK(Json::array({{"a", 1}}).dump() == R"([["a",1]])");
    CHECK(Json::object().dump() == "{}");
    CHECK(Json::array().dump() == "[]");
    CHECK(Json(std::vector<std::string>{"a", "b"}).dump() == R"(["a","b"])");
    CHECK(Json(std::map<std::string, int>{{"a", 1}}).dump() == R"({"a":1})");
    CHECK(Json({"a"}).dump() == R"(["a"])");
    CHECK(Json({std::string("a")}).dump() == R"(["a"])");
    CHECK(Json({{"a", "b"}}).dump() == R"({"a":"b"})");
    Json filled;
    filled["list"] = {"a"};
    filled["list"].push_back({1});
    CHECK(filled.dump() == R"({"list":["a",[1]]})");
    CHECK_THROWS_AS(Json::object({1}), Json::exception);
}

TEST_CASE("json: numbers keep their kind, and are equal by value") {
    const Json all = Json::parse("[-1, 18446744073709551615, 1.0, 1e300, 0.1, 1]");
    CHECK(all.dump() == "[-1,18446744073709551615,1.0,1e+300,0.1,1]");
    CHECK(all[0].kind() == Json::Kind::integer);
    CHECK(all[1].is_number_unsigned());
    CHECK(all[1].get<std::uint64_t>() == 18446744073709551615ULL);
    CHECK(all[2].is_number_float());
    CHECK(all[2] == all[5]);
    CHECK(all[0] != all[5]);
    CHECK(Json(1) == Json(1U));
    CHECK(Json("1") != Json(1));
    CHECK_THROWS_AS((void)Json("1").get<int>(), Json::exception);
}

TEST_CASE("json: members are found, added, replaced and removed, in their order") {
    Json object = Json::parse(R"({"b": 1, "a": 2, "b": 3})");
    CHECK(object.dump() == R"({"b":3,"a":2})");  // named twice: the last one counts
    object["c"] = {1, 2};
    object.emplace("a", 9);
    object.update({{"a", 4}, {"d", nullptr}});
    CHECK(object.dump() == R"({"b":3,"a":4,"c":[1,2],"d":null})");
    CHECK(object.find("d")->is_null());
    CHECK(object.find("e") == object.end());
    CHECK(object.value("a", 0) == 4);
    CHECK(object.value("e", "none") == "none");
    CHECK(object.erase("a") == 1);
    CHECK(object.erase(object.find("d")) == object.end());
    std::string walked;
    for (const auto& [key, value] : object.items()) walked += key + "=" + value.dump() + " ";
    CHECK(walked == "b=3 c=[1,2] ");
    walked.clear();
    for (const auto& [key, value] : object["c"].items()) walked += key + "=" + value.dump() + " ";
    CHECK(walked == "0=1 1=2 ");
    int sum = 0;
    for (const Json& item : object["c"]) sum += item.get<int>();
    CHECK(sum == 3);
    const Json& fixed = object;
    CHECK_THROWS_AS((void)fixed["e"], Json::exception);
    CHECK_THROWS_AS((void)fixed["c"][2], Json::exception);
    CHECK(Json().empty());
    Json list = {1, 2, 3};
    list.erase(0);
    CHECK(list.dump() == "[2,3]");
    Json nested = {{"x", {{"y", 1}}}};
    nested = std::move(nested["x"]);  // a part of itself
    CHECK(nested.dump() == R"({"y":1})");
    nested = nested["y"];
    CHECK(nested == 1);
    Json copy = object;
    copy["b"] = "changed";
    CHECK(object["b"] == 3);
    CHECK(sorted(Json::parse(R"({"b":{"z":1,"y":2},"a":[{"d":1,"c":2}]})")).dump() ==
          R"({"a":[{"c":2,"d":1}],"b":{"y":2,"z":1}})");
}

TEST_CASE("json: a pointer finds, and makes what is missing on its way") {
    Json value = Json::parse(R"({"a": [{"b/c": 1}]})");
    CHECK(value.at(Json::json_pointer("/a/0/b~1c")) == 1);
    CHECK_FALSE(value.contains(Json::json_pointer("/a/1")));
    CHECK_FALSE(value.contains(Json::json_pointer("/a/00")));
    value[Json::json_pointer("/x/y")] = 2;
    CHECK(value["x"].dump() == R"({"y":2})");
    CHECK_THROWS_AS(Json::json_pointer("a"), Json::exception);
    CHECK_THROWS_AS(Json::json_pointer("/~2"), Json::exception);
}

TEST_CASE("json: values that are not kept are dropped while the text is read") {
    const auto keep = [](int depth, Json::parse_event_t event, Json&) {
        return depth <= 1 || event == Json::parse_event_t::key;
    };
    CHECK(Json::parse(R"({"sha":"x","files":[1,{"a":2}],"more":{"b":[3]}})", keep).dump() ==
          R"({"sha":"x","files":[],"more":{}})");
}

TEST_CASE("json: text that is nested without end is refused, not followed") {
    const auto nested = [](std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
    CHECK(parse_json(nested(Json::k_deepest), "x"));
    const auto refused = parse_json(nested(Json::k_deepest + 1), "x");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "x: JSON with more than 2000 levels");
    CHECK(Json::parse(std::string(1'000'000, '['), nullptr, false).is_discarded());
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
    CHECK(json::numbers(value, "list") == std::vector<double>{1});
    for (const char* name : {"none", "null", "flag"}) {
        CAPTURE(name);
        CHECK(json::text(value, name).empty());
        CHECK(!json::maybe_text(value, name));
        CHECK(!json::number(value, name));
        CHECK(!json::integer(value, name));
        CHECK(json::texts(value, name).empty());
        CHECK(json::numbers(value, name).empty());
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

}  // namespace gdnctl
