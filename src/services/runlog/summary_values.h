// Single values of records that summary and context share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gdnctl/core/json.h"

namespace gdnctl::runlog {

struct Change {
    std::optional<double> before, after;
    // In percent of `before`; nullopt where a value is missing or `before` is 0.
    std::optional<double> percent() const;
    // The same, positive for the better; nullopt where a value is missing or `before` is 0.
    std::optional<double> gain_percent(bool lower_is_better) const;
};
std::optional<Change> change_of(const Json& record, const std::string& key);

// On one line, at most `limit` bytes and an ellipsis, cut between characters.
std::string short_text(std::string_view text, std::size_t limit);

// "accepted 2, rejected 7", or "none".
std::string counts_text(const Json& counts);

// Short form of the commit field: 12 digits of a sha, `none (reason)`, ...
std::string commit_text(const Json& record);

}  // namespace gdnctl::runlog
