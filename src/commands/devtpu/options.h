// Options shared by the dev-tpu commands.
#pragma once

#include <string>

#include "commands/jobs/job_options.h"
#include "jobs/held_job.h"
#include "jobs/place.h"

namespace gdnctl::commands::devtpu_options {

struct Name {
    PlaceOptions place;
    std::string tpu_name;
};
void describe_name(cli::Args& args, Name& options);

using Sync = HeldSync;
void describe_sync(cli::Args& args, Sync& options);

using Run = HeldRun;
void describe_run(cli::Args& args, Run& options);

}  // namespace gdnctl::commands::devtpu_options
