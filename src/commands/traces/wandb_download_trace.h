// gdnctl wandb-download-trace: download the profile of a run at Weights & Biases.
#pragma once

#include <optional>
#include <string>

#include "commands/traces/trace_download.h"

namespace gdnctl::commands::wandb_download_trace {

struct RunOptions {
    std::optional<std::string> entity, project, artifact, alias;
};

struct Options {
    TraceDownloadOptions download;
    RunOptions run;
    std::string target;
};

void describe_run(cli::Args& args, RunOptions& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::wandb_download_trace
