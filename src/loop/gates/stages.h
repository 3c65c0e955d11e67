// The stages of an iteration: the commands that a candidate must pass, its tests and profile, and the performance
// policy.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/engine/tpu_hold.h"
#include "loop/gates/validation_jobs.h"
#include "loop/gates/validation_options.h"
#include "loop/measure/wandb_metric.h"
#include "loop/measure/worktrees.h"
#include "loop/perf/review.h"
#include "platform/clock.h"
#include "platform/process.h"

namespace gdnctl::loop {

struct PostChecks {
    std::string name = "post-check";    // of the stage
    bool only_changes = false;          // skip candidates that change only logs
    std::vector<std::string> commands;  // bash -lc COMMAND, in order; the first failure ends the stage
    Policy policy = Policy::fail;
    std::int64_t retries = 0;  // of each command
    std::int64_t retry_sleep_s = 20;
    std::int64_t timeout_s = 0;                      // of each command; 0: none
    std::map<std::string, std::string> environment;  // added to ours
    std::filesystem::path subfolder;                 // folder of the tree in which they run
    bool private_tree = false;      // the user's active Python environment must not be synced to that tree
    std::filesystem::path program;  // gdnctl; its folder comes last on their PATH
    std::function<void(std::string_view line)> show = {};  // called with their output
};

// Output is also written to iteration-NNN-NAME-K.log. A command that runs too long is ended along with everything it
// started. The reason for a failure is read from the end of the output (see failure_of()); the stage's exit status is
// the command's.
std::unique_ptr<Stage> make_post_checks(PostChecks checks, Process& process, Clock& clock);

// Tests and profile of a candidate as stages of an iteration, on the target's device.

inline constexpr std::string_view k_gate_failed =
    "Iteration failed required TPU validation/profile gate. Use --validation-policy count-failure/continue to keep "
    "looping.";

// The tests of a candidate, wherever they ran at last.
struct TestRun {
    std::string head;  // the candidate; empty: nothing was run
    JobEnd end;
    JobSite site;
    std::int64_t spent = 0;  // milliseconds of device time
};

// `unknown`: infrastructure kept it from judging the base.
enum class OracleUse { unknown, off, judges };

// Shared by the stages. All must outlive them.
struct ValidationDeps {
    TargetJobs& jobs;
    HeldTpu* held = nullptr;  // nullptr: no TPU is held
    Clock& clock;
    HoldOptions hold;
    ClusterPlaces clusters;
    RecordedMetrics* recorded = nullptr;  // nullptr: profiles are not recorded anywhere
    // Whether the target's oracle judges candidates, in a run with this base; empty: it never does.
    std::function<Result<OracleUse>(const std::string& base, const Artefacts& artefacts)> oracle = {};
    std::shared_ptr<TestRun> tests = {};  // of the oracle's stage, for the tests'
};

// The places where jobs of this kind are tried, in order.
std::vector<JobSite> sites_for(JobKind kind, const ValidationDeps& deps);
// Judges the kernel in `tree` with the oracle alone, where the tests would run, with as many retries. Errors: those of
// TargetJobs::run().
Result<JobEnd> ask_oracle(const ValidationDeps& deps, const std::filesystem::path& tree, const Artefacts& artefacts,
                          std::stop_token stop);

Policy policy_of_gate(ValidationPolicy policy);

// Runs the target's oracle and then its tests, in one job, and judges what the oracle says. What the tests say is the
// next stage's.
class OracleStage final : public Stage {
public:
    explicit OracleStage(ValidationDeps deps) : m_deps(std::move(deps)) {}
    std::string_view name() const override { return "oracle"; }
    Policy policy() const override { return policy_of_gate(m_deps.jobs.options().policy); }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    ValidationDeps m_deps;
};

// Runs the tests, unless the oracle's stage did. A failed test is run again alone; if all failed tests pass then, the
// candidate continues (flakes.jsonl).
class TestsStage final : public Stage {
public:
    explicit TestsStage(ValidationDeps deps) : m_deps(std::move(deps)) {}
    std::string_view name() const override { return "validation-tests"; }
    Policy policy() const override { return policy_of_gate(m_deps.jobs.options().policy); }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    Result<bool> passes_alone(const StageContext& context, const JobSite& site, const JobEnd& red);
    ValidationDeps m_deps;
};

// Takes one profile and writes the measurement to iteration-NNN-measurement.json for the performance stage. Its trace,
// if it has one, is kept and compared with the champion's.
class ProfileStage final : public Stage {
public:
    // `state_file`: of the performance state, with which the champion's trace is; empty: there is no champion.
    ProfileStage(ValidationDeps deps, std::string metric, std::filesystem::path state_file = {})
        : m_deps(std::move(deps)), m_metric(std::move(metric)), m_state_file(std::move(state_file)) {}
    std::string_view name() const override { return "validation-profile"; }
    Policy policy() const override { return policy_of_gate(m_deps.jobs.options().policy); }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    Status compare_ce(const StageContext& context, const JobSite& site, Measurement& m, StageResult& result);
    Status put_trace(const StageContext& context, Measurement& m, JobEnd& end, StageResult& result);
    ValidationDeps m_deps;
    std::string m_metric;
    std::filesystem::path m_state_file;
};

// "gdn_loopgate_iter007"
std::string profile_prefix(const ValidationOptions& options, int iteration);
// "gdn_loopgate_ce_xla_pallas_iter007": neither contains another prefix nor is contained in one.
std::string ce_profile_prefix(const ValidationOptions& options, const CeChoice& ce, int iteration);

// The measurement of a successful profile of this order.
Measurement measured_by(const JobEnd& end, const JobOrder& order, const TargetJobs& jobs, const std::string& metric);

// The same with the numbers that the run recorded, if it did. Errors: those of RecordedMetrics.
Result<Measurement> read_profile(const JobEnd& end, const JobOrder& order, WallTime submitted, const TargetJobs& jobs,
                                 const std::string& metric, RecordedMetrics* recorded);

// A measurement and its place, as stored in the log directory.
struct StoredMeasurement {
    Measurement measurement;
    JobSite site;
};
// Errors: local_io, bad_input (missing, or not a measurement).
Result<StoredMeasurement> load_measurement(const std::filesystem::path& path);

// The performance policy as a stage of an iteration.

struct PerfSettings {
    PerfPolicy policy;
    RegressionPolicy on_regression = RegressionPolicy::revert_count_failure;
    int pairs = 9;
    bool higher_is_better = true;
    std::string metric, unit;
    std::optional<double> upper_bound_step_ms;
    std::filesystem::path state_file;
};

// Settings from options and target. Errors: those of policy_of().
Result<PerfSettings> perf_settings(const PerfOptions& options, const Target& target, const std::filesystem::path& cwd,
                                   const std::filesystem::path& log_dir);

// Judges what the profile stage measured. If pairs are requested, it profiles champion and candidate alternately. A
// candidate that already has a verdict in the state file (the loop was killed afterwards) is not measured again.
class PerformanceStage final : public Stage {
public:
    // `jobs`, `trees` and `recorded` (nullptr: profiles are not recorded anywhere) must outlive the stage.
    PerformanceStage(PerfSettings settings, TargetJobs& jobs, CommitTrees& trees, Clock& clock,
                     RecordedMetrics* recorded = nullptr)
        : m_settings(std::move(settings)), m_jobs(jobs), m_trees(trees), m_clock(clock), m_recorded(recorded) {}
    std::string_view name() const override { return "performance"; }
    Policy policy() const override;
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    Result<Measurement> measure(const StageContext& context, const JobSite& site, const std::string& commit,
                                StageResult& spent);
    Status keep_champions_trace(const StageContext& context, const PerfRecord& champion) const;
    std::map<std::string, trace::Profile> m_traces;  // of the last profile of each commit
    PerfSettings m_settings;
    TargetJobs& m_jobs;
    CommitTrees& m_trees;
    Clock& m_clock;
    RecordedMetrics* m_recorded;
};

}  // namespace gdnctl::loop
