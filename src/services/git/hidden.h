// Helpers shared by the parts of GitCheckout.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/git/calls.h"

namespace gdnctl::git {

// Files whose changes git was told to ignore (assume-unchanged; skip-worktree outside sparse checkouts).
Result<std::vector<std::string>> hidden_files(const Calls& calls);
// `unread`: a folder cannot be read, and is left out.
Result<std::vector<GitStatusEntry>> status_of(const Calls& calls, bool with_ignored, bool& unread);
// Whether the main repository is bare by its config.worktree, which the git of a linked worktree does not read.
Result<bool> is_bare_by_own_config(const Calls& calls);
// Removes the commits base..head from the checkout by `git reset --keep`. Their files that the rules of `base` ignore
// stay.
Result<ProcessResult> reset_beside_ignored(const GitCheckout& checkout, const Calls& calls, std::string_view base,
                                           std::string_view head);
// A line for an exclude file that matches exactly this path.
std::string exclude_line(std::string_view path);
// Copies it if it cannot be renamed.
Status move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
Status show_files(const Calls& calls, const std::vector<std::string>& paths, CallOptions options);
// `tree` plus all files of `files` (a tree-ish); nullopt: one of them already exists with different content.
Result<std::optional<std::string>> overlaid_tree(const Calls& calls, std::string_view tree, std::string_view files);

}  // namespace gdnctl::git
