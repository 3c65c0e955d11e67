// The `local` backend: the job contract with child processes on this machine. State is in $STATE/local (docs/jobs.md).
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "platform/clock.h"
#include "services/job/job.h"

namespace gdnctl {

struct LocalJobsConfig {
    std::filesystem::path state_dir;         // $STATE; created with mode 0700 if missing
    std::map<std::string, std::string> env;  // the submitter's; passed on to jobs
    Clock* clock = nullptr;                  // nullptr: system_clock()
    // Started as `PROGRAM __local-supervisor JOB_FOLDER`. By default this program, even if its file was replaced or
    // removed during a long run; a path would start another version, or nothing.
    std::filesystem::path supervisor = "/proc/self/exe";
    std::stop_token stop{};  // a job that is not submitted yet will not be
};

// Besides the contract's errors: local_io if others have access to the state folder.
std::unique_ptr<JobBackend> make_local_jobs(LocalJobsConfig config);

inline constexpr const char* k_local_supervisor_word = "__local-supervisor";

// Body of the detached supervisor process. Descriptor 3 is a socket to the submitter, which sends the job's environment
// and gets "ready" back. Returns the process's exit status.
int run_local_supervisor(const std::filesystem::path& job_folder);

}  // namespace gdnctl
