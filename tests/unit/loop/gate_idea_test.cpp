// Ideas that come back, and how long a ladder is climbed.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "ledger_world.h"
#include "loop/gates/flakes.h"
#include "loop/memory/idea_stage.h"
#include "validation_world.h"

namespace gdnctl::loop {

TEST_CASE("gate idea: one that was refused twice is warned of or blocked, unless there is a new argument") {
    StageWorld world;
    world.write("kernel.c", "int speed = 2;\n");
    world.candidate.head = world.commit("faster");
    world.candidate.files = {{"kernel.c", 'M', "100644", "100644", "", ""}};
    auto transactions = world.transactions();
    const auto judge = [&](IdeaPolicy policy) {
        return ok(make_idea_stage(policy, transactions.repository())->run(world.context()));
    };
    write_text(world.artefacts.path(7, "report.json"), R"({"title": "Batch the K matmuls", "slot": "H"})");
    StageResult result = judge(IdeaPolicy::block);
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("idea") == "slot:H");
    const auto run = scripted_run(3);
    for (const int refused : {2, 3}) {
        ok(append_ledger(world.log_dir(), iteration_record(records_of(run, refused), facts_for_test())));
    }
    result = judge(IdeaPolicy::warn);
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("failed_before") == "2");
    CHECK_FALSE(result.reason.empty());
    result = judge(IdeaPolicy::block);
    CHECK(result.verdict == StageVerdict::fail);
    CHECK(result.outcome == Outcome::rejected);
    CHECK(result.exit_status == 1);
    write_text(world.artefacts.path(7, "report.json"),
               R"({"title": "Batch the K matmuls", "slot": "H", "new_argument": "the layout changed"})");
    CHECK(judge(IdeaPolicy::block).verdict == StageVerdict::pass);
    // What the agent hands in is never an error of the loop.
    write_text(world.artefacts.path(7, "report.json"), "no json");
    CHECK(judge(IdeaPolicy::block).verdict == StageVerdict::pass);
}

TEST_CASE("gate ladder: any number of passes ends, and leaves the trouble to the circuit breaker (defect 20)") {
    FakeClock clock;
    int passes = 0;
    Ladder ladder(JobKind::tests, {{"c", {}, {}}},
                  {[&](const JobSite&) -> Result<JobEnd> {
                       ++passes;
                       return end_of(JobKind::tests, 4, {}, "ConnectionResetError\n");
                   },
                   nullptr,
                   {},
                   clock});
    const JobEnd end = ok(ladder.climb(-1, std::chrono::seconds(120)));
    CHECK(passes == 30);
    REQUIRE(end.failure);
    CHECK(end.failure->outcome == Outcome::infra);
}

TEST_CASE("gate flakes: a sighting names its run, and reads back") {
    StageWorld world;
    world.children.options.clusters = {"c"};
    const std::string red = "FAILED t.py::test_a[4] - E\nmax_abs=1.19e-05\n1 failed, 87 passed, 2 skipped in 3.00s";
    world.children.child(world.children.test_words("c"), 1, report_of("FAILED", "user"), red);
    world.children.child(world.children.test_words("c", {"--pytest-args", "-k test_a"}), 0, report_of("SUCCEEDED"),
                         "4 passed, 85 deselected in 3.00s");
    TargetJobs jobs = world.children.jobs();
    const StageContext context{7, world.where, world.candidate, world.tree, world.artefacts, "r1"};
    CHECK(ok(TestsStage(world.validation(jobs)).run(context)).outcome == Outcome::flaky);
    const auto sightings = ok(read_flakes(world.log_dir()));
    REQUIRE(sightings.size() == 1);
    CHECK(sightings[0].test == "t.py::test_a[4]");
    CHECK(sightings[0].run == "r1");
    CHECK(sightings[0].iteration == 7);
    CHECK(sightings[0].passed_alone);
    CHECK(flake_table(sightings)[0].known());
}

}  // namespace gdnctl::loop
