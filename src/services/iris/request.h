// Requests to an Iris controller. It refuses a request with a field that it does not know, so nothing else is sent than
// what docs/iris.md lists. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "services/job/job.h"

namespace gdnctl::iris {

// Of the bundle, before base64.
inline constexpr std::uint64_t k_bundle_limit = 26'214'400;
// Names of the variables that carry a job's metadata begin with this.
inline constexpr std::string_view k_metadata_prefix = "GDNCTL_META_";
// Precedes the entrypoint of a job: one stream keeps the order of its output.
inline constexpr std::string_view k_prologue =
    "exec 2>&1; cd \"${IRIS_WORKDIR:-.}\" || exit 1; export GDNCTL_OUTPUT_DIR=\"${IRIS_OUTPUT_DIR:-}\"; ";

// Errors: usage (an id of digits only, which would be a task; what Iris does not have).
Status check_servable(const JobRequest& request);
// LaunchJob without the bundle. `start_timeout`: how long the job may wait for a machine. Errors: usage (a value or a
// command that is not UTF-8, a command that is too long, an unknown resource).
Result<Json> launch_json(const JobRequest& request, std::string_view name, std::chrono::milliseconds start_timeout);

// The same environment for a command in a container: lines of shell that export it. Error: usage.
Result<std::string> export_lines(const std::vector<JobEnv>& env);

}  // namespace gdnctl::iris
