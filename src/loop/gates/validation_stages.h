// Tests and profile of a candidate as stages of an iteration, on the target's device.
#pragma once

#include <filesystem>
#include <string>

#include "loop/engine/held_tpu.h"
#include "loop/engine/stage.h"
#include "loop/gates/validation_jobs.h"
#include "loop/gates/validation_ladder.h"
#include "loop/measure/wandb_metric.h"

namespace gdnctl::loop {

inline constexpr std::string_view k_gate_failed =
    "Iteration failed required TPU validation/profile gate. Use --validation-policy count-failure/continue to keep "
    "looping.";

// Shared by both. All must outlive the stages.
struct ValidationWorld {
    TargetJobs& jobs;
    HeldTpu* held = nullptr;  // nullptr: no TPU is held
    Clock& clock;
    HoldOptions hold;
    std::filesystem::path root;           // of the repository, for its cluster files
    RecordedMetrics* recorded = nullptr;  // nullptr: profiles are not recorded anywhere
};

Policy policy_of_gate(ValidationPolicy policy);

// Runs the tests. A failed test is run again alone; if all failed tests pass then, the candidate continues
// (flakes.jsonl).
class TestsStage final : public Stage {
public:
    explicit TestsStage(ValidationWorld world) : m_world(std::move(world)) {}
    std::string_view name() const override { return "validation-tests"; }
    Policy policy() const override { return policy_of_gate(m_world.jobs.options().policy); }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    Result<bool> passes_alone(const StageContext& context, const JobSite& site, const JobEnd& red);
    ValidationWorld m_world;
};

// Takes one profile and writes the measurement to iteration-NNN-measurement.json for the performance stage.
class ProfileStage final : public Stage {
public:
    ProfileStage(ValidationWorld world, std::string metric) : m_world(std::move(world)), m_metric(std::move(metric)) {}
    std::string_view name() const override { return "validation-profile"; }
    Policy policy() const override { return policy_of_gate(m_world.jobs.options().policy); }
    bool wants(DiffClass diff) const override { return diff == DiffClass::change; }
    Result<StageResult> run(const StageContext& context) override;

private:
    Status compare_ce(const StageContext& context, const JobSite& site, Measurement& m, StageResult& result);
    ValidationWorld m_world;
    std::string m_metric;
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
Status store_measurement(const std::filesystem::path& path, const StoredMeasurement& stored);
// Errors: local_io, bad_input (missing, or not a measurement).
Result<StoredMeasurement> load_measurement(const std::filesystem::path& path);

// How a failed job affects the iteration.
StageResult failed_stage(const JobEnd& end);

}  // namespace gdnctl::loop
