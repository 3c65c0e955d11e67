// What happens to a candidate: it lands, is removed, or follows a moved branch. Also the log commit.
#include <fmt/format.h>

#include "core/log.h"
#include "loop/engine/transaction.h"

namespace gdnctl::loop {

Status Transactions::check_branch(std::string_view branch) const {
    if (m_slot || branch.empty()) return {};
    GDNCTL_TRY_ASSIGN(const GitHead head, m_repository.head());
    if (head.branch == branch) return {};
    return fail(ErrorKind::conflict,
                fmt::format("the checkout is on {}, this run works on {}",
                            head.branch.empty() ? "no branch" : head.branch, branch),
                fmt::format("git switch {}, or start a new run there, without --resume",
                            branch.substr(std::string_view("refs/heads/").size())));
}

// The user may have switched branches in the checkout by now, which does not concern a slot.
Result<Base> Transactions::start_of(std::string_view branch) const {
    GDNCTL_TRY_ASSIGN(GitHead head, m_repository.head());
    if (!m_slot || branch.empty() || head.branch == branch) return Base{head.sha, head.branch};
    GDNCTL_TRY_ASSIGN(const auto tip, m_repository.resolve(branch));
    if (tip) return Base{*tip, std::string(branch)};
    return fail(ErrorKind::conflict, fmt::format("{} was deleted or renamed, but this run works on it", branch),
                "start a new run, without --resume");
}

Result<GitLanding> Transactions::accept(const Base& base, const Candidate& candidate, bool again) {
    GDNCTL_TRY(restore_setup());  // checks ran what the agent wrote
    if (!m_slot || candidate.head == base.sha) {
        GitLanding there;
        there.kind = GitLanding::Kind::already;
        there.tip = candidate.head;
        return there;
    }
    return m_repository.land(base.branch, base.sha, candidate.head, again);
}

Status Transactions::reject(const Base& base, const Candidate& candidate) {
    GDNCTL_TRY(restore_setup());
    if (m_slot) return {};
    GDNCTL_TRY_ASSIGN(const GitHead head, m_repository.head());
    if (!candidate.broken.empty()) {
        if (head.branch == base.branch && head.sha == base.sha) return {};
        log::info("returning the checkout to {} at {}", base.branch.empty() ? "no branch" : base.branch,
                  base.sha.substr(0, 12));
        return m_repository.go_back_to(base.branch, base.sha);
    }
    if (head.sha == base.sha) return {};  // nothing was committed, or this was done before a kill
    if (head.sha != candidate.head || head.branch != base.branch) {
        return fail(ErrorKind::conflict,
                    fmt::format("the branch was moved by someone else, to {}; the rejected commits stay on it",
                                head.sha.substr(0, 12)),
                    fmt::format("revert them by hand: git revert {}..{}", base.sha.substr(0, 12),
                                candidate.head.substr(0, 12)));
    }
    return m_repository.undo_to(base.sha);
}

Result<std::optional<Candidate>> Transactions::follow(int iteration, const Base& base, const Candidate& candidate,
                                                      std::string_view tip) {
    if (!m_slot) return std::optional<Candidate>();
    GDNCTL_TRY(fill_slot(candidate.head));
    GDNCTL_TRY_ASSIGN(const auto moved, m_slot->checkout().rebase(base.sha, candidate.head, tip));
    if (!moved) return std::optional<Candidate>();
    GDNCTL_TRY(pin(ref(iteration, "head-before-rebase"), candidate.head));
    GDNCTL_TRY(pin(ref(iteration, "head"), *moved));
    Candidate followed;
    followed.head = *moved;
    followed.leftovers = candidate.leftovers;
    GDNCTL_TRY(judge(iteration, Base{std::string(tip), base.branch}, followed));
    return std::optional(std::move(followed));
}

Result<std::vector<std::string>> Transactions::kept(int iteration) const {
    const std::string prefix = ref(iteration) + "/";
    GDNCTL_TRY_ASSIGN(const auto all, m_repository.refs(prefix));
    const auto base = all.find(prefix + "base");
    std::vector<std::string> names;
    for (const auto& [name, target] : all) {
        const std::string_view leaf = std::string_view(name).substr(prefix.size());
        const bool inside = leaf.find("leftovers-in-") != std::string_view::npos;
        const bool work =
            inside || leaf.ends_with("head") || leaf.ends_with("leftovers") || leaf.starts_with("cleared/");
        if (work && (base == all.end() || target != base->second)) names.push_back(name);
    }
    return names;
}

Result<std::optional<std::string>> Transactions::landed_log(int iteration, std::string_view branch) const {
    GDNCTL_TRY_ASSIGN(auto made, m_repository.resolve(ref(iteration, "log")));
    GDNCTL_TRY_ASSIGN(const auto tip, m_repository.resolve(branch.empty() ? "HEAD" : branch));
    if (!made || !tip) return std::optional<std::string>();
    GDNCTL_TRY_ASSIGN(const bool there, m_repository.is_ancestor(*made, *tip));
    return there ? std::move(made) : std::nullopt;
}

Result<GitLanding> Transactions::commit_log(int iteration, std::string_view branch, const LogEntry& entry, bool again) {
    const std::string name = ref(iteration, "log");
    GDNCTL_TRY_ASSIGN(auto made, again ? m_repository.resolve(name) : Result<std::optional<std::string>>(std::nullopt));
    GDNCTL_TRY_ASSIGN(const auto tip, m_repository.resolve(branch.empty() ? "HEAD" : branch));
    if (!tip) {
        return fail(ErrorKind::conflict, fmt::format("the branch {} no longer exists", branch));
    }
    if (made) {
        GDNCTL_TRY_ASSIGN(const bool there, m_repository.is_ancestor(*made, *tip));
        if (there) {
            GitLanding landed;
            landed.kind = GitLanding::Kind::already;
            landed.tip = *made;
            return landed;
        }
        GDNCTL_TRY_ASSIGN(const auto parent, m_repository.resolve(*made + "^1"));
        if (parent != tip) made.reset();  // the branch has moved elsewhere in the meantime
    }
    if (!made) {
        GitLanding moved;
        moved.kind = GitLanding::Kind::moved;
        moved.tip = *tip;
        if (!entry.tip.empty() && entry.tip != *tip) return moved;
        GDNCTL_TRY_ASSIGN(made, m_repository.commit_files(*tip, entry.files, entry.message));
        GDNCTL_TRY(pin(name, *made));
    }
    return m_repository.land(branch, *tip, *made, again);
}

}  // namespace gdnctl::loop
