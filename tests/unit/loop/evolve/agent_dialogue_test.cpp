// EDIT v1 blocks, traces and budgets.
#include "loop/evolve/agent_dialogue.h"

#include <doctest/doctest.h>

#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

namespace {

std::string block(std::string_view file, std::string_view old, std::string_view now) {
    return "EDIT v1 " + std::string(file) + "\n<<<<<<< SEARCH\n" + std::string(old) + "=======\n" + std::string(now) +
           ">>>>>>> REPLACE\n";
}

const std::map<std::string, std::string> k_files = {{"k.c", "int a;\n  int b;\nint a;\nint c;"}, {"w.c", "x\r\ny\r\n"}};

AppliedEdits apply(const std::string& reply) { return apply_edits(parse_edits(reply), k_files); }

}  // namespace

TEST_CASE("evolve dialogue: EDIT v1 replaces whole lines that occur once, and keeps indentation") {
    const auto one = apply("I change b.\n" + block("k.c", "  int b;\n", "\tint b2;\n    int b3;\n"));
    REQUIRE(one.all);
    CHECK(one.files.at("k.c") == "int a;\n\tint b2;\n    int b3;\nint a;\nint c;");
    CHECK(one.results.at(0).applied);
    CHECK(one.near_misses.empty());
    const auto removed = apply(block("k.c", "int c;\n", ""));
    REQUIRE(removed.all);
    CHECK(removed.files.at("k.c") == "int a;\n  int b;\nint a;");
    const auto windows = apply(block("w.c", "y\n", "z\n"));
    REQUIRE(windows.all);
    CHECK(windows.files.at("w.c") == "x\r\nz\r\n");
}

TEST_CASE("evolve dialogue: EDIT v1 applies all edits or none") {
    const auto half = apply(block("k.c", "  int b;\n", "B\n") + block("k.c", "int d;\n", "D\n"));
    CHECK_FALSE(half.all);
    CHECK(half.files.empty());
    REQUIRE(half.results.size() == 2);
    CHECK_FALSE(half.results[0].applied);
    CHECK(half.results[0].reason == "another edit of the reply failed");
    CHECK(half.results[1].reason == "the SEARCH lines occur 0 times");
    const auto both = apply(block("k.c", "  int b;\n", "B\n") + block("k.c", "B\n", "BB\n"));
    REQUIRE(both.all);
    CHECK(both.files.at("k.c") == "int a;\nBB\nint a;\nint c;");
}

TEST_CASE("evolve dialogue: EDIT v1 says what a failed match is closest to") {
    CHECK(apply(block("k.c", "int a;\n", "A\n")).near_misses.find("occur 2 times") != std::string::npos);
    const auto near = apply(block("k.c", "int b;\n", "B\n"));
    CHECK(near.near_misses.find("Closest, from line 2") != std::string::npos);
    CHECK(near.near_misses.find("- int b;\n+   int b;\n") != std::string::npos);
    CHECK(apply(block("gdnctl.toml", "a\n", "b\n")).results.at(0).reason == "not a file that may be changed");
    CHECK(apply(block("k.c", "", "b\n")).results.at(0).reason == "no SEARCH lines");
    const auto three =
        apply(block("k.c", "  int b;\n", "B\n") + block("k.c", "int c;\n", "C\n") + block("w.c", "x\n", "X\n"));
    CHECK_FALSE(three.all);
    CHECK(three.near_misses.find("at most 2") != std::string::npos);
}

TEST_CASE("evolve dialogue: EDIT v1 tells a reply that was cut off from one without edits") {
    const std::string whole = block("k.c", "  int b;\n", "B\n");
    for (std::size_t cut = 0; cut < whole.size() - 1; ++cut) {
        const auto part = apply(whole.substr(0, cut));
        CAPTURE(cut);
        // The last marker may lack its newline, never a letter.
        CHECK_FALSE(part.all);
    }
    CHECK(parse_edits("nothing").problems.empty());
    CHECK(parse_edits(whole.substr(0, whole.size() - 3)).problems.size() == 1);
    CHECK(abstains("I see none.\n  <NO_VALID_EDIT/>\n"));
    CHECK_FALSE(abstains("print <NO_VALID_EDIT/> when"));
}

TEST_CASE("evolve dialogue: traces are taken out of a reply where they are whole") {
    const auto fenced = split_trace("```json\n{\"technique\": \"fuse\", \"a\": {\"b\": \"}\"}}\n```\n\nEDIT v1 k.c\n");
    CHECK(fenced.technique == "fuse");
    CHECK(fenced.reply == "EDIT v1 k.c\n");
    REQUIRE(fenced.trace);
    CHECK(fenced.trace->front() == '{');
    const auto leading = split_trace(" {\"rung\": 3} then code\n");
    CHECK(leading.trace == "{\"rung\": 3}");
    CHECK(leading.reply == "then code\n");
    for (const char* none : {"", "{", "{\"a\": ", "```json\n{\"a\"\n", "```c\nint x;\n```\n```json\n{}\n```\n", "[1]",
                             "```json\n[1]\n```\n", "{not json} x", "text {\"a\": 1}"}) {
        CAPTURE(none);
        const auto split = split_trace(none);
        CHECK_FALSE(split.trace);
        CHECK(split.reply == none);
    }
}

TEST_CASE("evolve dialogue: budgets end a run, the reserve aside") {
    Budget budget;
    CHECK_FALSE(budget.any());
    budget.attempts = 3;
    budget.wall_s = 100;
    CHECK(budget.any());
    Spent spent;
    CHECK(ended_by(budget, spent).empty());
    spent.wall_s = 89;
    CHECK(ended_by(budget, spent).empty());
    spent.wall_s = 90;
    CHECK(ended_by(budget, spent) == "max-wall");
    CHECK(left_of(budget, spent) == std::map<std::string, double>{{"attempts", 3}, {"wall_s", 0}});
    spent = {3, 0, 0, 0, 0, 0};
    CHECK(ended_by(budget, spent) == "max-attempts");
    budget = {};
    budget.no_improve = 2;
    budget.usd = 1.0;
    budget.tokens = 10;
    budget.device_s = 5.0;
    CHECK(ended_by(budget, {9, 0, 9, 0.5, 4.4, 1}).empty());
    CHECK(ended_by(budget, {9, 0, 10, 0.5, 0, 1}) == "max-tokens");
    CHECK(ended_by(budget, {9, 0, 9, 1.0, 0, 1}) == "max-usd");
    CHECK(ended_by(budget, {9, 0, 9, 0, 4.5, 1}) == "max-device-seconds");
    CHECK(ended_by(budget, {9, 0, 9, 0, 0, 2}) == "max-no-improve");
    CHECK(cost_of({2.0, 0.5, 10.0}, 1'000'000, 400'000, 100'000) == doctest::Approx(1.2 + 0.2 + 1.0));
}

}  // namespace gdnctl::loop::evolve
