// The output of --version, and the shared libraries that gdnctl opens on first use.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "platform/env.h"

namespace gdnctl::cli {

// Version, commit and the libraries found, as text or as gdnctl.version/1.
// `indent`: of the lines of the JSON; -1: all on one line.
std::string version_text(const Env& env, bool json, int indent = -1);

// The shared libraries that gdnctl opens on first use. Looks for them without opening them.

struct OptionalLibrary {
    std::string_view name;     // "libcurl"
    std::string_view soname;   // "libcurl.so.4"
    std::string_view package;  // of Debian
    std::string_view purpose;  // what does not work, or is slower, without it
};

std::span<const OptionalLibrary> optional_libraries();

// Where the loader would find `soname`, according to LD_LIBRARY_PATH and the default folders. Takes a few access(2)
// calls, so it is cheap enough for --version, but does not prove that the library can be opened.
std::optional<std::filesystem::path> find_library(const Env& env, std::string_view soname);

}  // namespace gdnctl::cli
