// A target's metric, read from a job's log. Pure and streaming: memory does not grow with the log.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/line_regex.h"
#include "core/result.h"
#include "target/target.h"

namespace gdnctl {

// The last whole JSON objects of a text that comes in pieces: those that begin in the first column of a line, on as
// many lines as they like, up to 1 MiB.
class JsonObjects {
public:
    void feed(std::string_view bytes);
    // No more will come: what is still open is no object, but there may be some in it.
    void finish();
    // The last one that is JSON; "": none.
    std::string last() const;
    // The last few, in order; some may not be JSON.
    const std::deque<std::string>& whole() const { return m_whole; }

private:
    void scan(std::string_view bytes, std::string& again);
    bool step(char c);
    void keep();
    std::string behind_first_line();

    std::deque<std::string> m_whole;  // balanced, not parsed yet; the last few
    std::string m_open;               // of the object that is not balanced yet
    std::size_t m_depth = 0;          // 0: none is open
    bool m_line_start = true, m_in_string = false, m_escaped = false;
};

// What `from` of a target's metric says, applied to a log: "json:/pointer" to a number in the last whole JSON object,
// or "regex:..." whose first group (or all of it) in the last line that matches is a number.
class MetricReader {
public:
    // Error: config (the pointer or the regex is none).
    static Result<MetricReader> create(const TargetMetric& metric);

    void feed(std::string_view bytes);
    void finish();

    // Valid after finish(). A number that is not finite is none.
    std::optional<double> value() const { return m_value; }
    // Why there is no value: "the log holds no JSON object".
    const std::string& lack() const { return m_lack; }

private:
    MetricReader(std::string pointer, std::optional<LineRegex> regex)
        : m_pointer(std::move(pointer)), m_regex(std::move(regex)) {}
    void line(std::string_view text);
    void read_object();

    std::string m_pointer;
    std::optional<LineRegex> m_regex;
    JsonObjects m_objects;
    std::string m_partial;  // unfinished line; what is beyond 64 KiB of one line is dropped
    std::optional<double> m_value;
    std::string m_lack;
};

}  // namespace gdnctl
