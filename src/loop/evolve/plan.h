// What an evolve run is made of, resolved from options, target and repository before anything is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/evolve/budget.h"
#include "loop/evolve/run.h"
#include "loop/evolve/store.h"
#include "services/git/checkout.h"

namespace gdnctl::loop::evolve {

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
// The commit that is meant by --from. Error usage: there is none.
Result<std::string> base_commit(const std::string& from, const GitCheckout& repository);
// Fills `config` (JSON text) and `evaluator`, once the base is known.
Status complete_config(EvolvePlan& plan, const EvolveRequest& request, const Target& target,
                       const GitCheckout& repository);
// Keys of the configuration that are another one than when the run began. Budgets are not among them.
std::vector<std::string> config_changes(const State& state, const EvolvePlan& plan, std::optional<std::uint64_t> seed);
// What is measured, for prompts.
std::string goal_of(const Target& target);

}  // namespace gdnctl::loop::evolve
