// Running plans on machines that do as they are told.
#include "sweep/run.h"

#include <functional>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "support/fake_clock.h"
#include "support/scratch.h"
#include "unit/jobs/job_fixture.h"

namespace gdnctl::sweep {

namespace {

std::string ok(double seconds) {
    return fmt::format("steady_time_s {}\ntokens_per_s 1\nbwd_steady_time_s {}\n", seconds / 4, seconds);
}

struct World {
    test::Scratch scratch;
    test::FakeClock clock;
    std::filesystem::path path = scratch / "j.jsonl";
    Plan plan;
    SweepOptions options;
    std::vector<std::string> ran, settled;  // labels; submission ids
    std::function<RunOutput(const std::string& label, std::size_t nth)> answer;
    std::function<std::string()> check = [] { return std::string(); };
    std::size_t die_after = 1000000;  // runs; then the sweep ends as if it were killed within the next

    World() {
        log::set_sink([](log::Level, std::string_view) {});
        plan.command = {"{label}"};
        plan.shapes = {{1024, 512, 1000}};
        plan.b = {1024};
        plan.h = {512};
        plan.v = {128, 256};
        plan.repeats = 2;
        answer = [](const std::string& label, std::size_t) {
            return RunOutput{ok(label.ends_with("v128") ? 0.5 : 0.6), false, false, "", 0, 1};
        };
    }
    ~World() { log::set_sink(nullptr); }

