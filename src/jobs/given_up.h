// Jobs that were asked to stop and have not stopped: a cluster that is asked while a job still waits lets it start
// first. They are kept in $STATE/given_up.jsonl until they have ended; every later command on that cluster asks again.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "platform/context.h"
#include "services/job/job.h"

namespace gdnctl {

// Keeps the job in mind. A failure to write is a warning.
void remember_given_up(const JobBackend& backend, std::string_view id, Context& context);

// Stops those of this backend's given-up jobs that have started meanwhile, and forgets those that have ended. Costs
// nothing where there are none.
void see_to_given_up(JobBackend& backend, Context& context);

// The session in which the job was submitted from here, as $STATE/jobs.jsonl has it; nullopt: not from here.
std::optional<std::string> remembered_session(std::string_view id, const Context& context);

}  // namespace gdnctl
