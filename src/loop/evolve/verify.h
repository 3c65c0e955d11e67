// Judging outside of a run: a candidate again, the final verification before a branch moves, the noise by itself.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/evaluate.h"
#include "loop/evolve/state.h"
#include "loop/evolve/store.h"
#include "platform/context.h"

namespace gdnctl::loop::evolve {

// Brings the commits of a run from its repository.
inline constexpr std::string_view k_fetch = "git fetch PATH 'refs/gdnctl/*:refs/gdnctl/*'";

struct GateRow {
    std::string stage, verdict, reason;  // pass, fail, infra, skip
};
// Shapes and seeds, each seen by attempts or by none. What the target does not obey is "not measured".
struct Quadrant {
    bool unseen_shapes = false, unseen_seeds = false;
    std::string verdict;  // of the test: pass, fail, infra, not measured
    std::optional<Gain> gain;
};
Json json_of(const std::vector<Quadrant>& quadrants);

struct GateReport {
    std::vector<GateRow> rows;
    Gain gain;                        // of the measured stage
    std::vector<Quadrant> quadrants;  // of the final verification
    bool pass = false, infra = false;
    double device_s = 0;
    std::string device;  // of the measured stage
};

// What the pairs of a candidate are compared with, and what they have to show.
enum class PairTest {
    keep_gate,  // as in an attempt
    final_one,  // nine pairs, one-sided .01: m - 2.896 s / 3 > 0
};
// Every gate, each in a fresh checkout, up to the first that fails; the final one on unseen shapes and seeds too.
// `folder`: for logs. How git behaves in the user's repository is put back afterwards: see Store::remember_setup().
struct JudgeOrder {
    const State& state;
    std::string champion, candidate;
    PairTest test = PairTest::keep_gate;
    PairRule rule;
    double shape_regression = .01;
    std::filesystem::path folder;
};
Result<GateReport> judge_again(Store& store, Evaluator& evaluator, const JudgeOrder& order);

// What the record `verify` says of the final verification.
Json verify_record(const State& state, int attempt, const GateReport& report);
// The last one, where the attempt passed and nothing that it rests on has changed since.
std::optional<Json> verification_of(const State& state, int attempt);
GateReport report_of(const Json& record);

struct FailedVerification {
    int attempt = 0;
    std::string stage, reason;  // of the gate that it did not pass
};
// The last one, where it is about the best candidate.
std::optional<FailedVerification> failed_verification(const State& state);

// The repository of the working directory, which must have these commits of the run. Errors: those of
// GitCheckout::open(), remote_missing (exit 6: it has not, as after a dry run).
Result<GitCheckout> repository_of(const State& state, std::span<const std::string> commits, Context& context);

// Moves the run's branch to the candidate, fast-forward. Errors: conflict (exit 7: the branch moved), config (exit 2:
// uncommitted work, a detached HEAD).
Status check_branch(const GitCheckout& repository, const State& state);
Status land_on_branch(const GitCheckout& repository, const State& state, const std::string& commit);

struct StoreCheck {
    std::vector<int> gone, unpinned;    // attempts: without their commit, or without their ref; 0: the base
    std::vector<std::string> unlisted;  // refs that no record names
};
// The ref of an attempt's candidate, or of the base.
std::string ref_of_attempt(const State& state, int attempt);
Result<StoreCheck> check_store(const GitCheckout& repository, const State& state);

// Whether a ref must hold this candidate: the base, open ones, those that were kept or tied. Of the others, only
// `repair` still draws parents.
bool keeps_its_ref(const State& state, const Attempt& one);
// Refs of the others that started before `before`.
std::vector<std::string> old_refs(const State& state, WallTime before);

}  // namespace gdnctl::loop::evolve
