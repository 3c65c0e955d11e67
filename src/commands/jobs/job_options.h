// Options shared by the commands for jobs.
#pragma once

#include "cli/args.h"
#include "jobs/place.h"
#include "jobs/submit.h"

namespace gdnctl::commands {

void describe_place(cli::Args& args, PlaceOptions& options);
void describe_submit(cli::Args& args, SubmitOptions& options);

}  // namespace gdnctl::commands
