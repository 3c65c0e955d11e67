#include "platform/progress.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <string_view>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"

namespace gdnctl {

namespace {

using namespace std::chrono_literals;

constexpr std::string_view k_erase_line = "\r\x1b[K";

// The instance whose bar is on the terminal. Lines of the log come from any thread, and it steps aside for them.
std::mutex g_shown_mutex;
Progress* g_shown = nullptr;

// The instance of this thread that was created last.
thread_local Progress* t_innermost = nullptr;

std::string scaled(double bytes) {
    constexpr std::array<std::string_view, 5> k_units = {"B", "kB", "MB", "GB", "TB"};
    std::size_t unit = 0;
    for (; bytes >= 999.5 && unit + 1 < k_units.size(); ++unit) bytes /= 1000;
    return unit == 0 ? fmt::format("{:.0f} B", bytes)
                     : fmt::format("{:.{}f} {}", bytes, bytes < 99.95 ? 1 : 0, k_units[unit]);
}

std::string counted(double amount, const std::string& unit) {
    if (unit.empty()) return scaled(amount);
    return fmt::format("{:.{}f} {}", amount, amount < 10 && amount != std::floor(amount) ? 1 : 0, unit);
}

}  // namespace

Progress::Progress(Terminal& terminal, const Clock& clock, Options options)
    : m_terminal(terminal), m_clock(clock), m_options(std::move(options)), m_outer(t_innermost) {
    m_options.label = redact(m_options.label);
    t_innermost = this;
}

Progress::~Progress() { finish(); }

bool Progress::begins(Clock::Monotonic now) {
    if (!m_first) {
        m_first = m_done;
        m_shown = m_done;
        m_started = now;
        m_last_shown = now;
    }
    return now - m_started >= m_options.after;
}

void Progress::update(std::uint64_t done) {
    m_done = done;
    m_counts = true;
    if (m_options.quiet || m_finished) return;
    const auto now = m_clock.monotonic();
    if (!begins(now)) return;
    const auto since = now - m_last_shown;
    if (m_terminal.err_is_tty()) {
        if (m_bar_drawn && since < 100ms) return;
        draw(with_note(amounts() + speed()));
    } else {
        const bool tenth = m_options.total > 0 && (done - std::min(done, m_shown)) >= m_options.total / 10;
        if (since < 10s && !(tenth && since >= 1s)) return;
        std::string share;
        if (m_options.total > 0) {
            share =
                fmt::format("{:.0f} %, ", std::floor(100.0 * static_cast<double>(std::min(m_done, m_options.total)) /
                                                     static_cast<double>(m_options.total)));
        }
        log::info("{}: {}{}", m_options.label, share, with_note(amounts() + speed()));
    }
    m_last_shown = now;
    m_shown = done;
}

void Progress::note(std::string text) {
    m_news = m_news || text != m_note;
    m_note = std::move(text);
}

void Progress::tick() {
    if (m_options.quiet || m_finished || std::this_thread::get_id() != m_owner) return;
    const auto now = m_clock.monotonic();
    if (!begins(now)) return;
    const bool tty = m_terminal.err_is_tty();
    if (now - m_last_shown < (!tty ? 30s : m_bar_drawn && !m_news ? 1s : 0s)) return;
    if (tty) {
        draw(with_note(elapsed()));
    } else {
        log::info("{}: {}", m_options.label, with_note(elapsed()));
    }
    m_news = false;
    m_last_shown = now;
}

void Progress::keep_ticking() {
    const auto shows = [](const Progress& one) { return !one.m_options.quiet && one.m_terminal.err_is_tty(); };
    Progress* on_terminal = t_innermost;
    while (on_terminal != nullptr && !shows(*on_terminal)) on_terminal = on_terminal->m_outer;
    Progress* one = on_terminal != nullptr ? on_terminal : t_innermost;
    if (one != nullptr && !one->m_counts) one->tick();
}

bool Progress::is_live() { return t_innermost != nullptr; }

void Progress::step_aside() {
    const std::lock_guard lock(g_shown_mutex);
    if (g_shown == nullptr || !g_shown->m_bar_drawn) return;
    g_shown->m_terminal.move_err(k_erase_line);
    g_shown->m_bar_drawn = false;
}

void Progress::finish() {
    std::unique_lock lock(g_shown_mutex);
    if (m_bar_drawn) m_terminal.move_err(k_erase_line);
    m_bar_drawn = false;
    if (g_shown == this) g_shown = nullptr;
    if (g_shown == nullptr) log::before_each_line(nullptr);
    m_finished = true;
    lock.unlock();
    if (std::this_thread::get_id() != m_owner) return;
    for (Progress** one = &t_innermost; *one != nullptr; one = &(*one)->m_outer) {
        if (*one != this) continue;
        *one = m_outer;
        return;
    }
}

// "12.3 MB of 27.0 MB", "3 of 8 rounds"
std::string Progress::amounts() const {
    const std::string done = counted(static_cast<double>(m_done), m_options.unit);
    if (m_options.total == 0) return done;
    const std::string total = counted(static_cast<double>(m_options.total), m_options.unit);
    return m_options.unit.empty() ? fmt::format("{} of {}", done, total) : fmt::format("{} of {}", m_done, total);
}

// ", 3.4 MB/s, 4.2 s left"; empty until a rate is known. What is not bytes has no rate: people wait for its end.
std::string Progress::speed() const {
    const double seconds = std::chrono::duration<double>(m_clock.monotonic() - m_started).count();
    if (seconds <= 0 || m_done <= *m_first) return {};
    const double rate = static_cast<double>(m_done - *m_first) / seconds;
    std::string text = m_options.unit.empty() ? fmt::format(", {}/s", scaled(rate)) : std::string();
    if (m_options.total > m_done) {
        const double left = static_cast<double>(m_options.total - m_done) / rate;
        constexpr double k_year = 366.0 * 24 * 3600;
        const auto rounded = std::chrono::seconds(static_cast<std::int64_t>(std::ceil(std::min(left, k_year))));
        text += fmt::format(", {} left", format_duration(rounded));
    }
    return text;
}

// Whole seconds only: decimals would flicker. "0 s" would look like a stuck clock.
std::string Progress::elapsed() const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(m_clock.monotonic() - m_started);
    if (seconds < 1s) return "...";
    return seconds < 60s ? fmt::format("{} s", seconds.count()) : format_duration(seconds);
}

