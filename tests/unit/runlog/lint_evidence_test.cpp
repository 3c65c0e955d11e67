// What stands behind an entry's claims, in the words that people use: L102, L401, L410, L5xx.
#include <string>

#include <doctest/doctest.h>

#include "runlog/lint/lint.h"
#include "unit/runlog/lint_fixture.h"

using namespace gdnctl;
using namespace gdnctl::runlog;
using namespace gdnctl::runlog::test;

namespace {

// An entry without a commit, with more lines.
std::string attempt(const std::string& commit, const std::string& more) {
    return "### Iteration 1 - a\n- Date: 2026-02-18\n- Commit: " + commit + "\n- Hypothesis: x\n" + more +
           "- Next hypothesis: y\n";
}

std::string with_result(const std::string& result) {
    std::string text = entry("abcdef1");
    text.replace(text.find("`87 passed, 2 skipped`"), 22, result);
    return text;
}

}  // namespace

TEST_CASE("runlog L503: a bad verdict with a commit, in every spelling, L501 knows it for a verdict") {
    for (const char* verdict : {"verdict: WRONG", "`WRONG`", "WRONG (3 cases: 3 WRONG)", "`verdict: NO_DATA`",
                                "`FAILED (exit 1, verdict WRONG: 3 WRONG)`", "UNSTABLE_INPUT.", "`run` -> `FAILED`"}) {
        CAPTURE(verdict);
        const Linted l(with_result(verdict));
        CHECK(l.count("L503") == 1);
        CHECK(l.count("L501") == 0);
    }
    for (const char* verdict : {"verdict: OK", "`OK`", "OK (3 cases: 3 OK)", "passed, no WRONG verdict"}) {
        CAPTURE(verdict);
        CHECK(Linted(with_result(verdict)).count("L503") == 0);
        CHECK(Linted(with_result(verdict)).count("L501") == 0);
    }
    CHECK(Linted(with_result("1 failed, 87 passed")).count("L503") == 1);
    CHECK(Linted(attempt("none (wrong)", "- Correctness checks:\n  - Result: WRONG\n")).count("L503") == 0);
}

TEST_CASE("runlog L102: infra-blocked wherever it is said asks for command and error text") {
    const std::string missing = "missing: the failing command, the error text";
    for (const auto& text :
         {attempt("`none (infra-blocked: no TPU)`", ""), attempt("none (x)", "- Interpretation: infra-blocked\n"),
          attempt("none (x)", "- Profile run:\n  - Result: infra-blocked\n"),
          attempt("none (x)", "- Decision: infra-blocked\n")}) {
        CAPTURE(text);
        CHECK(Linted(text).find("L102").message == missing);
    }
    CHECK(Linted(attempt("none (infra-blocked)", "- Command: `run`\n- Error: no TPU\n")).count("L102") == 0);
    CHECK(Linted(entry("abcdef1", "- Interpretation: iteration 0 was infra-blocked, this one ran\n")).count("L102") ==
          0);
}

TEST_CASE("runlog L410: few points and last-step values in the words of real entries") {
    const auto with = [](const std::string& line) { return Linted(entry("abcdef1", line + "\n")).count("L410"); };
    for (const char* line :
         {"- throughput/mfu: 4.1 (last step)", "- throughput/mfu: 4.1 (last-step value only)",
          "- Step duration: `9 ms`, median of 2 points", "- window: steps 10-11 (2 points)", "- Mean over 3 points",
          "- Window: steps 10-11 (v5p, 2 points)", "- 3-point median", "- Metric source: last step", "- Points: 1"}) {
        CAPTURE(line);
        CHECK(with(line) == 1);
    }
    for (const char* line : {"- window: steps 10-18 (9 points)", "- MFU is up by 2 points", "- the last step was slow",
                             "- median of the window, not the last-step value", "- Hypothesis: (last step) is noisy",
                             "- an improvement of 2 points", "- Points: 9", "- 2 pointers are passed (last)"}) {
        CAPTURE(line);
        CHECK(with(line) == 0);
    }
}

