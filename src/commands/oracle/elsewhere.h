// oracle verify on another machine: as a job on a cluster, or on a held TPU. The tree and this program are sent along.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "core/result.h"
#include "jobs/job_destination.h"
#include "jobs/submit.h"
#include "platform/context.h"

namespace gdnctl::commands {

struct Elsewhere {
    DestinationOptions place;
    SubmitOptions submit;
    std::string tpu = "auto";
    std::optional<std::string> tpu_name;
    bool allow_cpu = false;
    std::optional<std::string> save_failures;  // the folder here, as --save-failures names it

    bool wanted() const { return tpu_name || place.cluster || place.cluster_config || place.ray_address; }
};

void describe_elsewhere(cli::Args& args, Elsewhere& options);

// Runs this program there with these words, prints what it prints, and exits as it does. `python`: whether the kernel
// is a Python function whose interpreter the words do not name. Errors: those of a job, and bad_input if no TPU was
// seen where one was asked for.
Result<ExitCode> run_elsewhere(const Elsewhere& options, const std::vector<std::string>& words, bool python,
                               Context& context);

}  // namespace gdnctl::commands
