// How far long work has come, on stderr: a bar on a TTY, a line now and then elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/clock.h"
#include "platform/terminal.h"

namespace gdnctl {

class Progress {
public:
    struct Options {
        std::string label;        // "downloading trace.json.gz"; secrets in it are masked
        std::string unit = "";    // of what is counted ("cases"); empty: bytes, shown as kB, MB, GB (powers of 1000)
        std::uint64_t total = 0;  // 0: not known
        bool quiet = false;       // shows nothing
    };

    // Counts from the first update() on, so that what a resumed transfer had before does not flatter the rate.
    Progress(Terminal& terminal, const Clock& clock, Options options);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // `done` so far, of the total. Cheap enough for every block: draws at most ten times a second, and elsewhere writes
    // a line after ten seconds, or after a tenth of the work when a second has passed.
    void update(std::uint64_t done);
    void label(std::string text) { m_options.label = std::move(text); }
    // Removes the bar; nothing is shown afterwards. The destructor does it too.
    void finish();

private:
    static void step_aside();  // before a line of the log
    std::string amounts() const;
    std::string speed() const;
    void draw();
    void write_line();

    Terminal& m_terminal;
    const Clock& m_clock;
    Options m_options;
    std::optional<std::uint64_t> m_first;  // where update() began
    std::uint64_t m_done = 0;
    std::uint64_t m_shown = 0;  // m_done when last shown
    Clock::Monotonic m_started, m_last_shown;
    bool m_bar_drawn = false;
    bool m_finished = false;
};

}  // namespace gdnctl
