// Moving a branch to commits that were made elsewhere, and with it the checkout that has it.
#include <algorithm>
#include <array>
#include <unordered_map>

#include <fmt/format.h>

#include "gdnctl/core/log.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/clock.h"
#include "gdnctl/services/git_checkout.h"
#include "services/git/calls.h"
#include "services/git/parse.h"

namespace gdnctl {

using git::Words;
using Kind = GitLanding::Kind;

Result<GitLanding> GitCheckout::land(std::string_view branch, std::string_view base, std::string_view head,
                                     bool again) const {
    GitLanding landing;
    GDNCTL_TRY_ASSIGN(const auto all, worktrees());
    const auto owner =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return !branch.empty() && one.branch == branch; });
    std::optional<std::string> tip;
    if (owner != all.end() && !owner->head.empty()) {
        tip = owner->head;
    } else {
        GDNCTL_TRY_ASSIGN(tip, resolve(branch.empty() ? "HEAD" : branch));
    }
    landing.tip = tip.value_or("");
    // A killed landing may have moved the files and not the branch, never the other way round.
    if (tip && landing.tip != base) {
        GDNCTL_TRY_ASSIGN(const bool there, is_ancestor(head, landing.tip));
        landing.kind = there ? Kind::already : Kind::moved;
        return landing;
    }
    if (!tip) {
        landing.kind = Kind::moved;
        return landing;
    }
    if (branch.empty()) return land_in(*this, base, head, again);
    if (owner == all.end()) {
        const GitRefUpdate update{std::string(branch), std::string(head), std::string(base)};
        GDNCTL_TRY(update_refs(std::span(&update, 1)));
        landing.tip = head;
        return landing;
    }
    if (owner->path == root()) return land_in(*this, base, head, again);
    GDNCTL_TRY_ASSIGN(GitCheckout checkout, open(owner->path, m_calls->process, m_calls->clock));
    checkout.m_calls->overrides = m_calls->overrides;
    return land_in(checkout, base, head, again);
}

Result<GitLanding> GitCheckout::land_in(const GitCheckout& checkout, std::string_view base, std::string_view head,
                                        bool again) const {
    GitLanding landing;
    landing.checkout = checkout.root();
    landing.tip = base;
    const Words words = {"merge",     "--ff-only", "--no-autostash", "--no-overwrite-ignore",
                         "--no-stat", "-q",        std::string(head)};
    GDNCTL_TRY_ASSIGN(const ProcessResult merged, checkout.m_calls->run(words));
    GDNCTL_TRY_ASSIGN(const GitHead now, checkout.head());
    landing.tip = now.sha;
    if (now.sha == head) return landing;
    if (merged.err.find("Not possible to fast-forward") != std::string::npos || now.sha != base) {
        landing.kind = Kind::moved;
        return landing;
    }
    landing.kind = Kind::blocked;
    landing.why = git::reason_of(merged.err);
    landing.in_the_way = git::parse_listed_paths(merged.err);
    if (landing.in_the_way.empty()) {
        auto refused = checkout.m_calls->refused("merge", merged);
        const ErrorKind kind = refused.value().kind;
        // A full disk, a folder that cannot be written to: some files have been moved by then.
        if (kind == ErrorKind::local_io) GDNCTL_TRY(checkout.take_back_landing(base, head));
        if (kind == ErrorKind::local_io || kind == ErrorKind::conflict) return refused;
    }
    if (again) GDNCTL_TRY(checkout.complete_landing(base, head, landing));
    return landing;
}

// A git that was killed while it moved the files leaves some as they were, some as they shall be, one missing or with
// the beginning of its new content. Anything else is somebody's work.
Status GitCheckout::complete_landing(std::string_view base, std::string_view head, GitLanding& landing) const {
    GDNCTL_TRY_ASSIGN(const GitSnapshot present, snapshot(base, "what a landing met\n"));
    GDNCTL_TRY_ASSIGN(const auto wanted, diff(base, head));
    std::unordered_map<std::string, GitFileChange> found;
    GDNCTL_TRY_ASSIGN(const auto changes, diff(base, present.tree));
    for (const auto& change : changes) found.emplace(change.path, change);
    std::vector<std::string> in_the_way;
    git::CallOptions paths;
    for (const auto& want : wanted) {
        paths.input += want.path + '\0';
        const auto at = found.find(want.path);
        if (at == found.end() || at->second.status == 'D' || at->second.new_object == want.new_object) continue;
        GDNCTL_TRY_ASSIGN(const std::string here, m_calls->output({"cat-file", "blob", at->second.new_object}));
        const bool gone = want.status == 'D';
        GDNCTL_TRY_ASSIGN(const std::string full,
                          gone ? Result<std::string>("") : m_calls->output({"cat-file", "blob", want.new_object}));
        if (gone || !full.starts_with(here)) in_the_way.push_back(want.path);
    }
    if (!in_the_way.empty()) {
        landing.in_the_way = std::move(in_the_way);
        return {};
    }
    log::info("completing what a killed run began: {} files of {}", wanted.size(), root().string());
    GDNCTL_TRY(m_calls->done({"--literal-pathspecs", "restore", "--source=" + std::string(head), "--staged",
                              "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul"},
                             paths));
    GDNCTL_TRY(m_calls->done({"update-ref", "-m", "gdnctl: landed", "HEAD", std::string(head), std::string(base)}));
    landing = {Kind::landed, std::string(head), root(), {}, {}};
    return {};
}

