// Prints a job's log: the last lines, those that match, or all as it grows. Bytes are never changed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/line_regex.h"

namespace gdnctl {

// Feeds on pieces of a log and hands on what is to be printed. Without a regex the bytes pass as they are.
class LogFilter {
public:
    using Out = std::function<void(std::string_view)>;

    // `hold`: of what comes before release(), only the last so many (matching) lines; nullopt: everything at once.
    LogFilter(const LineRegex* regex, std::optional<std::size_t> hold, Out out);

    void feed(std::string_view bytes);
    // Prints what was held back; from here on everything that matches.
    void release();
    // The log has ended: a last line without newline is a line.
    void finish();

private:
    void line(std::string_view text);

    const LineRegex* m_regex;
    std::optional<std::size_t> m_hold;
    Out m_out;
    std::string m_partial;
    std::deque<std::string> m_held;
    std::size_t m_held_bytes = 0;
};

}  // namespace gdnctl
