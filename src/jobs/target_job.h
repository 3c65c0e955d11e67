// Runs a target's test or profile as a job: makes the plan and interprets the result. Used by commands and the loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "jobs/place.h"
#include "jobs/run.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl {

struct PlannedJob {
    Target target;  // prepared for the place
    Place place;
    std::string tpu;           // its type; empty: none
    ProfileSettings settings;  // of a profile, with that TPU
    JobPlan plan;
};

// Whether a test's log has to show that it ran: pytest counts, or a TPU. Otherwise the exit status is the verdict.
bool needs_log(const Target& target);

// `tpu`: a type, or `auto`. Errors: usage, config, local_io.
Result<PlannedJob> plan_test(Target target, const TestSelection& selection, const std::string& tpu,
                             const PlaceOptions& options, Context& context);

// Rejects steps and sizes that no run can have. Error: usage.
Status check_settings(const ProfileSettings& settings);
// Adds KEY=VALUE items to the run's settings. Error: usage.
Status add_profile_env(ProfileSettings& settings, const std::vector<std::string>& items);
// `settings.tpu`: a type, or `auto`. With `driver_on_tpu` the job itself asks for the TPU. Errors: those of
// plan_test().
Result<PlannedJob> plan_profile(Target target, ProfileSettings settings, bool driver_on_tpu,
                                const PlaceOptions& options, Context& context);

// Requirements for a test run in addition to its success.
struct TestNeeds {
    bool allow_cpu = false;
    std::optional<std::int64_t> require_passed, max_skipped;
};

// Reports on stderr how a job ended, and judges it: a successful run without the required evidence fails, which is
// recorded in its verdict. A job that was not waited for is `ok`.
ExitCode conclude_test(JobRun& run, const Target& target, const TestNeeds& needs);
// With `exact`, numbers have all their digits, for programs that read them.
ExitCode conclude_profile(const JobRun& run, const Target& target, bool exact);

}  // namespace gdnctl
