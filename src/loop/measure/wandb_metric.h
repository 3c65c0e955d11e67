// The metric that a profile run recorded at Weights & Biases, which replaces the one in its output.
#pragma once

#include <set>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "loop/measure/measurement.h"
#include "platform/clock.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::loop {

// The value that represents a run: the median or mean of its steps in a window, or the value at the last step.
enum class MetricAggregation { history_window, summary };
enum class WindowAverage { median, mean };

// How to reduce the numbers that a run recorded at Weights & Biases, and where to search for a run that the output does
// not name.
struct RecordedOptions {
    MetricAggregation aggregation = MetricAggregation::history_window;
    WindowAverage average = WindowAverage::median;
    std::int64_t step_start = 10, step_end = 18;  // inclusive
    std::int64_t min_points = 5;                  // a window with fewer values is not used
    std::string entity = "marin-community", project = "marin";
};
// "history-window median 10:18, 5 points or more" or "summary", for the fingerprint.
std::string to_text(const RecordedOptions& options);

// A profile that succeeded.
struct ProfiledRun {
    std::string url;     // from its output; empty: the output does not name it
    std::string prefix;  // prefix of its name, without the underscore that follows
    WallTime submitted;  // when its job was submitted
    std::stop_token stop{};
};

class RecordedMetrics {
public:
    // All arguments must outlive the object.
    RecordedMetrics(RecordedOptions options, Http& http, const Env& env, Clock& clock)
        : m_options(std::move(options)), m_http(http), m_env(env), m_clock(clock) {}

    // Replaces the numbers of `m` by those that the run recorded. `m` keeps its own numbers and gets a warning if the
    // server cannot be asked, has no such number, or the run is not certainly this job's. Errors: interrupted,
    // terminated.
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
