// Progress and diagnostics for people, on stderr. stdout belongs to data.
//
// Every line passes through redact() before it reaches any sink. Costs nothing until the first line is written.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace gdnctl::log {

enum class Level { debug, info, warning, error, off };

struct Settings {
    Level level = Level::info;  // --quiet: warning; -v: debug
    bool color = false;         // resolved from --color, NO_COLOR and the terminal
};

void configure(const Settings& settings);
bool enabled(Level level);

// Writes `[gdnctl] <text>` to stderr. If the text holds newlines, each line gets the prefix.
void write(Level level, std::string_view text);

// Receives finished, redacted lines without a newline. Tests may replace it; nullptr restores stderr.
using Sink = void (*)(Level level, std::string_view line);
void set_sink(Sink sink);

// Sets a function that runs before each line to stderr, so that a progress display can clear itself first. nullptr:
// none.
void before_each_line(void (*hook)());

template <class... A>
void debug(fmt::format_string<A...> format, A&&... args) {
    if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
void info(fmt::format_string<A...> format, A&&... args) {
    if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
void warning(fmt::format_string<A...> format, A&&... args) {
    if (enabled(Level::warning)) write(Level::warning, fmt::format(format, std::forward<A>(args)...));
}
template <class... A>
void error(fmt::format_string<A...> format, A&&... args) {
    if (enabled(Level::error)) write(Level::error, fmt::format(format, std::forward<A>(args)...));
}

}  // namespace gdnctl::log
