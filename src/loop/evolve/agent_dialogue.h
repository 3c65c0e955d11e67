// What an agent is told in one attempt, and what its reply holds: the trace of its idea, and edits. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

struct PromptInput {
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
std::string attempt_prompt(const State& state, const PromptInput& input);
// The one retry of EDIT v1.
std::string retry_prompt(std::string_view prompt, std::string_view near_misses);

// INSIGHTS.md: kept gains, dead ends, ties, noise; at most 60 lines.
std::string insights(const State& state);

// "1.046x faster (1.041-1.051x, 5 pairs)", as the climb says it.
std::string gain_text(const Gain& gain);
// "1.83x faster than the base". `earlier`: the gain of the run's base against what is called the base here.
std::string against_base_text(const Attempt& one, double earlier = 0);

// The structured trace in front of a model's reply: one JSON object that says what is tried and why. Pure.

struct TracedReply {
    std::optional<std::string> trace;  // the text of a whole object; nullopt: there is none
    std::string reply;                 // without it
    std::string technique;             // of the trace; empty: it names none
};

// The first fenced json block, or an object that the reply begins with. What does not parse stays in the reply.
TracedReply split_trace(std::string_view message);

// EDIT v1: how a model without tools changes files. Blocks of whole lines, found once, all of them or none. Pure.
//
//   EDIT v1 FILE
//   <<<<<<< SEARCH
//   old lines
//   =======
//   new lines
//   >>>>>>> REPLACE

// A separate line in a reply: the model proposes no edit.
inline constexpr std::string_view k_no_valid_edit = "<NO_VALID_EDIT/>";
bool abstains(std::string_view reply);

struct Edit {
    std::string file;
    std::vector<std::string> old_lines, new_lines;
    bool operator==(const Edit&) const = default;
};

struct EditReply {
    std::vector<Edit> edits;
    std::vector<std::string> problems;  // blocks that do not end, or lack a marker
};
EditReply parse_edits(std::string_view reply);

struct EditResult {
    std::string file;
    bool applied = false;
    std::string reason;  // empty when applied
};

struct AppliedEdits {
    bool all = false;                          // otherwise `files` is empty: nothing was applied
    std::map<std::string, std::string> files;  // those that changed, whole
    std::vector<EditResult> results;
    std::string near_misses;  // for the model: what the old lines are closest to; empty: nothing to say
};
// `files`: those that may be changed. The old lines must be in their file exactly once; indentation counts, and so do
// spaces at ends of lines. Files with CRLF keep it. More than `most` edits are refused.
AppliedEdits apply_edits(const EditReply& reply, const std::map<std::string, std::string>& files, std::size_t most = 2);

}  // namespace gdnctl::loop::evolve
