// A target's metric, read from a job's log. Pure and streaming: memory does not grow with the log.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/line_regex.h"
#include "core/result.h"
#include "target/target.h"

namespace gdnctl {

// What a log has in the place of a JSON object.
struct LogObject {
    std::string text;
    bool whole = false;  // its braces are balanced; it may still be no JSON: Python writes NaN
};

// Finds the last JSON objects in a text that arrives in pieces. An object begins in the first column of a line, or
// behind another one, and may span lines, up to 1 MiB. A brace that neither a quote nor a brace follows begins none.
class JsonObjects {
public:
    void feed(std::string_view bytes);
    // The text has ended: an unclosed object is cut off, but others may follow inside it.
    void finish();
    // The last few, in the order in which they begin.
    const std::deque<LogObject>& found() const { return m_found; }
    // The last one. Errors: nothing_done (there is none), bad_input (it is cut off or no JSON: no earlier one counts).
    Result<Json> last() const;

private:
    void scan(std::string_view bytes, std::string& again);
    bool step(char c);
    void keep(LogObject object);
    std::string behind_first_line();

    std::deque<LogObject> m_found;
    std::string m_open;       // the unclosed object so far
    std::size_t m_depth = 0;  // 0: none is open
    bool m_line_start = true;
    bool m_behind = false;  // nothing but blanks since the end of an object, on the same line
    bool m_in_string = false, m_escaped = false;
};
// The value of what was found. Error: bad_input (cut off or no JSON).
Result<Json> parse_log_object(const LogObject& object);

// Applies the `from` of a target's metric to a log: "json:/pointer" names a number in the last JSON object; the first
// group of "regex:..." (or the whole match) in the last matching line is a number. Only the last one counts: where it
// is unusable, an earlier one, of a warm-up for instance, is not the result.
class MetricReader {
public:
    // Error: config (invalid pointer or regex).
    static Result<MetricReader> create(const TargetMetric& metric);

    void feed(std::string_view bytes);
    void finish();
    // The value of a metric that is in the profile's trace: nothing is read from the log.
    void take(std::optional<double> value, std::string lack) {
        m_value = value;
        m_lack = std::move(lack);
    }

    // Valid after finish(). A number that is not finite does not count.
    std::optional<double> value() const { return m_value; }
    // Why there is no value: "the log contains no JSON object".
    const std::string& lack() const { return m_lack; }
    // The log has a result, but it is cut off or not a finite number.
    bool broken() const { return m_broken; }
    // What was read does not count, for instance because the end of the log is missing.
    void discard(std::string why) {
        m_value.reset();
        m_lack = std::move(why);
    }

private:
    MetricReader() = default;
    MetricReader(std::string pointer, std::optional<LineRegex> regex)
        : m_pointer(std::move(pointer)), m_regex(std::move(regex)), m_of_log(true) {}
    void line(std::string_view text);
    void read_object();

    std::string m_pointer;
    std::optional<LineRegex> m_regex;
    bool m_of_log = false;  // otherwise of a trace, see take()
    JsonObjects m_objects;
    std::string m_partial;  // unfinished line; bytes beyond 64 KiB are dropped
    std::optional<double> m_value;
    std::string m_lack;
    bool m_broken = false;
};

}  // namespace gdnctl
