// The JSON fields for what a job's log reported (docs/reference/json.md).
#pragma once

#include <optional>

#include "core/json.h"
#include "services/job/job.h"
#include "services/job/output.h"

namespace gdnctl {

// Each is null if the log reported nothing of the kind.
Json tests_json(const std::optional<PytestCounts>& counts);
Json device_json(const std::optional<DeviceReport>& device);
Json verdict_json(const OracleVerdicts& verdicts);
Json profile_json(const ProfileReport& profile);

// entrypoint, env_names, resources of a submission, appended to `object`.
void put_command(Json& object, const JobRequest& request);

// Whether the result is evidence about a TPU: the job succeeded on a cluster, and its log names a TPU as JAX's device
// or, if it does not mention the device, reports the throughput of a profiled run. Never true for a job on this
// machine.
bool is_tpu_evidence(const JobPlace& place, const JobVerdict& verdict, const JobDetails& details,
                     const JobOutput& output);

}  // namespace gdnctl
