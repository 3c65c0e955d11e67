// What an import reads between the lines of a hand-written entry.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

// How sure a reading is.
inline constexpr double k_exact = 1.0;
inline constexpr double k_by_wording = 0.8;
inline constexpr double k_guess = 0.5;

// Words of real logs -> decision and outcome of a record.
struct Ruling {
    std::string_view decision, outcome;
    double confidence = k_guess;
};
// By the words of the decision field, else of the assessment, of the parenthesis in the title, of the whole entry.
std::optional<Ruling> ruling_of(const Entry& entry, std::string_view decision);

// The commands of an entry's test results: on the line of a result, in the bullet that it stands below, or in a bullet
// before it in its group or in a group around that. As many results as commands before them are theirs in order.
class CheckCommands {
public:
    explicit CheckCommands(const Entry& entry);      // the entry outlives it
    std::string of(const TestCounts& counts) const;  // empty: none is given

private:
    struct Event {
        std::uint32_t line;
        std::int32_t field;  // of a command: the bullet that it stands for; -1: a result
        std::string command;
        bool complete;  // a result with its command on one line
    };
    bool counts_for(const Event& command, std::int32_t result) const;

    const Entry& m_entry;
    std::vector<Event> m_events;  // in the order of the lines
};

// Items behind one another: each ends with a mark of its own, or gets one.
void add_item(std::string& text, std::string_view item, std::string_view mark);
// The text of a bullet with everything below it, on one line: items of a list are set apart by "; ".
std::string text_of(const Entry& entry, std::int32_t index);

// The text below a heading (an index into `verbatim`), up to the next heading or a bullet whose label is known.
std::string text_below(const Entry& entry, std::size_t heading, bool (*is_known)(std::string_view));

}  // namespace gdnctl::runlog::detail
