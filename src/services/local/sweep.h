// Finds and ends all processes of a job.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "services/local/identity.h"

namespace gdnctl::local {

// Words in k_process_mark that identify the processes of the job in this folder (.../jobs/ID) and its supervisor. They
// include the identity of the state directory, since another one may have a job with the same id. Neither inherits the
// marks of the submitting program, because a job outlives it.
std::string job_mark(const std::filesystem::path& folder);
std::string supervisor_mark(const std::filesystem::path& folder);

// Living descendants of `ancestor` (excluding itself), without the supervisors of other jobs and their descendants.
std::vector<ProcessId> family_of(pid_t ancestor);

// Processes of a job whose supervisor died: those that carry its mark, and the session and descendants of `child` if
// that is still the same process.
std::vector<ProcessId> orphans_of(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child);

// Kills them until none has been seen for a while, since a process in the middle of an exec shows no mark.
void end_orphans(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child, Clock& clock);

}  // namespace gdnctl::local
