// A summary of the run so far for the agent, in at most 8 kB, in place of a running log of hundreds.
//
// Called by: context_directive() before every attempt, as the last directive of the prompt (not for first-version
// command lines, whose prompts must match the recipe byte for byte). If there is nothing to say, there is no directive.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/memory/ideas.h"
#include "loop/memory/run_view.h"

namespace gdnctl::loop {

inline constexpr std::size_t k_pack_bytes = 8192;

struct PackInput {
    const RunView& run;
    const MeasuredRun* measured = nullptr;  // nullptr: nothing was measured
    std::span<const PastIdea> ideas = {};
    std::span<const CoverageSlot> slots = {};
};

// Infrastructure or environment trouble among the last finished iterations, by its sign.
struct StandingProblem {
    std::string outcome, sign;
    int times = 0, last_iteration = 0;
};
std::vector<StandingProblem> standing_problems(const RunView& run);

// Champion and noise floor, the last five outcomes with their reasons, dead ideas, open slots, and current
// infrastructure trouble. At most `bytes` bytes, cut between lines; "" if there is nothing to say. Pure.
std::string context_pack(const PackInput& input, std::size_t bytes = k_pack_bytes);

// The pack as a directive: none or one. `usual`: the slots if the log directory has no coverage.json. If a ledger,
// coverage or perf_state.json cannot be read, it is omitted with a warning, because it must not stop a run.
std::vector<std::string> context_directive(const std::filesystem::path& log_dir, std::span<const Record> records,
                                           const std::vector<CoverageSlot>& usual = {});

}  // namespace gdnctl::loop
