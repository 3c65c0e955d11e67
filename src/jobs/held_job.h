// Runs a command, or a target's test or profile, on the host of a held TPU: over the connection to it, or as a job next
// to its holder.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/hold.h"
#include "jobs/run.h"
#include "jobs/target_job.h"

namespace gdnctl {

enum class Via { automatic, ssh, ray };

struct HostRun {
    std::string line;  // one /bin/sh line
    std::vector<JobEnv> env;
    std::chrono::milliseconds wall_limit{0}, idle_limit{0};  // 0: none
    std::function<void(std::string_view)> on_out, on_err;    // called with output as it arrives
    // What can be read from this descriptor is the command's standard input; -1: it has none.
    int stdin_fd = -1;
    // Standard input, output and error are this program's own, so that a person can type (over ssh, through a
    // terminal). Limits and on_out do not apply.
    bool interactive = false;
    // The TPU is its own: it waits for other commands that are alone or have synced a tree, and they wait for it.
    bool alone = false;
};

// Refuses what needs ssh where a hold is a container without it, before the hold is looked for. `refusal`: the error.
// Errors: usage; those of choose_destination().
Status check_has_ssh(const std::string& tpu_name, const DestinationOptions& place, std::string refusal,
                     Context& context);
inline constexpr const char* k_no_via_ssh =
    "--via ssh is not supported on iris: commands run in the holder's container";

// How to reach the hold: over ssh if it answers now, else through jobs. Updates its ssh_ok. Errors: infrastructure
// (`--via ssh` without ssh; the hold is over), authentication (the host refuses the key).
Result<Via> choose_via(FoundHold& hold, Via wanted, Context& context);

// Runs it over the connection and returns its exit code (128 + N for a signal; a command in a terminal that exits with
// 255 gives 254), renewing the lease meanwhile. Errors: timeout (everything it started is ended), interrupted,
// terminated; infrastructure (the ssh connection was lost, or the hold has ended; the message says which);
// authentication; config; conflict (another command has used the TPU for half an hour). If another command has changed
// the tree that this one has synced, it is synced again first; while it runs, syncs that would change the tree wait.
Result<int> run_on_host(const FoundHold& hold, const HostRun& run, Context& context);

// Why the hold has ended, or that its place has lost it; nullopt: it is still held, or this cannot be determined.
std::optional<Error> over_now(const FoundHold& hold, Context& context);

// The environment of a command on a TPU's host: the local variables that runs know, `env:` of the repository's
// .levanter.yaml, .marin.yaml and .config, then `extra`. With `all`: the whole environment. On this machine: only
// `extra`. Names may be shown to anyone; values are only for the host.
Result<std::vector<JobEnv>> host_environment(const FoundHold& hold, const std::vector<JobEnv>& extra, bool all,
                                             const Context& context);

// Runs a target's test or profile, or any command, on the host of a held TPU, with the same kind of result as a job.

// Which files of the working copy to copy to the host first.
struct HeldSync {
    std::optional<std::string> sync_path;  // nullopt: the repository
    bool no_sync = false;
};
// Error: usage (no such folder).
Result<std::filesystem::path> sync_root(const HeldSync& options, const Context& context);

struct HeldRun {
    std::vector<std::string> env;  // KEY=VALUE, or KEY to pass on its value
    bool forward_all_env = false;
    Via via = Via::automatic;
    std::optional<double> timeout_s, idle_timeout_s;
};
Result<std::vector<JobEnv>> extra_env(const HeldRun& options, const Context& context);
std::chrono::milliseconds limit_of(const std::optional<double>& limit_s);

struct HeldRunOptions {
    HeldSync sync;
    HeldRun run;
};

// Finds the hold and, unless told not to, updates the tree on its host. Jobs take the tree along themselves.
Result<FoundHold> ready_hold(const std::string& tpu_name, const DestinationOptions& place, const HeldSync& sync,
                             Via& via, Context& context);

// The shell words that run this program on the host of a hold: copied there, once, or taken along by the plan. Errors:
// infrastructure, local_io.
Result<std::string> program_there(const FoundHold& hold, Via via, JobPlan& plan, Context& context);

// Like plan_test() and plan_profile(), for the host of the hold. A run of style `levanter` stores its data under
// `marin_prefix`; nullopt: MARIN_PREFIX of this environment, else the bucket of the TPU's region, since a cache in
// another region is refused.
Result<PlannedJob> plan_held_test(Target target, const TestSelection& selection, const FoundHold& hold, Via via,
                                  Context& context);
Result<PlannedJob> plan_held_profile(Target target, ProfileSettings settings,
                                     const std::optional<std::string>& marin_prefix, const FoundHold& hold, Via via,
                                     Context& context);

// Runs it as a job next to the holder; the tree is sent along.
Result<JobRun> run_beside(const FoundHold& hold, const JobPlan& plan, const HeldRunOptions& options, Context& context);

// Runs it over the connection to the host, or as above.
Result<JobRun> run_held(const FoundHold& hold, Via via, const JobPlan& plan, const HeldRunOptions& options,
                        Context& context);

}  // namespace gdnctl
