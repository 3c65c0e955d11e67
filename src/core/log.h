// Progress and diagnostics for people, on stderr. stdout belongs to data.
//
// Every line passes through redact() before it reaches any sink. Costs nothing until the first line is written.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace gdnctl::log {

enum class Level { debug, info, warning, error, off };

struct Settings {
    Level level = Level::info;   // --quiet: warning; -v: debug
    bool color = false;          // resolved from --color, NO_COLOR and the terminal
    int (*columns)() = nullptr;  // of the terminal, to which lines are wrapped; nullptr: they stay whole
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

// What a piece of work has to say, kept from stderr for whoever gathers it.

// While one lives, the lines of this thread go to `take` (with the prefix, redacted, without a newline and without a
// time), those of `least` and above whatever --quiet says. Lines of `shown` and above go to stderr as well. The latest
// one has them all.
class Diverted {
public:
    using Take = std::function<void(std::string_view line)>;
    explicit Diverted(Take take, Level least = Level::info, Level shown = Level::off);
    ~Diverted();
    Diverted(const Diverted&) = delete;
    Diverted& operator=(const Diverted&) = delete;

    void take(std::string_view line) const { m_take(line); }
    Level least() const { return m_least; }
    bool shows(Level level) const { return level >= m_shown && level != Level::off; }

private:
    Take m_take;
    Level m_least, m_shown;
    const Diverted* m_outer;
};

// Adds the local time to the lines of a long-running command.

// While an instance exists, every line has the local time after its prefix: "[gdnctl] 17:53:07+01:00 text".
class Timed {
public:
    Timed();
    ~Timed();
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
};

// Writes a line without the time, for scripts that match its beginning.
void write_as_it_is(Level level, std::string_view text);
// The last line of a command, which --quiet does not hide; without the time, too. A good end has no colour.
void write_end(bool good, std::string_view text);

}  // namespace gdnctl::log
