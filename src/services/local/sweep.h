// Finds and ends the processes of a job, wherever they have gone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "services/local/identity.h"

namespace gdnctl::local {

// Words in k_process_mark of the processes of the job with this folder (.../jobs/ID), and of the process that looks
// after them. Another state directory may have a job of the same id: the words say whose it is, by the directory's
// identity. Neither inherits the marks of the program that submitted the job: a job outlives it.
std::string job_mark(const std::filesystem::path& folder);
std::string supervisor_mark(const std::filesystem::path& folder);

// Living descendants of `ancestor` (not itself), without the supervisors of other jobs and what is below them.
std::vector<ProcessId> family_of(pid_t ancestor);

// Processes of a job after its supervisor's death: those that carry its mark, and the session and descendants of
// `child` when that is still the same process.
std::vector<ProcessId> orphans_of(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child);

// Kills them until none has been seen for a while: one that is just executing a program shows no mark.
void end_orphans(const std::filesystem::path& folder, const std::optional<ProcessIdentity>& child, Clock& clock);

}  // namespace gdnctl::local
