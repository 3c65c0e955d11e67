// What was tried before, and whether it is tried again. Pure, except for read_coverage().
//
// Two attempts are the same idea if they make the same patch; or have the same move (the slot if no move is named) and
// a file in common; or have titles with the same words. An attempt failed if it was judged and refused. One that
// infrastructure or the agent cut short, or that nobody finished, says nothing about the idea.
//
// Called by: check_idea() once the candidate is collected, before it is tested; coverage() and dead_ideas() for prompts
// and reports.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/engine/outcome.h"
#include "loop/memory/ledger.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

struct Idea {
    std::string title, slot, move, patch_id;
    std::string new_argument;        // why it should work this time
    std::vector<std::string> files;  // the files that it changes
};
Idea idea_of(const LedgerFacts& facts);

// Words of a title without case, order, punctuation and small words: "batch K matmuls" and "Matmuls: batch k" are
// equal, "Batch the K matmuls" and "k-matmuls, batched" are not.
std::string normalised_title(std::string_view title);
bool same_idea(const Idea& a, const Idea& b);
// "move:H", "slot:G", "title:batch k matmuls", "patch:0f1e2d3c4b5a6978"; empty: unknown.
std::string idea_id(const Idea& idea);

struct PastIdea {
    Idea idea;
    int iteration = 0;
    std::string run, outcome, reason;
    std::optional<double> gain_pct = std::nullopt;  // if pairs were measured

    bool failed() const;
    bool won() const;
};
std::vector<PastIdea> past_ideas(std::span<const Json> ledger);

enum class IdeaPolicy { off, warn, block };
struct IdeaVerdict {
    IdeaPolicy action = IdeaPolicy::off;  // off: no objection
    int failed = 0;                       // earlier refused attempts
    std::string reason;                   // for warn and block
};
// Warns about, or blocks, an idea that was refused at least twice since it last won, unless it says what is different
// now.
IdeaVerdict check_idea(const Idea& idea, std::span<const PastIdea> past, IdeaPolicy policy);

// Ideas that were refused at least twice and have not won since, latest first.
struct DeadIdea {
    Idea idea;
    int failed = 0;
    std::vector<int> iterations;
    std::string last_reason;
};
std::vector<DeadIdea> dead_ideas(std::span<const PastIdea> past);

// A place to look for improvements: "G", "decay ratios".
struct CoverageSlot {
    std::string slot, title;
};
// {"slots": [{"slot": "G", "title": "decay ratios"}, ...]}. Error: bad_input.
Result<std::vector<CoverageSlot>> parse_coverage(std::string_view text, std::string_view name);
// <log-dir>/coverage.json; `usual` if the file is missing. Errors: bad_input, local_io.
Result<std::vector<CoverageSlot>> read_coverage(const std::filesystem::path& log_dir,
                                                std::vector<CoverageSlot> usual = {});

struct SlotView {
    CoverageSlot slot;
    int tries = 0, failed = 0, won = 0;
    std::vector<int> iterations;
    bool open() const { return won == 0 && failed < 2; }
};
// Every slot in order, then those that only the ledger has.
std::vector<SlotView> coverage(std::span<const CoverageSlot> slots, std::span<const PastIdea> past);

// A stage of an iteration that catches a candidate whose idea was refused before.

// Applies check_idea() before any time is spent on the candidate: warns, or refuses it. Earlier attempts come from
// <log-dir>/ledger.jsonl, including those of earlier runs. `repository` must outlive it.
std::unique_ptr<Stage> make_idea_stage(IdeaPolicy policy, const GitCheckout& repository);

}  // namespace gdnctl::loop
