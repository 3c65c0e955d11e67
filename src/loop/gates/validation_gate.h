// Builds the stages of an iteration, and checks that validation is possible before an agent spends money on work that
// could not be judged.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "loop/engine/options.h"
#include "loop/engine/outcome.h"
#include "loop/engine/tpu_hold.h"
#include "loop/gates/job_service.h"
#include "loop/gates/stages.h"
#include "loop/gates/validation_options.h"
#include "loop/measure/machine_watch.h"
#include "services/git/checkout.h"
#include "target/target.h"

namespace gdnctl::loop {

// Checks what files say about the named clusters, without a network and before anything changes. If several are named,
// one may be missing. Errors: usage (no cluster with that name; or none offers the accelerator that jobs would request,
// so that they would wait forever), config (an unreadable file).
Status check_cluster_files(const ValidationOptions& options, const Target& target, const ClusterPlaces& places);

struct ClusterPreflight {
    const ValidationOptions& options;
    const HoldOptions& hold;
    bool patient = false;        // an unreachable cluster may come back: only warn
    std::filesystem::path root;  // of the repository
    JobService& jobs;
    std::stop_token stop{};
};

// Asks the clusters that jobs would use, in that order, until one answers; at most a minute each. Errors:
// infrastructure (none answers; not with `patient`), authentication and usage (every cluster refuses the configuration
// for the same reason), interrupted.
Status check_clusters_answer(const ClusterPreflight& preflight);

// Builds the stages for validation and performance, and what they need, from options.

struct GateDeps {
    const Target& target;
    GateChoices choices;
    HoldOptions hold;
    HeldTpu* held = nullptr;  // nullptr: no TPU is held
    const GitCheckout& repository;
    std::filesystem::path measure_folder;  // worktree in which champions are measured, outside the repository
    std::vector<std::string> log_paths;    // globs, see TransactionSettings
    std::vector<std::string> links;
    ClusterPlaces clusters;         // its cwd is the base of relative paths in options
    std::filesystem::path log_dir;  // folder of the state file
    JobService& jobs;
    Process& process;
    Clock& clock;
    Http& http;
    const Env& env;
    std::string run;  // its name
    std::stop_token stop{};
    TargetJobs::Name name_job{};  // see name_jobs_by()
};

// What --resilient changes of choices that are used; adds the changes to the list.
void make_resilient(GateChoices& choices, std::vector<Rewrite>& list);

// Checks everything that can be checked before anything changes. Errors: usage, config (options, policy file, a target
// without test or profile), and a performance state that cannot be parsed.
Status check_gate_setup(const GateChoices& choices, const Target& target, const ClusterPlaces& places,
                        const std::filesystem::path& log_dir);

// What the agent is told about the gates; nullopt: none are requested. Call it after check_gate_setup().
std::optional<std::string> gate_directive(const GateChoices& choices, const Target& target,
                                          const std::filesystem::path& cwd, const std::filesystem::path& log_dir);

class GateStages {
public:
    // nullptr: neither validation nor performance is requested. Errors: those of check_gate_setup().
    static Result<std::unique_ptr<GateStages>> create(GateDeps setup);

    // The requested stages among tests, profile and performance. They must not outlive this object.
    std::vector<std::unique_ptr<Stage>> stages();
    // The TPU held from now on; nullptr: none. Call it before stages().
    void set_held(HeldTpu* held) { m_deps.held = held; }
    // Whether the target's oracle judges candidates. It judges the base first, once: if that is not OK, or its kernel
    // cannot be run, a candidate's failure proves nothing. Errors: config (with --validation-oracle required: the
    // base's kernel cannot be run), interrupted, local_io.
    Result<OracleUse> oracle_use(const std::string& base, const Artefacts& artefacts);
    const GateModes& modes() const { return m_modes; }

private:
    GateStages(GateDeps setup, GateModes modes);
    ValidationDeps validation_deps();
    Result<Json> judge_base(const std::string& base, const Artefacts& artefacts);
    GateDeps m_deps;
    GateModes m_modes;
    TargetJobs m_jobs;
    CommitTrees m_trees;
    MachineWatch m_machine;
    PerfSettings m_perf;
    OracleUse m_oracle = OracleUse::unknown;
    std::optional<RecordedMetrics> m_recorded;  // nullopt: the target's profiles are not recorded anywhere
};

}  // namespace gdnctl::loop
