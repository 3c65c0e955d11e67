// Judging outside of a run: a candidate again, the final verification before a branch moves, the noise by itself.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/evaluate.h"
#include "loop/evolve/journal.h"
#include "loop/evolve/store.h"

namespace gdnctl::loop::evolve {

struct GateRow {
    std::string stage, verdict, reason;  // pass, fail, infra, skip
};
struct GateReport {
    std::vector<GateRow> rows;
    Gain gain;  // of the measured stage
    bool pass = false, infra = false;
};

// What the pairs of a candidate are compared with, and what they have to show.
enum class PairTest {
    keep_gate,  // as in an attempt
    final_one,  // nine pairs, one-sided .01: m - 2.896 s / 3 > 0
};
// Every gate, each in a fresh checkout, up to the first that fails. `folder`: for logs.
Result<GateReport> judge_again(const Store& store, Evaluator& evaluator, const std::string& base,
                               const std::string& champion, const std::string& candidate, PairTest test,
                               const PairRule& rule, const std::filesystem::path& folder);

// Moves the run's branch to the candidate, fast-forward. Errors: conflict (exit 7: the branch moved), config (exit 2:
// uncommitted work, a detached HEAD).
Status check_branch(const GitCheckout& repository, const State& state);
Status land_on_branch(const GitCheckout& repository, const State& state, const std::string& commit);

// The words of a missing candidate, and refs that no record names.
struct StoreCheck {
    std::vector<std::string> missing;   // "attempt 7: commit ... is gone"
    std::vector<std::string> unlisted;  // refs
};
Result<StoreCheck> check_store(const GitCheckout& repository, const State& state);

// Refs of candidates that began before `before` and were neither kept nor tied: nobody draws them as a parent, but for
// `repair`.
std::vector<std::string> old_refs(const State& state, WallTime before);

}  // namespace gdnctl::loop::evolve
