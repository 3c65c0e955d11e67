#include "jobs/trace_reading.h"

#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

#include "jobs/trace_input.h"
#include "platform/fs.h"
#include "trace/views/format.h"

namespace gdnctl {

namespace {

constexpr std::chrono::minutes k_clock_slack{10};
constexpr std::chrono::seconds k_file_slack{2};  // of file systems that keep whole seconds

// Whether the trace can be of this job: written after it began, and recorded while it ran.
Status check_time(const trace::Source& source, const TraceQuestion& question) {
    if (!question.job_began) return {};
    struct stat file{};
    const std::string& path = source.files.front().path;
    if (::stat(path.c_str(), &file) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    const WallTime written(std::chrono::milliseconds(file.st_mtim.tv_sec * 1000 + file.st_mtim.tv_nsec / 1'000'000));
    if (written + k_file_slack < *question.job_began) {
        return fail(ErrorKind::nothing_done, fmt::format("{} is older than the job: written {}, the job began {}", path,
                                                         format_iso8601(written), format_iso8601(*question.job_began)));
    }
    if (!source.model || !source.model->profile_start_ns) return {};
    const WallTime recorded(std::chrono::milliseconds(*source.model->profile_start_ns / 1'000'000));
    const bool early = recorded + k_clock_slack < *question.job_began;
    const bool late = question.job_ended && recorded > *question.job_ended + k_clock_slack;
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

Status check_trace_metric(const std::string& from) {
    constexpr std::string_view k_kernel = "trace:kernel:";
    if (from == "trace:step" || (from.starts_with(k_kernel) && from.size() > k_kernel.size())) return {};
    return fail(ErrorKind::config, fmt::format("'{}' is not a metric of a trace", from),
                "use trace:step or trace:kernel:GLOB");
}

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
        GDNCTL_TRY(check_trace_metric(question.metric));
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
