// Finds and ends the processes of a job, wherever they have gone.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "services/jobs/identity.h"

namespace gdnctl::local {

// Words in k_process_mark of a job's processes, and of the process that looks after them. Neither inherits the marks of
// the program that submitted the job: a job outlives it.
std::string job_mark(std::string_view id);
std::string supervisor_mark(std::string_view id);

// Living descendants of `ancestor` (not itself) that belong to job `id`: without the supervisors of other jobs and what
// is below them.
std::vector<ProcessId> family_of(pid_t ancestor, std::string_view id);

// Processes of job `id` after its supervisor's death: those that carry its mark, and the session and descendants of
// `child` when that is still the same process.
std::vector<ProcessId> orphans_of(std::string_view id, const std::optional<ProcessIdentity>& child);

// Kills them until none has been seen for a while: one that is just executing a program shows no mark.
void end_orphans(std::string_view id, const std::optional<ProcessIdentity>& child, Clock& clock);

}  // namespace gdnctl::local
