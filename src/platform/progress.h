// Shows progress on stderr: a bar on a TTY, an occasional line elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>

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
        // Shows nothing before this much time has passed, so that short work leaves the terminal alone.
        std::chrono::milliseconds after{0};
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
    // What follows the amount: "0.93x so far". Empty: nothing.
    void note(std::string text);
    // The unit and the total, once they are known.
    void count(std::string unit, std::uint64_t total) {
        m_options.unit = std::move(unit);
        m_options.total = total;
    }
    // For work that counts nothing: shows the label and how long it has taken. Without a TTY, it writes a line every 30
    // seconds. Calls from other threads than the one that created this do nothing, so that a question like "has a stop
    // been requested?", which any thread of the work may ask, can bring it up to date.
    void tick();
    // Ticks the instance of this thread that was created last, if it counts nothing. Whatever waits calls it (sleeps,
    // requests, programs), so that no clock stands still. On a terminal, one that shows nothing there is passed over.
    static void keep_ticking();
    // Whether this thread has one that is not finished.
    static bool is_live();
    // Clears the line of whichever instance is on the terminal, before text of the same terminal; the next update draws
    // it again. Lines of the log do it by themselves.
    static void step_aside();
    // Removes the bar; nothing is shown afterwards. The destructor calls it too.
    void finish();

private:
    std::string amounts() const;
    std::string speed() const;
    bool begins(Clock::Monotonic now);  // notes the start; false: too early to show anything
    void draw(const std::string& facts);
    std::string elapsed() const;
    std::string with_note(std::string facts) const;

    Terminal& m_terminal;
    const Clock& m_clock;
    Options m_options;
    std::string m_note;
    std::thread::id m_owner = std::this_thread::get_id();
    std::optional<std::uint64_t> m_first;  // value of the first update()
    std::uint64_t m_done = 0;
    std::uint64_t m_shown = 0;  // m_done when last shown
    Clock::Monotonic m_started, m_last_shown;
    bool m_bar_drawn = false;
    bool m_news = false;  // a note that was not shown yet
    bool m_finished = false;
    bool m_counts = false;  // update() was called
    Progress* m_outer;      // of this thread
};

// A stop check for work in other folders that also shows the progress: `asked`, after a tick.
inline std::function<bool()> ticking(Progress& progress, std::function<bool()> asked) {
    return [&progress, asked = std::move(asked)] {
        progress.tick();
        return asked();
    };
}

}  // namespace gdnctl
