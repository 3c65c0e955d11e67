#include "jobs/watch.h"

#include <doctest/doctest.h>

#include "job_fixture.h"

namespace gdnctl {

namespace {

std::string filtered(const char* pattern, std::optional<std::size_t> tail, std::string_view log, std::size_t step) {
    std::optional<LineRegex> regex;
    if (pattern != nullptr) {
        auto compiled = LineRegex::compile(pattern, "--grep");
        REQUIRE(compiled);
        regex = std::move(*compiled);
    }
    std::string out;
    LogFilter filter(regex ? &*regex : nullptr, tail, [&](std::string_view s) { out += s; });
    for (std::size_t at = 0; at < log.size(); at += step) filter.feed(log.substr(at, step));
    filter.finish();
    return out;
}

}  // namespace

TEST_CASE("job log: each byte exactly once, with equal lines, bytes that are not UTF-8 and no last newline") {
    const std::string log = "same\nsame\nsame\n\xff\xfe\n\nlast";
    for (const std::size_t step : {1U, 2U, 5U, 1000U}) CHECK(filtered(nullptr, std::nullopt, log, step) == log);
    const std::string huge = "a\n" + std::string(5U << 20, 'x') + "\nb\n";
    CHECK(filtered(nullptr, std::nullopt, huge, 65536) == huge);
    CHECK(filtered("x", std::nullopt, huge, 65536) == huge.substr(2, huge.size() - 4));
}

TEST_CASE("job log: without the lines that Ray adds, wherever they come") {
    const std::string announced = "Running entrypoint for job id-1: printf x\necho two lines\n";
    const std::string setting_up = "2026-11-21 15:07:29,076\tINFO job_manager.py:581 -- Runtime env is setting up.\n";
    const auto own = [](const std::string& log, std::size_t step) {
        std::string out;
        WithoutRayLines lines("id-1", "printf x\necho two lines", [&](std::string_view s) { out += s; });
        for (std::size_t at = 0; at < log.size(); at += step) lines.feed(std::string_view(log).substr(at, step));
        lines.finish();
        return out;
    };
    for (const std::size_t step : {1U, 7U, 1000U}) {
        CHECK(own(setting_up + announced + "x", step) == "x");
        CHECK(own(setting_up + "x" + announced + "y\n", step) == "xy\n");
        CHECK(own("x\n" + setting_up, step) == "x\n" + setting_up);  // the command's own words
        CHECK(own(announced + announced, step) == announced);
        CHECK(own("Running entrypoint for job id-2: x\nRun", step) == "Running entrypoint for job id-2: x\nRun");
        CHECK(own("", step).empty());
    }
}

TEST_CASE("job log: grep before tail") {
    const std::string log = "a 1\nb\na 2\nb\na 3\nb\nb\nb";
    for (const std::size_t step : {1U, 3U, 1000U}) {
        CHECK(filtered("a", 2, log, step) == "a 2\na 3\n");
        CHECK(filtered("a|b", 1, log, step) == "b");
        CHECK(filtered("^b$", 99, log, step) == "b\nb\nb\nb\nb");
        CHECK(filtered("nothing", 5, log, step).empty());
        CHECK(filtered("a", 0, log, step).empty());
    }
}

TEST_CASE("job log: alternation and flags as the recipe writes them") {
    const std::string log = "Profiler up\nfoo\nTraceback (most recent call last):\nERROR x\nb\xff trace\n";
    CHECK(filtered("profiler|trace|ERROR|Traceback", std::nullopt, log, 7) ==
          "Traceback (most recent call last):\nERROR x\nb\xff trace\n");
    CHECK(filtered("(?i)profiler", std::nullopt, log, 7) == "Profiler up\n");
    CHECK(filtered("[ab]\\xff", std::nullopt, log, 7) == "b\xff trace\n");
    CHECK(filtered("é", std::nullopt, "caf\xc3\xa9\ncafe\n", 3) == "caf\xc3\xa9\n");
}

TEST_CASE("job log: what was held back comes before what follows") {
    auto regex = LineRegex::compile("a", "--grep");
    std::string out;
    LogFilter filter(&*regex, 1, [&](std::string_view s) { out += s; });
    filter.feed("a 1\na 2\nb\n");
    CHECK(out.empty());
    filter.release();
    CHECK(out == "a 2\n");
    filter.feed("a 3\nb\na");
    CHECK(out == "a 2\na 3\n");
    filter.finish();
    CHECK(out == "a 2\na 3\na");
}

TEST_CASE("job log: a bad regex is a usage error that names the option") {
    const auto bad = LineRegex::compile("a(", "--grep");
    REQUIRE_FALSE(bad);
    CHECK(exit_code_of(bad.error().kind) == ExitCode::usage);
    CHECK(bad.error().message.starts_with("--grep: "));
    CHECK_FALSE(LineRegex::compile("(?=x)", "--match"));
}

// Following a job to its end: status lines, every byte of its log once, patience, time limits, interruption.

namespace {

using namespace test;

struct FollowFixture : JobFixture {
    std::string seen;
    WatchOptions watch;
    FollowFixture() { jobs.begin(); }
    Result<Watched> follow() {
        const auto log = jobs.open_log("j", {.follow = true});
        REQUIRE(log);
        return follow_job(jobs, "j", **log, watch, [this](std::string_view bytes) { seen += bytes; }, context);
    }
    Result<Watched> wait() { return wait_for_job(jobs, "j", watch, context); }
    // The states that were said, without the times.
    std::string states() const {
        std::string out;
        std::size_t at = 0;
        while ((at = terminal.err_text.find("status=", at)) != std::string::npos) {
            at += 7;
            out += terminal.err_text.substr(at, terminal.err_text.find(' ', at) - at) + " ";
        }
        return out;
    }
};

}  // namespace

TEST_CASE("watch: each byte of the log once, the last ones before the end is told, a status line a change") {
    FollowFixture world;
    world.jobs.script.turns = {{0, JobState::pending}, {3, JobState::running}, {10, JobState::succeeded}};
    world.jobs.script.log = {{3, "one\n"}, {5, "two\n"}, {10, "last"}};
    const auto end = world.follow();
    REQUIRE(end);
    CHECK(end->details.state == JobState::succeeded);
    CHECK_FALSE(end->timed_out);
    CHECK(world.seen == "one\ntwo\nlast");
    CHECK(world.states() == "PENDING RUNNING SUCCEEDED ");
    CHECK(world.jobs.now() == doctest::Approx(10.0).epsilon(0.03));
}

TEST_CASE("watch: a time limit ends the watch at that moment, with what was heard last, the job is left alone") {
    FollowFixture world;
    world.jobs.script.turns = {{0, JobState::pending}, {2, JobState::running}};
    world.watch.timeout = milliseconds(7300);
    const auto end = world.wait();
    REQUIRE(end);
    CHECK(end->timed_out);
    CHECK(end->details.state == JobState::running);
    CHECK(world.jobs.now() == doctest::Approx(7.3));
    CHECK(world.jobs.stopped.empty());
    CHECK_FALSE(world.jobs.deadline.has_value());  // of requests: only while the watch lasts
    FollowFixture silent;                          // nobody answers in that time
    silent.jobs.script.away = {{0, 99, trouble(ErrorKind::infrastructure)}};
    silent.watch.timeout = seconds(5);
    const auto nothing = silent.follow();
    REQUIRE(nothing);
    CHECK(nothing->timed_out);
    CHECK(nothing->details.submission_id == "j");
}

TEST_CASE("watch: a backend that is away is asked less and less often, for ten minutes once it has answered") {
    FollowFixture world;
    world.jobs.script.turns = {{0, JobState::running}, {120, JobState::succeeded}};
    world.jobs.script.away = {{5, 100, trouble(ErrorKind::infrastructure, "connection reset")}};
    world.watch.poll = seconds(5);
    const auto end = world.wait();
    REQUIRE(end);
    CHECK(end->details.state == JobState::succeeded);
    const std::vector<milliseconds> sleeps = world.clock.sleeps();
    const std::vector<milliseconds> first(sleeps.begin(), sleeps.begin() + 8);
    CHECK(first == std::vector<milliseconds>{seconds(5), milliseconds(500), seconds(1), seconds(2), seconds(4),
                                             seconds(8), seconds(15), seconds(15)});
    CHECK(sleeps.back() == seconds(5));  // it is back: as often as before
    CHECK(world.has_said("connection reset; trying again in 500 ms"));

    for (const bool answered : {true, false}) {
        FollowFixture gone;
        gone.jobs.script.turns = {{0, JobState::running}};
        gone.jobs.script.away = {{answered ? 1.0 : 0.0, 1e9, trouble(ErrorKind::infrastructure)}};
        const auto given_up = gone.wait();
        REQUIRE_FALSE(given_up);
        CHECK(given_up.error().kind == ErrorKind::infrastructure);
        CHECK(gone.jobs.now() < (answered ? 600 : 30));
        CHECK(gone.jobs.now() > (answered ? 580 : 14));
    }
}

TEST_CASE("watch: what does not pass by itself ends the watch at once") {
    FollowFixture world;
    world.jobs.script.away = {{0, 1e9, trouble(ErrorKind::authentication, "Forbidden")}};
    const auto refused = world.follow();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::authentication);
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("watch: a job that is not there never was, or has vanished") {
    FollowFixture world;
    world.jobs.script.away = {{0, 1e9, trouble(ErrorKind::remote_missing, "Job j does not exist")}};
    const auto never = world.wait();
    REQUIRE_FALSE(never);
    CHECK(never.error().kind == ErrorKind::remote_missing);
    world.watch.submitted = true;
    const auto lost = world.wait();
    REQUIRE_FALSE(lost);
    CHECK(lost.error().kind == ErrorKind::infrastructure);
    CHECK(lost.error().message.starts_with("job record vanished"));
    FollowFixture later;  // it was seen once
    later.jobs.script.turns = {{0, JobState::running}};
    later.jobs.script.away = {{3, 1e9, trouble(ErrorKind::remote_missing)}};
    const auto vanished = later.wait();
    REQUIRE_FALSE(vanished);
    CHECK(vanished.error().kind == ErrorKind::infrastructure);
}

TEST_CASE("watch: a stop request ends it where it is, and the job goes on") {
    for (const bool follows : {true, false}) {
        FollowFixture world;
        world.jobs.script.turns = {{0, JobState::running}};
        world.interrupt_at(4);
        JobDetails last;
        world.watch.last = &last;
        const auto end = follows ? world.follow() : world.wait();
        REQUIRE_FALSE(end);
        CHECK(is_interruption(end.error()));
        CHECK(last.state == JobState::running);
        CHECK(world.jobs.stopped.empty());
        CHECK(world.jobs.now() < 11);
    }
}

TEST_CASE("watch: a log that cannot be read for a while is read on, one that is gone does not hide the end") {
    FollowFixture world;
    world.jobs.script.log = {{1, "one\n"}, {4, "two\n"}, {9, "three\n"}};
    world.jobs.script.log_away = {{3, 12, trouble(ErrorKind::infrastructure, "log out of reach")}};
    REQUIRE(world.follow());
    CHECK(world.seen == "one\ntwo\nthree\n");
    const std::string said = world.said;
    CHECK(said.find("log out of reach") == said.rfind("log out of reach"));  // once a row of failures

    FollowFixture twice;
    twice.jobs.script.log_away = {{1, 3, trouble(ErrorKind::infrastructure, "log out of reach")},
                                  {5, 7, trouble(ErrorKind::infrastructure, "log out of reach")}};
    const auto whole = twice.follow();
    REQUIRE(whole);
    CHECK(whole->log_complete);
    const std::string both = twice.said;
    CHECK(both.find("log out of reach") != both.rfind("log out of reach"));

    FollowFixture gone;
    gone.jobs.script.log = {{1, "one\n"}};
    gone.jobs.script.log_away = {{3, 1e9, trouble(ErrorKind::remote_missing, "log is gone")}};
    const auto end = gone.follow();
    REQUIRE(end);
    CHECK(end->details.state == JobState::succeeded);
    CHECK(gone.seen == "one\n");
    CHECK(gone.jobs.now() < 11);

    FollowFixture away;  // to the end and beyond
    away.jobs.script.log_away = {{0, 1e9, trouble(ErrorKind::infrastructure)}};
    REQUIRE(away.follow());
    CHECK(away.has_said("the end of the log could not be read"));
    CHECK(away.jobs.now() > 24);
    CHECK(away.jobs.now() < 27);
}

TEST_CASE("watch: a log that the results come from is waited for at the job's end, for ten minutes") {
    for (const ErrorKind kind : {ErrorKind::infrastructure, ErrorKind::remote_missing}) {
        CAPTURE(static_cast<int>(kind));
        FollowFixture back;
        back.jobs.script.log = {{1, "one\n"}, {9, "two\n"}};
        back.jobs.script.log_away = {{0, 500, trouble(kind)}};
        back.watch.needs_log = true;
        REQUIRE(back.follow());
        CHECK(back.seen == "one\ntwo\n");
        CHECK(back.jobs.now() < 506);

        FollowFixture away;
        away.jobs.script.log_away = {{0, 1e9, trouble(kind, "502 Bad Gateway")}};
        away.watch.needs_log = true;
        JobDetails last;
        away.watch.last = &last;
        const auto end = away.follow();
        REQUIRE_FALSE(end);
        CHECK(end.error().kind == ErrorKind::infrastructure);
        CHECK(end.error().message.starts_with("log incomplete: "));
        CHECK(end.error().message.ends_with("502 Bad Gateway"));
        CHECK(last.state == JobState::succeeded);
        CHECK(away.jobs.now() > 600);
        CHECK(away.jobs.now() < 620);
        CHECK(away.said.find("502") == away.said.rfind("502"));  // said once, not at each try
    }
    // How a failed job ended is known without its log.
    for (const ErrorKind kind : {ErrorKind::infrastructure, ErrorKind::remote_missing}) {
        FollowFixture failed;
        failed.jobs.script.turns = {{0, JobState::running}, {10, JobState::failed, 1}};
        failed.jobs.script.log_away = {{0, 1e9, trouble(kind)}};
        failed.watch.needs_log = true;
        const auto end = failed.follow();
        REQUIRE(end);
        CHECK_FALSE(end->log_complete);
        CHECK(failed.jobs.now() < 27);
    }
    FollowFixture limited;
    limited.jobs.script.log_away = {{0, 1e9, trouble(ErrorKind::infrastructure)}};
    limited.watch.needs_log = true;
    limited.watch.timeout = seconds(60);
    CHECK_FALSE(limited.follow());
    CHECK(limited.jobs.now() < 62);
}

TEST_CASE("watch: nobody reads any more, and states that are not known") {
    FollowFixture world;
    world.jobs.script.turns = {{0, JobState::running}};
    world.watch.leave_when_closed = true;
    world.terminal.closed = true;
    const auto left = world.follow();
    REQUIRE(left);
    CHECK_FALSE(left->timed_out);
    CHECK(left->details.state == JobState::running);
    FollowFixture odd;
    odd.jobs.script.turns = {{0, JobState::unknown}, {5, JobState::unknown_end}};
    const auto end = odd.follow();
    REQUIRE(end);
    CHECK(end->details.state == JobState::unknown_end);
    CHECK(odd.has_said("unknown job state"));
}

TEST_CASE("watch: --quiet leaves the status lines out") {
    FollowFixture world;
    world.context.global.quiet = true;
    REQUIRE(world.follow());
    CHECK(world.terminal.err_text.empty());
}

}  // namespace gdnctl
