// Folders of the contest's Python agent.
#include "loop/evolve/contest.h"

#include <doctest/doctest.h>

#include "support/git_repo.h"
#include "support/temp_dir.h"

namespace gdnctl::loop::evolve {

using test::ok;

namespace {

std::string metrics(bool compiled, bool correct, double speedup, const std::string& error = "null") {
    return std::string("{\"compiled\": ") + (compiled ? "true" : "false") +
           ", \"correct\": " + (correct ? "true" : "false") + ", \"speedup\": " + std::to_string(speedup) +
           ", \"latency_ms\": null, \"stats\": null, \"error\": " + error + "}";
}

}  // namespace

TEST_CASE("contest: evolve proposals come in the order of their numbers, with their best") {
    const test::TempDir folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_text(folder.path() / name, text);
    };
    for (int n = 1; n <= 12; ++n) {
        put("proposal_" + std::to_string(n) + ".py", "kernel " + std::to_string(n) + "\n");
        if (n != 5)
            put("proposal_" + std::to_string(n) + "_metrics.json", metrics(true, true, n == 7 || n == 9 ? 3.5 : 1.0));
    }
    put("proposal_3_metrics.json", metrics(false, false, 0, "\"no\""));
    put("proposal_4_metrics.json", metrics(true, false, 99));
    put("proposal_2.txt", "the prompt\n");
    put("proposal_2_log.json", R"({"step": 2, "context": {"recent": [1], "elite": ["proposal_1"]}})");
    put("reference_src.py", R"({"name": "a definition"})");
    put("global_best_kernel_12.py", "best\n");
    const auto steps = ok(read_contest(folder.path()));
    REQUIRE(steps.size() == 12);
    CHECK(steps[1].stem == "proposal_2");
    CHECK(steps[9].stem == "proposal_10");
    CHECK(steps[1].prompt == "the prompt\n");
    CHECK(steps[1].context == std::vector<std::string>{"proposal_1", "proposal_1"});
    CHECK(steps[contest_best(steps)].stem == "proposal_7");  // the earliest of equals, not the incorrect one
    CHECK(contest_status(steps, 4) == "unevaluated");
    CHECK(contest_status(steps, 2) == "compile_failed");
    CHECK(contest_status(steps, 3) == "incorrect");
    CHECK(contest_status(steps, 0) == "ok");
    CHECK_FALSE(contest_parent(steps, 9));
}

TEST_CASE("contest: an iterative run is a chain, and a no-op is no compile failure") {
    const test::TempDir folder;
    const auto put = [&](const std::string& name, const std::string& text) {
        test::write_text(folder.path() / name, text);
    };
    put("proposal_0_1.py", "a\n");
    put("proposal_0_1_metrics.json", metrics(true, true, 2));
    put("tune_0_2.py", "a\n");
    put("tune_0_2_metrics.json", metrics(false, false, 0, "\"No-op tuning step: no str_replace edit was applied\""));
    put("tune_0_10.py", "b\n");
    put("tune_0_10_metrics.json", "{broken");
    const auto steps = ok(read_contest(folder.path()));
    REQUIRE(steps.size() == 3);
    CHECK(steps[2].stem == "tune_0_10");
    CHECK(*contest_parent(steps, 1) == 0);
    CHECK(*contest_parent(steps, 2) == 1);
    CHECK(contest_status(steps, 1) == "noop");
    CHECK(contest_status(steps, 2) == "unevaluated");
    CHECK(contest_best(steps) == 0);
    // Written and read again.
    const test::TempDir out;
    for (int n = 1; n <= 3; ++n)
        REQUIRE(write_contest_step(out.path(), n, steps[static_cast<std::size_t>(n) - 1], "task"));
    const auto again = ok(read_contest(out.path()));
    REQUIRE(again.size() == 3);
    CHECK(again[0].stem == "proposal_0_1");
    CHECK(again[2].stem == "tune_0_3");
    CHECK(again[2].kernel == "b\n");
    CHECK(again[0].metrics->speedup == 2);
}

TEST_CASE("contest: other names are not steps") {
    for (const char* name :
         {"proposal.py", "proposal_x.py", "tune_3.py", "proposal_1_2_3.py", "proposal_1.txt", "proposal_-1.py",
          "reference_src.py", "global_best_kernel_30.py", "proposal_1_metrics.json", ""}) {
        CAPTURE(name);
        CHECK_FALSE(contest_name(name));
    }
    CHECK(read_contest("/nonexistent").error().kind == ErrorKind::usage);
    const test::TempDir empty;
    CHECK(read_contest(empty.path()).error().kind == ErrorKind::usage);
}

}  // namespace gdnctl::loop::evolve
