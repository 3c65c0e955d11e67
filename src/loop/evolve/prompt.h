// What an agent is told in one attempt. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

struct PromptParts {
    std::string goal;                          // what is measured, in words
    std::vector<std::string> kernel, guarded;  // globs
    std::string best_diff;                     // against the base
    std::vector<std::string> inspirations;     // diffs
    std::string second_parent;                 // cross: its diff
    std::string failure;                       // the last failing stage's output, its end
    std::vector<std::string> directives;
    bool edits = false;                        // EDIT v1
    std::map<std::string, std::string> files;  // EDIT v1: those that may be changed
};
// Begins with "# Attempt N of run RUN: OPERATOR".
std::string attempt_prompt(const State& state, const PromptParts& parts);
// The one retry of EDIT v1.
std::string retry_prompt(std::string_view prompt, std::string_view near_misses);

// INSIGHTS.md: kept gains, dead ends, ties, noise; at most 60 lines.
std::string insights(const State& state);

// "1.046x faster (1.041-1.051x, 5 pairs)", as the climb says it.
std::string gain_text(const Gain& gain);
// "1.83x faster than the base". `earlier`: the gain of the run's base against what is called the base here.
std::string against_base_text(const Attempt& one, double earlier = 0);

}  // namespace gdnctl::loop::evolve
