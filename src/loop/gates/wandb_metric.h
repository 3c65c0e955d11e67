// The metric of a profile as its run recorded it at Weights & Biases, laid over that of its output.
#pragma once

#include <set>
#include <stop_token>
#include <string>

#include "core/result.h"
#include "loop/gates/validation_options.h"
#include "loop/perf/policy.h"
#include "platform/clock.h"
#include "services/hub/wandb/wandb.h"
#include "target/target.h"

namespace gdnctl::loop {

// Whether runs of these settings report to the service at all.
bool reports_to_wandb(const Target& target, const ValidationOptions& options);

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
