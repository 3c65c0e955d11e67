#include "jobs/log.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_line_limit = std::size_t{16} << 20;  // longer lines are matched in pieces
constexpr std::size_t k_held_limit = std::size_t{32} << 20;  // limit for kept lines; older ones are dropped

}  // namespace

LogFilter::LogFilter(const LineRegex* regex, std::optional<std::size_t> hold, Out out)
    : m_regex(regex), m_hold(hold), m_out(std::move(out)) {}

void LogFilter::line(std::string_view text) {
    if (m_regex != nullptr) {
        const std::string_view body = text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
        if (!m_regex->matches(body)) return;
    }
    if (!m_hold) {
        m_out(text);
        return;
    }
    m_held.emplace_back(text);
    m_held_bytes += text.size();
    while (m_held.size() > *m_hold || (m_held_bytes > k_held_limit && m_held.size() > 1)) {
        m_held_bytes -= m_held.front().size();
        m_held.pop_front();
    }
}

void LogFilter::feed(std::string_view bytes) {
    if (m_regex == nullptr && !m_hold) {
        m_out(bytes);
        return;
    }
    while (!bytes.empty()) {
        const std::size_t newline = bytes.find('\n');
        const std::size_t size = newline == std::string_view::npos ? bytes.size() : newline + 1;
        m_partial += bytes.substr(0, size);
        bytes.remove_prefix(size);
        if (newline == std::string_view::npos && m_partial.size() < k_line_limit) return;
        line(m_partial);
        m_partial.clear();
    }
}

void LogFilter::release() {
    for (const std::string& held : m_held) m_out(held);
    m_held.clear();
    m_held_bytes = 0;
    m_hold.reset();
    if (m_regex == nullptr && !m_partial.empty()) {
        m_out(m_partial);
        m_partial.clear();
    }
}

void LogFilter::finish() {
    if (!m_partial.empty()) line(m_partial);
    m_partial.clear();
    release();
}

}  // namespace gdnctl
