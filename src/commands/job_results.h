// What a job's log told, in the JSON of the commands that print it (docs/jobs.md).
#pragma once

#include <optional>

#include "gdnctl/core/json.h"
#include "gdnctl/services/job_output.h"

namespace gdnctl::commands {

// Each is null where the log said nothing of the kind.
Json tests_json(const std::optional<PytestCounts>& counts);
Json device_json(const std::optional<DeviceReport>& device);
Json verdict_json(const OracleVerdicts& verdicts);
Json profile_json(const ProfileReport& profile);

}  // namespace gdnctl::commands
