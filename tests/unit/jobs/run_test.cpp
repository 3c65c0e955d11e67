// From a plan to a job's end: submission, limits, interruption, faults of the cluster.
#include "jobs/run.h"

#include "core/json.h"
#include "job_fixture.h"
#include "jobs/stop.h"

namespace gdnctl {

namespace {

using namespace test;

JobRun ended(Result<JobRun> run) {
    REQUIRE(run);
    return std::move(*run);
}

constexpr const char* k_mark = R"({"schema":"x")";  // what data lines start with

struct Taken {
    std::string data, rest;
};

Taken taken_from(std::string_view log, std::size_t step) {
    Taken taken;
    DataLines lines(k_mark, [&](std::string_view bytes) { taken.rest += bytes; });
    for (std::size_t at = 0; at < log.size(); at += step) lines.feed(log.substr(at, step));
    taken.data = lines.finish();
    return taken;
}

}  // namespace

TEST_CASE("run: a job is submitted, put on record, followed and judged by its end") {
    JobFixture world;
    world.plan.metric = TargetMetric{"ms", "ms", true, "json:/ms"};
    world.jobs.script.log = {{2, "verdict: OK (70 cases)\n"}, {9, "{\"ms\": 8}\n"}};
    const JobRun run = ended(world.run());
    CHECK(run.verdict.exit == ExitCode::ok);
    CHECK(run.details.state == JobState::succeeded);
    CHECK(run.output.verdicts().overall == "OK");
    CHECK(run.metric->value() == 8.0);
    CHECK(world.terminal.out_text == "verdict: OK (70 cases)\n{\"ms\": 8}\n");
    REQUIRE(world.jobs.submitted.size() == 1);
    const JobRequest& request = world.jobs.submitted[0];
    CHECK(request.entrypoint == "true");
    CHECK(request.submission_id.starts_with("gdnctl-test-me-"));
    const auto record = parse_json(read_text(world.context.state_dir / "jobs.jsonl"), "jobs.jsonl");
    REQUIRE(record);
    CHECK((*record)["submission_id"] == request.submission_id);
    CHECK((*record)["nonce"] == request.metadata.at("nonce"));

    for (const auto& [turn, exit, failure] :
         {std::tuple{JobScript::Turn{5, JobState::failed, 1, std::string(job_error::k_command_error)},
                     ExitCode::check_failed, FailureClass::user},
          {JobScript::Turn{5, JobState::failed, 0, std::string(job_error::k_died)}, ExitCode::infrastructure,
           FailureClass::infra},
          {JobScript::Turn{5, JobState::stopped}, ExitCode::nothing_done, FailureClass::stopped}}) {
        JobFixture other;
        other.jobs.script.turns = {{0, JobState::running}, turn};
        const JobRun failed = ended(other.run());
        CHECK(failed.verdict.exit == exit);
        CHECK(failed.verdict.failure == failure);
    }
}

TEST_CASE("run: a metric whose log stays out of reach is no success without a value") {
    JobFixture world;
    world.plan.metric = TargetMetric{"ms", "ms", true, "json:/ms"};
    world.jobs.script.log = {{1, "{\"ms\": 5}\n"}, {9, "{\"ms\": 8}\n"}};
    world.jobs.script.log_away = {{8, 1e9, trouble(ErrorKind::infrastructure, "502 Bad Gateway")}};
    const JobRun run = ended(world.run());
    CHECK(run.verdict.exit == ExitCode::infrastructure);
    CHECK(run.verdict.failure == FailureClass::infra);
    CHECK(run.details.state == JobState::succeeded);
    REQUIRE(run.cut_short);
    CHECK(run.cut_short->message.starts_with("log incomplete"));
    CHECK(run.cut_short->hint.find("ray-wait --show-logs") != std::string::npos);
    CHECK_FALSE(run.metric->value());  // the 5 is not the result
    CHECK(world.jobs.stopped.empty());

    JobFixture test;  // judged by its status
    test.jobs.script.log_away = {{8, 1e9, trouble(ErrorKind::infrastructure, "502 Bad Gateway")}};
    CHECK(ended(test.run()).verdict.exit == ExitCode::ok);
    CHECK(test.has_said("the end of the log could not be read"));
}

TEST_CASE("run: --no-wait prints the id and asks nobody") {
    JobFixture world;
    world.options.no_wait = true;
    world.options.submission_id = "mine";
    const JobRun run = ended(world.run());
    CHECK_FALSE(run.waited);
    CHECK(world.terminal.out_text == "[gdnctl] submission_id=mine\n");
    CHECK(world.jobs.asked.empty());
}

TEST_CASE("run: --timeout leaves the job running, with --auto-stop, and at the target's own limit, it is stopped") {
    for (const auto& [auto_stop, own_limit] : {std::pair{false, false}, {true, false}, {false, true}}) {
        JobFixture world;
        world.jobs.script.turns = {{0, JobState::running}};
        world.options.auto_stop = auto_stop;
        if (own_limit) {
            world.plan.command.timeout_s = 30;
        } else {
            world.options.timeout_s = 30;
        }
        const JobRun run = ended(world.run());
        CHECK_FALSE(run.cut_short.has_value());
        CHECK(run.verdict.exit == ExitCode::timeout);
        CHECK(run.verdict.failure == FailureClass::timeout);
        const bool stops = auto_stop || own_limit;
        CHECK(world.jobs.stopped.size() == (stops ? 1U : 0U));
        CHECK(run.details.state == (stops ? JobState::stopped : JobState::running));
        CHECK(world.has_said("gdnctl ray-wait") == !stops);
        CHECK(world.has_said("did not end within 30"));
        CHECK(world.jobs.now() < 32.5);
    }
}

TEST_CASE("run: the shorter of --timeout and the target's limit counts, and --timeout alone leaves the job") {
    JobFixture world;
    world.jobs.script.turns = {{0, JobState::running}};
    world.options.timeout_s = 10;
    world.plan.command.timeout_s = 30;
    CHECK(ended(world.run()).verdict.exit == ExitCode::timeout);
    CHECK(world.jobs.stopped.empty());
    CHECK(world.jobs.now() < 11);
}

TEST_CASE("run: an interruption leaves the job, or with --auto-stop stops it and waits for its end") {
    for (const bool auto_stop : {false, true}) {
        JobFixture world;
        world.jobs.script.turns = {{0, JobState::running}};
        world.jobs.script.log = {{1, "half\n"}};
        world.options.auto_stop = auto_stop;
        world.interrupt_at(5);
        const JobRun run = ended(world.run());
        REQUIRE(run.cut_short);
        CHECK(is_interruption(*run.cut_short));
        CHECK(run.verdict.exit == exit_code_of(run.cut_short->kind));
        CHECK(world.jobs.stopped.size() == (auto_stop ? 1U : 0U));
        CHECK(run.details.state == (auto_stop ? JobState::stopped : JobState::running));
        CHECK(world.jobs.ignores_stop == auto_stop);  // else the clean-up would be cut short as well
    }
}

TEST_CASE("run: a job that does not heed is given up, and the next command on that backend stops it") {
    JobFixture world;
    world.jobs.script.turns = {{0, JobState::running}};
    world.jobs.script.stop_takes = -1;
    world.options.auto_stop = true;
    world.options.timeout_s = 5;
    const JobRun run = ended(world.run());
    CHECK(run.verdict.exit == ExitCode::timeout);
    CHECK(world.has_said("has not ended yet"));
    CHECK(world.jobs.now() == doctest::Approx(65.0).epsilon(0.02));  // a minute of patience with it
    retry_pending_stops(world.jobs, world.context);
    CHECK(world.jobs.stopped.size() == 2);
    world.jobs.script.stop_takes = 1;
    world.clock.advance(seconds(5));
    retry_pending_stops(world.jobs, world.context);
    const std::size_t asked = world.jobs.asked.size();
    retry_pending_stops(world.jobs, world.context);  // it has ended: nobody asks any more
    CHECK(world.jobs.asked.size() == asked);
    CHECK(world.jobs.stopped.size() == 2);
}

TEST_CASE("run: --resubmit repeats what the cluster has lost, under a new id, and nothing else") {
    const JobScript::Turn lost{5, JobState::failed, 0, std::string(job_error::k_died)};
    JobFixture world;
    world.jobs.script.turns = {{0, JobState::running}, lost};
    world.options.resubmit = 2;
    world.jobs.when_submitted = [&](const JobRequest&) -> Status {
        if (world.jobs.submitted.size() == 2)
            world.jobs.script.turns = {{0, JobState::running}, {5, JobState::succeeded}};
        return {};
    };
    const JobRun run = ended(world.run());
    CHECK(run.verdict.exit == ExitCode::ok);
    REQUIRE(world.jobs.submitted.size() == 3);
    CHECK(world.jobs.submitted[0].submission_id != world.jobs.submitted[1].submission_id);
    CHECK(run.request.submission_id == world.jobs.submitted[2].submission_id);
    CHECK(world.has_said("(2 of 2)"));

    JobFixture red;
    red.jobs.script.turns = {{0, JobState::failed, 1, std::string(job_error::k_command_error)}};
    red.options.resubmit = 2;
    CHECK(ended(red.run()).verdict.exit == ExitCode::check_failed);
    CHECK(red.jobs.submitted.size() == 1);
}

TEST_CASE("run: a submission that is cut short stops the job that turns up all the same, and only its own") {
    for (const bool own : {true, false}) {
        JobFixture world;
        world.options.auto_stop = true;
        world.jobs.script.turns = {{0, JobState::running}};
        world.jobs.when_submitted = [&](const JobRequest& request) -> Status {
            JobRequest taken = request;
            if (!own) taken.metadata["nonce"] = "another";
            world.jobs.take(taken);
            return tl::unexpected(Error{ErrorKind::interrupted, "interrupted", "the job may be running", {}});
        };
        const JobRun run = ended(world.run());
        CHECK(run.submitted == own);
        CHECK(run.cut_short.has_value());
        CHECK(world.jobs.stopped.size() == (own ? 1U : 0U));
        CHECK(run.verdict.exit == ExitCode::interrupted);
    }
}

TEST_CASE("run: nobody answers a submission within --timeout") {
    JobFixture world;
    world.options.timeout_s = 60;
    world.jobs.when_submitted = [&](const JobRequest&) -> Status {
        CHECK(world.jobs.deadline == world.clock.monotonic() + seconds(60));
        world.clock.advance(seconds(58));
        return tl::unexpected(trouble(ErrorKind::infrastructure, "no route"));
    };
    const auto late = world.run();
    REQUIRE_FALSE(late);
    CHECK(late.error().kind == ErrorKind::timeout);
    CHECK(late.error().message.ends_with("no route"));
    world.jobs.when_submitted = [&](const JobRequest&) {
        return Status(tl::unexpected(trouble(ErrorKind::infrastructure)));
    };
    const auto soon = world.run();  // refused at once: no matter of time
    REQUIRE_FALSE(soon);
    CHECK(soon.error().kind == ErrorKind::infrastructure);
}

TEST_CASE("data lines: taken out of the log, wherever its pieces end") {
    const std::string data = std::string(k_mark) + ",\"text\":\"\xff\xfe\"}";
    for (const std::size_t step : {1U, 2U, 5U, 1000U}) {
        CAPTURE(step);
        const auto check = [step](const std::string& log, const std::string& expected, const std::string& rest) {
            const Taken taken = taken_from(log, step);
            CHECK(taken.data == expected);
            CHECK(taken.rest == rest);
        };
        check("a\n" + data + "\nb\n", data + "\n", "a\nb\n");
        check(data, data, "");
        check(data + "\r\n", data + "\r\n", "");
        check("\n\n" + data + "\n\nno last newline", data + "\n", "\n\n\nno last newline");
        check(std::string("\xff\0\xfe\n{\n{}\n", 8), "", std::string("\xff\0\xfe\n{\n{}\n", 8));
        // Only at the start of a line: a mark before it makes it another line.
        const std::string others = "x" + data + "\n(worker pid=7) " + data + "\n " + data + "\n{\"schema\":\"y\"}\n";
        check(others, "", others);
        // The last one counts.
        check(std::string(k_mark) + ",1}\n" + data + "\nend\n", data + "\n", "end\n");
        // What starts like one and ends too soon is none.
        check("a\n{\"sch", "", "a\n{\"sch");
        check(data + "\n{", data + "\n", "{");
        check("", "", "");
    }
}

TEST_CASE("data lines: the rest is passed on as it arrives") {
    std::string rest;
    DataLines lines(k_mark, [&](std::string_view bytes) { rest += bytes; });
    lines.feed("10 %");
    CHECK(rest == "10 %");
    lines.feed(" 20 %\n{\"sche");
    CHECK(rest == "10 % 20 %\n");
    lines.feed("dule\"");
    CHECK(rest == "10 % 20 %\n{\"schedule\"");
    lines.feed("}");
    CHECK(rest == "10 % 20 %\n{\"schedule\"}");
    CHECK(lines.finish().empty());
}

TEST_CASE("data lines: one of many megabytes is taken, one beyond 64 MiB is output like any other") {
    const std::string large = std::string(k_mark) + std::string(5U << 20U, 'x') + "\n";
    const Taken taken = taken_from("a\n" + large + "b", 65536);
    CHECK(taken.data == large);
    CHECK(taken.rest == "a\nb");
    const std::string too_large = std::string(k_mark) + std::string(65U << 20U, 'x') + "\n";
    const std::string small = std::string(k_mark) + "}\n";
    const Taken other = taken_from(too_large + small, 1U << 20U);
    CHECK(other.data == small);
    CHECK(other.rest == too_large);
}

TEST_CASE("run: the job's data line is taken out of its log, and the terminal gets the rest") {
    JobFixture world;
    world.plan.data_prefix = k_mark;
    world.jobs.script.log = {{2, "one\n" + std::string(k_mark)}, {5, ",\"v\":1}"}, {7, "\ntwo"}};
    const JobRun run = ended(world.run());
    CHECK(run.data == std::string(k_mark) + ",\"v\":1}\n");
    CHECK(world.terminal.out_text == "one\ntwo");
}

}  // namespace gdnctl
