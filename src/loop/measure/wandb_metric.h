// The metric of a profile as its run recorded it at Weights & Biases, laid over that of its output.
#pragma once

#include <set>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "loop/measure/measurement.h"
#include "platform/clock.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::loop {

// What stands for a run in the judgement: its steps' median or mean in a window, or the last step's number.
enum class MetricAggregation { history_window, summary };
enum class WindowAverage { median, mean };

// How the numbers that a run recorded at Weights & Biases are taken, and where a run is looked for whose output does
// not name it.
struct RecordedOptions {
    MetricAggregation aggregation = MetricAggregation::history_window;
    WindowAverage average = WindowAverage::median;
    std::int64_t step_start = 10, step_end = 18;  // both included
    std::int64_t min_points = 5;                  // fewer are no window
    std::string entity = "marin-community", project = "marin";
};
// "history-window median 10:18, 5 points or more", "summary": for the fingerprint.
std::string to_text(const RecordedOptions& options);

// A profile that has ended well.
struct ProfiledRun {
    std::string url;     // as its output names it; empty: it does not
    std::string prefix;  // of its name, without the underscore that follows
    WallTime submitted;  // before its job was
    std::stop_token stop{};
};

class RecordedMetrics {
public:
    // All must outlive it.
    RecordedMetrics(RecordedOptions options, Http& http, const Env& env, Clock& clock)
        : m_options(std::move(options)), m_http(http), m_env(env), m_clock(clock) {}

    // Replaces the numbers of `m` by what the run recorded. Where nothing can be asked, or what is there is no such
    // number or not certainly this job's, `m` keeps its own and gets a warning. Errors: interrupted, terminated.
    Status take(Measurement& m, const ProfiledRun& run);

    const RecordedOptions& options() const { return m_options; }

private:
    Status look(Measurement& m, const ProfiledRun& run);
    Result<WandbRun> ask(Wandb& wandb, const WandbPath& path, const std::string& metric, std::stop_token stop) const;
    Result<WandbPath> discover(Wandb& wandb, const ProfiledRun& run) const;
    bool began_after(const WandbRun& found, const Wandb& wandb, WallTime submitted) const;
    Status lay_over(Measurement& m, const WandbRun& run);
    void warn(Measurement& m, std::string text, const std::string& hint);

    RecordedOptions m_options;
    Http& m_http;
    const Env& m_env;
    Clock& m_clock;
    std::set<std::string> m_said;
};

}  // namespace gdnctl::loop
