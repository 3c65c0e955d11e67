// The options that all downloads of traces share.
#include "commands/traces/trace_download.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#include <fmt/format.h>

#include "commands/common.h"
#include "core/log.h"
#include "jobs/job_trace.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "services/hub/hf/access.h"
#include "services/hub/transfer/names.h"
#include "services/hub/transfer/out_folder.h"
#include "services/hub/transfer/validate.h"

namespace gdnctl::commands {

namespace {

constexpr double k_longest_wait_s = 1e6;

std::chrono::milliseconds to_ms(double seconds) { return std::chrono::milliseconds(std::llround(seconds * 1000)); }

}  // namespace

void describe_selection(cli::Args& args, TraceDownloadOptions& o) {
    constexpr std::string_view k_group = "Selection";
    args.option(o.selection.prefix, "--path-prefix P", "download only this folder or file",
                {.group = k_group, .complete = cli::Complete::download});
    args.option(o.selection.patterns, "--pattern REGEX",
                "download only paths that match REGEX; if repeated, any of them",
                {.group = k_group, .default_text = "JSON traces"});
    args.option(o.selection.includes, "--include GLOB", "download only paths that match; `*` also matches '/'",
                {.group = k_group});
    args.option(o.selection.excludes, "--exclude GLOB", "skip paths that match, even if another option selects them",
                {.group = k_group});
    args.flag(o.selection.include_xplane, "--include-xplane", "also download .xplane.pb files", {.group = k_group});
    args.flag(o.selection.latest_session, "--latest-session", "download only the newest profiler session of each run",
              {.group = k_group});
    args.option(o.selection.limit, "--limit N", "download at most N files, ordered by path", {.group = k_group});
    args.flag(o.allow_empty, "--allow-empty", "exit with 0 if nothing matches", {.group = k_group});
    args.option(o.max_bytes, "--max-bytes N", "refuse a selection larger than this", {.group = k_group});
}

void describe_transfer(cli::Args& args, TraceDownloadOptions& o, std::string_view default_dir) {
    constexpr std::string_view k_out = "Output";
    constexpr std::string_view k_net = "Transfer";
    args.option(o.output_dir, "--output-dir DIR", "folder for the files",
                {.group = k_out, .default_text = default_dir, .complete = cli::Complete::directory});
    args.flag(o.flat, "--flat", "put all files into one folder", {.group = k_out});
    args.option(o.manifest, "--manifest FILE", "manifest to write; `none`: no manifest",
                {.group = k_out, .default_text = "DIR/.gdnctl-manifest.json", .complete = cli::Complete::file});
    args.flag(o.force, "--force", "download files again even if they exist", {.group = k_out});
    args.flag(o.dry_run, "--dry-run", "list what would be downloaded; write nothing", {.group = k_out});
    args.flag(o.verify, "--verify", "also hash files that are already there; download those that differ again",
              {.group = k_out});
    args.flag(o.no_verify, "--no-verify", "check the sizes of downloaded files only, not hashes", {.group = k_out});
    args.flag(o.validate_trace, "--validate-trace", "check that the files are whole gzip, JSON and xplane files",
              {.group = k_out});
    args.flag(o.offline, "--offline", "use only files that are on this machine, and the manifest of the last download",
              {.group = k_net});
    args.option(o.jobs, "--jobs N", "number of parallel downloads", {.group = k_net});
    args.option(o.retries, "--retries N", "retry a request up to N times without progress", {.group = k_net});
    args.option(o.retry_max_time, "--retry-max-time S", "retry for at most this many seconds", {.group = k_net});
    args.option(o.timeout_connect, "--timeout-connect S", "give up connecting after this many seconds",
                {.group = k_net});
    args.option(o.stall_timeout, "--stall-timeout S", "give up a connection after this many seconds of silence",
                {.group = k_net, .default_text = "$HF_HUB_DOWNLOAD_TIMEOUT, or 30"});
    args.option(o.ca_bundle, "--ca-bundle PATH", "also trust the CA certificates in this file or folder",
                {.group = k_net, .complete = cli::Complete::file});
    args.flag(o.insecure_http, "--insecure-http", "also send the token over plain HTTP", {.group = k_net});
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

hub::TransferLimits transfer_limits(const TraceDownloadOptions& options, const Context& context) {
    constexpr std::chrono::milliseconds k_usual_stall{30'000};
    hub::TransferLimits policy;
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

namespace {

using hub::FileStatus;

bool is_to_be_fetched(const hub::FileResult& result) { return result.status == FileStatus::skipped && !result.failure; }

Status name_files(const TraceDownloadOptions& options, hub::Report& report) {
    std::vector<std::string> names;
    for (hub::Wanted& file : report.files) {
        if (options.flat) file.local = file.path.substr(file.path.rfind('/') + 1);
        names.push_back(file.local);
        std::optional<std::string_view> why = hub::why_unsafe(file.local);
        if (!why && !hub::has_room_for_records(file.local)) why = "its name is longer than 246 bytes";
        if (!why) continue;
        return fail(
            ErrorKind::local_io,
            fmt::format("{} cannot be written as '{}': {}", hub::shown(file.path), hub::shown(file.local), *why),
            options.flat ? "leave out --flat, or exclude the file with --exclude" : "exclude the file with --exclude");
    }
    const auto clash = hub::find_clash(names);
    if (!clash) return {};
    return fail(ErrorKind::local_io, fmt::format("two files would be written to '{}'", hub::shown(*clash)),
                options.flat ? "leave out --flat, or choose fewer files" : "leave one out with --exclude");
}

Status check_size(const TraceDownloadOptions& options, const hub::Report& report) {
    std::int64_t total = 0;
    for (const hub::Wanted& file : report.files) total = hub::total_of(total, file.size);
    if (!options.max_bytes || total <= *options.max_bytes) return {};
    return fail(ErrorKind::usage,
                fmt::format("the selection has {} ({} bytes), more than --max-bytes {}", hub::shown_bytes(total), total,
                            *options.max_bytes),
                "choose fewer files, or allow more");
}

Status prepare_folder(const DownloadRun& run, const hub::Report& report) {
    GDNCTL_TRY_ASSIGN(auto opened, hub::OutFolder::open(run.folder.path(), false));
    run.folder = std::move(opened);
    GDNCTL_TRY(hub::write_markers(run.folder));
    std::vector<std::string> names;
    for (const hub::Wanted& file : report.files) names.push_back(file.local);
    const auto clash = hub::find_case_clash(names);
    if (!clash || !run.folder.ignores_case(std::string(hub::k_records) + "/.gitignore")) return {};
    return fail(ErrorKind::local_io,
                fmt::format("'{}' and another file differ only in case, and {} ignores case", hub::shown(*clash),
                            run.folder.path().string()),
                "leave one out with --exclude, or choose another --output-dir");
}

// Before the first byte is asked for.
void check_room(const DownloadRun& run, hub::Report& report) {
    std::int64_t needed = 0;
    for (std::size_t i = 0; i < report.files.size(); ++i) {
        if (is_to_be_fetched(report.results[i])) needed = hub::total_of(needed, report.files[i].size);
    }
    const auto free = run.folder.free_bytes();
    if (needed == 0 || !free || static_cast<std::uint64_t>(needed) <= *free) return;
    Error failure = hub::local_failure("write", run.folder.path(), ENOSPC);
    failure.message += fmt::format(": {} needed, {} free", hub::shown_bytes(needed),
                                   hub::shown_bytes(static_cast<std::int64_t>(*free)));
    for (hub::FileResult& result : report.results) {
        if (!is_to_be_fetched(result)) continue;
        result.status = FileStatus::failed;
        result.failure = failure;
    }
}

void fetch(const DownloadRun& run, hub::Downloader& downloader, hub::Report& report, Context& context) {
    std::int64_t total = 0;
    std::size_t files = 0;
    for (std::size_t i = 0; i < report.files.size(); ++i) {
        if (!is_to_be_fetched(report.results[i])) continue;
        total = hub::total_of(total, report.files[i].size);
        ++files;
    }
    if (files == 0) return;
    Progress progress(context.terminal, context.clock,
                      {.label = fmt::format("{} file{}", files, files == 1 ? "" : "s"),
                       .total = static_cast<std::uint64_t>(total),
                       .quiet = context.global.quiet || hub::env_is_true(context.env, "HF_HUB_DISABLE_PROGRESS_BARS")});
    downloader.fetch(report.files, report.results, [&](std::int64_t bytes, std::size_t done) {
        progress.label(fmt::format("{} of {} files", done, files));
        progress.update(static_cast<std::uint64_t>(bytes));
    });
    (void)run;
}

void validate(hub::Report& report, const DownloadRun& run, const Context& context) {
    for (std::size_t i = 0; i < report.files.size(); ++i) {
        hub::FileResult& result = report.results[i];
        if (result.status == FileStatus::failed || result.status == FileStatus::skipped) continue;
        auto fd = run.folder.open_file(report.files[i].local, 0);
        auto valid =
            fd ? hub::validate_trace(fd->get(), report.files[i].path, context.stop) : tl::unexpected(fd.error());
        if (valid) continue;
        result.status = FileStatus::failed;
        result.failure = std::move(valid).error();
    }
}

std::string shown_action(const hub::FileResult& result) {
    if (result.failure) return fmt::format("fail: {}", hub::shown(result.failure->text()));
    return result.status == FileStatus::skipped ? "download" : std::string(word_of(result.status));
}

void print_dry_run(const hub::Report& report, Context& context) {
    std::size_t width = 4;
    std::int64_t total = 0;
    for (const hub::Wanted& file : report.files) width = std::max(width, hub::shown(file.path).size());
    for (std::size_t i = 0; i < report.files.size(); ++i) {
        context.terminal.out(fmt::format("{:<{}}  {:>9}  {}\n", hub::shown(report.files[i].path), width,
                                         hub::shown_bytes(report.files[i].size), shown_action(report.results[i])));
        if (is_to_be_fetched(report.results[i])) total = hub::total_of(total, report.files[i].size);
    }
    print_lines(fmt::format("{} file{}, {} to download\n", report.files.size(), report.files.size() == 1 ? "" : "s",
                            hub::shown_bytes(total)),
                context);
}

void print_results(const TraceDownloadOptions& options, const hub::Report& report, Context& context) {
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const hub::FileResult& result = report.results[i];
        if (result.status == FileStatus::failed || result.status == FileStatus::skipped) continue;
        const std::string local = (std::filesystem::path(options.output_dir) / report.files[i].local).string();
        context.terminal.out(context.global.quiet ? hub::shown(local) + "\n"
                                                  : fmt::format("[gdnctl] {} -> {}\n", hub::shown(report.files[i].path),
                                                                hub::shown(local)));
    }
}

// What was hashed in this run, and nothing else.
std::string told_checks(const TraceDownloadOptions& options, const hub::Report& report) {
    std::size_t there = 0, hashed = 0;
    for (const hub::FileResult& result : report.results) {
        if (result.status == FileStatus::failed || result.status == FileStatus::skipped) continue;
        ++there;
        hashed += result.hashed ? 1 : 0;
    }
    if (there == 0) return "";
    if (hashed == there) return "; hashes are right";
    if (options.no_verify) return "; hashes were not checked";
    if (hashed == 0) return "; hashes were not checked again (use --verify)";
    return fmt::format(
        "; {} right, {} not checked again (use --verify)",
        hashed == 1 ? std::string("the hash of 1 file is") : fmt::format("the hashes of {} files are", hashed),
        there - hashed);
}

// Why not every file is there, in one sentence.
std::optional<Error> failure_of_files(const hub::Report& report) {
    std::vector<ErrorKind> kinds;
    for (const hub::FileResult& result : report.results) {
        if (result.failure) kinds.push_back(result.failure->kind);
    }
    if (kinds.empty()) return std::nullopt;
    const ErrorKind worst = hub::worst_of(kinds);
    std::size_t first = 0;
    while (!report.results[first].failure || report.results[first].failure->kind != worst) ++first;
    Error failure = *report.results[first].failure;
    const std::size_t total = report.results.size();
    failure.message = hub::kind_word(worst) == "interrupted"
                          ? fmt::format("interrupted before {} of {} files were complete", kinds.size(), total)
                          : fmt::format("{} of {} files failed: {}: {}", kinds.size(), total, report.files[first].path,
                                        failure.text());
    return failure;
}

void tell_what_next(const TraceDownloadOptions& options, const hub::Report& report) {
    std::set<std::string> logdirs;
    std::vector<std::string> traces;
    bool json = false;
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const FileStatus status = report.results[i].status;
        if (status == FileStatus::failed || status == FileStatus::skipped) continue;
        const auto kind = hub::kind_of_trace(report.files[i].path);
        if (kind != hub::TraceKind::other) traces.push_back(report.files[i].local);
        json = json || kind == hub::TraceKind::perfetto || kind == hub::TraceKind::trace_json;
        if (kind != hub::TraceKind::xplane) continue;
        const std::size_t at = report.files[i].local.find("plugins/profile/");
        const std::string below = at == std::string::npos ? "" : report.files[i].local.substr(0, at);
        logdirs.insert((std::filesystem::path(options.output_dir) / below).string());
    }
    if (json) log::info("open *.trace.json.gz and perfetto_trace.json.gz at https://ui.perfetto.dev");
    for (const std::string& logdir : logdirs) log::info("open *.xplane.pb with: xprof --logdir {}", hub::shown(logdir));
    if (traces.empty()) return;
    const std::filesystem::path folder(options.output_dir);
    show_trace_report(traces.size() == 1 ? folder / traces.front() : folder);
}

constexpr const char* k_manifest = ".gdnctl-manifest.json";

Status write_manifest(const TraceDownloadOptions& options, const hub::Report& report, hub::OutFolder& folder,
                      const Context& context) {
    const std::string text = hub::report_text(report, options.output_dir);
    if (options.manifest == "none") return {};
    if (options.manifest) return atomic_replace(context.cwd / *options.manifest, text);
    const auto written = folder.replace(k_manifest, text);
    return written ? Status() : tl::unexpected(written.error());
}

}  // namespace

Status download_all(const DownloadRun& run, hub::Report& report, Context& context) {
    const TraceDownloadOptions& options = run.options;
    GDNCTL_TRY(name_files(options, report));
    GDNCTL_TRY(check_size(options, report));
    hub::DownloadOptions how;
    how.jobs = static_cast<int>(options.jobs);
    how.verify = !options.no_verify;
    how.hash_all = options.verify;
    how.force = options.force;
    how.records = run.records && !options.flat;
    how.dry_run = options.dry_run;
    how.offline = run.offline;
    how.commit = run.commit;
    if (!options.dry_run) {
        GDNCTL_TRY(prepare_folder(run, report));
        if (run.start) {
            GDNCTL_TRY(run.start());
        }
    }
    hub::Downloader downloader(run.folder, run.client, how, run.explain, context.stop, context.clock);
    report.results = downloader.look(report.files);
    if (options.dry_run) return {};
    check_room(run, report);
    if (run.client != nullptr) fetch(run, downloader, report, context);
    if (options.validate_trace) validate(report, run, context);
    return {};
}

Result<ExitCode> report_download(const TraceDownloadOptions& options, hub::Report& report, hub::OutFolder* folder,
                                 Context& context) {
    Status written;
    const bool stopped = report.error.has_value();  // before the files' own results
    if (!stopped) report.error = failure_of_files(report);
    const std::optional<Error> of_files = report.error;
    if (!options.dry_run && !(stopped && report.results.empty()) && folder != nullptr && !report.files.empty()) {
        written = write_manifest(options, report, *folder, context);
    }
    if (!written && !report.error) report.error = written.error();
    if (context.global.json) {
        print_lines(hub::report_text(report, options.output_dir), context);
    } else if (options.dry_run && !stopped) {
        print_dry_run(report, context);
    } else if (!stopped) {
        print_results(options, report, context);
    }
    if (stopped) {
        // SIGTERM ends a download like SIGINT: partial files are kept.
        if (report.error->kind == ErrorKind::terminated) report.error->kind = ErrorKind::interrupted;
        return tl::unexpected(*report.error);
    }
    for (std::size_t i = 0; i < report.results.size(); ++i) {
        const auto& failure = report.results[i].failure;
        if (!failure || hub::kind_word(failure->kind) == "interrupted") continue;
        log::error("failed: {}: {}", hub::shown(report.files[i].path), hub::shown(failure->text()));
        if (!failure->hint.empty()) log::info("hint: {}", hub::shown(failure->hint));
    }
    GDNCTL_TRY(context.terminal.flush());  // results come before what is said about them
    if (!options.dry_run) log::info("{}{}", hub::summary(report), told_checks(options, report));
    if (!options.dry_run) tell_what_next(options, report);
    if (!written) return tl::unexpected(std::move(written).error());
    if (!of_files) return ExitCode::ok;
    const ErrorKind worst = of_files->kind;
    if (hub::kind_word(worst) == "interrupted") log::warning("interrupted: run the same command again to continue");
    return exit_code_of(worst == ErrorKind::terminated ? ErrorKind::interrupted : worst);
}

std::optional<hub::Report> earlier_report(const TraceDownloadOptions& options, hub::OutFolder& folder,
                                          const Context& context) {
    constexpr std::size_t k_longest = std::size_t{64} << 20;
    if (options.manifest == "none") return std::nullopt;
    std::optional<std::string> text;
    if (options.manifest) {
        text = read_file_if_exists(context.cwd / *options.manifest, k_longest).value_or(std::nullopt);
    } else {
        text = folder.read(k_manifest, k_longest).value_or(std::nullopt);
    }
    return text ? hub::parse_report(*text) : std::nullopt;
}

Error nothing_matched(std::string what, const std::vector<std::string>& others, std::string_view wanted) {
    std::string list;
    for (const std::string& path : hub::nearest_paths(wanted, others)) list += "\n  " + hub::shown(path);
    return {ErrorKind::nothing_done,
            std::move(what),
            list.empty() ? "there are no files at all"
                         : "did you mean one of these? Choose them with --pattern or --path-prefix:" + list,
            {}};
}

}  // namespace gdnctl::commands
