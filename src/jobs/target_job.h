// A target's test or profile as a job: from what is asked for to a plan, and what its end means. The one way for the
// commands that run them and for the loop.
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
    Target target;  // ready for the place
    Place place;
    std::string tpu;           // its type; empty: none
    ProfileSettings settings;  // of a profile, with that TPU
    JobPlan plan;
};

// `tpu`: a type, or `auto`. Errors: usage, config, local_io.
Result<PlannedJob> plan_test(Target target, const TestSelection& selection, const std::string& tpu,
                             const PlaceOptions& options, Context& context);

// Steps and sizes that no run can have. Error: usage.
Status check_settings(const ProfileSettings& settings);
// Adds KEY=VALUE items to what the run is told. Error: usage.
Status add_profile_env(ProfileSettings& settings, const std::vector<std::string>& items);
// `settings.tpu`: a type, or `auto`. With `driver_on_tpu` the job itself asks for the TPU. Errors: those of
// plan_test().
Result<PlannedJob> plan_profile(Target target, ProfileSettings settings, bool driver_on_tpu,
                                const PlaceOptions& options, Context& context);

// What must come of a test run beside its success.
struct TestNeeds {
    bool allow_cpu = false;
    std::optional<std::int64_t> require_passed, max_skipped;
};

// Says on stderr what came of a job, and judges it: a green run that lacks evidence fails, which is put into its
// verdict. What was not waited for is `ok`.
ExitCode conclude_test(JobRun& run, const Target& target, const TestNeeds& needs);
// With `exact` the numbers have all their digits, for those who read them from there.
ExitCode conclude_profile(const JobRun& run, const Target& target, bool exact);

}  // namespace gdnctl
