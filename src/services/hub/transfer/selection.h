// Which files of a listing are wanted. Pure.
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

// What is wanted where neither a pattern nor an --include says otherwise.
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
    // Errors: usage (a pattern that is no regular expression, with the offset; a limit below 1).
    static Result<Selection> make(SelectionOptions options);

    bool has_prefix() const { return !m_options.prefix.empty(); }
    const std::string& prefix() const { return m_options.prefix; }  // without slashes at its ends
    // What one path alone decides: prefix, patterns, globs.
    bool takes(std::string_view path) const;
    // What is left to do with those taken: sorts by bytes, keeps the newest session and the first few.
    std::vector<std::string> finish(std::vector<std::string> taken) const;

private:
    explicit Selection(SelectionOptions options) : m_options(std::move(options)) {}
    SelectionOptions m_options;
    std::vector<LineRegex> m_patterns;
    std::optional<LineRegex> m_xplane;
};

// Of what a profiler writes, <run>/plugins/profile/<session>/..., the newest session of each run.
std::vector<std::string> latest_sessions(const std::vector<std::string>& paths);

// Up to five of `paths` that `wanted` may have meant, the nearest first.
std::vector<std::string> nearest_paths(std::string_view wanted, std::span<const std::string> paths);

}  // namespace gdnctl::hub
