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

// Finds the last complete JSON objects in a text that arrives in pieces. An object begins in the first column of a line
// and may span lines, up to 1 MiB.
class JsonObjects {
public:
    void feed(std::string_view bytes);
    // The text has ended: an unclosed object does not count, but objects inside it may.
    void finish();
    // The last object that is valid JSON; "": none.
    std::string last() const;
    // The last few objects, in order; some may not be valid JSON.
    const std::deque<std::string>& whole() const { return m_whole; }

private:
    void scan(std::string_view bytes, std::string& again);
    bool step(char c);
    void keep();
    std::string behind_first_line();

    std::deque<std::string> m_whole;  // the last few with balanced braces, not parsed yet
    std::string m_open;               // the unclosed object so far
    std::size_t m_depth = 0;          // 0: none is open
    bool m_line_start = true, m_in_string = false, m_escaped = false;
};

// Applies the `from` of a target's metric to a log: "json:/pointer" names a number in the last complete JSON object;
// the first group of "regex:..." (or the whole match) in the last matching line is a number.
class MetricReader {
public:
    // Error: config (invalid pointer or regex).
    static Result<MetricReader> create(const TargetMetric& metric);

    void feed(std::string_view bytes);
    void finish();

    // Valid after finish(). A number that is not finite does not count.
    std::optional<double> value() const { return m_value; }
    // Why there is no value: "the log contains no JSON object".
    const std::string& lack() const { return m_lack; }

private:
    MetricReader(std::string pointer, std::optional<LineRegex> regex)
        : m_pointer(std::move(pointer)), m_regex(std::move(regex)) {}
    void line(std::string_view text);
    void read_object();

    std::string m_pointer;
    std::optional<LineRegex> m_regex;
    JsonObjects m_objects;
    std::string m_partial;  // unfinished line; bytes beyond 64 KiB are dropped
    std::optional<double> m_value;
    std::string m_lack;
};

}  // namespace gdnctl
