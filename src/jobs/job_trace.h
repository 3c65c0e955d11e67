// The trace of a profile that ran as a job: where it is on this machine, and what it says.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/result.h"
#include "core/time.h"
#include "jobs/run.h"
#include "jobs/trace_reading.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl {

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
