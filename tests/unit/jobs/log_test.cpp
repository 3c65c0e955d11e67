#include "jobs/log.h"

#include <doctest/doctest.h>

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

}  // namespace gdnctl
