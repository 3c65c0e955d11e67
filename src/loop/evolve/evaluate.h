// Evaluates a candidate: runs the target's commands on it, reads what a profile printed so that what the candidate's
// own code prints does not count, and looks for cheats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "loop/evolve/state.h"
#include "loop/gates/job_service.h"
#include "loop/gates/validation_jobs.h"
#include "loop/measure/pairs.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::loop::evolve {

struct ProfileResult {
    // The target's metric, if it comes from JSON; with several shapes, their geometric mean.
    std::optional<double> value, floor;
    std::map<std::string, double> shapes;  // where the metric is a list or an object of numbers
    bool nonce = false;                    // the object that they are of has this launch's nonce
    bool unseen = false;                   // the evaluator says that it obeyed GDNCTL_EVAL_SHAPES=unseen
    bool has_op = true;                    // Target::kernel_op is in the text
    std::string lack;                      // why there is no value
};
// The last object with the nonce. Objects with a different nonce are ignored; one without a nonce counts only if no
// object has it.
ProfileResult read_profile(std::string_view text, const Target& target, std::string_view nonce);

// Whether a test or a profile says that it used unseen shapes: a line "shapes: unseen", or that member of an object.
bool says_unseen(std::string_view text);

// The checks of stage anticheat that a profile's text allows: "pass", "fail", or "skip" where the target does not say
// how to check.
struct ProfileChecks {
    std::string floor, kernel_op;
    std::string problem;      // of the one that fails
    bool impossible = false;  // faster than is physically possible: never believed
    double roofline = 0;      // share of what is physically possible; 0: not known
};
ProfileChecks check_profile(const ProfileResult& result, double value, const Target& target);

// The evaluator of candidates, out of the agent's reach: each launch has a fresh checkout of a commit, and the numbers
// are taken from what the target's own jobs print.

class Store;

enum class LaunchKind {
    build,
    test,
    profile,
    oracle,     // the target's oracle; without one, its test once more, where that is `gdnctl oracle verify`
    relations,  // between the kernel's own results: changed inputs must change them
};

struct Launch {
    bool ok = false;
    bool infra = false;  // not the candidate's fault: it says nothing of it
    std::string reason;  // of a failure
    double value = 0;    // of the target's metric, for a profile
    double wall_ms = 0;  // of a profile whose metric is in its trace: see Measurement::wall_ms; 0: not known
    double device_s = 0;
    std::string device;
    int rc = 0;
    std::map<std::string, double> shapes;  // of a profile that measures several
    bool nonce = false;                    // of a profile: its result is this launch's
    bool unseen = false;                   // it obeyed GDNCTL_EVAL_SHAPES=unseen
    bool impossible = false;               // failed, because it is faster than is physically possible
    std::string floor, kernel_op;          // checks of a profile: pass, fail, skip
    double roofline = 0;                   // of a profile: its share of what is physically possible; 0: not known
    Json oracle = nullptr;                 // see oracle_record()
};

// What a launch is told in addition to its seed.
struct Conditions {
    bool unseen = false;                // shapes that no attempt has had
    std::optional<std::uint64_t> seed;  // instead of a random one
};

class Evaluator {
public:
    virtual ~Evaluator() = default;
    // Hears what is at work: "test", "pair 3 of at most 9". May be empty.
    std::function<void(const std::string& step)> on_step = {};
    virtual bool has(LaunchKind kind) const = 0;
    // `log`: appended to. Errors: interrupted, terminated, local_io.
    virtual Result<Launch> launch(LaunchKind kind, const std::string& commit, const std::filesystem::path& log) = 0;
    virtual bool higher_is_better() const = 0;
    // The conditions of all launches from now on.
    virtual void set_conditions(const Conditions& /*conditions*/) {}
    // Whether results carry the nonce, as the base's did: from now on one without it is not the evaluator's.
    virtual void require_nonce() {}
    // Whether the target has keys that need a separate profile; see check_profile().
    virtual bool checks_profile() const { return false; }
    // Whether the target has an oracle, which judges the base before any attempt; and whether it judges attempts even
    // if the base is wrong.
    virtual bool has_oracle() const { return false; }
    virtual bool requires_oracle() const { return false; }
};