// What a landing that failed half-way has moved goes back. git began it only since everything in its way was as at the
// base, so what is there now and is not is its own.
Status GitCheckout::take_back_landing(std::string_view base, std::string_view head) const {
    GDNCTL_TRY_ASSIGN(const GitSnapshot present, snapshot(base, "what a landing left\n"));
    GDNCTL_TRY_ASSIGN(const auto changes, diff(base, present.tree));
    GDNCTL_TRY_ASSIGN(const auto wanted, diff(base, head));
    git::CallOptions paths;
    for (const auto& change : changes) {
        const auto want = std::find_if(wanted.begin(), wanted.end(),
                                       [&](const GitFileChange& one) { return one.path == change.path; });
        if (want == wanted.end()) continue;
        if (change.status != 'A') {
            paths.input += change.path + '\0';
        } else if (change.new_object == want->new_object) {
            std::error_code problem;
            std::filesystem::remove(root() / change.path, problem);
        }
    }
    if (paths.input.empty()) return {};
    return m_calls->done({"--literal-pathspecs", "restore", "--source=" + std::string(base), "--staged", "--worktree",
                          "--pathspec-from-file=-", "--pathspec-file-nul"},
                         paths);
}

std::string GitCheckout::unfinished() const {
    constexpr std::array<std::pair<const char*, const char*>, 5> k_signs = {{{"MERGE_HEAD", "merge"},
                                                                             {"rebase-merge", "rebase"},
                                                                             {"rebase-apply", "rebase"},
                                                                             {"CHERRY_PICK_HEAD", "cherry-pick"},
                                                                             {"REVERT_HEAD", "revert"}}};
    for (const auto& [file, name] : k_signs) {
        std::error_code problem;
        if (std::filesystem::exists(git_dir() / file, problem)) return name;
    }
    return {};
}

Status GitCheckout::clear_index_lock() const {
    constexpr int k_looks = 3;
    constexpr std::chrono::seconds k_pause{2};
    const std::filesystem::path lock = git_dir() / "index.lock";
    std::error_code problem;
    for (int i = 0; std::filesystem::exists(lock, problem); ++i) {
        if (i < k_looks) {
            m_calls->clock.sleep_for(k_pause, {});
            continue;
        }
        if (git::git_runs_in(root(), common_dir())) {
            return fail(ErrorKind::conflict, fmt::format("another git is at work in {}", root().string()),
                        "let it end, then run the command again");
        }
        log::warning("removing {}, which a git that was killed has left behind", lock.string());
        std::filesystem::remove(lock, problem);
        break;
    }
    return {};
}

Status GitCheckout::forget_unfinished() const { return m_calls->done({"reset", "-q"}); }

Status GitCheckout::clear_stale_locks() const {
    std::vector<std::filesystem::path> locks = {git_dir() / "index.lock", git_dir() / "HEAD.lock",
                                                common_dir() / "packed-refs.lock"};
    GDNCTL_TRY_ASSIGN(const GitHead now, head());
    if (!now.branch.empty()) locks.push_back(common_dir() / (now.branch + ".lock"));
    locks.push_back(common_dir() / "refs/stash.lock");
    std::error_code none;
    // Refs come and go while it looks: `++` would throw.
    std::filesystem::recursive_directory_iterator at(common_dir() / "refs/gdnctl", none);
    for (; at != std::filesystem::recursive_directory_iterator(); at.increment(none)) {
        if (at->path().extension() == ".lock") locks.push_back(at->path());
    }
    for (const auto& lock : locks) {
        std::error_code problem;
        if (!std::filesystem::exists(lock, problem) || git::git_runs_in(root(), common_dir())) continue;
        log::warning("removing {}, which a git that was killed has left behind", lock.string());
        std::filesystem::remove(lock, problem);
    }
    return {};
}

Status GitCheckout::undo_to(std::string_view base) const {
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_calls->run({"reset", "-q", "--keep", std::string(base)}));
    if (result.ok()) return {};
    if (result.err.find("not uptodate") != std::string::npos || result.err.find("would be") != std::string::npos) {
        return fail(ErrorKind::conflict,
                    fmt::format("uncommitted work in {} keeps the commits from being taken back: {}", root().string(),
                                git::reason_of(result.err)),
                    "git stash; git reset --keep " + std::string(base) + "; git stash pop");
    }
    return m_calls->refused("reset", result);
}

Result<std::optional<std::string>> GitCheckout::rebase(std::string_view base, std::string_view head,
                                                       std::string_view onto) const {
    GDNCTL_TRY(m_calls->done({"checkout", "-q", "--detach", std::string(head)}));
    const Words words = {"rebase", "-q", "--rebase-merges", "--onto", std::string(onto), std::string(base)};
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_calls->run(words));
    if (result.ok()) {
        GDNCTL_TRY_ASSIGN(const GitHead now, this->head());
        return std::optional(now.sha);
    }
    const bool conflict = result.out.find("CONFLICT") != std::string::npos ||
                          result.err.find("could not apply") != std::string::npos ||
                          result.err.find("Could not apply") != std::string::npos;
    GDNCTL_TRY_ASSIGN(const ProcessResult aborted, m_calls->run({"rebase", "--abort"}));
    if (!conflict) return m_calls->refused("rebase", result);
    if (!aborted.ok()) return m_calls->refused("rebase --abort", aborted);
    return std::optional<std::string>();
}

}  // namespace gdnctl
