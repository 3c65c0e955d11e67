// What was tried before, and whether it is tried again. Pure, but for read_coverage().
//
// Two tries are the same idea when they make the same patch; or have the same move (slot where none is named) and a
// file in common; or titles of the same words. A try has failed when it was judged and refused; what infrastructure,
// the agent or nobody brought to an end says nothing about an idea.
//
// Who calls what, and when: check_idea() once the candidate is collected, before it is tested; coverage() and
// dead_ideas() for prompts and reports.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "loop/memory/ledger.h"

namespace gdnctl::loop {

struct Idea {
    std::string title, slot, move, patch_id;
    std::string new_argument;        // why it should work now
    std::vector<std::string> files;  // that it touches
};
Idea idea_of(const LedgerFacts& facts);

// Words of a title without case, order, punctuation and small words: "Batch the K matmuls" and "k-matmuls, batched"
// differ, "batch K matmuls" and "Matmuls: batch k" do not.
std::string normalised_title(std::string_view title);
bool same_idea(const Idea& a, const Idea& b);
// "move:H", "slot:G", "title:batch k matmuls", "patch:0f1e2d3c4b5a6978"; empty: nothing is known of it.
std::string idea_id(const Idea& idea);

struct PastIdea {
    Idea idea;
    int iteration = 0;
    std::string run, outcome, reason;
    std::optional<double> gain_pct = std::nullopt;  // where pairs were measured

    bool failed() const;
    bool won() const;
};
std::vector<PastIdea> past_ideas(std::span<const Json> ledger);

enum class IdeaPolicy { off, warn, block };
struct IdeaVerdict {
    IdeaPolicy action = IdeaPolicy::off;  // off: nothing speaks against it
    int failed = 0;                       // earlier tries that were refused
    std::string reason;                   // of warn and block
};
// Warns of, or blocks, an idea that was refused at least twice since it last won, unless it says what is different now.
IdeaVerdict check_idea(const Idea& idea, std::span<const PastIdea> past, IdeaPolicy policy);

// Ideas that were refused at least twice and have not won since, the latest first.
struct DeadIdea {
    Idea idea;
    int failed = 0;
    std::vector<int> iterations;
    std::string last_reason;
};
std::vector<DeadIdea> dead_ideas(std::span<const PastIdea> past);

// A place where something may be found: "G", "decay ratios".
struct CoverageSlot {
    std::string slot, title;
};
// {"slots": [{"slot": "G", "title": "decay ratios"}, ...]}. Error bad_input.
Result<std::vector<CoverageSlot>> parse_coverage(std::string_view text, std::string_view name);
// <log-dir>/coverage.json; none: `usual`. Errors: bad_input, local_io.
Result<std::vector<CoverageSlot>> read_coverage(const std::filesystem::path& log_dir,
                                                std::vector<CoverageSlot> usual = {});

struct SlotView {
    CoverageSlot slot;
    int tries = 0, failed = 0, won = 0;
    std::vector<int> iterations;
    bool open() const { return won == 0 && failed < 2; }
};
// Every slot in order, then those that only the ledger knows.
std::vector<SlotView> coverage(std::span<const CoverageSlot> slots, std::span<const PastIdea> past);

}  // namespace gdnctl::loop
