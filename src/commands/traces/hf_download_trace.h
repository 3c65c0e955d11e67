// gdnctl hf-download-trace: fetch profiler traces from a repository on the Hugging Face Hub.
#pragma once

#include <optional>
#include <string>

#include "commands/traces/trace_download.h"
#include "commands/traces/wandb_download_trace.h"
#include "services/hub/hf/repo.h"

namespace gdnctl::commands::hf_download_trace {

enum class Source { hf, wandb };

struct Options {
    Source source = Source::hf;
    wandb_download_trace::RunOptions wandb;  // with --source wandb
    TraceDownloadOptions download;
    std::string repo_id;
    std::optional<std::string> target;  // the one positional word
    std::optional<hub::RepoType> repo_type;
    std::optional<std::string> revision, endpoint, token, token_file;
    bool no_token = false, offline = false, head_check = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::hf_download_trace
