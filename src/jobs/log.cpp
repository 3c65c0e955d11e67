#include "jobs/log.h"

#include <algorithm>

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

WithoutRayLines::WithoutRayLines(std::string_view id, std::string_view entrypoint, LogFilter::Out out)
    : m_announcement("Running entrypoint for job " + std::string(id) + ": " + std::string(entrypoint) + "\n"),
      m_out(std::move(out)) {}

void WithoutRayLines::feed(std::string_view bytes) {
    constexpr std::string_view k_setting_up = " -- Runtime env is setting up.\n";
    constexpr std::size_t k_longest_line = 200;
    if (m_announced) return m_out(bytes);
    m_held += bytes;
    if (!m_started) {
        // "2026-11-21 15:07:29,076\tINFO job_manager.py:581 -- Runtime env is setting up."
        const std::size_t end = m_held.find('\n');
        if (end == std::string::npos && m_held.size() < k_longest_line) return;
        m_started = true;
        const std::string_view line = std::string_view(m_held).substr(0, end == std::string::npos ? end : end + 1);
        if (line.ends_with(k_setting_up) && line.find(" job_manager.py:") != std::string_view::npos) {
            m_held.erase(0, line.size());
        }
    }
    const std::size_t at = m_held.find(m_announcement);
    if (at != std::string::npos) {
        m_announced = true;
        m_held.erase(at, m_announcement.size());
        return finish();
    }
    // Keeps an end that may be the beginning of it.
    std::size_t kept = std::min(m_held.size(), m_announcement.size() - 1);
    while (kept > 0 && !m_announcement.starts_with(std::string_view(m_held).substr(m_held.size() - kept))) --kept;
    if (kept < m_held.size()) m_out(std::string_view(m_held).substr(0, m_held.size() - kept));
    m_held.erase(0, m_held.size() - kept);
}

void WithoutRayLines::finish() {
    if (!m_held.empty()) m_out(m_held);
    m_held.clear();
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
