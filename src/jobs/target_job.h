// A target's test or profile as a job: which TPU it runs on, its command line, and what its end means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "jobs/job_destination.h"
#include "jobs/run.h"
#include "platform/context.h"
#include "platform/env.h"
#include "target/target.h"

namespace gdnctl {

struct TpuChoice {
    std::string type;                         // "v5p-8"; empty: no accelerator
    std::map<std::string, double> resources;  // of one host of that type
};

// `auto` is the cluster's own worker type. It is none on this machine, and for a target with a fixed command line if
// the cluster names no type. Warns if the cluster's file offers no such type. Errors: usage (`TPU auto-detection
// requires --cluster to be set.`, an invalid type, several hosts, a number of chips that Ray does not offer); hints
// name `option`.
Result<TpuChoice> choose_tpu(const std::string& wanted, const JobDestination& place, const Target& target,
                             std::string_view option = "--tpu");

// Type and resources of a hold. On this machine: what GDNCTL_LOCAL_RESOURCES declares; reports it if the TPU is
// simulated.
Result<TpuChoice> choose_hold_tpu(const JobDestination& place, const std::string& wanted, const Env& env);

// The target of a job, prepared for the place where the job will run.

// A job of the embedded example says nothing about the user's own code. It runs if the target was named (--target,
// GDNCTL_TARGET, or `target` in a configuration file); unnamed, only on this machine, outside any repository, and if no
// configuration file defines another target. Error: usage.
Status check_target_is_named(const Target& target, bool here, const Context& context);
// For the place that the options select. Errors: those of choose_destination(), too.
Status check_target_is_named(const Target& target, const DestinationOptions& options, Context& context);

// On this machine, marks the target as `here` and writes a built-in target's files to $STATE/targets/NAME, except for
// existing ones, which the user may have changed. Without a C compiler, and on a cluster, such a target judges kernels
// of this binary instead. Errors: local_io.
Result<Target> target_at(const JobDestination& place, Target target, const Context& context);

// Runs a target's test or profile as a job: makes the plan and interprets the result. Used by commands and the loop.

struct PlannedJob {
    Target target;  // prepared for the place
    JobDestination place;
    std::string tpu;           // its type; empty: none
    ProfileSettings settings;  // of a profile, with that TPU
    JobPlan plan;
};

// Whether a job of this kind of place can bring the trace of the target's profile back. Error: config.
Status check_trace_place(const Target& target, bool brings_files_back, std::string_view place);

// Whether a test's log has to show that it ran: pytest counts, or a TPU. Otherwise the exit status is the verdict.
bool needs_log(const Target& target);

// The shell words that run this program in a job on this machine; elsewhere the plan takes it along.
std::string program_there(bool here, JobPlan& plan, const Context& context);
// What the lines of `oracle verify` with its JSON begin with: JobPlan::data_prefix.
inline constexpr std::string_view k_oracle_data = R"({"schema":"gdnctl.oracle-)";

// `tpu`: a type, or `auto`. Errors: usage, config, local_io.
Result<PlannedJob> plan_test(Target target, const TestSelection& selection, const std::string& tpu,
                             const DestinationOptions& options, Context& context);

// Rejects steps and sizes that no run can have. Error: usage.
Status check_settings(const ProfileSettings& settings);
// Adds KEY=VALUE items to the run's settings. Error: usage.
Status add_profile_env(ProfileSettings& settings, const std::vector<std::string>& items);
// `settings.tpu`: a type, or `auto`. With `driver_on_tpu` the job itself asks for the TPU. Errors: those of
// plan_test().
Result<PlannedJob> plan_profile(Target target, ProfileSettings settings, bool driver_on_tpu,
                                const DestinationOptions& options, Context& context);

// Requirements for a test run in addition to its success.
struct TestNeeds {
    bool oracle = false;  // its verdict is in the log; the job's status is the verdict's
    bool allow_cpu = false;
    std::optional<std::int64_t> require_passed, max_skipped;
};

// Reports on stderr how a job ended, and judges it: a successful run without the required evidence fails, which is
// recorded in its verdict. A job that was not waited for is `ok`.
ExitCode conclude_test(JobRun& run, const Target& target, const TestNeeds& needs);
// With `exact`, numbers have all their digits, for programs that read them.
ExitCode conclude_profile(const JobRun& run, const Target& target, bool exact);

}  // namespace gdnctl
