// Help pages and overviews, as text wrapped to a width.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace gdnctl::cli {

struct PageStyle {
    int columns = 100;
    bool color = false;  // bold headings; the text is the same without
};

// "gdnctl log append [OPTIONS] PATH [-- COMMAND...]"
std::string synopsis(std::string_view name, const Args& args);

// "-f, --follow", "--tail N", "--wait, --no-wait"
std::string option_label(const OptionDef& option);
// The option's help, with its default, environment variable and repetition.
std::string option_text(const OptionDef& option);

struct ExitRow {
    std::string codes;  // "2"; "130, 143"
    std::string text;
};

// The exit codes of every command (0, 2, 8, 70 and, in one row, 130 and 143) and those that this command documents, in
// order.
std::vector<ExitRow> exit_codes(const Args& args);

// The exit codes of the commands of a group, in general terms; empty name: of all commands.
std::vector<ExitRow> exit_codes(const Table& table, std::string_view group);

// Names of the option groups, in the order of their first option.
std::vector<std::string> option_groups(const Args& args);

// Headings of the table, in the order of their first command.
std::vector<std::string_view> command_groups(const Table& table);

std::vector<std::string> see_also_names(const Group& group);

std::string help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style);

// What -h shows: the common options, where the command has such; else all of it.
std::string short_help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style);

// All commands by group.
std::string overview(const Table& table, const Args& globals, const PageStyle& style);

// The commands "GROUP NAME".
std::string group_overview(const Table& table, std::string_view group, const PageStyle& style);

// Text in columns.

// Wraps the words of `text` into lines of at most `columns`, each indented by `indent`. A longer word gets a line of
// its own. Ends with a newline.
std::string wrap(std::string_view text, int indent, int columns);

// "  left      right, wrapped": `right` starts at column `at`, on a new line if `left` extends beyond it.
std::string two_columns(std::string_view left, std::string_view right, int at, int columns);

}  // namespace gdnctl::cli
