// The evaluator of candidates, out of the agent's reach: each launch has a fresh checkout of a commit, and the numbers
// are taken from what the target's own jobs print.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/result.h"
#include "loop/evolve/state.h"
#include "loop/gates/own_jobs.h"
#include "loop/gates/validation_jobs.h"
#include "loop/measure/pairs.h"
#include "platform/context.h"

namespace gdnctl::loop::evolve {

class Store;

enum class LaunchKind { build, test, profile };

struct Launch {
    bool ok = false;
    bool infra = false;  // not the candidate's fault: it says nothing of it
    std::string reason;  // of a failure
    double value = 0;    // of the target's metric, for a profile
    double device_s = 0;
    std::string device;
    int rc = 0;
};

class Evaluator {
public:
    virtual ~Evaluator() = default;
    virtual bool has(LaunchKind kind) const = 0;
    // `log`: appended to. Errors: interrupted, terminated, local_io.
    virtual Result<Launch> launch(LaunchKind kind, const std::string& commit, const std::filesystem::path& log) = 0;
    virtual bool higher_is_better() const = 0;
};

struct JobSettings {
    const ValidationOptions& options;
    const ConfigAt& config;  // for jobs of a tree
    std::string run;
    std::filesystem::path worktrees;  // has the name of the job that is under way
};

// Stops the job of a session that was killed, where one was under way.
Status stop_left_job(const std::filesystem::path& worktrees, const ConfigAt& config, Context& context);

// The target's `validate` commands, `test` and `profile`, as jobs.
class JobEvaluator final : public Evaluator {
public:
    // All must outlive it.
    JobEvaluator(const Store& store, const Target& target, const JobSettings& settings, Context& context);
    ~JobEvaluator() override;
    JobEvaluator(const JobEvaluator&) = delete;
    JobEvaluator& operator=(const JobEvaluator&) = delete;
    bool has(LaunchKind kind) const override;
    Result<Launch> launch(LaunchKind kind, const std::string& commit, const std::filesystem::path& log) override;
    bool higher_is_better() const override;

private:
    Result<Launch> build(const std::filesystem::path& tree, const std::filesystem::path& log) const;
    Result<Launch> job(LaunchKind kind, const std::filesystem::path& tree, const std::filesystem::path& log);
    const Store& m_store;
    const Target& m_target;
    const ValidationOptions& m_options;
    OwnJobs m_service;
    TargetJobs m_jobs;
    std::filesystem::path m_job_file;
    Context& m_context;
};

// Champion and candidate in turns (AB, BA, AB, ...), until the rule decides.
struct Comparison {
    bool decided = false;  // otherwise a launch failed: see `failed`
    Launch failed;
    bool champion_failed = false;
    std::vector<double> d;
    PairLook look;
    double device_s = 0;
    std::string device;
};
Result<Comparison> compare(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                           const PairRule& rule, const std::filesystem::path& log);
// Exactly `pairs` pairs, whatever they say.
Result<Comparison> measure_pairs(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                                 int pairs, const std::filesystem::path& log);
Gain gain_of(const PairLook& look);

// What the noise of a pair means for a run. h = t sd / sqrt(pairs), see loop/measure/pairs.h.
struct NoiseVerdict {
    double detectable_pct = 0;  // the smallest gain that is kept with `pairs` pairs
    int pairs_needed = 0;       // for `target_gain`; 0: more than 1000
    bool fits = true;
};
NoiseVerdict judge_noise(double sd, double min_gain, double target_gain, int pairs);

}  // namespace gdnctl::loop::evolve
