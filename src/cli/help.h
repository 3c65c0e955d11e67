// Help pages and overviews, as text wrapped to a width.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gdnctl/cli/command.h"

namespace gdnctl::cli {

struct PageStyle {
    int columns = 100;
    bool color = false;  // bold headings; the page reads the same without
};

// "gdnctl log append [OPTIONS] PATH [-- COMMAND...]"
std::string synopsis(std::string_view name, const Args& args);

// "-f, --follow", "--tail N", "--wait, --no-wait"
std::string option_label(const OptionDef& option);
// The option's help with what is known about its default, environment variable and repetition.
std::string option_text(const OptionDef& option);

// 0, 2, 70 and what the command says, in order of the codes.
std::vector<ExitNote> exit_codes(const Args& args);

// Names of the option groups in the order of their first option.
std::vector<std::string> option_groups(const Args& args);

// Headings of the table in the order of their first command.
std::vector<std::string_view> command_groups(std::span<const Command> table);

// The page of one command.
std::string help_page(const Command& command, const Args& args, const Args& globals, const PageStyle& style);

// All commands by group.
std::string overview(std::span<const Command> table, const Args& globals, const PageStyle& style);

// The commands "GROUP NAME".
std::string group_overview(std::span<const Command> table, std::string_view group, const PageStyle& style);

}  // namespace gdnctl::cli
