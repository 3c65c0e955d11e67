// User regexes on lines, with RE2's syntax, in linear time. Only this header and its source know RE2.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace re2 {
class RE2;
}

namespace gdnctl {

class LineRegex {
public:
    // Error: usage, naming the option and the fault in the pattern.
    static Result<LineRegex> compile(const std::string& pattern, std::string_view option);
    LineRegex(LineRegex&&) noexcept;
    LineRegex& operator=(LineRegex&&) noexcept;
    ~LineRegex();

    // Whether it matches anywhere in the line. Bytes that are not UTF-8 match `.` and never stop the search.
    bool matches(std::string_view line) const;
    // The first group of the last match in the line, or the whole match if the pattern has no group; nullopt: no match.
    // Points into `line`.
    std::optional<std::string_view> last_match(std::string_view line) const;

private:
    explicit LineRegex(std::unique_ptr<re2::RE2> regex);
    std::unique_ptr<re2::RE2> m_regex;
};

}  // namespace gdnctl
