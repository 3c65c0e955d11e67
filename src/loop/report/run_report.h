// A run's report: its data, as JSON and as Markdown.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loop/gates/flakes.h"
#include "loop/memory/context_pack.h"
#include "loop/report/wording.h"

namespace gdnctl::loop::report {

// Iterations that were not kept, by outcome.
struct FailureClass {
    std::string outcome;
    int count = 0;
    std::vector<int> iterations;
    std::map<std::string, int> signs;  // the deciding sign and its count
};

// What a reader wants to know first.
struct Heading {
    std::string target, repository, agent, dates;  // empty: unknown
    std::string result;                            // one sentence
};

struct Report {
    loop::LoadedRun run;
    Heading heading;
    std::optional<loop::MeasuredRun> measured;
    std::vector<const loop::MeasuredView*> of_iteration;  // by position in run.view.iterations; nullptr: not measured
    std::vector<const loop::MeasuredView*> champions;     // of this run's metric, in order
    std::vector<FailureClass> failures;                   // most frequent first
    std::vector<loop::PastIdea> ideas;
    std::vector<loop::SlotView> slots;
    std::vector<loop::FlakeView> flakes;
    std::vector<loop::StandingProblem> trouble;
    std::map<int, std::vector<std::string>> files;
    std::string metric;  // empty: nothing was measured
    std::string better;  // "lower" or "higher", derived from the pairs; empty: unknown
    std::optional<double> noise_pct;

    Report() = default;
    Report(Report&&) = default;  // of_iteration points into `measured`; moving keeps its history in place
    Report& operator=(Report&&) = default;
};

// Errors: those of load_run(); config, bad_input (invalid perf_state.json, ledger or coverage.json).
Result<Report> make_report(const std::filesystem::path& log_dir);

// gdnctl.loop-report/1
Json report_json(const Report& report);
std::string report_markdown(const Report& report);
std::string report_html(const Report& report);

}  // namespace gdnctl::loop::report
