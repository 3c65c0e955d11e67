// Shows progress on stderr: a bar on a TTY, an occasional line elsewhere.
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
        std::string label;        // "downloading trace.json.gz"; secrets are masked
        std::string unit = "";    // what is counted ("cases"); empty: bytes, shown as kB, MB, GB (powers of 1000)
        std::uint64_t total = 0;  // 0: unknown
        bool quiet = false;       // shows nothing
    };

    // The rate counts from the first update(), so that data from an earlier transfer does not inflate it.
    Progress(Terminal& terminal, const Clock& clock, Options options);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // `done` so far, of the total. Cheap enough for every block: draws at most ten times a second. Without a TTY, it
    // writes a line every ten seconds, or after a tenth of the work if a second has passed.
    void update(std::uint64_t done);
    void label(std::string text) { m_options.label = std::move(text); }
    // Removes the bar; nothing is shown afterwards. The destructor calls it too.
    void finish();

private:
    static void step_aside();  // clears the bar before a line of the log
    std::string amounts() const;
    std::string speed() const;
    void draw();
    void write_line();

    Terminal& m_terminal;
    const Clock& m_clock;
    Options m_options;
    std::optional<std::uint64_t> m_first;  // value of the first update()
    std::uint64_t m_done = 0;
    std::uint64_t m_shown = 0;  // m_done when last shown
    Clock::Monotonic m_started, m_last_shown;
    bool m_bar_drawn = false;
    bool m_finished = false;
};

}  // namespace gdnctl
