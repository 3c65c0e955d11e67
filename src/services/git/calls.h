// Calls of the git program that nothing in the repository can turn against us.
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
    std::filesystem::path out_file = {};                         // stdout is appended to it; empty: captured
    std::function<void(std::string_view)> on_line = {};          // gets stdout line by line instead
    std::map<std::string, std::optional<std::string>> env = {};  // on top of ours
    bool our_name = false;                                       // author and committer are gdnctl
    std::stop_token stop = {};
};

struct Calls {
    std::filesystem::path root, git_dir, common_dir;
    Process& process;
    Clock& clock;
    // Configuration that is not to be believed, with what to say instead.
    std::map<std::string, std::string> overrides = {};
    bool includes = true;  // the configuration includes further files, as far as is known

    // What was asked between full ids, the last few.
    std::map<std::string, GitRange> ranges = {};
    std::map<std::string, std::vector<GitFileChange>> diffs = {};

    // Any exit code. A lock that someone holds is waited for (three times, 2 s); one that nobody can hold any more (a
    // killed git's) is removed after that. Errors: as Process::run, and local_io on a full disk.
    Result<ProcessResult> run(Words words, const CallOptions& options = {}) const;
    // What it printed; any exit code but 0 is an error that names the call.
    Result<std::string> output(const Words& words, const CallOptions& options = {}) const;
    Status done(const Words& words, const CallOptions& options = {}) const;
    // output() without the newline at its end.
    Result<std::string> line(const Words& words, const CallOptions& options = {}) const;
    tl::unexpected<Error> refused(std::string_view what, const ProcessResult& result) const;

private:
    Result<ProcessResult> run_once(const Words& words, const CallOptions& options) const;
};

// A git that works in this repository right now, whoever started it.
bool git_runs_in(const std::filesystem::path& root, const std::filesystem::path& common);

// ---- pure

// The lock file that git's words say is in the way; empty: they speak of something else.
std::string lock_in_the_way(std::string_view words);
// Lines `warning:` and `hint:` left out, the first `fatal:` or `error:` preferred.
std::string reason_of(std::string_view words);
bool names_a_program(std::string_view key);  // of the configuration, lower case
// Programs that no call of ours runs, and other settings that a user's own git would obey: a change is told.
bool is_for_users(std::string_view key);
bool has_includes(std::string_view list);  // of `git config --list -z`: include.path, includeif.*
// Key to last value, of `git config --list -z`, those that names_a_program(); all values of those that
// is_for_users().
std::map<std::string, std::string> programs_in(std::string_view list);

}  // namespace gdnctl::git
