// Runs the git program such that nothing in the repository can exploit it.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/process.h"
#include "services/git/checkout.h"

namespace gdnctl::git {

using Words = std::vector<std::string>;

inline constexpr std::string_view k_our_name = "gdnctl", k_our_mail = "gdnctl@localhost";

struct CallOptions {
    std::string input = {};                                      // for stdin
    std::filesystem::path out_file = {};                         // stdout is appended to it; empty: stdout is captured
    std::function<void(std::string_view)> on_line = {};          // receives stdout line by line instead
    std::map<std::string, std::optional<std::string>> env = {};  // added to our environment
    bool our_name = false;                                       // author and committer are gdnctl
    std::stop_token stop = {};
};

struct Calls {
    std::filesystem::path root, git_dir, common_dir;
    Process& process;
    Clock& clock;
    // Configuration keys that are not trusted, with the values to use instead.
    std::map<std::string, std::string> overrides = {};
    bool includes = true;     // whether the configuration includes further files, as far as known
    bool is_private = false;  // `git_dir` belongs to a worktree: nobody else works there

    // Cache of the last few ranges between full ids.
    std::map<std::string, GitRange> ranges = {};
    std::map<std::string, std::vector<GitFileChange>> diffs = {};

    // Returns any exit code. Waits for a lock that another process holds (three times, 2 s), then removes it if
    // is_abandoned(). Errors: as Process::run, and local_io on a full disk.
    Result<ProcessResult> run(Words words, const CallOptions& options = {}) const;
    // Its stdout; an exit code other than 0 is an error that names the call.
    Result<std::string> output(const Words& words, const CallOptions& options = {}) const;
    Status done(const Words& words, const CallOptions& options = {}) const;
    // output() without the trailing newline.
    Result<std::string> line(const Words& words, const CallOptions& options = {}) const;
    tl::unexpected<Error> refused(std::string_view what, const ProcessResult& result) const;

private:
    Result<ProcessResult> run_once(const Words& words, const CallOptions& options) const;
};

// Whether a git is working in this repository right now, whoever started it.
bool git_runs_in(const std::filesystem::path& root, const std::filesystem::path& common);
// Whether the owner of a lock is gone for sure: no git runs in the repository, no process has the lock open or works in
// its folder, and it is ten minutes old, or can only be ours, or was made while processes ran that we have ended by
// force. Never one of another user, whose processes we may not be able to look into.
bool is_abandoned(const Calls& calls, const std::filesystem::path& lock, const std::optional<GitForcedEnd>& forced);
bool remove_abandoned(const Calls& calls, const std::filesystem::path& lock,
                      const std::optional<GitForcedEnd>& forced);  // false: it stays

// ---- pure

// The file that a message of git says is in the way: a lock, or the `commondir` of a worktree that was being created.
// Empty: another message.
std::string lock_in_the_way(std::string_view words);
// The message without `warning:` and `hint:` lines; prefers the first `fatal:` or `error:`.
std::string reason_of(std::string_view words);
bool names_a_program(std::string_view key);  // a configuration key in lower case
// Keys of programs that none of our calls run, and of other settings that affect the user's own git: changes are
// reported.
bool is_for_users(std::string_view key);
bool has_includes(std::string_view list);  // input: `git config --list -z`; include.path, includeif.*
// From `git config --list -z`: keys of names_a_program() with their last value, and keys of is_for_users() with all
// values.
std::map<std::string, std::string> programs_in(std::string_view list);

// Parses git's output with -z. Pure.

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

// Helpers shared by the parts of GitCheckout.

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
