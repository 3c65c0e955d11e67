// The result of a download, for manifests and people. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "services/hub/transfer/download.h"

namespace gdnctl::hub {

// The viewer for a profiler's file.
enum class TraceKind { perfetto, trace_json, xplane, profile, other };
TraceKind kind_of_trace(std::string_view path);
std::string_view word_of(TraceKind kind);  // "perfetto", "trace_json", "xplane", "profile", "other"

struct Report {
    std::vector<std::pair<std::string, std::string>> head;  // source, endpoint, repo, ...; an empty value becomes null
    std::optional<Failure> error;
    std::vector<Wanted> files;
    std::vector<FileResult> results;  // one per file
};

// gdnctl.download/1, with a trailing newline. `local` of a file is its place: `output` joined with its name.
std::string report_text(const Report& report, std::string_view output);

// "3 files, 24.1 MB: 2 downloaded, 1 up-to-date"
std::string summary(const Report& report);
std::string shown_bytes(std::int64_t bytes);

}  // namespace gdnctl::hub
