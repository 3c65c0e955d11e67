// The performance policy as a stage of an iteration.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "loop/engine/stage.h"
#include "loop/gates/validation_jobs.h"
#include "loop/gates/validation_options.h"
#include "loop/gates/validation_stages.h"
#include "loop/measure/trees.h"
#include "loop/perf/review.h"

namespace gdnctl::loop {

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
    PerfSettings m_settings;
    TargetJobs& m_jobs;
    CommitTrees& m_trees;
    Clock& m_clock;
    RecordedMetrics* m_recorded;
};

// How a decision affects the iteration. `count-failure` without `revert` also removes the candidate: nothing slower is
// kept.
StageResult stage_result_of(const PerfDecision& decision, const PerfRecord& record);

}  // namespace gdnctl::loop
