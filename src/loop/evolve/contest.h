// Folders of the kernel contest's Python agent: what is in one, and how to write one that it can continue from.
//
//   proposal_N.py (evolve), proposal_L_S.py, tune_L_S.py (iterative), each with _metrics.json, _prompt.txt (evolve:
//   .txt), _response.txt, _trace.json, _log.json, as far as they are there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/run.h"
#include "loop/evolve/views.h"

namespace gdnctl::loop::evolve {

struct ContestMetrics {
    bool compiled = false, correct = false;
    double speedup = 0;
    std::string error;
};

struct ContestStep {
    std::string stem;  // "proposal_10", "tune_0_3"
    int large = 0;     // N, or L
    int small = 0;     // S; 0: an evolve proposal
    std::string kernel;
    std::optional<ContestMetrics> metrics;  // nullopt: none, or they do not parse
    std::string prompt, response, trace;    // empty: not there
    std::vector<std::string> context;       // stems of the elites and recent ones that it was shown
};

// The number parts of a name; nullopt: some other file. Pure.
std::optional<ContestStep> contest_name(std::string_view file_name);

// Every step of one task's folder in the order of their numbers. Errors: usage (no such folder, no step in it),
// local_io.
Result<std::vector<ContestStep>> read_contest(const std::filesystem::path& folder);
// The place of its parent in `steps`; nullopt: the base.
std::optional<std::size_t> contest_parent(const std::vector<ContestStep>& steps, std::size_t at);
// noop, unevaluated, compile_failed, incorrect, ok.
std::string_view contest_status(const std::vector<ContestStep>& steps, std::size_t at);
// The highest (compiled, correct, speedup), the earliest of equals.
std::size_t contest_best(const std::vector<ContestStep>& steps);

// One step as files of `folder`: proposal_0_1 for number 1, else tune_0_N.
Status write_contest_step(const std::filesystem::path& folder, int number, const ContestStep& step,
                          std::string_view task);

// Runs that start with another program's candidates, and lineages that it can continue.

struct ImportReport {
    std::string run, best;  // best: name of the step with the highest score there, the earliest of equals
    std::filesystem::path log_dir;
    int steps = 0, to_judge = 0;
};
// Creates a run from one task's folder in the contest layout, with a candidate for each file. `map`: "REGEX=PATH",
// matched against the file's name; empty: all go to the only file that the target's `kernel` names. Errors: usage,
// those of read_contest().
Result<ImportReport> import_contest(const std::filesystem::path& from, const std::optional<std::string>& map,
                                    const EvolveRequest& request, Context& context);

// The ancestry of an attempt, oldest first, without the base. Returns how many steps were written. Errors: conflict
// (`to` is not empty), usage (the target has several kernel files).
Result<int> export_contest(const RunView& view, int attempt, const std::filesystem::path& to, const Target& target,
                           Context& context);

}  // namespace gdnctl::loop::evolve
