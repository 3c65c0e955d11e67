// Prints a job's log: the last lines, the matching ones, or all of it as it grows. Bytes are never changed.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/line_regex.h"

namespace gdnctl {

// Receives a log in pieces and passes on what should be printed. Without a regex, bytes pass unchanged.
class LogFilter {
public:
    using Out = std::function<void(std::string_view)>;

    // `hold`: before release(), keep only this many of the last (matching) lines; nullopt: pass everything on at once.
    LogFilter(const LineRegex* regex, std::optional<std::size_t> hold, Out out);

    void feed(std::string_view bytes);
    // Prints the lines kept so far; from then on everything that matches.
    void release();
    // The log has ended: a last line without newline counts as a line.
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

// Drops what Ray adds to a job's log: the line about its environment at the start, and the whole entrypoint, which may
// come in the middle of the first output.
class WithoutRayLines {
public:
    WithoutRayLines(std::string_view id, std::string_view entrypoint, LogFilter::Out out);
    void feed(std::string_view bytes);
    void finish();

private:
    std::string m_announcement, m_held;
    LogFilter::Out m_out;
    bool m_started = false;    // the log's first line is past
    bool m_announced = false;  // the entrypoint has come: the rest passes unchanged
};

}  // namespace gdnctl
