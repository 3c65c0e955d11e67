#include "loop/engine/sync_main.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/process.h"

namespace gdnctl::loop {

namespace {

// The line that states the cause, else the last one.
std::string reason_in(const std::string& words) {
    const auto lines = text::split(text::trim(words), '\n');
    const auto fatal = std::find_if(lines.begin(), lines.end(), [](auto line) { return line.starts_with("fatal: "); });
    return redact(fatal != lines.end() ? *fatal : lines.back());
}

tl::unexpected<Error> not_merged(const std::string& branch, std::string why) {
    return fail(ErrorKind::conflict,
                fmt::format("failed to merge {} into current branch (exit=1). Resolve conflicts and rerun.", branch),
                std::move(why));
}

}  // namespace

Status SyncMain::run(const std::string& into, std::span<const Record> open) {
    const std::string branch = fmt::format("{}/{}", m_options.remote, m_options.branch);
    if (const Record* intent = last_of(open, RecordType::merge_intent)) GDNCTL_TRY(move(*intent, true, branch));
    if (m_options.policy == SyncPolicy::off || (m_options.policy == SyncPolicy::once && m_done)) return {};
    GDNCTL_TRY(fetch());
    GDNCTL_TRY(merge(into, branch));
    m_done = true;
    return {};
}

Status SyncMain::fetch() const {
    log::write_as_it_is(log::Level::info, fmt::format("$ git fetch {} {}", m_options.remote, m_options.branch));
    const auto fetched = m_checkout.fetch(m_options.remote, m_options.branch, m_stop);
    if (fetched && fetched->ok()) return {};
    if (!fetched && fetched.error().kind != ErrorKind::timeout) return tl::unexpected(fetched.error());
    const std::string branch = fmt::format("{}/{}", m_options.remote, m_options.branch);
    const std::string why = fetched ? fmt::format("(exit={}): {}", fetched->exit_code, reason_in(fetched->err))
                                    : ": " + fetched.error().message;
    return fail(ErrorKind::infrastructure, fmt::format("failed to fetch {} {}", branch, why),
                fmt::format("try: git fetch {} {}", m_options.remote, m_options.branch));
}

Status SyncMain::merge(const std::string& into, const std::string& branch) const {
    GDNCTL_TRY_ASSIGN(const auto theirs, m_checkout.resolve(branch));
    if (!theirs) {
        return fail(ErrorKind::infrastructure, fmt::format("failed to fetch {}: there is no such branch here", branch),
                    "its remote must be one that git config remote.NAME.fetch follows");
    }
    GDNCTL_TRY_ASSIGN(GitHead ours, m_checkout.head());
    if (!into.empty() && ours.branch != into) {
        GDNCTL_TRY_ASSIGN(const auto tip, m_checkout.resolve(into));
        if (!tip) return {};  // taking the base fails too, and reports why
        ours = {*tip, into};
    }
    GDNCTL_TRY_ASSIGN(const bool there, m_checkout.is_ancestor(*theirs, ours.sha));
    if (there) return {};
    GDNCTL_TRY_ASSIGN(const auto head, merged(branch, ours, *theirs));
    if (!head && m_conflicts == ConflictPolicy::skip) {
        log::warning("{} conflicts with the current branch; continuing without it", branch);
        return {};
    }
    if (!head) return not_merged(branch, "they conflict");
    log::write_as_it_is(log::Level::info, fmt::format("$ git merge --no-edit {}", branch));
    Record intent{RecordType::merge_intent};
    intent.text = {{"branch", ours.branch}, {"base", ours.sha}, {"head", *head}};
    GDNCTL_TRY(m_note(intent.text));
    return move(intent, false, branch);
}

// The merge commit exists before the branch or any file changes, so that it can be completed after a kill.
Result<std::optional<std::string>> SyncMain::merged(const std::string& branch, const GitHead& ours,
                                                    const std::string& theirs) const {
    GDNCTL_TRY_ASSIGN(const bool forward, m_checkout.is_ancestor(ours.sha, theirs));
    if (forward) return std::optional(theirs);
    GDNCTL_TRY_ASSIGN(const auto tree, m_checkout.merged_tree(ours.sha, theirs));
    if (!tree) return std::optional<std::string>();
    GDNCTL_TRY_ASSIGN(std::string head, m_checkout.commit_merge(*tree, ours.sha, theirs, branch));
    return std::optional(std::move(head));
}

Status SyncMain::move(const Record& intent, bool again, const std::string& branch) const {
    GDNCTL_TRY_ASSIGN(
        const GitLanding landing,
        BranchMover(m_checkout).land(intent.word("branch"), intent.word("base"), intent.word("head"), again));
    if (landing.kind != GitLanding::Kind::blocked)
        return {};  // if somebody moved it in the meantime, the next merge
                    // includes that
    return not_merged(branch, landing.in_the_way.empty()
                                  ? landing.why
                                  : "uncommitted work is in the way: " + text::join(landing.in_the_way, ", "));
}

}  // namespace gdnctl::loop
