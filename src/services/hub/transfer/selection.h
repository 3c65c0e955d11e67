// Which files of a listing are downloaded: by patterns, globs, sessions and a limit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/line_regex.h"
#include "core/result.h"

namespace gdnctl::hub {

// `*` and `?` also match '/', a leading dot is not special, and `[^a]` is a set that contains '^'. A backslash counts
// as '/' in both. A pattern that ends in '/' matches everything below. Time: O(pattern * path).
bool fnmatch(std::string_view pattern, std::string_view path);

// Selects files from a listing. Pure.

// The default, without a pattern or --include.
inline constexpr const char* k_default_pattern = R"re((perfetto_trace\.json\.gz|trace\.json\.gz|profile\.json)$)re";

struct SelectionOptions {
    std::string prefix;
    std::vector<std::string> patterns, includes, excludes;
    bool include_xplane = false;
    bool latest_session = false;
    std::optional<std::int64_t> limit;
};

class Selection {
public:
    // Errors: usage (an invalid regular expression, with the offset; a limit below 1).
    static Result<Selection> make(SelectionOptions options);

    bool has_prefix() const { return !m_options.prefix.empty(); }
    const std::string& prefix() const { return m_options.prefix; }  // without leading and trailing slashes
    // Decides by the path alone: prefix, patterns, globs.
    bool takes(std::string_view path) const;
    // Processes the selected paths: sorts them by bytes, and keeps the newest session and the first few.
    std::vector<std::string> finish(std::vector<std::string> taken) const;

private:
    explicit Selection(SelectionOptions options) : m_options(std::move(options)) {}
    SelectionOptions m_options;
    std::vector<LineRegex> m_patterns;
    std::optional<LineRegex> m_xplane;
};

// Keeps only the newest session of each run of a profiler: <run>/plugins/profile/<session>/...
std::vector<std::string> latest_sessions(const std::vector<std::string>& paths);

// Up to five of `paths` that `wanted` may have meant, best match first.
std::vector<std::string> nearest_paths(std::string_view wanted, std::span<const std::string> paths);

}  // namespace gdnctl::hub
