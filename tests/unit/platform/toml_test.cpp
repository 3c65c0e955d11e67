#include "platform/toml.h"

#include <doctest/doctest.h>

namespace gdnctl {

TEST_CASE("all TOML types become values, dates do not") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const auto table = parse_toml("a=true\nb=0x10\nc=1.5\nd='s'\ne=[1,'x',[2]]\nf={g=1}\n", file);
    REQUIRE(table);
    CHECK(std::get<bool>(table->at("a").value));
    CHECK(std::get<std::int64_t>(table->at("b").value) == 16);
    CHECK(std::get<double>(table->at("c").value) == 1.5);
    CHECK(*table->at("d").as_string() == "s");
    CHECK(table->at("e").as_array()->size() == 3);
    CHECK(table->at("f").as_table()->at("g").origin.line == 6);
    const auto dated = parse_toml("\nwhen = 2026-01-01\n", file);
    REQUIRE(!dated);
    CHECK(dated.error().message == "f:2: dates and times are not supported here");
}

TEST_CASE("every TOML value knows its line, and so does an error") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const auto table = parse_toml("[a.b]\nc = 1\nd = [\n  2,\n  { e = 3 },\n]\n", file);
    REQUIRE(table);
    const ConfigValue& a = table->at("a");
    const ConfigTable& b = *a.as_table()->at("b").as_table();
    CHECK(a.origin.line == 1);
    CHECK(b.at("c").origin.line == 2);
    CHECK(b.at("d").as_array()->at(0).origin.line == 4);
    CHECK(b.at("d").as_array()->at(1).as_table()->at("e").origin.text() == "f:5");
    const auto broken = parse_toml("a = 1\nb = \n", file);
    REQUIRE(!broken);
    CHECK(broken.error().kind == ErrorKind::config);
    CHECK(broken.error().message.starts_with("f:2:"));
}

TEST_CASE("TOML is ASCII outside of strings and comments") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const char* text =
        "\xEF\xBB\xBF# \xC3\xA9\n\"\xC3\xA9\" = '\xC3\xA9'\nb = \"\"\"\n\xC3\xA9\\\"\"\"\"\nc = '''\n'\xC3\xA9'''\n";
    CHECK(parse_toml(text, file));
    const auto key = parse_toml("a = '\xC3\xA9'\n\xC3\xA9 = 1\n", file);
    REQUIRE(!key);
    CHECK(key.error().message.starts_with("f:2:1: not valid TOML: "));
    CHECK_FALSE(parse_toml(" hid\xEF\xB9\xBF\n", file));
    CHECK_FALSE(parse_toml("a = \"\\\"\n\xC3\xA9", file));
    CHECK_FALSE(parse_toml("e =0\"ce\xEF\xB1\xBF", file));
}

TEST_CASE("TOML that nests without limit is an error") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const auto key = [](std::size_t parts, std::string_view part) {
        std::string text(part);
        for (std::size_t at = 1; at < parts; ++at) text.append(".").append(part);
        return text;
    };
    const std::size_t many = 200'000;
    // The first line of each ends a string in a way that must not hide the key.
    for (const std::string& text : {"\n" + key(many, "a") + " = 1\n", "\n[" + key(many, "a") + "]\n",
                                    "\n[[" + key(many, "'a'") + "]]\n", "\n" + key(many, " \"a\\\"\" ") + " = 1\n",
                                    "a = { b = \"\"\"\n'x\"\"\"\"\", c." + key(many, "d") + " = 1 }\n",
                                    "# it's\n" + key(many, "a") + " = 1\n", "a = '\\'\n" + key(many, "a") + " = 1\n"}) {
        const auto read = parse_toml(text, file);
        REQUIRE(!read);
        CHECK(read.error().message == "f:2: a key of more than 32 parts");
    }
    CHECK(parse_toml(key(32, "a") + " = 1\n[b]\n" + key(32, "a") + " = 1.5\n", file));
    CHECK_FALSE(parse_toml(key(33, "a") + " = 1\n", file));
    // These are no keys.
    std::string numbers = "1.5";
    for (int i = 0; i < 100; ++i) numbers += ", 1.5";
    const std::string dots(100, '.');
    CHECK(parse_toml("a = [" + numbers + "] # " + dots + "\nb = '" + dots + "'\nc = \"\"\"\n" + dots + "\"\n\"\"\"\n",
                     file));

    std::string nested = "1";
    for (int i = 0; i < 5; ++i) nested = "{ " + key(20, "b") + " = " + nested + " }";
    const auto deep = parse_toml("\na = " + nested, file);
    REQUIRE(!deep);
    CHECK(deep.error().message == "f:2: nested too deeply");
}

TEST_CASE("broken TOML is an error, wherever it breaks off") {
    const ConfigOrigin file{ConfigOrigin::Kind::project_file, "f", 0};
    const std::string whole = "s = [{ b = 1, e = [ 2, { x = 'y' } ] }]\n[t.u]\nv.w = \"a\\u00e9\"\n[[t.l]]\nd = 1e3\n";
    REQUIRE(parse_toml(whole, file));
    CHECK_FALSE(parse_toml("shapes = [{ batch = 1,es = [ }]\n", file));
    for (std::size_t at = 0; at < whole.size(); ++at) {
        for (const char* instead : {"", "[", "]", "{", "}", ",", "=", "'", "\"", "\n", "."}) {
            const auto read = parse_toml(whole.substr(0, at) + instead + whole.substr(at + 1), file);
            if (!read) CHECK(read.error().kind == ErrorKind::config);
        }
    }
}

}  // namespace gdnctl
