// argv -> which command, and which words are its own.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "core/result.h"

namespace gdnctl::cli {

struct Dispatch {
    const Command* command = nullptr;  // nullptr: none was named
    std::string group;                 // "log" when only the first word of some commands was named
    bool help = false;                 // `gdnctl help ...`
    std::vector<std::string> words;    // everything but the words of the command's name, in order
};

// Finds the command's name among the words; global options may stand before and inside it. Names of one and of two
// words exist ("lint-log", "log append"). Error: usage, with a suggestion.
Result<Dispatch> dispatch(const Table& table, const std::vector<std::string>& words);

// Commands whose group is empty are for scripts and builds; overviews and suggestions leave them out.
inline bool is_hidden(const Command& command) { return command.group.empty(); }

// Visible commands "GROUP NAME".
std::vector<const Command*> members_of(const Table& table, std::string_view group);

}  // namespace gdnctl::cli
