#include "cli/dispatch.h"

#include <doctest/doctest.h>

#include "sample_command.h"

namespace gdnctl::cli {

namespace {

using Words = std::vector<std::string>;

std::string hint_of(const Words& words) {
    const auto called = dispatch(test::k_sample_table, words);
    REQUIRE(!called);
    CHECK(called.error().kind == ErrorKind::usage);
    return called.error().hint;
}

}  // namespace

TEST_CASE("commands of one and of two words are found") {
    const auto one = dispatch(test::k_sample_table, {"lint-log", "a.md", "--x"});
    REQUIRE(one);
    CHECK(one->command->name == "lint-log");
    CHECK(one->words == Words{"a.md", "--x"});
    const auto two = dispatch(test::k_sample_table, {"log", "append", "log"});
    REQUIRE(two);
    CHECK(two->command->name == "log append");
    CHECK(two->words == Words{"log"});
}

TEST_CASE("global options may stand before and inside a command's name") {
    const auto called =
        dispatch(test::k_sample_table, {"-C", "log", "--json", "log", "--target", "init", "append", "x"});
    REQUIRE(called);
    CHECK(called->command->name == "log append");
    CHECK(called->words == Words{"-C", "log", "--json", "--target", "init", "x"});
}

TEST_CASE("words after -- never name a command") {
    const auto called = dispatch(test::k_sample_table, {"--", "lint-log"});
    REQUIRE(called);
    CHECK(called->command == nullptr);
}

TEST_CASE("help before a command, a group and nothing") {
    const auto command = dispatch(test::k_sample_table, {"help", "log", "init"});
    REQUIRE(command);
    CHECK(command->help);
    CHECK(command->command->name == "log init");
    CHECK(command->words.empty());
    const auto group = dispatch(test::k_sample_table, {"help", "log"});
    REQUIRE(group);
    CHECK(group->group == "log");
    CHECK(dispatch(test::k_sample_table, {"help"})->help);
}

TEST_CASE("every typo of a command's name suggests that command") {
    for (const Command& command : test::k_sample_table) {
        if (is_hidden(command)) continue;
        const std::string name(command.name);
        for (std::size_t i = 0; i < name.size(); ++i) {
            if (name[i] == ' ') continue;
            std::string typo = name;
            typo.erase(i, 1);
            Words words;
            for (std::size_t at = 0; at <= typo.size();) {
                const std::size_t end = std::min(typo.find(' ', at), typo.size());
                words.push_back(typo.substr(at, end - at));
                at = end + 1;
            }
            CAPTURE(typo);
            CHECK(hint_of(words) == "did you mean `gdnctl " + name + "`?");
        }
    }
}

TEST_CASE("the second word alone suggests the whole name") {
    CHECK(hint_of({"append"}) == "did you mean `gdnctl log append`?");
}

TEST_CASE("an unknown member of a group is answered with its members") {
    const auto called = dispatch(test::k_sample_table, {"log", "quux"});
    REQUIRE(!called);
    CHECK(called.error().message == "unknown command 'log quux'");
    CHECK(called.error().hint == "`gdnctl log` has: append, init");
}

TEST_CASE("what is like nothing points to the list of commands, and never to a hidden one") {
    CHECK(hint_of({"zzzzzzzz"}) == "`gdnctl --help` lists the commands");
    CHECK(hint_of({"__hiden"}) == "`gdnctl --help` lists the commands");
    CHECK(dispatch(test::k_sample_table, {"__hidden"})->command != nullptr);
}

TEST_CASE("spaces may stand for the hyphens of a name") {
    const auto called = dispatch(test::k_sample_table, {"lint", "log", "a.md"});
    REQUIRE(called);
    CHECK(called->command->name == "lint-log");
    CHECK(called->words == Words{"a.md"});
    const auto help = dispatch(test::k_sample_table, {"help", "lint", "log"});
    REQUIRE(help);
    CHECK(help->command->name == "lint-log");
    CHECK(hint_of({"lint", "lgo"}) == "did you mean `gdnctl lint-log`?");
}

TEST_CASE("words that mean a command suggest it, and are as good as its name after help") {
    Table table(test::k_sample_table);
    static constexpr Word k_words[] = {
        {"check", "lint-log"}, {"check", "sample run"}, {"log check", "lint-log"}, {"version", "--version"}};
    table.words = k_words;
    const auto hint = [&](const Words& words) { return dispatch(table, words).error().hint; };
    CHECK(hint({"check"}) == "did you mean `gdnctl lint-log` or `gdnctl sample run`?");
    CHECK(hint({"log", "check"}) == "did you mean `gdnctl lint-log`?");
    CHECK(hint({"version"}) == "did you mean `gdnctl --version`?");
    const auto help = dispatch(table, {"help", "check"});
    REQUIRE(help);
    CHECK(help->command->name == "lint-log");
    CHECK_FALSE(dispatch(table, {"help", "version"}));
}

TEST_CASE("a second name finds the same command, in its own group") {
    static constexpr Command k_rows[] = {
        make<&test::describe_nothing, &test::run_nothing>("ray-wait", "Jobs", "wait for a job", Tier::none)
            .also("job wait"),
        make<&test::describe_nothing, &test::run_nothing>("ray-logs", "Jobs", "print a log", Tier::none)
            .also("job logs"),
        make<&test::describe_nothing, &test::run_nothing>("log show", "Logs", "show an entry", Tier::none)};
    static constexpr TableRow k_references[] = {k_rows[0], k_rows[1], k_rows[2]};
    const Table table(k_references);
    const auto found = dispatch(table, {"--json", "job", "-C", "x", "wait", "id"});
    REQUIRE(found);
    CHECK(found->command == &k_rows[0]);
    CHECK(found->words == Words{"--json", "-C", "x", "id"});
    CHECK(dispatch(table, {"ray-wait"})->command == &k_rows[0]);
    CHECK(dispatch(table, {"help", "job"})->group == "job");
    CHECK(group_names(table) == Words{"job", "log"});
    REQUIRE(members_of(table, "job").size() == 2);
    CHECK(members_of(table, "job")[1].name == "job logs");
    CHECK(members_of(table, "job")[1].word == "logs");
    CHECK(other_name_note(k_rows[0]) == " (also: job wait)");
    CHECK(other_name_note(k_rows[2]).empty());
    for (const Words& typo : {Words{"job", "wiat"}, Words{"jb", "wait"}, Words{"wait"}}) {
        const auto called = dispatch(table, typo);
        REQUIRE(!called);
        CHECK(called.error().hint == "did you mean `gdnctl job wait`?");
    }
}

}  // namespace gdnctl::cli
