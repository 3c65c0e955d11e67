#include "core/log.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include "core/for_people.h"
#include "core/redact.h"
#include "core/text.h"

namespace gdnctl::log {

namespace {

std::atomic<Level> g_level{Level::info};
std::atomic<bool> g_color{false};
std::atomic<int (*)()> g_columns{nullptr};
std::atomic<Sink> g_sink{nullptr};
std::atomic<void (*)()> g_before_line{nullptr};
std::atomic<int> g_timed{0};  // number of live Timed instances
thread_local const Diverted* t_diverted = nullptr;

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::debug: return spdlog::level::debug;
        case Level::info: return spdlog::level::info;
        case Level::warning: return spdlog::level::warn;
        case Level::error: return spdlog::level::err;
        case Level::off: return spdlog::level::off;
    }
    return spdlog::level::off;
}

Level from_spdlog(spdlog::level::level_enum level) {
    switch (level) {
        case spdlog::level::trace:
        case spdlog::level::debug: return Level::debug;
        case spdlog::level::info: return Level::info;
        case spdlog::level::warn: return Level::warning;
        case spdlog::level::err:
        case spdlog::level::critical: return Level::error;
        default: return Level::off;
    }
}

std::string_view color_of(Level level) {
    switch (level) {
        case Level::warning: return "\x1b[33m";
        case Level::error: return "\x1b[31m";
        case Level::debug: return "\x1b[2m";
        default: return {};
    }
}

// One write(2) per line, so that lines of several processes on one terminal do not mix. Errors are ignored: if stderr
// is gone, there is nowhere to report it.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
        const Level level = from_spdlog(message.level);
        const std::string_view body(message.payload.data(), message.payload.size());
        if (const Sink replaced = g_sink.load()) {
            replaced(level, body);
            return;
        }
        if (const auto hook = g_before_line.load()) hook();
        const std::string_view color = g_color.load() ? color_of(level) : std::string_view();
        std::string line(color);
        const auto columns = g_columns.load();
        line += columns == nullptr ? std::string(body) : text::folded_message(body, columns());
        if (!color.empty()) line += "\x1b[0m";
        line += '\n';
        std::string_view rest = line;
        while (!rest.empty()) {
            const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return;
            rest.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    void flush_() override {}
};

spdlog::logger& logger() {
    static spdlog::logger instance = [] {
        spdlog::logger made("gdnctl", std::make_shared<StderrSink>());
        made.set_level(spdlog::level::trace);
        return made;
    }();
    return instance;
}

}  // namespace

void configure(const Settings& settings) {
    g_level = settings.level;
    g_color = settings.color;
    g_columns = settings.columns;
}

bool enabled(Level level) {
    const Level least = t_diverted != nullptr ? t_diverted->least() : g_level.load();
    return level >= least && level != Level::off;
}

void set_sink(Sink sink) { g_sink = sink; }

void before_each_line(void (*hook)()) { g_before_line = hook; }

namespace {

constexpr std::string_view k_prefix = "[gdnctl] ";

// `time` comes after the prefix on stderr, and ends with a space where there is one.
void write_lines(Level level, std::string_view time, std::string_view text) {
    const std::string safe = text::visible(redact(text));
    std::string_view rest = safe;
    for (;;) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = rest.substr(0, end);
        if (t_diverted != nullptr) t_diverted->take(fmt::format("{}{}", k_prefix, line));
        if (t_diverted == nullptr || t_diverted->shows(level)) {
            const std::string whole = fmt::format("{}{}{}", k_prefix, time, line);
            logger().log(to_spdlog(level), spdlog::string_view_t(whole.data(), whole.size()));
        }
        if (end == std::string_view::npos || end + 1 == rest.size()) return;
        rest.remove_prefix(end + 1);
    }
}

}  // namespace

void write(Level level, std::string_view text) {
    if (!enabled(level)) return;
    if (g_timed.load() == 0) return write_lines(level, {}, text);
    const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
    write_lines(level, local_clock(now) + " ", text);
}

void write_as_it_is(Level level, std::string_view text) {
    if (enabled(level)) write_lines(level, {}, text);
}

void write_end(bool good, std::string_view text) {
    if (enabled(Level::warning)) write_lines(good ? Level::info : Level::warning, {}, text);
}

Diverted::Diverted(Take take, Level least, Level shown)
    : m_take(std::move(take)), m_least(least), m_shown(shown), m_outer(t_diverted) {
    t_diverted = this;
}
Diverted::~Diverted() { t_diverted = m_outer; }

Timed::Timed() { ++g_timed; }
Timed::~Timed() { --g_timed; }

}  // namespace gdnctl::log
