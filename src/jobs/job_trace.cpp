#include "jobs/job_trace.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/base64.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "jobs/outputs.h"
#include "jobs/trace_input.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/http.h"
#include "platform/machine.h"
#include "services/hub/hf/access.h"
#include "services/hub/hf/hub.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/names.h"
#include "services/hub/wandb/artifact.h"
#include "services/hub/wandb/wandb.h"
#include "trace/views/format.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_kept_traces = 20;
constexpr std::chrono::minutes k_clock_difference{10};  // between this machine and a service
constexpr std::string_view k_hub = "hf:";

Result<hub::Selection> newest_session(std::string prefix) {
    hub::SelectionOptions options;
    options.prefix = std::move(prefix);
    options.include_xplane = true;
    options.latest_session = true;
    return hub::Selection::make(std::move(options));
}

// Fetches all of these files. Errors: that of the first one that fails, local_io.
Status fetch_files(const std::vector<hub::Wanted>& files, hub::OutFolder& folder, hub::RetryingClient& client,
                   const hub::Explain& explain, const std::string& commit, Context& context) {
    for (const hub::Wanted& file : files) {
        const auto why = hub::why_unsafe(file.local);
        if (why) return fail(ErrorKind::local_io, fmt::format("{} cannot be written: {}", hub::shown(file.path), *why));
    }
    hub::DownloadOptions how;
    how.records = false;
    how.commit = commit;
    hub::Downloader downloader(folder, &client, how, explain, context.stop, context.clock);
    std::vector<hub::FileResult> results = downloader.look(files);
    downloader.fetch(files, results, [](std::int64_t, std::size_t) {});
    for (hub::FileResult& result : results) {
        if (result.failure) return tl::unexpected(std::move(*result.failure));
    }
    return {};
}

Error no_trace(std::string message) { return {ErrorKind::nothing_done, std::move(message), {}, {}}; }

Status download_from_wandb(const std::string& run_url, WallTime began, const fs::path& into, Context& context) {
    const auto run = parse_wandb_url(run_url);
    if (!run) return tl::unexpected(no_trace("the profile's output does not name a W&B run"));
    GDNCTL_TRY_ASSIGN(WandbAccess access, find_wandb(context.env, run->server));
    GDNCTL_TRY_ASSIGN(const auto pool, context.http.open_pool({}));
    const auto url = http::parse_url(access.url);
    if (!url) return fail(ErrorKind::config, "the address of W&B's server is not valid: " + hub::shown(access.url));
    http::ServiceEndpoint service;
    service.endpoint = *url;
    const std::string credentials = to_base64("api:" + access.key);
    register_secret(credentials);
    service.authorization = "Basic " + credentials;
    hub::RetryingClient client(*pool, std::move(service), {}, context.clock, context.stop);
    GDNCTL_TRY_ASSIGN(const hub::Selection selection, newest_session({}));
    wandb::RunArtifacts artifacts(access, *run, client);
    GDNCTL_TRY_ASSIGN(wandb::ArtifactListing listing, artifacts.list(std::nullopt, std::nullopt, selection));
    const std::string name = listing.artifact.collection + ":" + listing.artifact.version_name();
    const auto stored = wandb::parse_created(listing.artifact.updated);
    if (stored && *stored + k_clock_difference < began) {
        return tl::unexpected(no_trace(name + " was stored before the job began"));
    }
    if (listing.files.empty()) return tl::unexpected(no_trace(name + " contains no trace"));
    GDNCTL_TRY_ASSIGN(hub::OutFolder folder, hub::OutFolder::open(into, false));
    const hub::Explain explain = [&](const std::string& address, int status, const HttpHeaders& headers,
                                     std::string_view body) {
        return artifacts.explain(address, status, headers, body);
    };
    return fetch_files(listing.files, folder, client, explain, listing.artifact.version_name(), context);
}

