// The options of codex-loop as plain values with their defaults, and how --resilient changes them. Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/result.h"

namespace gdnctl::loop {

enum class Policy { fail, count_failure, go_on };  // "fail", "count-failure", "continue"
enum class DirtyPolicy { fail, stash };
enum class StashRestorePolicy { warn_keep, fail };
enum class HoldPolicy { required, best_effort };
enum class ConflictPolicy { fail, skip };
enum class IdeaChoice { automatic, off, warn, block };  // automatic: warn with gates, else off
// Where an iteration's log entry and its commit are recorded: see docs/codex-loop.md. automatic: commit with gates,
// else off.
enum class StampMode { automatic, commit, next_entry, notes, off, inplace };
std::string_view to_text(Policy policy);
std::string_view to_text(DirtyPolicy policy);
std::string_view to_text(StashRestorePolicy policy);
std::string_view to_text(HoldPolicy policy);
std::string_view to_text(ConflictPolicy policy);
std::string_view to_text(StampMode mode);

struct HoldOptions {
    bool on = false;  // --hold-dev-tpu
    HoldPolicy policy = HoldPolicy::required;
    std::string cluster = "us-central1";
    std::vector<std::string> fallback_clusters;
    std::string name, type;
    std::string sync_path = ".";
    std::int64_t ready_timeout_s = 900;
    std::int64_t allocate_attempts = 1;
    std::int64_t allocate_retry_sleep_s = 30;
    std::int64_t stop_timeout_s = 120;
    std::string allocate_log;  // empty: <log-dir>/dev_tpu_allocate.log
    bool verbose = false;
};

enum class SyncPolicy { off, once, each_iteration };  // "off", "once", "each-iteration"
std::string_view to_text(SyncPolicy policy);

struct SyncOptions {
    SyncPolicy policy = SyncPolicy::off;
    std::string remote = "origin", branch = "main";
};

enum class AgentKind { codex, command };
enum class IsolationChoice { automatic, worktree, inplace };

struct LoopOptions {
    std::int64_t iterations = 0;
    std::string prompt_file, workdir;  // empty: default prompt; root of the repository
    std::string log_file;              // the running log; empty: the target's
    StampMode stamp_mode = StampMode::automatic;
    std::string model = "gpt-5.3-codex";
    bool model_given = false;
    std::string codex_bin;
    std::string reasoning_effort = "xhigh";
    std::string codex_profile;
    bool search = false, show_file_updates = false;
    std::vector<std::string> directives, directive_files, directive_presets;
    std::int64_t sleep_seconds = 5;
    std::vector<std::string> post_checks;
    Policy post_check_policy = Policy::fail;
    IdeaChoice idea_policy = IdeaChoice::automatic;
    std::int64_t post_check_retries = 0;
    std::int64_t post_check_timeout_s = 14'400;  // 0: none
    std::int64_t max_failures = 0;               // stop after more than this many; negative: never
    bool resilient = false;
    std::int64_t codex_retries = 0;
    std::int64_t retry_sleep_seconds = 20;
    std::string log_dir = ".agents/logs/gdn_codex_loop";
    bool allow_dirty = false;
    DirtyPolicy dirty_policy = DirtyPolicy::fail;
    StashRestorePolicy stash_restore_policy = StashRestorePolicy::warn_keep;
    bool allow_no_commit = false;
    Policy no_commit_policy = Policy::fail;
    Policy iteration_error_policy = Policy::fail;
    HoldOptions hold;
    SyncOptions sync;
    ConflictPolicy sync_main_conflict_policy = ConflictPolicy::fail;
    std::int64_t keep_iterations = 200;

    // New since the first version.
    AgentKind agent = AgentKind::codex;
    std::string agent_command;           // for AgentKind::command: a shell command line
    std::vector<std::string> agent_env;  // names of additional variables to pass to the agent
    bool codex_ephemeral = false, keep_background = false, strict_preflight = false;
    std::int64_t codex_timeout_s = 7200, codex_idle_timeout_s = 900, codex_busy_timeout_s = 5400;
    std::int64_t codex_max_tokens = 50'000'000, codex_max_compactions = 10, codex_max_requests = 2000;
    std::int64_t codex_max_wait_s = 21'600;
    IsolationChoice isolation = IsolationChoice::automatic;
    std::vector<std::string> worktree_links;
    Policy protected_policy = Policy::fail;  // fail, count_failure
    std::optional<std::int64_t> max_wall_s, max_tpu_minutes, max_tokens, plateau;
    bool resume = false, fail_if_no_win = false;
    std::string self_command;  // how prompts call this program; empty: the way it was called
    bool uses_budget() const { return max_wall_s || max_tpu_minutes || max_tokens || plateau; }
};

// Errors: usage, in the recipe's wording ("--dev-tpu-ready-timeout must be > 0.").
Status check_options(const LoopOptions& options);

struct Rewrite {
    std::string option, before, after;
    bool operator==(const Rewrite&) const = default;
};
// Replaces a value and adds that to the list; nothing changes if it has the new value already.
template <class T>
void rewrite(std::vector<Rewrite>& list, const char* option, T& value, const std::type_identity_t<T>& to) {
    const auto word = [](const T& one) {
        if constexpr (std::is_same_v<T, bool>) {
            return one ? "on" : "off";
        } else if constexpr (std::is_integral_v<T>) {
            return std::to_string(one);
        } else {
            return std::string(to_text(one));
        }
    };
    if (value == to) return;
    list.push_back({option, word(value), word(to)});
    value = to;
}
// Does nothing unless options.resilient is set. Returns the changes in a fixed order.
std::vector<Rewrite> make_resilient(LoopOptions& options);

// The options of a run as words, as the journal stores them for --resume.

using OptionWords = std::map<std::string, std::vector<std::string>>;  // by option name, such as "--post-check"

struct SavedOptions {
    std::string run;          // name of the run; only read, never written
    std::string cwd;          // working directory of the command, relative to the root of the repository
    std::string config_file;  // from --config, absolute; empty: found by searching
    std::string target;
    OptionWords given;             // in effect: from the command line, else from the configuration
    OptionWords configured;        // from the configuration, even if the command line overrode it
    std::set<std::string> masked;  // options that contain a secret: their stored words cannot be reused
};

// JSON text for the records that start or resume a run of either mode, with secrets masked and their options listed in
// `masked`.
std::string to_text(SavedOptions words);

// From the last record that has them; nullopt: no journal, or one written by a gdnctl that did not store them. Errors:
// those of read_chain_file() and check_never_begun(), config (not the output of to_text()).
Result<std::optional<SavedOptions>> words_of_run(const std::filesystem::path& journal);

}  // namespace gdnctl::loop
