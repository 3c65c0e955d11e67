// A whole run without a model or a device, for --dry-run: a scripted agent, a scorer that reads a number from the
// kernel, and a repository for both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/result.h"
#include "loop/evolve/evaluate.h"
#include "services/agent/agent.h"
#include "services/git/checkout.h"
#include "target/target.h"

namespace gdnctl::loop::evolve {

// A repository with a kernel, a test and a configuration, in `folder`.
Status make_synthetic_repository(const std::filesystem::path& folder, Process& process);
Target synthetic_target();

// What it does in attempt N follows from seed and N alone: most of its changes are gains of 1 to 5 %; others are
// slower, equal, broken, nothing, an abstention, or a change of the test.
class ScriptedAgent final : public Agent {
public:
    explicit ScriptedAgent(std::uint64_t seed) : m_seed(seed) {}
    std::string_view name() const override { return "scripted"; }
    Result<AgentOutcome> run(const AgentRequest& request) override;

private:
    std::uint64_t m_seed;
};

// T = 1000 / speed, with 0.1 % of noise.
class SyntheticScorer final : public Evaluator {
public:
    SyntheticScorer(const GitCheckout& repository, std::uint64_t seed) : m_repository(repository), m_seed(seed) {}
    bool has(LaunchKind kind) const override { return kind != LaunchKind::build; }
    bool higher_is_better() const override { return false; }
    Result<Launch> launch(LaunchKind kind, const std::string& commit, const std::filesystem::path& log) override;

private:
    Result<std::int64_t> speed(const std::string& commit);
    const GitCheckout& m_repository;
    std::map<std::string, std::int64_t> m_speeds;  // of the last commits
    std::uint64_t m_seed;
    std::int64_t m_launches = 0;
};

}  // namespace gdnctl::loop::evolve
