#include "loop/engine/messages.h"

#include <algorithm>
#include <csignal>

#include "core/text.h"

namespace gdnctl::loop::message {

std::string stash(int iteration, std::int64_t unix_seconds) {
    return fmt::format("gdnctl-codex-loop-iter-{:03}-{}", iteration, unix_seconds);
}
std::string heading(std::int64_t iteration, std::int64_t total) {
    return fmt::format("=== codex iteration {}/{} ===", iteration, total);
}
std::string directives_loaded(std::size_t count) { return fmt::format("session directives: {} loaded", count); }

std::string agent_retry(int attempt, int attempts, int rc) {
    return fmt::format("codex iteration command failed (attempt {}/{}, rc={}); retrying.", attempt, attempts, rc);
}
std::string agent_failed(int rc) { return fmt::format("codex iteration failed with exit code {}", rc); }
std::string post_check_retry(int attempt, int attempts, std::string_view command) {
    return fmt::format("post-check failed (attempt {}/{}) for command: {}", attempt, attempts, command);
}
std::string iteration_raised(int iteration, std::string_view what) {
    // More text may follow on the line.
    const bool sentence = what.ends_with('.') || what.ends_with('\n');
    return fmt::format("iteration {} raised: {}{}", iteration, what, sentence ? "" : ".");
}
std::string going_on(Policy policy, bool stops) {
    if (stops || policy == Policy::fail) return {};
    return fmt::format(" Continuing due to policy={}.", to_text(policy));
}

std::string ending(std::string_view doing, int signal) {
    if (signal == SIGTERM) return fmt::format("SIGTERM: {}; --resume continues. A second SIGTERM ends at once.", doing);
    // The terminal is closed, so do not mention keys.
    if (signal == SIGHUP) return fmt::format("the terminal was closed: {}; --resume continues.", doing);
    return fmt::format("Ctrl-C: {}; --resume continues. Ctrl-C again ends at once.", doing);
}

std::string few_of(const std::vector<std::string>& paths) {
    constexpr std::size_t k_most = 5;
    const std::size_t count = std::min(paths.size(), k_most);
    const std::vector<std::string> few(paths.begin(), paths.begin() + static_cast<std::ptrdiff_t>(count));
    return "changed: " + text::join(few, ", ") +
           (paths.size() > count ? fmt::format(" and {} more", paths.size() - count) : "");
}

std::string stop_file(const std::filesystem::path& file) {
    return fmt::format("{} ends the run; delete it and use --resume to continue", file.string());
}

std::string stopped(std::string_view reason, int iteration, int rc) {
    return fmt::format("codex-loop stopped: reason={} iteration={} rc={}", reason, iteration, rc);
}

}  // namespace gdnctl::loop::message
