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
    std::filesystem::path state_dir;         // $STATE; created 0700 when missing
    std::map<std::string, std::string> env;  // the submitter's; jobs get it
    Clock* clock = nullptr;                  // nullptr: system_clock()
    // The program that is started as `PROGRAM __local-supervisor JOB_FOLDER`; this one by default.
    std::filesystem::path supervisor = "/proc/self/exe";
    std::stop_token stop{};  // a job that is not submitted yet then is not
};

// Errors of its calls beyond the contract's: local_io when the state folder is not ours alone.
std::unique_ptr<JobBackend> make_local_jobs(LocalJobsConfig config);

inline constexpr const char* k_local_supervisor_word = "__local-supervisor";

// Body of the detached supervisor process. Descriptor 3 is a socket to the submitter: it sends the job's environment
// and gets "ready" back. Returns the exit status of the process.
int run_local_supervisor(const std::filesystem::path& job_folder);

}  // namespace gdnctl
