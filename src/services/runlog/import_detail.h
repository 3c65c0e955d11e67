// What an import reads between the lines of a hand-written entry.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gdnctl/services/runlog/log.h"

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

// The command that a line of test results belongs to: in front of the arrow on that line, in the bullet before it, or
// in a bullet before the group that it stands in; empty: none is given.
std::string check_command(const Entry& entry, const TestCounts& counts);

// The text of a bullet, or that of the bullets below it where it has none of its own; empty: it is neither.
std::string text_of(const Entry& entry, std::int32_t index);

}  // namespace gdnctl::runlog::detail