struct JobSettings {
    const ValidationOptions& options;
    const ConfigAt& config;  // for jobs of a tree
    std::string run;
    std::filesystem::path worktrees;  // has the name of the job that is under way
};

// This machine, where jobs stay on it: "local: HOST, PROCESSOR".
inline constexpr std::string_view k_local_device = "local: ";
std::string local_device();

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
    void set_conditions(const Conditions& conditions) override { m_conditions = conditions; }
    void require_nonce() override { m_needs_nonce = true; }
    bool checks_profile() const override { return !m_target.floor.empty() || !m_target.kernel_op.empty(); }

    bool has_oracle() const override { return m_target.oracle && m_options.oracle != OracleMode::off; }
    bool requires_oracle() const override { return m_options.oracle == OracleMode::required; }

private:
    Result<Launch> build(const std::filesystem::path& tree, const std::filesystem::path& log, const EnvList& env) const;
    Result<Launch> job(LaunchKind kind, const std::filesystem::path& tree, const std::filesystem::path& log,
                       EnvList env);
    void read_device_time(JobEnd& end, Launch& out) const;
    void read_result(std::string_view text, std::string_view nonce, std::optional<double> of_job, Launch& out) const;
    const Store& m_store;
    const Target& m_target;
    const ValidationOptions& m_options;
    InProcessJobs m_service;
    TargetJobs m_jobs;
    std::filesystem::path m_job_file;
    Context& m_context;
    Conditions m_conditions;
    bool m_needs_nonce = false;
};

// Champion and candidate in turns (AB, BA, AB, ...), until the rule decides.
struct Comparison {
    bool decided = false;  // otherwise a launch failed: see `failed`
    Launch failed;
    bool champion_failed = false;
    std::vector<double> d;
    std::map<std::string, std::vector<double>> shapes;  // d of each, where the profile measures several
    std::vector<double> wall;                           // d of the wall times, where the metric is in the trace
    PairLook look;
    // Whether the candidate is surely slower by its wall time.
    bool is_slower_by_wall() const;
    double device_s = 0;
    std::string device;
    bool nonce = false, unseen = false;  // of some launch
    std::vector<double> rooflines;       // of the candidate's launches
    // The candidate's share of what is physically possible, on average; nullopt: not known.
    std::optional<double> roofline() const;
};
Result<Comparison> compare(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                           const PairRule& rule, const std::filesystem::path& log);
// Exactly `pairs` pairs, whatever they say.
Result<Comparison> measure_pairs(Evaluator& evaluator, const std::string& champion, const std::string& candidate,
                                 int pairs, const std::filesystem::path& log);
// The shape that is slower by more than `share` even at best; empty: none.
std::string slower_shape(const Comparison& pairs, double share);
Gain gain_of(const PairLook& look);

// What the noise of a pair means for a run. h = t sd / sqrt(pairs), see loop/measure/pairs.h.
struct NoiseVerdict {
    double detectable_pct = 0;  // the smallest gain that is kept with `pairs` pairs
    int pairs_needed = 0;       // for `target_gain`; 0: more than 1000
    bool fits = true;
    bool possible = true;  // with any number of pairs
};
// What to do about noise that does not fit, for people.
std::string noise_hint(const NoiseVerdict& noise, double min_gain, double target_gain, int pairs);
NoiseVerdict judge_noise(double sd, double min_gain, double target_gain, int pairs);

// Stage anticheat: detects cheats that do not show as wrong results (docs/evolve.md).

struct CheatCheck {
    bool skipped = false;                       // there is nothing to check by
    Launch end;                                 // of the launch that failed, or of all
    std::map<std::string, std::string> checks;  // "relations", "floor", "kernel_op", "nonce": pass, fail, skip
};
// Errors: those of Evaluator::launch().
Result<CheatCheck> check_cheats(Evaluator& evaluator, const std::string& commit, const std::filesystem::path& log);

// Words of sources that cheats need and kernels rarely do ("clock_gettime"), as hints for people: nothing is refused
// for them. Pure.
std::vector<std::string> cheat_hints(const std::map<std::string, std::string>& files);

}  // namespace gdnctl::loop::evolve