// `where`: "NAMESPACE/NAME/PREFIX" of a dataset.
Status download_from_hub(std::string_view where, const fs::path& into, Context& context) {
    const std::size_t end = where.find('/', where.find('/') + 1);
    GDNCTL_TRY_ASSIGN(const hub::HfPlaces places, hub::find_hf_places(context.env, std::nullopt));
    GDNCTL_TRY_ASSIGN(hub::RepoTarget repo, hub::parse_repo_target(where.substr(0, end), places.endpoint));
    repo.path = where.substr(end + 1);
    GDNCTL_TRY_ASSIGN(const hub::HfToken token, hub::find_hf_token(context.env, {}));
    const auto url = http::parse_url(places.endpoint);
    if (!token.value.empty() && !http::is_confidential(*url)) {
        return fail(ErrorKind::authentication,
                    fmt::format("the token from {} would be sent unencrypted to {}", token.source, url->origin()));
    }
    GDNCTL_TRY_ASSIGN(const auto pool, context.http.open_pool({}));
    http::ServiceEndpoint service;
    service.endpoint = *url;
    service.aliases = hub::hub_hosts();
    if (!token.value.empty()) service.authorization = "Bearer " + token.value;
    hub::RetryingClient client(*pool, std::move(service), {}, context.clock, context.stop);
    GDNCTL_TRY_ASSIGN(hub::OutFolder folder, hub::OutFolder::open(into, false));
    hub::HfRepo repository(repo, places, token.source, &client, folder);
    GDNCTL_TRY_ASSIGN(const hub::Selection selection, newest_session(repo.path));
    GDNCTL_TRY_ASSIGN(const hub::HfListing listing, repository.list(selection));
    if (listing.files.empty()) return tl::unexpected(no_trace(std::string(where) + " contains no trace"));
    const hub::Explain explain = [&](const std::string& address, int status, const HttpHeaders& headers,
                                     std::string_view body) {
        return repository.explain(address, status, headers, body);
    };
    return fetch_files(repository.wanted(listing), folder, client, explain, listing.commit, context);
}

Result<fs::path> download_trace(const std::string& trace, const JobRun& run, WallTime began, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, new_trace_folder(context));
    if (trace.starts_with(k_hub)) {
        GDNCTL_TRY(download_from_hub(std::string_view(trace).substr(k_hub.size()), folder, context));
    } else {
        GDNCTL_TRY(download_from_wandb(run.output.profile().run_url.value_or(""), began, folder, context));
    }
    std::error_code ignored;
    fs::remove_all(folder / ".cache", ignored);  // records of the download
    return folder;
}

}  // namespace

Result<fs::path> new_trace_folder(const Context& context) {
    const fs::path all = context.state_dir / "traces";
    GDNCTL_TRY(make_private_directory(context.state_dir));
    GDNCTL_TRY(make_private_directory(all));
    std::vector<fs::path> folders;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(all, ignored)) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end(), std::greater<>());
    for (std::size_t i = k_kept_traces - 1; i < folders.size(); ++i) fs::remove_all(folders[i], ignored);
    const fs::path folder = all / (format_compact_utc(context.clock.wall()) + "-" + random_hex(8));
    GDNCTL_TRY(make_private_directory(folder));
    return folder;
}

namespace {

// The trace among what the job stored in its output folder, at the same path as in its working directory, or anywhere.
Result<fs::path> trace_in_outputs(const Target& target, const JobRun& run, Context& context) {
    GDNCTL_TRY_ASSIGN(const fs::path folder, new_trace_folder(context));
    if (Status fetched = fetch_outputs(run.details, run.outputs, folder, context); !fetched) {
        if (is_interruption(fetched.error())) return tl::unexpected(std::move(fetched).error());
        log::warning("the trace was not fetched: {}", fetched.error().text());
        return fs::path();
    }
    std::error_code ignored;
    const fs::path path = folder / target.profile->trace_path();
    return fs::exists(path, ignored) ? path : folder;
}

}  // namespace

Result<std::optional<JobTrace>> trace_of_job(const Target& target, const JobRun& run, Context& context) {
    const std::string trace = target.profile ? target.profile->trace : std::string();
    if (trace.empty() || !run.waited || run.cut_short || run.verdict.exit != ExitCode::ok) {
        return std::optional<JobTrace>();
    }
    JobTrace out{{}, {}, run.details.start_time, run.details.end_time};
    if (target.profile->trace_is_file()) {
        out.path = run.brought_back;
        if (out.path.empty() && !run.outputs.empty()) {
            GDNCTL_TRY_ASSIGN(out.path, trace_in_outputs(target, run, context));
        }
        if (out.path.empty()) out.lack = "the job left no trace at " + target.profile->trace_path();
        return std::optional(std::move(out));
    }
    auto fetched = download_trace(trace, run, out.began.value_or(WallTime{}), context);
    if (fetched) {
        out.path = std::move(*fetched);
    } else if (is_interruption(fetched.error())) {
        return tl::unexpected(std::move(fetched).error());
    } else {
        out.lack = "the trace could not be fetched: " + fetched.error().text();
    }
    return std::optional(std::move(out));
}

