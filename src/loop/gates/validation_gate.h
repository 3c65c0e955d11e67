// Builds the stages for validation and performance, and what they need, from options.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "loop/engine/held_tpu.h"
#include "loop/engine/options.h"
#include "loop/engine/stage.h"
#include "loop/gates/perf_stage.h"
#include "loop/gates/validation_options.h"
#include "loop/measure/machine_watch.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

struct GateSetup {
    const Target& target;
    GateChoices choices;
    HoldOptions hold;
    HeldTpu* held = nullptr;  // nullptr: no TPU is held
    const GitCheckout& repository;
    std::filesystem::path measure_folder;  // worktree in which champions are measured, outside the repository
    std::vector<std::string> log_paths;    // globs, see TransactionSettings
    std::vector<std::string> links;
    std::filesystem::path cwd, log_dir;  // base of relative paths in options; folder of the state file
    JobService& jobs;
    Process& process;
    Clock& clock;
    Http& http;
    const Env& env;
    TargetJobs::Name name_job{};  // see name_jobs_by()
};

// The part of these options that --resilient may rewrite, and the options after rewriting.
GateOptions gate_options_of(const GateChoices& choices);
void take_rewrites(GateChoices& choices, const GateOptions& rewritten);

// Checks everything that can be checked before anything changes. Errors: usage, config (options, policy file, a target
// without test or profile), and a performance state that cannot be parsed.
Status check_gate_setup(const GateChoices& choices, const Target& target, const std::filesystem::path& cwd,
                        const std::filesystem::path& log_dir);

// What the agent is told about the gates; nullopt: none are requested. Call it after check_gate_setup().
std::optional<std::string> gate_directive(const GateChoices& choices, const Target& target,
                                          const std::filesystem::path& cwd, const std::filesystem::path& log_dir);

class GateStages {
public:
    // nullptr: neither validation nor performance is requested. Errors: those of check_gate_setup().
    static Result<std::unique_ptr<GateStages>> create(GateSetup setup);

    // The requested stages among tests, profile and performance. They must not outlive this object.
    std::vector<std::unique_ptr<Stage>> stages();
    // The TPU held from now on; nullptr: none. Call it before stages().
    void set_held(HeldTpu* held) { m_setup.held = held; }
    const GateModes& modes() const { return m_modes; }

private:
    GateStages(GateSetup setup, GateModes modes);
    GateSetup m_setup;
    GateModes m_modes;
    TargetJobs m_jobs;
    CommitTrees m_trees;
    MachineWatch m_machine;
    PerfSettings m_perf;
    std::optional<RecordedMetrics> m_recorded;  // nullopt: the target's profiles are not recorded anywhere
};

}  // namespace gdnctl::loop