    Result<SweepResult> sweep() {
        const auto configurations = configurations_of(plan, "r", {});
        REQUIRE(configurations.has_value());
        auto contents = read_journal(path);
        auto journal = Journal::open(path);
        REQUIRE(journal.has_value());
        RunPlace place;
        place.run = [&](const std::vector<std::string>& argv, double limit,
                        const std::function<Status(JournalEvent)>& on_start) -> Result<RunOutput> {
            JournalEvent where;
            where.submission_id = fmt::format("job{}", ran.size());
            where.cluster = "local";
            GDNCTL_TRY(on_start(std::move(where)));
            if (ran.size() >= die_after) return fail(ErrorKind::terminated, "killed");
            ran.push_back(argv.front());
            RunOutput output = answer(argv.front(), ran.size());
            if (output.wall_s > limit) {
                output.timed_out = true;
                output.wall_s = limit;
            }
            clock.advance(std::chrono::milliseconds(static_cast<std::int64_t>(output.wall_s * 1000)));
            return output;
        };
        place.settle = [&](const JournalEvent& start) -> Status {
            settled.push_back(start.submission_id);
            return {};
        };
        place.check = [&](const std::string&) -> Result<std::string> { return check(); };
        return run_sweep(plan, *configurations, options, contents->records, *journal, place, clock);
    }
    std::string order() const {
        std::string out;
        for (const std::string& label : ran) out += label.ends_with("v128") ? 'a' : label.ends_with("v256") ? 'b' : 'i';
        return out;
    }
};

}  // namespace

TEST_CASE("sweep run: all configurations once, then again, the first runs are discarded") {
    World w;
    w.answer = [](const std::string& label, std::size_t nth) {
        return RunOutput{ok(nth <= 2 ? 9.0 : label.ends_with("v128") ? 0.5 : 0.6), false, false, "", 0, 1};
    };
    const auto result = w.sweep();
    REQUIRE(result.has_value());
    CHECK(w.order() == "ababab");
    CHECK(result->ended == SweepEnd::complete);
    CHECK(result->all_have_outcomes);
    REQUIRE(result->records.size() == 2);
    for (const Record& r : result->records) {
        REQUIRE(r.spread.has_value());
        CHECK(r.spread->runs == 2);
        CHECK(r.spread->median_s < 1);
    }
    SUBCASE("and nothing is run again") {
        CHECK(w.sweep()->records.size() == 2);
        CHECK(w.ran.size() == 6);
    }
    SUBCASE("but what was not asked for before is") {
        w.plan.repeats = 3;
        CHECK(w.sweep().has_value());
        CHECK(w.order() == "abababab");
    }
}

TEST_CASE("sweep run: killed anywhere, the sweep goes on where it was") {
    for (std::size_t at = 0; at < 6; ++at) {
        World w;
        w.die_after = at;
        CHECK_FALSE(w.sweep().has_value());
        w.die_after = 1000000;
        const auto result = w.sweep();
        REQUIRE(result.has_value());
        CHECK(w.order() == "ababab");
        CHECK(w.settled == std::vector<std::string>{fmt::format("job{}", at)});
        CHECK(result->records.size() == 2);
    }
}

TEST_CASE("sweep run: failures of its own are final, and cost no other configuration") {
    World w;
    w.answer = [](const std::string& label, std::size_t) {
        if (label.ends_with("v128")) return RunOutput{ok(0.5), false, false, "", 0, 1};
        return RunOutput{"boom\n", false, false, "", std::nullopt, 1};
    };
    const auto result = w.sweep();
    CHECK(w.order() == "abaa");
    CHECK(result->all_have_outcomes);
    CHECK(result->any_ok);
    CHECK(w.sweep().has_value());
    CHECK(w.order() == "abaa");
}

TEST_CASE("sweep run: what the machines lost is tried again, and never held against a configuration") {
    World w;
    w.answer = [&](const std::string& label, std::size_t nth) {
        if (label.ends_with("v128") || nth > 4) return RunOutput{ok(0.5), false, false, "", 0, 1};
        return RunOutput{"", false, true, "JOB_SUPERVISOR_ACTOR_DIED", std::nullopt, 1};
    };
    auto result = w.sweep();
    CHECK(w.order() == "abbbaa");  // three tries of b, and no more of it in this sweep
    CHECK_FALSE(result->all_have_outcomes);
    CHECK(result->infra_only);
    result = w.sweep();
    CHECK(w.order() == "abbbaabbb");
    CHECK(result->all_have_outcomes);
    CHECK_FALSE(result->infra_only);
}

TEST_CASE("sweep run: a missing module is neither retried nor remembered") {
    World w;
    w.plan.v = {128};
    w.answer = [](const std::string&, std::size_t) {
        return RunOutput{"ModuleNotFoundError: No module named 'jax'\n", false, false, "", 1, 1};
    };
    CHECK_FALSE(w.sweep()->any_ok);
    CHECK(w.ran.size() == 1);
    CHECK_FALSE(w.sweep()->all_have_outcomes);
    CHECK(w.ran.size() == 2);
}

TEST_CASE("sweep run: a configuration far behind is dropped after two kept runs") {
    World w;
    w.plan.repeats = 4;
    w.answer = [](const std::string& label, std::size_t) {
        return RunOutput{ok(label.ends_with("v128") ? 0.5 : 0.7), false, false, "", 0, 1};
    };
    CHECK(w.sweep()->all_have_outcomes);
    CHECK(w.order() == "abababaa");
}

TEST_CASE("sweep run: a hang is the configuration's own, unless the limit is raised") {
    World w;
    w.plan.v = {128};
    w.plan.time_limit_s = 10;
    w.answer = [](const std::string&, std::size_t) { return RunOutput{ok(0.5), false, false, "", 0, 20}; };
    const auto result = w.sweep();
    REQUIRE(result->records.size() == 1);
    CHECK(result->records[0].failure.kind == FailureKind::timed_out);
    CHECK(w.sweep().has_value());
    CHECK(w.ran.size() == 1);
    w.plan.time_limit_s = 30;
    CHECK(w.sweep().has_value());
    CHECK(w.ran.size() == 4);
}

TEST_CASE("sweep run: the budget ends the sweep, not a configuration") {
    World w;
    w.options.budget_s = 2.5;
    auto result = w.sweep();
    CHECK(result->ended == SweepEnd::budget);
    CHECK(w.order() == "aba");  // the third was cut short, and counts for nothing
    result = w.sweep();
    CHECK(w.order() ==
          "abaab"
          "a");
    w.options.budget_s = 0;
    CHECK(w.sweep()->ended == SweepEnd::budget);
    w.options.budget_s.reset();
    result = w.sweep();
    CHECK(result->ended == SweepEnd::complete);
    CHECK(result->all_have_outcomes);
}

TEST_CASE("sweep run: outputs that are wrong take the time with them") {
    World w;
    w.plan.v = {128};
    w.plan.inputs = "in";
    w.plan.command = {"{label}{outputs}"};
    w.plan.check = Check::sampled;
    w.options.outputs = w.scratch.path().string();
    w.check = [] { return std::string("WRONG: stage tail"); };
    const auto result = w.sweep();
    REQUIRE(result->records.size() == 1);
    CHECK(result->records[0].status == ResultStatus::wrong);
    CHECK(result->records[0].error == "WRONG: stage tail");
    CHECK_FALSE(result->any_ok);
    CHECK(w.ran.size() == 1);
}

TEST_CASE("sweep run: sizes that are estimated not to fit are skipped where that is asked for") {
    World w;
    w.plan.b = {1024, 8192};
    w.options.prune_vmem = true;
    const auto result = w.sweep();
    CHECK(w.ran.size() == 6);
    CHECK(result->all_have_outcomes);
    CHECK(test::read_whole(w.path).find("\"skipped_estimate\"") != std::string::npos);
    w.options.prune_vmem = false;
    CHECK(w.sweep().has_value());
    CHECK(w.ran.size() == 12);
}

TEST_CASE("sweep run: what a run's output comes to") {
    const Plan plan;
    const auto kind = [&](const RunOutput& o) { return judge_output(o, plan).failure.kind; };
    CHECK(kind({"", false, false, "", 0, 1}) == FailureKind::no_result);
    CHECK(kind({"", false, false, "", 3, 1}) == FailureKind::crashed);
    CHECK(kind({"RESOURCE_EXHAUSTED: vmem", false, false, "", 1, 1}) == FailureKind::vmem_oom);
    CHECK(kind({"config infer None\nfailed X Used 20.19M of 16.00M\n", false, false, "", 0, 1}) ==
          FailureKind::vmem_oom);
    CHECK(kind({ok(1), false, false, "", 139, 1}) == FailureKind::crashed);
    CHECK(kind({"node received SIGTERM\n", false, false, "", 1, 1}) == FailureKind::infra);
    CHECK(kind({ok(1), true, true, "PENDING", {}, 1}) == FailureKind::infra);
    const RunEnd last = judge_output({ok(1) + "variant xla\n" + ok(2), false, false, "", 0, 1}, plan);
    CHECK(last.step_s == 2.0);
    CHECK(last.steady_time_s == 0.5);
    CHECK(judge_output({"loss nan\n" + ok(1), false, false, "", 0, 1}, plan).status == ResultStatus::wrong);
}

// A sweep's runs as jobs: what is known of a configuration whose job has ended without its log.

namespace {

using namespace test;

struct RunAsJobsFixture : JobFixture {
    RunAsJobsFixture() { write_text(context.cwd / "a", "a"); }  // jobs take the folder with them
    Result<RunOutput> run_here() {
        const RunPlace place = run_as_jobs(jobs, {"s", {}, {}, {}, {}}, context);
        return place.run({"true"}, 3600, [](JournalEvent) { return Status(); });
    }
};

}  // namespace

TEST_CASE("sweep as jobs: a failed run without its log is the machines' loss, and not waited for") {
    for (const ErrorKind kind : {ErrorKind::infrastructure, ErrorKind::remote_missing}) {
        RunAsJobsFixture world;
        world.jobs.script.turns = {{0, JobState::running}, {10, JobState::failed, 1}};
        world.jobs.script.log_away = {{0, 1e9, trouble(kind)}};
        const auto output = world.run_here();
        REQUIRE(output);
        CHECK(output->lost);
        CHECK(output->lost_because == "its log could not be read");
        CHECK(world.jobs.now() < 27);
    }
    RunAsJobsFixture told;  // with its log, the failure is the configuration's
    told.jobs.script.turns = {{0, JobState::running}, {10, JobState::failed, 1}};
    told.jobs.script.log = {{5, "ValueError: no such block\n"}};
    const auto output = told.run_here();
    REQUIRE(output);
    CHECK_FALSE(output->lost);
    CHECK(output->exit_code == 1);
    CHECK(output->text == "ValueError: no such block\n");
}

TEST_CASE("sweep as jobs: a successful run's result is waited for, ten minutes at most") {
    RunAsJobsFixture back;
    back.jobs.script.log = {{5, "result\n"}};
    back.jobs.script.log_away = {{0, 300, trouble(ErrorKind::infrastructure)}};
    const auto output = back.run_here();
    REQUIRE(output);
    CHECK_FALSE(output->lost);
    CHECK(output->text == "result\n");
    RunAsJobsFixture away;
    away.jobs.script.log_away = {{0, 1e9, trouble(ErrorKind::infrastructure)}};
    const auto lost = away.run_here();
    REQUIRE(lost);
    CHECK(lost->lost);
    CHECK(lost->lost_because.starts_with("log incomplete"));
    CHECK(away.jobs.now() < 640);
}

}  // namespace gdnctl::sweep
