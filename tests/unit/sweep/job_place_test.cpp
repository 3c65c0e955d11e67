// A sweep's runs as jobs: what is known of a configuration whose job has ended without its log.
#include "sweep/job_place.h"

#include "unit/jobs/job_world.h"

namespace gdnctl::sweep {

namespace {

using namespace test;

struct PlaceWorld : JobWorld {
    PlaceWorld() { write_text(context.cwd / "a", "a"); }  // jobs take the folder with them
    Result<RunOutput> run_here() {
        const Place place = job_place(jobs, {"s", {}, {}, {}, {}}, context);
        return place.run({"true"}, 3600, [](JournalEvent) { return Status(); });
    }
};

}  // namespace

TEST_CASE("sweep as jobs: a failed run without its log is the machines' loss, and not waited for") {
    for (const ErrorKind kind : {ErrorKind::infrastructure, ErrorKind::remote_missing}) {
        PlaceWorld world;
        world.jobs.script.turns = {{0, JobState::running}, {10, JobState::failed, 1}};
        world.jobs.script.log_away = {{0, 1e9, trouble(kind)}};
        const auto output = world.run_here();
        REQUIRE(output);
        CHECK(output->lost);
        CHECK(output->lost_because == "its log could not be read");
        CHECK(world.jobs.now() < 27);
    }
    PlaceWorld told;  // with its log, the failure is the configuration's
    told.jobs.script.turns = {{0, JobState::running}, {10, JobState::failed, 1}};
    told.jobs.script.log = {{5, "ValueError: no such block\n"}};
    const auto output = told.run_here();
    REQUIRE(output);
    CHECK_FALSE(output->lost);
    CHECK(output->exit_code == 1);
    CHECK(output->text == "ValueError: no such block\n");
}

TEST_CASE("sweep as jobs: a successful run's result is waited for, ten minutes at most") {
    PlaceWorld back;
    back.jobs.script.log = {{5, "result\n"}};
    back.jobs.script.log_away = {{0, 300, trouble(ErrorKind::infrastructure)}};
    const auto output = back.run_here();
    REQUIRE(output);
    CHECK_FALSE(output->lost);
    CHECK(output->text == "result\n");
    PlaceWorld away;
    away.jobs.script.log_away = {{0, 1e9, trouble(ErrorKind::infrastructure)}};
    const auto lost = away.run_here();
    REQUIRE(lost);
    CHECK(lost->lost);
    CHECK(lost->lost_because.starts_with("log incomplete"));
    CHECK(away.jobs.now() < 640);
}

}  // namespace gdnctl::sweep
