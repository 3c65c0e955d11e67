// Processes of local jobs: identified in records that outlive them, found again, and ended.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "core/result.h"
#include "platform/descendants.h"

namespace gdnctl::local {

struct ProcessIdentity {
    ProcessId id;
    std::string boot_id;
    std::string pid_namespace;  // "pid:[4026531836]"
};

// Identity of a process that exists now; start_ticks is 0 if it does not.
ProcessIdentity identity_of(pid_t pid);
// Whether the pid is visible here and is that process, running (not a zombie).
bool is_same_process(const ProcessIdentity& identity);
// The same, but a record from another pid namespace of this boot cannot be checked from here and counts as alive.
bool is_alive(const ProcessIdentity& identity);

// Finds and ends all processes of a job.

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

// Starts a job's supervisor as a fully detached process.

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
