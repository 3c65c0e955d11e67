// Shared by all trace downloads: options, the work after listing, and output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "core/result.h"
#include "platform/context.h"
#include "platform/http.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/report.h"
#include "services/hub/transfer/retrying_client.h"
#include "services/hub/transfer/selection.h"

namespace gdnctl::commands {

struct TraceDownloadOptions {
    hub::SelectionOptions selection;
    std::string output_dir;
    bool flat = false, force = false, dry_run = false, allow_empty = false;
    bool verify = false, no_verify = false, validate_trace = false, insecure_http = false, offline = false;
    std::optional<std::string> manifest, ca_bundle;
    std::int64_t jobs = 8, retries = 5;
    double retry_max_time = 900, timeout_connect = 10;
    std::optional<double> stall_timeout;
    std::optional<std::int64_t> max_bytes;
};

void describe_selection(cli::Args& args, TraceDownloadOptions& options);
// `default_dir`: the default of --output-dir, for the help.
void describe_transfer(cli::Args& args, TraceDownloadOptions& options, std::string_view default_dir);
void describe_download_codes(cli::Args& args);

// Errors: usage.
Status check_download_options(const TraceDownloadOptions& options, const Context& context);
HttpPoolSettings pool_settings(const TraceDownloadOptions& options, const Context& context);
hub::TransferLimits transfer_limits(const TraceDownloadOptions& options, const Context& context);
// The header of every request of a run: one id that helps the service's operators.
HttpHeaders trace_id_header();

// Downloads report.files into `folder` (which is created unless --dry-run) and fills report.results. `start` is called
// once the folder exists and before any download. Errors: those that prevent the whole download.
struct DownloadRun {
    const TraceDownloadOptions& options;
    hub::OutFolder& folder;
    hub::RetryingClient* client = nullptr;
    hub::Explain explain;
    std::string commit;  // or version
    bool records = true;
    bool offline = false;
    std::function<Status()> start;
};
Status download_all(const DownloadRun& run, hub::Report& report, Context& context);

// Prints results and failures, and writes the manifest. Returns the exit code, or the error that ended the download.
Result<ExitCode> report_download(const TraceDownloadOptions& options, hub::Report& report, hub::OutFolder* folder,
                                 Context& context);

// The manifest that an earlier download into the folder wrote; nullopt: none.
std::optional<hub::Report> earlier_report(const TraceDownloadOptions& options, hub::OutFolder& folder,
                                          const Context& context);

Error nothing_matched(std::string what, const std::vector<std::string>& others, std::string_view wanted);

}  // namespace gdnctl::commands

namespace gdnctl::commands::wandb_download_trace {

// gdnctl wandb-download-trace: download the profile of a run at Weights & Biases.

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
