// Everything generated from the descriptions of all commands: shell completion, the CLI reference and the manual pages.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "cli/dispatch.h"
#include "core/text.h"

namespace gdnctl::cli {

enum class Shell { bash, zsh, fish };

// A script to source. Values that are only known at run time (targets, clusters, local jobs) come from the hidden
// command `gdnctl __complete KIND`.
std::string completion_script(const Table& table, Shell shell);

// The word for `kind` in `gdnctl __complete WORD`; empty for kinds that the shell completes itself.
std::string_view completion_word(Complete kind);

struct ReferenceFile {
    std::string name;  // "cli-reference.md", "gdnctl-log-append.1"
    std::string text;
};

ReferenceFile markdown_reference(const Table& table);
std::vector<ReferenceFile> man_pages(const Table& table);

// All commands with their descriptions, for the generators.

struct Described {
    const Command* command = nullptr;
    std::unique_ptr<Invocation> invocation;  // owns the variables that `args` assigns to
    Args args;
};

struct Descriptions {
    GlobalFlags flags;
    Args globals;
    std::vector<Described> commands;  // visible ones, in the order of the table
};

std::unique_ptr<Descriptions> describe_all(const Table& table);

// Private to the completion generators.

// Quotes text with '...' for all three shells. A quote inside ends the string, is escaped, and starts it again.
std::string single_quoted(std::string_view text);

// First words of two-word commands, each once.
std::vector<std::string> group_names(const Descriptions& all);

std::string bash_completion(const Table& table, const Descriptions& all);
std::string zsh_completion(const Table& table, const Descriptions& all);
std::string fish_completion(const Table& table, const Descriptions& all);

}  // namespace gdnctl::cli
