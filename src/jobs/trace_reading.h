// A profile's trace, read for a job: the metric, what `trace report` says, and what the next comparison needs. The one
// reader of codex-loop, evolve, sweeps and the trace commands.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/time.h"
#include "trace/diff/diff.h"
#include "trace/diff/profile.h"

namespace gdnctl {

// What is to be read. `path`: a file, or a folder (its newest session).
struct TraceQuestion {
    std::filesystem::path path;
    std::string device;                            // "cpu", a TPU generation; empty: as the trace says
    std::string metric;                            // "trace:step", "trace:kernel:GLOB"; empty: none
    std::filesystem::path rules;                   // of the budgets; empty: the built-in ones
    std::optional<trace::Profile> against;         // the champion's
    std::optional<WallTime> job_began, job_ended;  // a trace from outside this time is no measurement
};

struct TraceAnswer {
    std::string path, sha256;               // of the (first) file
    std::optional<double> value;            // of the metric, in `unit`; nullopt: `lack` says why
    std::string unit, lack;                 // "ms" or "us"
    std::optional<double> step_ms;          // median
    std::map<std::string, double> budgets;  // running log keys, ms a step: "step_duration_ms"
    std::vector<std::string> log_lines;     // of the running log: hotspots, step, budgets
    std::string digest;                     // Markdown of at most 8,000 bytes
    std::optional<trace::Diff> diff;        // with `against`
    trace::Profile profile;                 // to compare the next one with
    std::vector<std::string> warnings;
};

// Errors: nothing_done (there is no trace at `path`, or it is older than the job), bad_input (it cannot be read),
// config (the metric or the rules file is wrong), local_io.
Result<TraceAnswer> read_trace(const TraceQuestion& question);

// "trace:step" or "trace:kernel:GLOB". Error: config, naming what else may stand there.
Status check_trace_metric(const std::string& from);

}  // namespace gdnctl
