// The trace of a profile that ran as a job: where it is on this machine, and what it says.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "jobs/run.h"
#include "platform/context.h"
#include "target/target.h"
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

// The one reader of traces for commands, codex-loop, evolve and sweeps. Errors: nothing_done (there is no trace at
// `path`, or it is older than the job), bad_input (it cannot be read), config (the metric or the rules file is wrong),
// local_io.
Result<TraceAnswer> read_trace(const TraceQuestion& question);

struct JobTrace {
    std::filesystem::path path;            // empty: there is none, and `lack` says why
    std::string lack;                      // "the job left no trace at out/trace"
    std::optional<WallTime> began, ended;  // of the job
};

// $STATE/traces/TIME-RANDOM, new and empty. Only the 20 newest of them are kept. Errors: local_io.
Result<std::filesystem::path> new_trace_folder(const Context& context);

// The trace of a profile that has succeeded; "wandb" and "hf:..." are downloaded to a new_trace_folder(). nullopt: the
// target's profile has none, or the job did not succeed. Errors: interrupted, terminated.
Result<std::optional<JobTrace>> trace_of_job(const Target& target, const JobRun& run, Context& context);

// What it says, by the target's metric and device. Errors: those of read_trace(); nothing_done if there is none.
Result<TraceAnswer> read_job_trace(const Target& target, const JobTrace& trace,
                                   std::optional<trace::Profile> against = std::nullopt);

// For a command: reads the trace, gives its value to the run's metric if that is read from the trace, and says on
// stderr what is wrong with it and how to read it. nullopt: it cannot be read.
std::optional<TraceAnswer> take_trace(const Target& target, const JobTrace& trace, JobRun& run);

// Says on stderr how to read a trace: "next: gdnctl trace report PATH".
void show_trace_report(const std::filesystem::path& path, const std::string& device = {});

}  // namespace gdnctl
