// A whole run of `codex-loop --mode evolve`: from options to its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/engine/options.h"
#include "loop/evolve/state.h"
#include "loop/evolve/store.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_options.h"
#include "platform/context.h"
#include "services/git/checkout.h"
#include "target/target.h"

namespace gdnctl::loop::evolve {

inline constexpr std::string_view k_usual_root = ".gdnctl/evolve";

struct EvolveOptions {
    std::optional<std::int64_t> max_attempts, no_improve;
    std::optional<double> max_usd, device_s;
    double reserve_pct = 10;
    std::int64_t lineages = 3, stagnation = 8;
    std::string operator_mix;  // empty: the usual shares
    std::optional<std::uint64_t> seed;
    bool edits = false;
    double target_gain_pct = 2;
    std::int64_t infra_max_wait_s = 21'600;
    std::string from;  // a commit, or a run: its best; empty: HEAD
    double max_shape_regression_pct = 1;
    bool accept_config_change = false, accept_device_change = false;
};

struct EvolveRequest {
    EvolveOptions evolve;
    LoopOptions loop;   // agent, directives, log directory, --max-wall, --max-tokens
    GateChoices gates;  // cluster and time limits of jobs, --perf-min-improvement-pct, --perf-pairs
    Target target;
    ConfigAt config;    // for jobs of a tree of the run
    std::string words;  // the options as they were given, for the journal: to_text(SavedOptions)
    bool dry_run = false;
};

struct EvolveReport {
    std::string reason;
    int attempt = 0;
    int rc = 0;
    std::string run;
    std::filesystem::path log_dir;
    State state;
};

// Errors are those before anything has begun: usage, config, conflict (another loop is at work).
Result<EvolveReport> run_evolve(const EvolveRequest& request, Context& context);

// The log directory that --resume continues: `log_dir`, else the newest run below `root`. Empty: there is none.
std::filesystem::path resumed_folder(const std::string& log_dir, const std::filesystem::path& root);

// The newest run of this repository, or the one that is named; --log-dir against the working directory or the root of
// the repository. Errors: remote_missing (exit 6: there is none), usage (no such directory).
Result<std::filesystem::path> find_run(const std::optional<std::string>& run, const std::optional<std::string>& log_dir,
                                       const Context& context);

// A name for a run that starts now: "20261129t172144z-b9e1".
std::string new_run(const Clock& clock);

// The folder of a run's worktrees below the state directory.
std::filesystem::path worktrees_of(const Context& context, std::string_view run);

// The target's rules for paths; the mode needs `kernel`.
struct PathRules;
PathRules path_rules(const Target& target);
// The keep gate that is meant: 0.5 %, nine pairs at most, unless options say otherwise.
PairRule pair_rule(const GateChoices& gates);

// What an evolve run is made of, resolved from options, target and repository before anything is written.

struct EvolvePlan {
    std::string run, loop_id, base;
    std::uint64_t seed = 0;
    std::filesystem::path log_dir, worktrees;
    Budget budget;
    PairRule pairs;
    std::optional<Price> price;
    std::string config, evaluator;  // see complete_config()
};

// Errors: usage, config (no price for --max-usd). Nothing is written.
Result<EvolvePlan> make_plan(const EvolveRequest& request, const GitCheckout& repository,
                             const std::filesystem::path& cwd, const Context& context);
// The commit that is meant by --from: a revision, or the best candidate of a run (`last`: of the newest). Error usage:
// there is none.
Result<std::string> base_commit(const std::string& from, const GitCheckout& repository);
// Fills `config` (JSON text) and `evaluator`, once the base is known.
Status complete_config(EvolvePlan& plan, const EvolveRequest& request, const Target& target,
                       const GitCheckout& repository);
// Keys of the configuration that are another one than when the run began. Budgets are not among them.
std::vector<std::string> config_changes(const State& state, const EvolvePlan& plan, std::optional<std::uint64_t> seed);

}  // namespace gdnctl::loop::evolve
