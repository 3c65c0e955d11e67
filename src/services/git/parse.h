// Parses git's output with -z. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "services/git/checkout.h"

namespace gdnctl::git {

// `git status --porcelain=v2 -z`; nullopt: another format.
std::optional<std::vector<GitStatusEntry>> parse_status(std::string_view text);
// `git diff-tree -r -z --raw --no-abbrev --no-renames`.
std::optional<std::vector<GitFileChange>> parse_raw_diff(std::string_view text);
// `git worktree list --porcelain -z`, without bare and prunable entries.
std::vector<GitWorktree> parse_worktrees(std::string_view text);
// `git cat-file --batch` on `count` names: each object's bytes; nullopt inside: missing, or a folder.
std::optional<std::vector<std::optional<std::string>>> parse_batch(std::string_view text, std::size_t count);
// Paths that a refused merge, checkout or reset lists, one per line after a tab.
std::vector<std::string> parse_listed_paths(std::string_view words);

}  // namespace gdnctl::git
