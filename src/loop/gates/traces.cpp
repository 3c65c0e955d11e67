#include "loop/gates/traces.h"

#include <system_error>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "jobs/job_destination.h"
#include "jobs/target_job.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

constexpr const char* k_step_ms = "step_duration_ms";

void warn_of_trace(Measurement& m, const std::string& text) {
    m.warnings.push_back(redact(text));
    log::warning("{}", m.warnings.back());
}

// The value is only that of the trace.
void forget_value(Measurement& m, const JobReport& report) {
    const auto step = m.metrics.find(k_step_ms);
    const auto job = static_cast<double>(report.duration_ms());
    m.wall_ms = {step != m.metrics.end() ? step->second : job};
    if (m.wall_ms.front() <= 0.0) m.wall_ms.clear();
    m.metrics.erase(m.metric);
    m.value.reset();
    m.points.clear();
}

}  // namespace

bool is_in_trace(const Target& target, const std::string& metric) {
    return target.metric && target.metric->from_trace() && target.metric->name == metric;
}

std::optional<TraceAnswer> add_trace(Measurement& m, const JobEnd& end, const Target& target,
                                     std::optional<trace::Profile> champion) {
    const bool needed = is_in_trace(target, m.metric);
    if (needed) {
        forget_value(m, end.report);
        m.source = target.metric->from == "trace:step" ? "trace:step" : "trace:kernel";
    }
    if (!end.trace) return std::nullopt;
    auto read = read_job_trace(target, *end.trace, std::move(champion));
    if (!read) {
        warn_of_trace(m, read.error().text());
        return std::nullopt;
    }
    for (const std::string& warning : read->warnings) warn_of_trace(m, warning);
    m.trace = {read->path, read->sha256};
    for (const auto& [key, value] : read->budgets) m.metrics[key] = value;
    if (!needed) return std::optional(std::move(*read));
    m.value = read->value;
    if (m.value) {
        m.points = {*m.value};
        m.metrics[m.metric] = *m.value;
    } else {
        warn_of_trace(m, read->lack);
    }
    return std::optional(std::move(*read));
}

Status keep_trace(JobTrace& trace, const Artefacts& artefacts, int iteration) {
    if (trace.path.empty()) return {};
    const fs::path folder = artefacts.unused(iteration, "trace", "");
    GDNCTL_TRY(make_private_directory(folder));
    const fs::path kept = folder / trace.path.filename();
    std::error_code problem;
    fs::rename(trace.path, kept, problem);
    if (problem) {  // another file system
        fs::copy(trace.path, kept, fs::copy_options::recursive, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", trace.path, problem.value()));
        fs::remove_all(trace.path, problem);
    }
    trace.path = kept;
    return {};
}

void drop_trace(const JobEnd& end) {
    std::error_code ignored;
    if (end.trace && !end.trace->path.empty()) fs::remove_all(end.trace->path, ignored);
}

fs::path trace_baseline(const fs::path& state_file, const Fingerprint& fingerprint) {
    return state_file.parent_path() / fmt::format("{}.trace-{}.json", state_file.stem().string(), fingerprint.key());
}

std::optional<trace::Profile> load_baseline(const fs::path& path) {
    const auto profile = [&]() -> Result<std::optional<trace::Profile>> {
        GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
        if (!text) return std::optional<trace::Profile>();
        GDNCTL_TRY_ASSIGN(const Json json, parse_json(*text, path.string()));
        GDNCTL_TRY_ASSIGN(trace::Profile found, trace::profile_from_json(json));
        return std::optional(std::move(found));
    }();
    if (profile) return *profile;
    log::warning("the trace is not compared with the champion's: {}", profile.error().text());
    return std::nullopt;
}

Status store_baseline(const fs::path& path, const std::optional<trace::Profile>& profile) {
    if (profile) return atomic_replace(path, gdnctl::to_text(trace::to_json(*profile)) + "\n", 0600);
    std::error_code problem;
    fs::remove(path, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", path, problem.value()));
    return {};
}

std::vector<std::string> trace_directive(const Artefacts& artefacts, std::span<const Record> records) {
    constexpr std::size_t k_longest = 8192;
    for (int iteration = records.empty() ? 0 : records.back().iteration; iteration > 0; --iteration) {
        const auto text = read_file_if_exists(artefacts.path(iteration, k_trace_digest), k_longest);
        if (!text || !*text || (*text)->empty()) continue;
        return {fmt::format("What the trace of iteration {}'s profile shows:\n\n{}", iteration, **text)};
    }
    return {};
}

Status check_trace_places(const Target& target, const std::vector<std::string>& clusters, Context& context) {
    if (!target.profile || !target.profile->trace_is_file()) return {};
    for (const std::string& name : clusters) {
        DestinationOptions options;
        if (!name.empty()) options.cluster = name;
        GDNCTL_TRY_ASSIGN(const gdnctl::JobDestination place, choose_destination(options, context));
        GDNCTL_TRY(check_trace_place(target, place.is_local(), "a job on a Ray cluster"));
    }
    return {};
}

}  // namespace gdnctl::loop