TEST_CASE("runlog L401: a known label and a unit, but no value") {
    const auto with = [](const std::string& line) { return Linted(entry("abcdef1", line + "\n")).count("L401"); };
    for (const char* line : {"- while: 8.8 -> ms", "- while: ?? ms", "- while: about 9 ms", "- while: ms",
                             "- gap explained by train-path: ?%"}) {
        CAPTURE(line);
        CHECK(with(line) == 1);
    }
    for (const char* line : {"- while: n/a", "- while: `8.8 ms`", "- while: unchanged", "- notes: ?? ms"}) {
        CAPTURE(line);
        CHECK(with(line) == 0);
    }
}

TEST_CASE("runlog L504: job ids") {
    const auto with = [](const std::string& id) {
        return Linted(entry("abcdef1", "- Profile runs:\n  - Job ID: " + id + "\n")).count("L504");
    };
    for (const char* id : {"job42", "`ray-run-bob-20260218-125520`", "raysubmit_x", "job42 (failed)"}) {
        CAPTURE(id);
        CHECK(with(id) == 1);
    }
    for (const char* id : {"ray-run-bob-gdn-20260218-125520", "`raysubmit_0123456789abcdef`", "n/a", "not submitted",
                           "gdnctl-test-me-20260310T165307-0123abcd", "none (infra)"}) {
        CAPTURE(id);
        CHECK(with(id) == 0);
    }
}

TEST_CASE("runlog L507: settings that took effect otherwise, on one line and on two") {
    const auto lint_of = [](const std::string& lines) { return Linted(entry("abcdef1", lines + "\n")); };
    const auto message = [&](const std::string& lines) {
        const Linted l = lint_of(lines);
        CAPTURE(lines);
        CHECK(l.count("L507") == 1);
        return l.count("L507") == 1 ? l.find("L507").message : std::string();
    };
    const std::string chosen = "requested auto, but xla took effect";
    CHECK(message("- CE backend requested: auto\n- CE backend selected: xla") == chosen);
    CHECK(message("- CE backend selected: auto -> xla") == chosen);
    CHECK(message("- CE `auto` chose `xla`") == chosen);
    CHECK(message("- CE backend selected: requested=auto, effective=xla") == chosen);
    CHECK(message("- Command: `run --ce-implementation auto`\n- CE backend selected: `xla`") == chosen);
    CHECK(message("- requested chunk: 96\n- effective chunk: 128") == "requested 96, but 128 took effect");
    CHECK(message("- Chunk:\n  - requested: 96\n  - effective: 128") == "requested 96, but 128 took effect");
    CHECK(message("- chunk: requested 96, effective 128") == "requested 96, but 128 took effect");
    CHECK(message("- requested gdn_layer_fraction: 0.75, effective gdn_layer_fraction: 0.83") ==
          "requested 0.75, but 0.83 took effect");
    CHECK(message("- gdn_layer_fraction: requested gdn_layer_fraction: 0.75, effective: 0.83") ==
          "requested 0.75, but 0.83 took effect");
    // As our own entries have it.
    const std::string setting =
        "- Profile run:\n  - Setting: `gdn_layer_fraction`, requested `0.75`, effective `0.833333`";
    CHECK(message(setting) == "requested 0.75, but 0.833333 took effect");
    const std::string other = "\n  - Setting: `ce_implementation`, requested `pallas_tpu`, effective `xla`";
    CHECK(lint_of(setting + other).count("L507") == 2);
    CHECK(lint_of("- Chunk: 96 run as 128").count("L507") == 1);
    for (const char* lines :
         {"- CE backend requested: xla\n- CE backend selected: xla", "- requested chunk: 128\n- effective chunk: 128.0",
          "- requested chunk: 96\n- effective segment: 128", "- CE backend selected: pallas_tpu -> xla",
          "- requested by the team, effective at once", "- Chunk: 96 run as 96", "- automatic -> manual",
          "- requested chunk: 96\n- effective chunk: 96\n- requested chunk: 128\n- effective chunk: 128"}) {
        CAPTURE(lines);
        CHECK(lint_of(lines).count("L507") == 0);
    }
}
