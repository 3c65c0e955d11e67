#include "jobs/metric.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_object_limit = std::size_t{1} << 20;
constexpr std::size_t k_depth_limit = 100;
constexpr std::size_t k_kept = 8;  // balanced texts, not necessarily JSON
constexpr std::size_t k_metric_line_limit = std::size_t{64} << 10;
constexpr std::string_view k_json = "json:";
constexpr std::string_view k_regex = "regex:";

// Whether a text that begins with '{' may become an object: a name or the end follows, or nothing yet.
bool is_meant_as_object(std::string_view text) {
    constexpr std::size_t k_most_blanks = 1024;
    const std::size_t next = text.substr(0, k_most_blanks).find_first_not_of(" \t\r\n", 1);
    if (next == std::string_view::npos) return text.size() < k_most_blanks;
    return text[next] == '"' || text[next] == '}';
}

}  // namespace

// Processes one byte of an open object. False: it turned out not to be a whole object.
bool JsonObjects::step(char c) {
    m_open += c;
    if (m_in_string) {
        if (c == '\n' || c == '\r') return false;
        if (c == '"' && !m_escaped) m_in_string = false;
        m_escaped = c == '\\' && !m_escaped;
        return m_open.size() <= k_object_limit;
    }
    if (!is_meant_as_object(m_open)) return false;
    if (c == '"') m_in_string = true;
    if (c == '{' || c == '[') ++m_depth;
    if (c == '}' || c == ']') --m_depth;
    return m_depth <= k_depth_limit && m_open.size() <= k_object_limit;
}

void JsonObjects::keep(LogObject object) {
    m_found.push_back(std::move(object));
    if (m_found.size() > k_kept) m_found.pop_front();
}

// Gives up on the open object: returns the lines after its first one, which must be scanned again.
std::string JsonObjects::behind_first_line() {
    const std::string begun = std::exchange(m_open, {});
    const std::size_t newline = begun.find('\n');
    m_depth = 0;
    m_behind = false;
    m_line_start = newline != std::string::npos;
    if (is_meant_as_object(begun)) keep({begun, false});
    return m_line_start ? begun.substr(newline + 1) : std::string();
}

// Scans `bytes` until something turns out not to be an object. `again` is then what must be scanned again: the lines
// after the one where it started, and the remaining bytes.
void JsonObjects::scan(std::string_view bytes, std::string& again) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const char c = bytes[i];
        if (m_depth == 0) {
            const bool begins = (m_line_start || m_behind) && c == '{';
            m_line_start = c == '\n';
            m_behind = m_behind && (c == ' ' || c == '\t' || c == ',');
            if (begins) {
                m_depth = 1;
                m_open = c;
                m_in_string = m_escaped = false;
            }
            continue;
        }
        if (!step(c)) {
            again = behind_first_line();
            again += bytes.substr(i + 1);
            return;
        }
        if (m_depth == 0) {
            keep({std::exchange(m_open, {}), true});
            m_behind = true;
        }
    }
}

void JsonObjects::feed(std::string_view bytes) {
    constexpr std::size_t k_piece = std::size_t{64} << 10;  // limits how much is scanned again
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), k_piece))) {
        std::string rest(bytes.substr(0, k_piece));
        while (!rest.empty()) {
            std::string again;
            scan(rest, again);
            rest = std::move(again);
        }
    }
}

void JsonObjects::finish() {
    while (m_depth > 0) feed(behind_first_line());
}

Result<Json> JsonObjects::last() const {
    if (m_found.empty()) return fail(ErrorKind::nothing_done, "the log contains no JSON object");
    return parse_log_object(m_found.back());
}

Result<Json> parse_log_object(const LogObject& object) {
    if (!object.whole) return fail(ErrorKind::bad_input, "the last JSON object of the log is cut off");
    auto json = parse_json(text::repair_utf8(object.text), "object");
    if (json) return json;
    return fail(
        ErrorKind::bad_input,
        "the last JSON object of the log is not valid JSON (NaN, Infinity and numbers that a double cannot hold "
        "are not)");
}

Result<MetricReader> MetricReader::create(const TargetMetric& metric) {
    const std::string_view from = metric.from;
    const std::string what = "metric '" + metric.name + "'";
    if (metric.from_trace()) {
        MetricReader reader;
        reader.m_lack = "the trace was not read";
        return reader;
    }
    if (from.starts_with(k_regex)) {
        auto regex = LineRegex::compile(std::string(from.substr(k_regex.size())), what);
        if (regex) return MetricReader({}, std::move(*regex));
        Error error = std::move(regex).error();
        error.kind = ErrorKind::config;
        return tl::unexpected(std::move(error));
    }
    const std::string pointer(from.starts_with(k_json) ? from.substr(k_json.size()) : from);
    try {
        [[maybe_unused]] const Json::json_pointer parsed(pointer);
    } catch (const Json::exception&) {
        return fail(ErrorKind::config, what + ": no JSON pointer: " + pointer, "such as json:/forward/median_ms");
    }
    return MetricReader(pointer, std::nullopt);
}

void MetricReader::line(std::string_view text) {
    const auto found = m_regex->last_match(text);
    if (!found) return;
    m_value = text::parse_double(text::trim(*found));
    if (m_value && !std::isfinite(*m_value)) m_value.reset();
    m_broken = !m_value;
    m_lack = m_broken ? fmt::format("'{}' is not a number", text::repair_utf8(found->substr(0, 100))) : std::string();
}

void MetricReader::feed(std::string_view bytes) {
    if (!m_of_log) return;
    if (!m_regex) {
        m_objects.feed(bytes);
        return;
    }
    while (!bytes.empty()) {
        const std::size_t newline = bytes.find('\n');
        const std::string_view part = bytes.substr(0, newline);
        m_partial += part.substr(0, k_metric_line_limit - std::min(k_metric_line_limit, m_partial.size()));
        if (newline == std::string_view::npos) return;
        bytes.remove_prefix(newline + 1);
        line(m_partial);
        m_partial.clear();
    }
}

void MetricReader::read_object() {
    const auto json = m_objects.last();
    if (!json) {
        m_lack = json.error().message;
        m_broken = json.error().kind == ErrorKind::bad_input;
        return;
    }
    const Json::json_pointer pointer(m_pointer);
    if (!json->contains(pointer)) {
        m_lack = "the last JSON object of the log has no " + m_pointer;
        return;
    }
    const Json& there = json->at(pointer);
    if (there.is_number()) {
        m_value = there.get<double>();
    } else {
        m_lack = m_pointer + " of the log's last JSON object is not a number";
        m_broken = !there.is_structured();  // a list of several shapes is for the loop
    }
}

void MetricReader::finish() {
    if (!m_of_log) return;
    if (!m_regex) {
        m_objects.finish();
        read_object();
        return;
    }
    if (!m_partial.empty()) line(m_partial);
    m_partial.clear();
    if (!m_value && m_lack.empty()) m_lack = "no line of the log matches";
}

}  // namespace gdnctl