std::string Progress::with_note(std::string facts) const {
    if (!m_note.empty()) facts += ", " + m_note;
    return facts;
}

void Progress::draw(const std::string& facts) {
    const std::string head = fmt::format("[gdnctl] {}: ", m_options.label);
    const auto width = static_cast<std::size_t>(m_terminal.columns() - 1);  // writing to the last column would wrap
    constexpr std::size_t k_bar = 20;
    std::string line = head + facts;
    if (m_options.total > 0 && line.size() + k_bar + 8 <= width) {
        const double share = std::min(1.0, static_cast<double>(m_done) / static_cast<double>(m_options.total));
        const auto filled = static_cast<std::size_t>(share * static_cast<double>(k_bar));
        line = fmt::format("{}[{}{}] {:3.0f}% {}", head, std::string(filled, '#'), std::string(k_bar - filled, '.'),
                           std::floor(share * 100), facts);
    }
    // Ends at a comma or a blank, so that no word or number is cut in two.
    if (line.size() > width) {
        const std::size_t end = std::min(line.rfind(',', width), line.rfind(' ', width));
        const std::size_t comma = line.rfind(',', width);
        line.resize(comma != std::string::npos && comma > head.size() ? comma : end == std::string::npos ? width : end);
    }
    const std::lock_guard lock(g_shown_mutex);
    m_terminal.move_err(k_erase_line);
    m_terminal.err(line);
    m_bar_drawn = true;
    g_shown = this;
    log::before_each_line(&Progress::step_aside);
}

}  // namespace gdnctl
