// Single values of records that summary and context share.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "runlog/records/gain.h"
#include "runlog/render/summary.h"

namespace gdnctl::runlog {

// Of the objective, else the gain that the record has of another metric; nullopt: it has neither.
std::optional<Gain> gain_of(const Json& record, const Objective& objective);

// On one line, at most `limit` bytes and an ellipsis, cut between characters.
std::string short_text(std::string_view text, std::size_t limit);

// "accepted 2, rejected 7", or "none".
std::string counts_text(const Json& counts);

// Short form of the commit field: 12 digits of a sha, `none (reason)`, ...
std::string commit_text(const Json& record);

}  // namespace gdnctl::runlog
