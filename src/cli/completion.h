// Private to the completion generators.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/described.h"
#include "cli/dispatch.h"
#include "cli/reference.h"
#include "core/text.h"

namespace gdnctl::cli {

// Quotes text with '...' for all three shells. A quote inside ends the string, is escaped, and starts it again.
std::string single_quoted(std::string_view text);

// First words of two-word commands, each once.
std::vector<std::string> group_names(const Descriptions& all);

std::string bash_completion(const Table& table, const Descriptions& all);
std::string zsh_completion(const Table& table, const Descriptions& all);
std::string fish_completion(const Table& table, const Descriptions& all);

}  // namespace gdnctl::cli
