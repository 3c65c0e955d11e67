// Shows what a submission would send, without sending it.
#pragma once

#include "jobs/submit.h"

namespace gdnctl::commands {

// Prints place, command, resources, variable names, package and the body of POST /api/jobs/ with the values of all
// variables masked; with --json as one object of this schema. Packs the working tree to determine its size. Contacts no
// server. Errors: usage (too large, or not accepted by a cluster), config, local_io.
Result<ExitCode> show_preview(const JobPlan& plan, const SubmitOptions& options, const Place& place,
                              std::string_view schema, Context& context);

}  // namespace gdnctl::commands
