#include "cli/option_table.h"

#include <doctest/doctest.h>

#include "cli/args_cli11.h"
#include "platform/toml.h"

namespace gdnctl::cli {

namespace {

struct TableOptions {
    std::int64_t number = 4;
    double share = 0.5;
    std::string word = "usual";
    bool flag = false;
    std::vector<std::string> items;
    std::vector<GivenOption> given;
};

void describe_table(Args& args, TableOptions& o) {
    args.option(o.number, {.names = "-n,--number", .value = "N", .help = "a number", .required = true});
    args.option(o.share, {.names = "--share", .value = "X", .help = "a share"});
    args.option(o.word, {.names = "--word", .value = "W", .help = "a word", .env = "WORD"});
    args.flag(o.flag, {.names = "--flag|--no-flag", .help = "a flag"});
    args.option(o.items, {.names = "--item", .value = "I", .help = "an item"});
    args.note_given(o.given);
}

ConfigTable table_of(std::string_view text) {
    auto table = parse_toml(text, {ConfigOrigin::Kind::project_file, "f", 0});
    REQUIRE(table);
    return std::move(*table);
}

Status parse_with(
    TableOptions& options, const std::vector<std::string>& words, const ConfigTable& table,
    const Lookup& environment = [](std::string_view) { return std::nullopt; }) {
    Args globals, args;
    describe_table(args, options);
    return parse_words(globals, args, words, environment, [] { return false; },
                       {"cmd", [&]() -> Result<const ConfigTable*> { return &table; }});
}

}  // namespace

TEST_CASE("option table: a leading ~ in a path, or after a kernel's prefix, is the home folder") {
    OptionDef def;
    CHECK(with_home(def, "~/x", "/home/me") == "~/x");  // not a path
    for (const Complete path : {Complete::file, Complete::directory}) {
        def.complete = path;
        CHECK(with_home(def, "~/x", "/home/me") == "/home/me/x");
        CHECK(with_home(def, "~", "/home/me") == "/home/me");
        CHECK(with_home(def, "~root/x", "/home/me") == "/root/x");
        CHECK(with_home(def, "~no-such-user/x", "/home/me") == "~no-such-user/x");
        CHECK(with_home(def, "./~/x", "/home/me") == "./~/x");
        CHECK(with_home(def, "", "/home/me").empty());
    }
    def.complete = Complete::kernel;
    CHECK(with_home(def, "src:~/k.c", "/home/me") == "src:/home/me/k.c");
    CHECK(with_home(def, "builtin:chunk", "/home/me") == "builtin:chunk");
}

TEST_CASE("option table: a path in it may begin with the home folder") {
    const ConfigTable table = table_of("folder = '~/x'\n");
    Args globals, args;
    std::string folder;
    args.option(folder, {.names = "--folder", .value = "DIR", .help = "a folder", .complete = Complete::directory});
    const auto environment = [](std::string_view name) {
        return name == "HOME" ? std::optional<std::string>("/home/me") : std::nullopt;
    };
    REQUIRE(parse_words(globals, args, {}, environment, [] { return false; },
                        {"cmd", [&]() -> Result<const ConfigTable*> { return &table; }}));
    CHECK(folder == "/home/me/x");
}

TEST_CASE("option table: its values stand below words and environment, and count as given") {
    const ConfigTable table = table_of("number = 7\nshare = 2\nword = 'file'\nflag = true\nitem = ['a', 'b']\n");
    TableOptions options;
    REQUIRE(parse_with(options, {}, table));
    CHECK(options.number == 7);
    CHECK(options.share == 2.0);
    CHECK(options.word == "file");
    CHECK(options.flag);
    CHECK(options.items == std::vector<std::string>{"a", "b"});
    REQUIRE(options.given.size() == 6);
    CHECK(options.given[1].option == "--item");
    CHECK(options.given[1].value == "a");
    CHECK(options.given[1].origin == "f:5");
    CHECK_FALSE(options.given[1].typed);

    TableOptions over;
    REQUIRE(
        parse_with(over, {"-n", "1", "--no-flag", "--item", "c"}, table, [](std::string_view) { return "variable"; }));
    CHECK(over.number == 1);
    CHECK_FALSE(over.flag);
    CHECK(over.word == "variable");
    CHECK(over.items == std::vector<std::string>{"c"});
    CHECK(over.given[0].typed);
    CHECK(over.given[0].option == "--number");
}

TEST_CASE("option table: what an option does not take is an error with its line") {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"nmuber = 1\n", "f:1: unknown key 'cmd.nmuber'"},
        {"\nflag = 'yes'\n", "f:2: 'cmd.flag' must be true or false"},
        {"word = ['a']\n", "f:1: 'cmd.word' must be a string or a number"},
        {"number = 1.5\n", "f:1: invalid value '1.5' for 'cmd.number': not a whole number"},
        {"item = [\n'a',\ntrue]\n", "f:3: 'cmd.item' must be a string or a list of strings"},
        {"number = { a = 1 }\n", "f:1: 'cmd.number' must be a string or a number"},
    };
    for (const auto& [text, message] : cases) {
        TableOptions options;
        const Status status = parse_with(options, {}, table_of(text));
        REQUIRE(!status);
        CHECK(status.error().kind == ErrorKind::config);
        CHECK(status.error().message == message);
    }
    TableOptions options;
    CHECK(parse_with(options, {}, table_of("nmuber = 1\n")).error().hint == "did you mean `number`?");
    CHECK(parse_with(options, {}, {}).error().message == "--number is required");
}

}  // namespace gdnctl::cli
