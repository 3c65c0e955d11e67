// Starts a job's supervisor as a fully detached process.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::local {

// The command line travels with the environment, because it may contain secrets, which no file may keep. The supervisor
// removes it before it starts the job.
inline constexpr std::string_view k_entrypoint_variable = "GDNCTL_ENTRYPOINT";

// Runs `program __local-supervisor FOLDER` in a new session without controlling terminal or open descriptors, sends it
// the job's environment through a socket, and returns when it reports that it is ready. Error: infrastructure.
Status launch_supervisor(const std::filesystem::path& program, const std::filesystem::path& folder,
                         const std::map<std::string, std::string>& job_env,
                         const std::map<std::string, std::string>& own_env);

// The supervisor's end, on descriptor 3.
Result<std::map<std::string, std::string>> receive_environment();
void report_ready(const Status& status);

}  // namespace gdnctl::local
