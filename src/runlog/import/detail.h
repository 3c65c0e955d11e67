// What an import infers from a hand-written entry beyond its fields.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runlog/parse/log.h"

namespace gdnctl::runlog::detail {

// Confidence of a reading.
inline constexpr double k_exact = 1.0;
inline constexpr double k_by_wording = 0.8;
inline constexpr double k_guess = 0.5;

// Maps the wording of real logs to decision and outcome of a record.
struct Ruling {
    std::string_view decision, outcome;
    double confidence = k_guess;
};
// Looks at the words of the decision field, else of the assessment, of the parenthesis in the title, of the whole
// entry.
std::optional<Ruling> ruling_of(const Entry& entry, std::string_view decision);

// Finds the command of each test result in an entry: on the result's line, in an enclosing bullet, or in an earlier
// bullet of the same or an enclosing group. If a run of commands is followed by equally many results, they match in
// order.
class CheckCommands {
public:
    explicit CheckCommands(const Entry& entry);      // `entry` must outlive this
    std::string of(const TestCounts& counts) const;  // empty: no command is given

private:
    struct Event {
        std::uint32_t line;
        std::int32_t field;  // of a command: index of its bullet; -1: a result
        std::string command;
        bool complete;  // a result with its command on the same line
    };
    bool counts_for(const Event& command, std::int32_t result) const;

    const Entry& m_entry;
    std::vector<Event> m_events;  // in line order
};

// Appends an item; each item ends with punctuation of its own, or else with `mark`.
void add_item(std::string& text, std::string_view item, std::string_view mark);
// The text of a bullet with everything below it, on one line; "; " separates list items.
std::string text_of(const Entry& entry, std::int32_t index);

// The text below a heading (an index into `verbatim`), up to the next heading or a bullet with a known label.
std::string text_below(const Entry& entry, std::size_t heading, bool (*is_known)(std::string_view));

}  // namespace gdnctl::runlog::detail
