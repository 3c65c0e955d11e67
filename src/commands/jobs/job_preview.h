// What a submission would send, shown without sending it.
#pragma once

#include "jobs/submit.h"

namespace gdnctl::commands {

// Prints place, command, resources, names of variables, package and the body of POST /api/jobs/ with every value of a
// variable masked; with --json as one object of this schema. Packs the working tree to learn its size. Contacts nobody.
// Errors: usage (too large, or what a cluster does not take), config, local_io.
Result<ExitCode> show_preview(const JobPlan& plan, const SubmitOptions& options, const Place& place,
                              std::string_view schema, Context& context);

}  // namespace gdnctl::commands
