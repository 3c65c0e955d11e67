// The loop's messages in the recipe's wording, which scripts match. Without the prefix "[gdnctl] ", which log:: adds.
// Pure.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "loop/engine/options.h"

namespace gdnctl::loop::message {

inline constexpr std::string_view k_dirty =
    "Working tree is dirty before starting the iteration. Commit/stash or rerun with --allow-dirty or --dirty-policy "
    "stash.";
inline constexpr std::string_view k_no_commit =
    "Iteration did not produce a new commit. Use --allow-no-commit or set --no-commit-policy count-failure/continue.";
inline std::string reverted(std::string_view champion) {
    return fmt::format("regression commit reverted successfully; champion remains {}.", champion);
}
inline constexpr std::string_view k_post_check_failed =
    "post-check failed. Use --post-check-policy count-failure/continue to avoid exiting.";

// Message of an iteration's stash: "gdnctl-codex-loop-iter-007-1773161587".
std::string stash(int iteration, std::int64_t unix_seconds);
// "
// [gdnctl] === codex iteration 2/5 ===" without the prefix; the caller prints the blank line.
std::string heading(std::int64_t iteration, std::int64_t total);
std::string directives_loaded(std::size_t count);

std::string agent_retry(int attempt, int attempts, int rc);
std::string agent_failed(int rc);
std::string post_check_retry(int attempt, int attempts, std::string_view command);
std::string iteration_raised(int iteration, std::string_view what);
// " Continuing due to policy=<p>."; empty for `fail`, or if the run stops all the same: its limit of failures is
// reached.
std::string going_on(Policy policy, bool stops = false);

// "Ctrl-C: the agent is being stopped, and what it did so far is kept; --resume continues. Ctrl-C again ends at once."
// Other signals have their own wording.
std::string ending(std::string_view doing, int signal);

// "changed: a, b and 3 more"
std::string few_of(const std::vector<std::string>& paths);
std::string stop_file(const std::filesystem::path& file);
// The last line of every run.
std::string stopped(std::string_view reason, int iteration, int rc);

}  // namespace gdnctl::loop::message
