// Jobs of gates as this process runs them: what can be told without a job that runs.
#include "loop/gates/job_service.h"

#include <thread>

#include "core/log.h"
#include "platform/signals.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"
#include "validation_fixture.h"

namespace gdnctl::loop {

namespace {

Config config_of_target(const char* cluster = nullptr) {
    const auto word = [](std::string text) { return ConfigValue{std::move(text), {ConfigOrigin::Kind::flag, "test"}}; };
    ConfigTable target;
    target["test"] = {ConfigArray{word("true")}, {}};
    ConfigTable root;
    root["target"] = word("t");
    root["targets"] = {ConfigTable{{"t", {target, {}}}}, {}};
    if (cluster != nullptr) root["cluster"] = word(cluster);
    Config config;
    config.overlay(root);
    return config;
}

struct InProcessFixture {
    test::TempDir folder;
    FakeEnv env{{"USER", "me"}};
    FakeClock clock;
    test::FakeTerminal terminal;
    Config config = config_of_target();
    test::FakeProcess process;
    FakeHttp http;
    std::stop_source stop;
    std::vector<std::filesystem::path> asked;
    ConfigAt config_at = [this](const std::filesystem::path& tree) -> Result<Config> {
        asked.push_back(tree);
        return config;
    };
    Context context{
        env,           clock, terminal, config, process, http, stop.get_token(), folder.path(), folder / "state",
        "/bin/gdnctl", {}};
    InProcessJobs jobs{config_at, context};

    JobSpec spec(const std::string& cluster) const {
        JobSpec spec;
        spec.site.cluster = cluster;
        spec.tree = folder.path();
        spec.log = folder / "job.log";
        spec.limit_s = 60;
        spec.stop = stop.get_token();
        return spec;
    }
};

}  // namespace

TEST_CASE("job service: what never became a job ends as the command would, and says why in the job's log") {
    InProcessFixture world;
    const auto answer = world.jobs.run(world.spec("nowhere"));
    REQUIRE(answer);
    CHECK(answer->exit == ExitCode::usage);
    CHECK(answer->report.submission_id.empty());
    CHECK(world.asked == std::vector<std::filesystem::path>{world.folder.path()});
    const std::string log = read_text(world.folder / "job.log");
    CHECK(log.starts_with("[gdnctl] error: No cluster config found for region nowhere"));
    CHECK(world.terminal.err_text.empty());
    const JobEnd end = judge_job(JobKind::tests, *answer, evidence_of(log), "nowhere", {});
    CHECK(end.site_is_unknown);
    CHECK(end.rc == 2);

    world.config_at = [](const std::filesystem::path&) -> Result<Config> {
        return fail(ErrorKind::config, "gdnctl.toml:1: no TOML");
    };
    CHECK(world.jobs.run(world.spec("local"))->exit == ExitCode::usage);
}

TEST_CASE("job service: steps that no run can have are refused before anybody is asked") {
    InProcessFixture world;
    JobSpec spec = world.spec("local");
    spec.kind = JobKind::profile;
    spec.profile.num_steps = 0;
    CHECK(world.jobs.run(spec)->exit == ExitCode::usage);
    spec.profile.num_steps = 20;
    spec.profile_env = {"no-assignment"};
    CHECK(world.jobs.run(spec)->exit == ExitCode::usage);
}

TEST_CASE("job service: a log that cannot be opened is an error, and a stop request is one") {
    InProcessFixture world;
    JobSpec spec = world.spec("nowhere");
    spec.log = world.folder / "missing/job.log";
    const auto unwritten = world.jobs.run(spec);
    REQUIRE_FALSE(unwritten);
    CHECK(unwritten.error().kind == ErrorKind::local_io);
    world.stop.request_stop();
    const auto stopped = world.jobs.run(world.spec("nowhere"));
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind == stopped_error().kind);
}

TEST_CASE("job service: this machine always answers, and has no such job") {
    InProcessFixture world;
    ok(world.jobs.check("local", std::chrono::seconds(60)));
    CHECK(world.jobs.check("nowhere", std::chrono::seconds(60)).error().kind == ErrorKind::usage);
    const Status none = world.jobs.stop("gdnctl-test-me-1", {"local", "", ""}, world.folder.path(), true);
    REQUIRE_FALSE(none);
    CHECK(none.error().kind == ErrorKind::remote_missing);
}

TEST_CASE("job service: the report of a run") {
    JobRun run;
    run.place = {"ray", "c", "http://c", ""};
    run.details.submission_id = "job-1";
    run.details.state = JobState::failed;
    run.details.message = "failed";
    run.details.driver_exit_code = 3;
    run.details.start_time = WallTime(std::chrono::milliseconds(1000));
    run.details.end_time = WallTime(std::chrono::milliseconds(61'000));
    run.verdict = {FailureClass::user, ExitCode::check_failed};
    run.request.entrypoint = "python train.py";
    PlannedJob job;
    job.target = pytest_target();
    job.tpu = "v5p-8";
    const JobReport report = job_report(run, job);
    CHECK(report.ended());
    CHECK(report.duration_ms() == 60'000);
    CHECK(report.failure_class == "user");
    CHECK(report.backend == "ray");
    CHECK(report.entrypoint == "python train.py");
    CHECK(report.tpu == "v5p-8");
    CHECK(report.target == "t");
    CHECK_FALSE(report.runs_as_written);
    CHECK_FALSE(report.tpu_evidence);
    CHECK(report.metric_name.empty());
    run.submitted = false;
    CHECK(job_report(run, job).status.empty());
    job.target = plain_target();
    run.metric = *MetricReader::create(*job.target.metric);
    run.metric->feed("{\"ms\": 8}\n");
    run.metric->finish();
    const JobReport measured = job_report(run, job);
    CHECK(measured.runs_as_written);
    CHECK(measured.metric_name == "ms");
    CHECK(measured.metric_value == 8.0);
}

TEST_CASE("job service: what is said on the way goes to its own place, and only from this thread") {
    std::string own, inner;
    {
        const log::Diverted outer([&](std::string_view line) { (own += line) += '\n'; });
        log::info("one");
        {
            const log::Diverted nested([&](std::string_view line) { (inner += line) += '\n'; });
            log::warning("two\nlines");
            log::debug("not this");
        }
        std::thread([] { CHECK_FALSE(log::enabled(log::Level::debug)); }).join();
        log::info("three");
    }
    CHECK(own == "[gdnctl] one\n[gdnctl] three\n");
    CHECK(inner == "[gdnctl] two\n[gdnctl] lines\n");
}

}  // namespace gdnctl::loop
