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

// A script to source. It asks the hidden command `gdnctl __complete -- WORD...`.
std::string_view completion_script(Shell shell);

struct Completions {
    struct Candidate {
        std::string word, help;
    };
    std::vector<Candidate> words;
    std::vector<Candidate> instead;  // offered, whatever they begin with, if none of the words fits
    // Of this kind are further ones, which only the shell or the commands know; each follows `head` ("--config=").
    Complete values = Complete::nothing;
    std::string head;
};
// What can stand in place of the last of the words that follow the program's name, whatever it begins with.
Completions complete(const Table& table, const std::vector<std::string>& words);

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

}  // namespace gdnctl::cli
