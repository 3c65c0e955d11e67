// What jobs stored in $GDNCTL_OUTPUT_DIR, brought home.
#pragma once

#include <filesystem>
#include <vector>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

// Reports on stderr what the job stored, and what the scheduler takes for the cause of its failure.
void show_job_end(const JobDetails& details, const std::vector<StoredOutput>& outputs);

// Asks again for the cause of a failure, which a scheduler may know only once it has the job's log.
void ask_for_cause(JobBackend& backend, JobDetails& details);

// What the job stored; nothing, with a warning, if it cannot be determined.
std::vector<StoredOutput> outputs_of(JobBackend& backend, std::string_view id);

// Fetches what was stored, and unpacks it in `folder`: what the job's own task stored there, what tasks of its child
// jobs stored in folders with the names of these jobs. Without a tar program the archive itself is kept there. Errors:
// conflict (another SHA-256), local_io (a member that would leave the folder, disk full), bad_input (no such archive),
// usage, authentication, infrastructure, remote_missing, interrupted.
Status fetch_outputs(const JobDetails& details, const std::vector<StoredOutput>& outputs,
                     const std::filesystem::path& folder, Context& context);

}  // namespace gdnctl
