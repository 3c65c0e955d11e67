// Helpers that the parts of GitCheckout share.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/git/calls.h"

namespace gdnctl::git {

// Files whose changes git was told not to see (assume-unchanged; skip-worktree where nothing is sparse).
Result<std::vector<std::string>> hidden_files(const Calls& calls);
// `unread`: a folder may not be read, and is left out.
Result<std::vector<GitStatusEntry>> status_of(const Calls& calls, bool with_ignored, bool& unread);
// Takes the commits base..head off the checkout by `git reset --keep`. Files in them that the rules of `base` ignore
// stay in it.
Result<ProcessResult> reset_beside_ignored(const GitCheckout& checkout, const Calls& calls, std::string_view base,
                                           std::string_view head);
// A line of an exclude file that means this path and nothing else.
std::string exclude_line(std::string_view path);
// A copy where it cannot be renamed.
Status move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
Status show_files(const Calls& calls, const std::vector<std::string>& paths, CallOptions options);
// `tree` with all files of `files` (a tree-ish) added; nullopt: one of them is there already, with other content.
Result<std::optional<std::string>> overlaid_tree(const Calls& calls, std::string_view tree, std::string_view files);

}  // namespace gdnctl::git
