#include "loop/sync_main.h"

#include <algorithm>

#include <fmt/format.h>

#include "gdnctl/core/log.h"
#include "gdnctl/core/redact.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/process.h"

namespace gdnctl::loop {

namespace {

// The line that says why, else the last one.
std::string reason_in(const std::string& words) {
    const auto lines = text::split(text::trim(words), '\n');
    const auto fatal = std::find_if(lines.begin(), lines.end(), [](auto line) { return line.starts_with("fatal: "); });
    return redact(fatal != lines.end() ? *fatal : lines.back());
}

}  // namespace

Status SyncMain::run() {
    if (m_options.policy == SyncPolicy::off || (m_options.policy == SyncPolicy::once && m_done)) return {};
    GDNCTL_TRY(fetch());
    GDNCTL_TRY(merge(fmt::format("{}/{}", m_options.remote, m_options.branch)));
    m_done = true;
    return {};
}

Status SyncMain::fetch() const {
    log::info("$ git fetch {} {}", m_options.remote, m_options.branch);
    const auto fetched = m_checkout.fetch(m_options.remote, m_options.branch, m_stop);
    if (fetched && fetched->ok()) return {};
    if (!fetched && fetched.error().kind != ErrorKind::timeout) return tl::unexpected(fetched.error());
    const std::string branch = fmt::format("{}/{}", m_options.remote, m_options.branch);
    const std::string why = fetched ? fmt::format("(exit={}): {}", fetched->exit_code, reason_in(fetched->err))
                                    : ": " + fetched.error().message;
    return fail(ErrorKind::infrastructure, fmt::format("failed to fetch {} {}", branch, why),
                fmt::format("try it: git fetch {} {}", m_options.remote, m_options.branch));
}

Status SyncMain::merge(const std::string& branch) const {
    GDNCTL_TRY_ASSIGN(const auto theirs, m_checkout.resolve(branch));
    if (!theirs) {
        return fail(ErrorKind::infrastructure, fmt::format("failed to fetch {}: there is no such branch here", branch),
                    "its remote must be one that git config remote.NAME.fetch follows");
    }
    GDNCTL_TRY_ASSIGN(const GitHead ours, m_checkout.head());
    GDNCTL_TRY_ASSIGN(const bool there, m_checkout.is_ancestor(*theirs, ours.sha));
    if (there) return {};
    // A merge that stops half-way would have to be taken back, and a kill could come before that.
    GDNCTL_TRY_ASSIGN(const auto tree, m_checkout.merged_tree(ours.sha, *theirs));
    int code = 1;
    std::string why = "they conflict";
    if (tree) {
        log::info("$ git merge --no-edit {}", branch);
        GDNCTL_TRY_ASSIGN(const ProcessResult merged, m_checkout.merge(branch, m_stop));
        if (merged.ok()) return {};
        code = merged.exit_code;
        why = reason_in(merged.err.empty() ? merged.out : merged.err);
    } else if (m_conflicts == ConflictPolicy::skip) {
        log::warning("{} conflicts with the current branch; going on without it", branch);
        return {};
    }
    return fail(
        ErrorKind::conflict,
        fmt::format("failed to merge {} into current branch (exit={}). Resolve conflicts and rerun.", branch, code),
        why);
}

}  // namespace gdnctl::loop