Result<TraceAnswer> read_job_trace(const Target& target, const JobTrace& trace, std::optional<trace::Profile> against) {
    if (trace.path.empty()) return fail(ErrorKind::nothing_done, trace.lack);
    TraceQuestion question;
    question.path = trace.path;
    question.device = target.profile->trace_device;
    if (target.metric && target.metric->from_trace()) question.metric = target.metric->from;
    question.against = std::move(against);
    question.job_began = trace.began;
    question.job_ended = trace.ended;
    return read_trace(question);
}

std::optional<TraceAnswer> take_trace(const Target& target, const JobTrace& trace, JobRun& run) {
    const bool needed = target.metric && target.metric->from_trace();
    auto read = read_job_trace(target, trace);
    if (read) {
        for (const std::string& warning : read->warnings) log::warning("{}", warning);
        if (needed) run.metric->take(read->value, read->lack);
    } else {
        const std::string why = text::visible(read.error().text());
        if (needed) run.metric->take(std::nullopt, why);  // said with the metric
        if (!needed) log::warning("{}", why);
        if (!read.error().hint.empty()) log::info("hint: {}", text::visible(read.error().hint));
    }
    return read ? std::optional(std::move(*read)) : std::nullopt;
}

void show_trace_report(const fs::path& path, const std::string& device) {
    log::info("next: gdnctl trace report {}{}", text::shell_quote(text::visible(path.string())),
              device.empty() ? "" : " --device " + device);
}

namespace {

// Whether the trace can be of this job: written after it began, and recorded while it ran.
Status check_time(const trace::Source& source, const TraceQuestion& question) {
    if (!question.job_began) return {};
    struct stat file{};
    const std::string& path = source.files.front().path;
    if (::stat(path.c_str(), &file) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    const WallTime written(std::chrono::milliseconds(file.st_mtim.tv_sec * 1000 + file.st_mtim.tv_nsec / 1'000'000));
    // Kernels stamp files by a clock that ticks every few milliseconds; some file systems keep whole seconds.
    const std::chrono::milliseconds slack(file.st_mtim.tv_nsec == 0 ? 1000 : 50);
    if (written + slack < *question.job_began) {
        return fail(ErrorKind::nothing_done, fmt::format("{} is older than the job: written {}, the job began {}", path,
                                                         format_iso8601(written), format_iso8601(*question.job_began)));
    }
    if (!source.model || !source.model->profile_start_ns) return {};
    const WallTime recorded(std::chrono::milliseconds(*source.model->profile_start_ns / 1'000'000));
    const bool early = recorded + k_clock_difference < *question.job_began;
    const bool late = question.job_ended && recorded > *question.job_ended + k_clock_difference;
    if (!early && !late) return {};
    return fail(ErrorKind::nothing_done,
                fmt::format("{} was not recorded by this job: its profile began {}, the job {}", path,
                            format_iso8601(recorded), format_iso8601(*question.job_began)));
}

Result<Json> rules_at(const std::filesystem::path& path) {
    if (path.empty()) return Json();
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(path, {.missing = ErrorKind::config}));
    return parse_json(text, path.string());
}

}  // namespace

Result<TraceAnswer> read_trace(const TraceQuestion& question) {
    TraceLoading how;
    how.model.device = question.device;
    how.missing = ErrorKind::nothing_done;
    GDNCTL_TRY_ASSIGN(const trace::Source source, load_trace(question.path, how));
    GDNCTL_TRY(check_time(source, question));
    if (!source.model) return tl::unexpected(*source.no_model);
    trace::Asked asked;
    GDNCTL_TRY_ASSIGN(asked.budget_rules, rules_at(question.rules));
    asked.diff.allow_same = asked.diff.allow_mismatch = true;
    trace::Source champion;
    if (question.against) {
        champion.profile = *question.against;
        champion.files.push_back({question.against->path, question.against->sha256, 0, "baseline", "", ""});
        asked.against = &champion;
    }
    GDNCTL_TRY_ASSIGN(trace::Report report, trace::report_of(source, asked));
    TraceAnswer answer;
    answer.path = source.files.front().path;
    answer.sha256 = source.files.front().sha256;
    if (!question.metric.empty()) {
        const auto objective = trace::objective_of(*source.model, question.metric);
        if (objective) {
            answer.value = objective->value;
            answer.unit = objective->unit;
        } else {
            answer.lack = objective.error().message;
        }
    }
    if (source.model->counted() > 0) answer.step_ms = trace::step_spread(*source.model).median / 1e9;
    answer.budgets = std::move(report.budgets);
    answer.log_lines = std::move(report.log_lines);
    answer.digest = std::move(report.digest);
    answer.diff = std::move(report.diff);
    answer.profile = source.profile;
    for (const trace::Warning& warning : report.warnings) answer.warnings.push_back(warning.message);
    return answer;
}

}  // namespace gdnctl
