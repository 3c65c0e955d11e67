// What a session should know of the run so far, in at most 8 kB, in place of a running log of hundreds.
//
// Who calls what, and when: context_directive(), before every attempt, as the last directive of the prompt (not for
// first-version command lines: their prompts are byte for byte the recipe's). Nothing to say: none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/memory/ideas.h"
#include "loop/report/report.h"

namespace gdnctl::loop {

inline constexpr std::size_t k_pack_bytes = 8192;

struct PackInput {
    const RunView& run;
    const MeasuredRun* measured = nullptr;  // nullptr: nothing was
    std::span<const PastIdea> ideas = {};
    std::span<const CoverageSlot> slots = {};
};

// Trouble of the surroundings among the last iterations that ended, by its sign.
struct StandingTrouble {
    std::string outcome, sign;
    int times = 0, last_iteration = 0;
};
std::vector<StandingTrouble> standing_trouble(const RunView& run);

// Champion and noise floor, the last five outcomes with their reasons, dead ideas, open slots, standing trouble of the
// infrastructure. At most `bytes` bytes, cut between lines; "" when there is nothing to say. Pure.
std::string context_pack(const PackInput& input, std::size_t bytes = k_pack_bytes);

// The pack as a directive: none or one. `usual`: the slots where the log directory has no coverage.json. A ledger,
// coverage or perf_state.json that cannot be read is left out with a warning: it must not stop a run.
std::vector<std::string> context_directive(const std::filesystem::path& log_dir, std::span<const Record> records,
                                           const std::vector<CoverageSlot>& usual = {});

}  // namespace gdnctl::loop
