// The jobs that this machine submitted: $STATE/jobs.jsonl, to which jobs/run.cpp adds.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

struct Submission {
    std::string id, backend, cluster, address;
};

// Whether a loop submitted the job under this id: where ids of other jobs name the user, it names its run.
bool is_of_loop(std::string_view submission_id);

// Newest first, without those of loops. Empty if the list cannot be read.
std::vector<Submission> own_submissions(const std::filesystem::path& state_dir);

// `id` itself or, for `last`, the newest of own_submissions() at this backend. Error: remote_missing, there is none.
Result<std::string> job_named(std::string id, const JobBackend& backend, const Context& context);

}  // namespace gdnctl
