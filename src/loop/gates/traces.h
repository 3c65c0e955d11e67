// The trace of a profile in a loop: its numbers become part of the measurement, the champion's is kept to compare the
// next one with, and its digest goes into the next prompt.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "jobs/job_trace.h"
#include "loop/engine/journal.h"
#include "loop/engine/log_dir.h"
#include "loop/gates/validation_jobs.h"
#include "loop/measure/measurement.h"
#include "platform/context.h"
#include "target/target.h"

namespace gdnctl::loop {

// Whether this metric is the target's, and in the trace of its profile.
bool is_in_trace(const Target& target, const std::string& metric);

// Reads the trace of a profile that has succeeded into its measurement: the budgets replace numbers of the log with
// their names. A metric of the trace is never read from the log; what the log or the job says of the wall time is kept
// beside it. nullopt: there is no trace, or it cannot be read, which is a warning of the measurement.
std::optional<TraceAnswer> add_trace(Measurement& m, const JobEnd& end, const Target& target,
                                     std::optional<trace::Profile> champion);

// Moves the files of a trace into the log directory, as iteration-NNN-trace/NAME.
Status keep_trace(JobTrace& trace, const Artefacts& artefacts, int iteration);
// Removes them.
void drop_trace(const JobEnd& end);

// The file of the champion's trace (gdnctl.trace-baseline/1), beside the performance state.
std::filesystem::path trace_baseline(const std::filesystem::path& state_file, const Fingerprint& fingerprint);
// nullopt: there is none, or it is damaged, which is said.
std::optional<trace::Profile> load_baseline(const std::filesystem::path& path);
// nullopt: removes the file.
Status store_baseline(const std::filesystem::path& path, const std::optional<trace::Profile>& profile);

inline constexpr std::string_view k_trace_digest = "trace.md", k_trace_profile = "trace-baseline.json";

// The digest of the last iteration that has one, as a directive: none or one.
std::vector<std::string> trace_directive(const Artefacts& artefacts, std::span<const Record> records);

// Whether the profile can bring its trace back from each of these clusters. Errors: config, and those of
// choose_destination().
Status check_trace_places(const Target& target, const std::vector<std::string>& clusters, Context& context);

}  // namespace gdnctl::loop
