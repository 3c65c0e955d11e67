#include "jobs/stop.h"

#include "job_fixture.h"

namespace gdnctl {

namespace {

using namespace test;

struct StopFixture : JobFixture {
    StopFixture() { jobs.begin(); }
    Result<StoppedJob> stop_it(const StopOptions& how) { return stop_job(jobs, "j", how, context); }
    bool remembers() const {
        return read_text(context.state_dir / "given_up.jsonl").find("given_up") != std::string::npos;
    }
};

}  // namespace

TEST_CASE("stop: a job that runs stops, one that has ended is left as it is") {
    StopFixture world;
    auto job = world.stop_it({true, {}});
    REQUIRE(job);
    CHECK(job->stopped);
    CHECK(job->details.state == JobState::stopped);
    CHECK_FALSE(world.remembers());
    StopFixture over;
    over.clock.advance(seconds(11));
    job = over.stop_it({true, {}});
    REQUIRE(job);
    CHECK_FALSE(job->stopped);
    CHECK(job->details.state == JobState::succeeded);
    CHECK(over.jobs.stopped.empty());
    CHECK(over.has_said("Job j had already ended (SUCCEEDED)"));
}

TEST_CASE("stop: without waiting, a job that has not started is kept in mind until it does") {
    StopFixture world;
    world.jobs.script.turns = {{0, JobState::pending}};
    world.jobs.script.stop_takes = -1;
    const auto job = world.stop_it({});
    REQUIRE(job);
    CHECK(job->details.state == JobState::pending);
    CHECK(world.remembers());
    StopFixture running;
    running.jobs.script.stop_takes = -1;
    REQUIRE(running.stop_it({}));
    CHECK_FALSE(running.remembers());
}

TEST_CASE("stop: one that does not end in time is an error, and given up") {
    StopFixture world;
    world.jobs.script.turns = {{0, JobState::running}};
    world.jobs.script.stop_takes = -1;
    const auto job = world.stop_it({true, seconds(20)});
    REQUIRE_FALSE(job);
    CHECK(job.error().kind == ErrorKind::timeout);
    CHECK(world.remembers());
    CHECK(world.jobs.now() == doctest::Approx(20.0));
    StopFixture cut;
    cut.jobs.script.turns = {{0, JobState::running}};
    cut.jobs.script.stop_takes = -1;
    cut.interrupt_at(3);
    const auto interrupted = cut.stop_it({true, {}});
    REQUIRE_FALSE(interrupted);
    CHECK(cut.remembers());
    StopFixture none;
    none.jobs.script.away = {{0, 1e9, trouble(ErrorKind::remote_missing, "Job j does not exist")}};
    const auto missing = none.stop_it({true, {}});
    REQUIRE_FALSE(missing);
    CHECK(missing.error().kind == ErrorKind::remote_missing);
}

}  // namespace gdnctl
