// Everything generated from the descriptions of all commands: shell completion, the CLI reference and the manual pages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

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

}  // namespace gdnctl::cli
