// The options that all downloads of traces share.
#include <cmath>
#include <filesystem>
#include <random>

#include <fmt/format.h>

#include "commands/traces/trace_download.h"
#include "services/hub/hf/access.h"

namespace gdnctl::commands {

namespace {

constexpr double k_longest_wait_s = 1e6;

std::chrono::milliseconds to_ms(double seconds) { return std::chrono::milliseconds(std::llround(seconds * 1000)); }

}  // namespace

void describe_selection(cli::Args& args, TraceDownloadOptions& o) {
    constexpr std::string_view k_group = "Selection";
    args.option(o.selection.prefix, {.names = "--path-prefix",
                                     .value = "P",
                                     .help = "download only this folder or file",
                                     .group = k_group,
                                     .complete = cli::Complete::download});
    args.option(o.selection.patterns, {.names = "--pattern",
                                       .value = "REGEX",
                                       .help = "download only paths that match REGEX; if repeated, any of them",
                                       .group = k_group,
                                       .default_text = "JSON traces"});
    args.option(o.selection.includes, {.names = "--include",
                                       .value = "GLOB",
                                       .help = "download only paths that match; `*` also matches '/'",
                                       .group = k_group});
    args.option(o.selection.excludes, {.names = "--exclude",
                                       .value = "GLOB",
                                       .help = "skip paths that match, even if another option selects them",
                                       .group = k_group});
    args.flag(o.selection.include_xplane,
              {.names = "--include-xplane", .help = "also download .xplane.pb files", .group = k_group});
    args.flag(o.selection.latest_session, {.names = "--latest-session",
                                           .help = "download only the newest profiler session of each run",
                                           .group = k_group});
    args.option(
        o.selection.limit,
        {.names = "--limit", .value = "N", .help = "download at most N files, ordered by path", .group = k_group});
    args.flag(o.allow_empty, {.names = "--allow-empty", .help = "exit with 0 if nothing matches", .group = k_group});
    args.option(
        o.max_bytes,
        {.names = "--max-bytes", .value = "N", .help = "refuse a selection larger than this", .group = k_group});
}

void describe_transfer(cli::Args& args, TraceDownloadOptions& o, std::string_view default_dir) {
    constexpr std::string_view k_out = "Output";
    constexpr std::string_view k_net = "Transfer";
    args.option(o.output_dir, {.names = "--output-dir",
                               .value = "DIR",
                               .help = "folder for the files",
                               .group = k_out,
                               .default_text = default_dir,
                               .complete = cli::Complete::directory});
    args.flag(o.flat, {.names = "--flat", .help = "put all files into one folder", .group = k_out});
    args.option(o.manifest, {.names = "--manifest",
                             .value = "FILE",
                             .help = "manifest to write; `none`: no manifest",
                             .group = k_out,
                             .default_text = "DIR/.gdnctl-manifest.json",
                             .complete = cli::Complete::file});
    args.flag(o.force, {.names = "--force", .help = "download files again even if they exist", .group = k_out});
    args.flag(o.dry_run,
              {.names = "--dry-run", .help = "list what would be downloaded; write nothing", .group = k_out});
    args.flag(o.verify, {.names = "--verify",
                         .help = "also hash files that are already there; download those that differ again",
                         .group = k_out});
    args.flag(o.no_verify,
              {.names = "--no-verify", .help = "check the sizes of downloaded files only, not hashes", .group = k_out});
    args.flag(o.validate_trace, {.names = "--validate-trace",
                                 .help = "check that the files are whole gzip, JSON and xplane files",
                                 .group = k_out});
    args.flag(o.offline, {.names = "--offline",
                          .help = "use only files that are on this machine, and the manifest of the last download",
                          .group = k_net});
    args.option(o.jobs, {.names = "--jobs", .value = "N", .help = "number of parallel downloads", .group = k_net});
    args.option(
        o.retries,
        {.names = "--retries", .value = "N", .help = "retry a request up to N times without progress", .group = k_net});
    args.option(
        o.retry_max_time,
        {.names = "--retry-max-time", .value = "S", .help = "retry for at most this many seconds", .group = k_net});
    args.option(o.timeout_connect, {.names = "--timeout-connect",
                                    .value = "S",
                                    .help = "give up connecting after this many seconds",
                                    .group = k_net});
    args.option(o.stall_timeout, {.names = "--stall-timeout",
                                  .value = "S",
                                  .help = "give up a connection after this many seconds of silence",
                                  .group = k_net,
                                  .default_text = "$HF_HUB_DOWNLOAD_TIMEOUT, or 30"});
    args.option(o.ca_bundle, {.names = "--ca-bundle",
                              .value = "PATH",
                              .help = "also trust the CA certificates in this file or folder",
                              .group = k_net,
                              .complete = cli::Complete::file});
    args.flag(o.insecure_http,
              {.names = "--insecure-http", .help = "also send the token over plain HTTP", .group = k_net});
}

void describe_download_codes(cli::Args& args) {
    args.exit_code(0, "every selected file is present; each downloaded file has the right hash");
    args.exit_code(2, "usage error, or the selection is larger than --max-bytes");
    args.exit_code(3, "nothing matches");
    args.exit_code(4, "network error, after retries");
    args.exit_code(5, "token missing or rejected, or no access");
    args.exit_code(6, "no such repository, revision or file");
    args.exit_code(7, "a file with the wrong size or hash, or an invalid trace");
    args.exit_code(8, "disk full, no permission, or an unsafe path");
    args.exit_code(130, "interrupted; run the same command again to continue");
}

Status check_download_options(const TraceDownloadOptions& o, const Context& context) {
    constexpr std::int64_t k_most_jobs = 64, k_most_retries = 1000;
    if (o.jobs < 1 || o.jobs > k_most_jobs)
        return fail(ErrorKind::usage, fmt::format("--jobs {}: expected 1 to 64", o.jobs));
    if (o.retries < 0 || o.retries > k_most_retries) {
        return fail(ErrorKind::usage, fmt::format("--retries {}: expected 0 to 1000", o.retries));
    }
    const auto time = [](std::string_view name, double seconds) -> Status {
        if (seconds > 0 && seconds <= k_longest_wait_s) return {};
        return fail(ErrorKind::usage, fmt::format("{} {:g}: expected a number of seconds above 0", name, seconds));
    };
    GDNCTL_TRY(time("--retry-max-time", o.retry_max_time));
    GDNCTL_TRY(time("--timeout-connect", o.timeout_connect));
    if (o.stall_timeout) GDNCTL_TRY(time("--stall-timeout", *o.stall_timeout));
    if (o.max_bytes && *o.max_bytes < 0) return fail(ErrorKind::usage, "--max-bytes: expected 0 or more");
    if (o.verify && o.no_verify) return fail(ErrorKind::usage, "--verify and --no-verify cannot be combined");
    std::error_code problem;
    if (o.ca_bundle && !std::filesystem::exists(context.cwd / *o.ca_bundle, problem)) {
        return fail(ErrorKind::usage, fmt::format("--ca-bundle {}: no such file or folder", *o.ca_bundle));
    }
    return {};
}

HttpPoolSettings pool_settings(const TraceDownloadOptions& options, const Context& context) {
    HttpPoolSettings settings;
    if (options.ca_bundle) settings.ca_path = (context.cwd / *options.ca_bundle).string();
    return settings;
}

hub::RetryPolicy retry_policy(const TraceDownloadOptions& options, const Context& context) {
    constexpr std::chrono::milliseconds k_usual_stall{30'000};
    hub::RetryPolicy policy;
    policy.retries = static_cast<int>(options.retries);
    policy.max_time = to_ms(options.retry_max_time);
    policy.connect_timeout = to_ms(options.timeout_connect);
    policy.stall_timeout = options.stall_timeout
                               ? to_ms(*options.stall_timeout)
                               : hub::env_seconds(context.env, "HF_HUB_DOWNLOAD_TIMEOUT").value_or(k_usual_stall);
    return policy;
}

HttpHeaders trace_id_header() {
    std::random_device random;
    return {{"X-Amzn-Trace-Id", fmt::format("{:08x}-{:04x}-4{:03x}-a{:03x}-{:08x}{:04x}", random(), random() & 0xFFFFU,
                                            random() & 0xFFFU, random() & 0xFFFU, random(), random() & 0xFFFFU)}};
}

}  // namespace gdnctl::commands
