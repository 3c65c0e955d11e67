#include "loop/sync_main.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "gdnctl/core/log.h"
#include "gdnctl/core/redact.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/signals.h"

namespace gdnctl::loop {

namespace {

bool is_locked(const ProcessResult& result) {
    constexpr std::array<std::string_view, 3> k_signs = {"index.lock", "Another git process seems to be running",
                                                         ".lock': File exists"};
    return std::any_of(k_signs.begin(), k_signs.end(),
                       [&](std::string_view sign) { return result.out.find(sign) != std::string::npos; });
}

bool is_conflict(const ProcessResult& result) {
    return result.out.find("CONFLICT") != std::string::npos ||
           result.out.find("Automatic merge failed") != std::string::npos;
}

std::string last_line(const ProcessResult& result) {
    const std::string_view text = text::trim(result.out);
    return redact(text.substr(text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1));
}

}  // namespace

// Someone else's git may be at work for a moment.
Result<ProcessResult> SyncMain::git(std::vector<std::string> words) {
    constexpr int k_tries = 4;
    constexpr std::chrono::seconds k_pause{2};
    ProcessSpec spec;
    spec.argv = {"git"};
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.cwd = m_checkout;
    spec.merge_stderr = true;
    spec.env = {{"LC_ALL", "C"}, {"GIT_TERMINAL_PROMPT", "0"}};
    spec.stop = m_stop;
    for (int attempt = 1;; ++attempt) {
        log::info("$ {}", text::shell_join(spec.argv));
        GDNCTL_TRY_ASSIGN(ProcessResult result, m_process.run(spec));
        if (result.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
        if (result.ok() || attempt == k_tries || !is_locked(result)) return result;
        log::warning("git is busy ({}); trying again", last_line(result));
        if (!m_clock.sleep_for(k_pause, m_stop)) return tl::unexpected(stopped_error());
    }
}

Status SyncMain::run() {
    if (m_options.policy == SyncPolicy::off || (m_options.policy == SyncPolicy::once && m_done)) return {};
    const std::string branch = fmt::format("{}/{}", m_options.remote, m_options.branch);
    GDNCTL_TRY_ASSIGN(const ProcessResult fetched, git({"fetch", m_options.remote, m_options.branch}));
    if (!fetched.ok()) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("failed to fetch {} (exit={}): {}", branch, fetched.exit_code, last_line(fetched)),
                    "try it: git fetch " + m_options.remote + " " + m_options.branch);
    }
    GDNCTL_TRY_ASSIGN(const ProcessResult merged, git({"merge", "--no-edit", branch}));
    m_done = merged.ok();
    if (merged.ok()) return {};
    // Also when nothing was begun: git refuses then, and nothing is lost.
    GDNCTL_TRY(git({"merge", "--abort"}));
    if (is_conflict(merged) && m_conflicts == ConflictPolicy::skip) {
        log::warning("{} conflicts with the current branch; going on without it", branch);
        return {};
    }
    return fail(ErrorKind::conflict,
                fmt::format("failed to merge {} into current branch (exit={}). Resolve conflicts and rerun.", branch,
                            merged.exit_code),
                last_line(merged));
}

}  // namespace gdnctl::loop
