#include "loop/measure/wandb_metric.h"

#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "loop/measure/pairs.h"
#include "platform/signals.h"

namespace gdnctl::loop {

namespace {

constexpr std::string_view k_duration = "throughput/duration";  // seconds of a step
constexpr std::string_view k_step_ms = "step_duration_ms";      // derived from k_duration
// The speed that a run records at each step.
constexpr std::array<std::string_view, 3> k_recorded = {"throughput/mfu", "throughput/tokens_per_second", k_duration};

// The last values that a run sends may appear shortly after it ends.
constexpr int k_more_looks = 3;
constexpr std::chrono::seconds k_look_pause{5};
// A smaller difference between our clock and the server's is the time that the answer takes.
constexpr std::chrono::seconds k_same_clock{5};

constexpr int k_newest_named = 80, k_newest = 120;

std::string recorded_key(const std::string& metric) { return std::string(metric == k_step_ms ? k_duration : metric); }

WandbWindow window_of(const RecordedOptions& options, const std::string& metric) {
    WandbWindow window{{recorded_key(metric)}, options.step_start, options.step_end};
    for (const std::string_view key : k_recorded) {
        if (key != window.keys.front()) window.keys.emplace_back(key);
    }
    if (options.aggregation == MetricAggregation::summary) window.keys.clear();
    return window;
}

double average_of(const std::vector<double>& values, WindowAverage average) {
    if (average == WindowAverage::median) return median_of(values);
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::int64_t points_in(const WandbRun& run, const std::string& key) {
    const auto it = run.window.find(key);
    return it == run.window.end() ? 0 : static_cast<std::int64_t>(it->second.size());
}

// Replaces numbers of the same kind that came from the output: a value at the last step cannot be compared with
// medians.
void replace_numbers(Measurement& m, const MetricMap& numbers, std::string source) {
    for (const std::string_view key : k_recorded) m.metrics.erase(std::string(key));
    m.metrics.erase(std::string(k_step_ms));
    m.metrics.erase(m.metric);
    m.metrics.insert(numbers.begin(), numbers.end());
    const auto duration = m.metrics.find(std::string(k_duration));
    if (duration != m.metrics.end()) m.metrics[std::string(k_step_ms)] = duration->second * 1000.0;
    m.value = m.metrics.at(m.metric);
    m.points = {*m.value};
    m.source = std::move(source);
}

}  // namespace

std::string to_text(const RecordedOptions& o) {
    if (o.aggregation == MetricAggregation::summary) return "summary";
    return fmt::format("history-window {} {}:{}, {} points or more",
                       o.average == WindowAverage::mean ? "mean" : "median", o.step_start, o.step_end, o.min_points);
}

Status RecordedMetrics::take(Measurement& m, const ProfiledRun& run) {
    const Status looked = look(m, run);
    if (looked) return {};
    const Error& error = looked.error();
    if (error.kind == ErrorKind::interrupted || error.kind == ErrorKind::terminated) return looked;
    warn(m, fmt::format("{}; {}", error.text(), m.value ? "using the metric from the run's output" : "no metric"),
         error.hint);
    return {};
}

void RecordedMetrics::warn(Measurement& m, std::string text, const std::string& hint) {
    text = redact(text);
    if (m_said.insert(text).second) {
        log::warning("{}", text);
        if (!hint.empty()) log::warning("hint: {}", hint);
    }
    m.warnings.push_back(std::move(text));
}

Status RecordedMetrics::look(Measurement& m, const ProfiledRun& run) {
    GDNCTL_TRY_ASSIGN(WandbAccess access, find_wandb(m_env));
    const std::string server = access.web_pages();
    Wandb wandb(std::move(access), m_http, run.stop);
    if (const auto named = parse_wandb_url(run.url)) {
        GDNCTL_TRY_ASSIGN(const WandbRun found, ask(wandb, *named, m.metric, run.stop));
        if (!began_after(found, wandb, run.submitted)) {
            return fail(ErrorKind::conflict, "run " + found.id + " at W&B started before the job that names it");
        }
        Status laid = lay_over(m, found);
        if (laid || m.value) return laid;
    }
    GDNCTL_TRY_ASSIGN(const WandbPath path, discover(wandb, run));
    GDNCTL_TRY_ASSIGN(const WandbRun found, ask(wandb, path, m.metric, run.stop));
    GDNCTL_TRY(lay_over(m, found));
    m.run_url = fmt::format("{}/{}/{}/runs/{}", server, path.entity, path.project, path.run);
    return {};
}

Result<WandbRun> RecordedMetrics::ask(Wandb& wandb, const WandbPath& path, const std::string& metric,
                                      std::stop_token stop) const {
    const WandbWindow window = window_of(m_options, metric);
    for (int look = 0;; ++look) {
        GDNCTL_TRY_ASSIGN(WandbRun run, wandb.run(path, window));
        const std::int64_t points = points_in(run, recorded_key(metric));
        const bool summary = m_options.aggregation == MetricAggregation::summary;
        const bool full = !summary && points == m_options.step_end - m_options.step_start + 1;
        const bool enough = run.ended() && (summary || points >= m_options.min_points);
        if (full || enough || look == k_more_looks) return run;
        if (!m_clock.sleep_for(k_look_pause, stop)) return tl::unexpected(stopped_error());
    }
}

bool RecordedMetrics::began_after(const WandbRun& found, const Wandb& wandb, WallTime submitted) const {
    if (!found.created) return false;
    const auto difference = wandb.clock_difference(m_clock.wall());
    if (difference && std::chrono::abs(*difference) > k_same_clock) submitted += *difference;
    return *found.created >= std::chrono::floor<std::chrono::seconds>(submitted);
}

// Finds a run with the job's name that started after the job was submitted. If there are two, one of them belongs to
// another job.
Result<WandbPath> RecordedMetrics::discover(Wandb& wandb, const ProfiledRun& run) const {
    const std::string start = run.prefix + "_", &entity = m_options.entity, &project = m_options.project;
    std::vector<std::string> ours;
    const auto pick = [&](const std::vector<WandbRun>& runs, std::string WandbRun::* where) {
        for (const WandbRun& one : runs) {
            if ((one.*where).find(start) == std::string::npos || !began_after(one, wandb, run.submitted)) continue;
            ours.push_back(one.id);
        }
    };
    GDNCTL_TRY_ASSIGN(const auto named, wandb.newest_runs(entity, project, start, k_newest_named));
    pick(named, &WandbRun::name);
    if (ours.empty()) {
        GDNCTL_TRY_ASSIGN(const auto newest, wandb.newest_runs(entity, project, {}, k_newest));
        pick(newest, &WandbRun::id);
    }
    const std::string what =
        fmt::format("of W&B's {}/{} with {} in {} name{} began after the job was submitted", entity, project, start,
                    ours.size() > 1 ? "their" : "its", ours.size() > 1 ? "s" : "");
    if (ours.empty()) {
        return fail(ErrorKind::nothing_done, "no run " + what,
                    "check in the job's log whether it could reach W&B; --perf-wandb-entity and --perf-wandb-project "
                    "say where to look");
    }
    if (ours.size() > 1) {
        return fail(ErrorKind::conflict,
                    fmt::format("{} runs {}: cannot tell which one belongs to this job", ours.size(), what),
                    "set --validation-profile-run-name-prefix to a unique name");
    }
    return WandbPath{entity, project, ours.front()};
}

Status RecordedMetrics::lay_over(Measurement& m, const WandbRun& run) {
    const std::string key = recorded_key(m.metric);
    const WandbWindow window = window_of(m_options, m.metric);
    MetricMap numbers;
    if (points_in(run, key) >= m_options.min_points) {
        for (const std::string& one : window.keys) {
            if (points_in(run, one) < m_options.min_points) continue;
            numbers[one] = average_of(run.window.at(one), m_options.average);
        }
        replace_numbers(
            m, numbers,
            fmt::format("wandb-history-{}[{}:{}]", m_options.average == WindowAverage::mean ? "mean" : "median",
                        m_options.step_start, m_options.step_end));
        m.window_points = points_in(run, key);
        return {};
    }
    if (!run.ended()) {
        return fail(ErrorKind::nothing_done,
                    fmt::format("run {} at W&B is {}: its last step is not known", run.id,
                                run.state.empty() ? std::string("in no known state") : run.state));
    }
    if (!run.summary.contains(key)) return fail(ErrorKind::nothing_done, "run " + run.id + " at W&B has no " + key);
    for (const std::string_view one : k_recorded) {
        const auto it = run.summary.find(std::string(one));
        if (it != run.summary.end()) numbers[it->first] = it->second;
    }
    numbers[key] = run.summary.at(key);
    replace_numbers(m, numbers, "wandb-summary");
    if (m_options.aggregation == MetricAggregation::history_window) {
        warn(m,
             fmt::format("run {} at W&B has {} values of {} at steps {} to {}, {} are needed; using its last step",
                         run.id, points_in(run, key), key, m_options.step_start, m_options.step_end,
                         m_options.min_points),
             "--perf-history-step-start and -end should lie within --validation-profile-num-steps");
    }
    return {};
}

}  // namespace gdnctl::loop
