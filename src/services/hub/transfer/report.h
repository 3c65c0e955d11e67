// The result of a download, for manifests and people. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/selection.h"

namespace gdnctl::hub {

// The viewer for a profiler's file.
enum class TraceKind { perfetto, trace_json, xplane, profile, other };
TraceKind kind_of_trace(std::string_view path);
std::string_view word_of(TraceKind kind);  // "perfetto", "trace_json", "xplane", "profile", "other"

using Fields = std::vector<std::pair<std::string, std::string>>;  // an empty value becomes null

struct Report {
    Fields head;            // source, endpoint, repo, ...
    std::string asked;      // JSON of what the command named; empty: not known
    std::string selection;  // JSON of the files that it selected; empty: not known
    std::optional<Error> error;
    std::vector<Wanted> files;
    std::vector<FileResult> results;  // one per file
};

// For Report::asked and Report::selection. `exact`: the prefix names a file.
std::string asked_text(const Fields& fields);
std::string selection_text(const SelectionOptions& selection, bool exact);

// The manifest of an earlier download: head, asked, selection and files. nullopt: it is none, or damaged.
std::optional<Report> parse_report(std::string_view text);
std::string value_of(const Fields& fields, std::string_view name);  // empty: there is none

// gdnctl.download/1, with a trailing newline. `local` of a file is its place: `output` joined with its name.
std::string report_text(const Report& report, std::string_view output);

// "3 files, 24.1 MB: 2 downloaded, 1 up-to-date"
std::string summary(const Report& report);
std::string shown_bytes(std::int64_t bytes);

}  // namespace gdnctl::hub
