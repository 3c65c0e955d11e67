// Trace files: JSON lines that several programs may append to, and that outlive all of them.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace gdnctl::harness::flashinfer {

// Appends one line, whole and on the disk, or nothing: writers take turns, a line that another left unfinished is
// closed and stays as it is. Creates the file and its folders. Error: local_io.
Status append_trace(const std::filesystem::path& path, std::string_view line);

// Solution and uuid of every whole trace in the file; a file that does not exist has none. Lines that are no traces are
// logged and left out. Error: local_io.
Result<std::set<std::pair<std::string, std::string>>> recorded_traces(const std::filesystem::path& path);

}  // namespace gdnctl::harness::flashinfer
