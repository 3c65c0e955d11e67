// Traces on disk: one file, a profiler's folder, or a baseline that was stored. Reading never writes beside them.
#pragma once

#include <filesystem>
#include <string>

#include "core/result.h"
#include "trace/views/view.h"

namespace gdnctl {

struct TraceLoading {
    trace::ModelOptions model;
    bool salvage = false;
    ErrorKind missing = ErrorKind::usage;  // for a path that does not exist
};

// A file of any name, or a folder: the newest session in it, all its hosts. `no_model` is set where the profile has no
// device events. Errors: `missing`; bad_input (no trace, damaged: the message says what --salvage can do); usage (the
// options do not fit the profile); local_io.
Result<trace::Source> load_trace(const std::filesystem::path& path, const TraceLoading& how);

// The events of one file for an export, host planes too.
Result<trace::RawTrace> load_raw_trace(const std::filesystem::path& path, bool salvage);

// Baselines are kept by name below the state directory. Errors: usage (the name, or there is none of it), local_io.
Result<trace::Source> load_baseline(const std::filesystem::path& state_dir, const std::string& name);
Status save_baseline(const std::filesystem::path& state_dir, const std::string& name, const trace::Profile& profile);

}  // namespace gdnctl
