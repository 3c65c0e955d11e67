// The stages of validation and performance of a run, and what they work with, made from options.
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
    HeldTpu* held = nullptr;  // nullptr: none is held
    const GitCheckout& repository;
    std::filesystem::path measure_folder;  // of the worktree that champions are measured in; outside of the repository
    std::vector<std::string> log_paths;    // globs, see TransactionSettings
    std::vector<std::string> links;
    std::filesystem::path cwd, log_dir;  // relative paths of options; state file
    JobService& jobs;
    Process& process;
    Clock& clock;
    Http& http;
    const Env& env;
    TargetJobs::Name name_job{};  // see name_jobs_by()
};

// What --resilient may rewrite of these options, and the options as it left them.
GateOptions gate_options_of(const GateChoices& choices);
void take_rewrites(GateChoices& choices, const GateOptions& rewritten);

// What can be said before anything is touched. Errors: usage, config (options, policy file, a target without test or
// profile), and a performance state that does not parse.
Status check_gate_setup(const GateChoices& choices, const Target& target, const std::filesystem::path& cwd,
                        const std::filesystem::path& log_dir);

// What the agent is told of them; nullopt: neither is asked for. After check_gate_setup().
std::optional<std::string> gate_directive(const GateChoices& choices, const Target& target,
                                          const std::filesystem::path& cwd, const std::filesystem::path& log_dir);

class GateStages {
public:
    // nullptr: neither validation nor performance is asked for. Errors: those of check_gate_setup().
    static Result<std::unique_ptr<GateStages>> create(GateSetup setup);

    // Tests, profile, performance, as far as they are asked for. They may not outlive this object.
    std::vector<std::unique_ptr<Stage>> stages();
    // The TPU that is held from now on; nullptr: none. Before stages().
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
    std::optional<RecordedMetrics> m_recorded;  // nullopt: the target's profiles are recorded nowhere
};

}  // namespace gdnctl::loop
