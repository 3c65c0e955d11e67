// The options that every command has, and which command argv names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "cli/command.h"
#include "core/result.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

struct GlobalFlags {
    GlobalOptions common;
    ColorMode color = ColorMode::automatic;
    std::optional<std::string> directory;  // -C
    bool help = false;
    bool version = false;
};

void describe_globals(Args& args, GlobalFlags& flags);

// Finds which command argv names, and which words belong to it.

struct Dispatch {
    const Command* command = nullptr;  // nullptr: none was given
    std::string_view name;             // of the command: the one of its names that was typed
    std::string group;                 // "log" if only the first word of some commands was given
    bool help = false;                 // `gdnctl help ...`
    std::vector<std::string> words;    // all words except the command's name, in order
};

// Finds the command's name among the words; global options may appear before and inside it. Names have one or two words
// ("lint-log", "log append"); spaces may stand for the hyphens ("dev tpu list"). After `help`, a word of Table::words
// is as good as the name. Error: usage, with a suggestion.
Result<Dispatch> dispatch(const Table& table, const std::vector<std::string>& words);

// Commands with an empty group are for scripts and builds; overviews and suggestions omit them.
inline bool is_hidden(const Command& command) { return command.group.empty(); }

// What people mean by this word: as Table::words says, else the only command of which it is the second word. Empty:
// neither.
std::vector<std::string_view> meanings(const Table& table, std::string_view typed);

// " (also: job test)", or nothing.
std::string other_name_note(const Command& command);

// First words of the visible names with two words, each once, in the order of the table.
std::vector<std::string> group_names(const Table& table);

// The visible commands that have a name "GROUP WORD".
struct Member {
    const Command* command = nullptr;
    std::string_view name;  // with the group
    std::string_view word;  // without it
};
std::vector<Member> members_of(const Table& table, std::string_view group);

}  // namespace gdnctl::cli
