// Values of records that summary and context both use.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "runlog/records/gain.h"
#include "runlog/render/summary.h"

namespace gdnctl::runlog {

// The gain in the objective, else in another metric that the record has a gain for; nullopt: neither.
std::optional<Gain> gain_of(const Json& record, const Objective& objective);

// On one line, cut between characters to at most `limit` bytes plus an ellipsis.
std::string short_text(std::string_view text, std::size_t limit);

// "accepted 2, rejected 7", or "none".
std::string counts_text(const Json& counts);

// Short form of the commit field: 12 digits of a sha, `none (reason)`, ...
std::string commit_text(const Json& record);

}  // namespace gdnctl::runlog
