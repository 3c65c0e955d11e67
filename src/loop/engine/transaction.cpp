#include "loop/engine/transaction.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/engine/messages.h"
#include "loop/measure/slot_links.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

bool is_run_name(std::string_view name) {
    return !name.empty() && name.size() <= 40 && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

Result<std::string> seal_of(const std::pair<const std::string, std::string>& setting) {
    return hash_hex(HashKind::sha256, setting.first + "\n" + setting.second);
}

constexpr std::uintmax_t k_largest_patch = std::uintmax_t{16} << 20;

std::uintmax_t size_of(const fs::path& file) {
    std::error_code problem;
    const auto size = fs::is_regular_file(fs::symlink_status(file, problem)) ? fs::file_size(file, problem) : 0;
    return problem ? 0 : size;
}

// Approximate size of each change in a patch: the larger of its two sides.
Result<std::vector<std::uintmax_t>> sizes_of(const GitCheckout& tree, const std::vector<GitFileChange>& changes) {
    std::vector<std::string> before;
    for (const auto& change : changes) before.push_back(change.old_object);
    GDNCTL_TRY_ASSIGN(auto sizes, tree.sizes(before));
    for (std::size_t i = 0; i < changes.size(); ++i) {
        sizes[i] = std::max(sizes[i], size_of(tree.root() / changes[i].path));
    }
    return sizes;
}

}  // namespace

std::string_view to_text(DiffClass diff) {
    switch (diff) {
        case DiffClass::no_op: return "no-op";
        case DiffClass::log_only: return "log-only";
        case DiffClass::change: break;
    }
    return "change";
}

Result<fs::path> slot_folder(const fs::path& state_dir, const fs::path& common_dir) {
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha256, common_dir.string()));
    const fs::path root = common_dir.filename() == ".git" ? common_dir.parent_path() : common_dir;
    return state_dir / "worktrees" / fmt::format("{}-{}", root.filename().string(), hash.substr(0, 12));
}

Result<Transactions> Transactions::open(const fs::path& start, TransactionSettings settings, const Artefacts& artefacts,
                                        const std::optional<std::set<std::string>>& trusted, Process& process,
                                        Clock& clock) {
    if (!is_run_name(settings.run)) {
        return fail(ErrorKind::usage, "a run's name has 1 to 40 letters a-z, digits and '-': " + settings.run);
    }
    GDNCTL_TRY_ASSIGN(GitCheckout repository, GitCheckout::open(start, process, clock));
    GDNCTL_TRY_ASSIGN(auto believed, repository.executable_config());
    if (trusted) {
        for (auto at = believed.begin(); at != believed.end();) {
            GDNCTL_TRY_ASSIGN(const std::string seal, seal_of(*at));
            at = trusted->contains(seal) ? std::next(at) : believed.erase(at);
        }
        GDNCTL_TRY(repository.trust(believed));
    }
    std::vector<std::string> put_back;
    if (trusted) {
        GDNCTL_TRY_ASSIGN(put_back, GitSetup::recover(repository, settings.run, settings.alive));
    }
    std::optional<GitSlot> slot;
    if (settings.isolation == Isolation::worktree) {
        if (is_inside(repository.root(), settings.slot)) {
            return fail(ErrorKind::usage,
                        "the worktree for iterations must be outside the repository: " + settings.slot.string(),
                        "set GDNCTL_STATE_DIR to a folder elsewhere");
        }
        GDNCTL_TRY(check_untracked(repository, settings.links));
        GDNCTL_TRY_ASSIGN(slot, GitSlot::open(repository, settings.slot, trusted.has_value(), process, clock));
    }
    GDNCTL_TRY(repository.exclude(artefacts.folder()));
    Transactions all(std::move(repository), std::move(slot), std::move(settings), artefacts, std::move(believed),
                     trusted.has_value());
    all.m_put_back = std::move(put_back);
    return all;
}

const fs::path& Transactions::workdir() const { return tree().root(); }

Result<std::set<std::string>> Transactions::trusted() const {
    std::set<std::string> seals;
    for (const auto& entry : m_trusted) {
        GDNCTL_TRY_ASSIGN(std::string seal, seal_of(entry));
        seals.insert(std::move(seal));
    }
    return seals;
}

std::string Transactions::ref(int iteration, std::string_view leaf) const {
    return fmt::format("refs/gdnctl/{}/iter-{:03}{}{}", m_settings.run, iteration, leaf.empty() ? "" : "/", leaf);
}

Status Transactions::pin(const std::string& name, std::string_view target) const {
    const GitRefUpdate update{name, std::string(target)};
    return m_repository.update_refs(std::span(&update, 1));
}

Status Transactions::fill_slot(std::string_view commit) {
    GDNCTL_TRY(m_slot->move_to(commit, m_settings.links));
    GDNCTL_TRY(m_slot->fill_submodules(m_repository));
    return make_links(m_slot->checkout().root(), m_repository.root(), m_settings.links);
}

// An unfinished merge of the user would end in a commit of the agent, or be lost with the stash.
Status Transactions::check_finished() const {
    const std::string name = m_repository.unfinished();
    if (name.empty()) return {};
    return fail(ErrorKind::conflict, fmt::format("a {} is in progress in {}", name, m_repository.root().string()),
                fmt::format("finish it, or abort it: git {} --abort", name));
}

Status Transactions::check_clean() const {
    GDNCTL_TRY(check_finished());
    GDNCTL_TRY_ASSIGN(const auto paths, dirty());
    return paths.empty() ? Status() : fail(ErrorKind::config, std::string(message::k_dirty), message::few_of(paths));
}

// Restores things other than files that an agent may destroy: the slot, the commit of HEAD, the index.
Result<GitHead> Transactions::present(const Base& base) {
    GDNCTL_TRY(restore_setup());
    if (m_slot) GDNCTL_TRY(m_slot->mend(m_repository));
    auto head = tree().head();
    if (!head && head.error().kind == ErrorKind::usage) {
        GDNCTL_TRY(tree().leave_unborn(base.sha, m_slot ? std::string() : base.branch));
        head = tree().head();
    }
    std::error_code problem;
    if (head && !fs::exists(tree().git_dir() / "index", problem)) {
        log::warning("{} lost its index: rebuilding it", tree().root().string());
        GDNCTL_TRY(tree().forget_unfinished());
    }
    return head;
}

Result<Base> Transactions::begin(int iteration, bool again, std::string_view branch) {
    if (m_slot) GDNCTL_TRY(m_slot->mend(m_repository));
    GDNCTL_TRY(distrust(nullptr));
    if (!again) {
        GDNCTL_TRY(check_finished());
        if (!m_slot) GDNCTL_TRY(m_repository.clear_index_lock());
    }
    GDNCTL_TRY_ASSIGN(Base base, start_of(branch));
    const std::string name = ref(iteration, "base");
    if (again) {
        GDNCTL_TRY_ASSIGN(const auto pinned, m_repository.resolve(name));
        if (pinned) base.sha = *pinned;
    }
    GDNCTL_TRY(pin(name, base.sha));
    GDNCTL_TRY(look_at_names(iteration, base.branch));
    GDNCTL_TRY(look_inside());
    if (m_slot) GDNCTL_TRY(fill_slot(base.sha));
    return base;
}

Result<std::optional<Leftovers>> Transactions::take_leftovers(int iteration, std::string_view leaf, const Base& base,
                                                              const std::string& head, Candidate& candidate) {
    if (m_slot) {
        GDNCTL_TRY_ASSIGN(candidate.submodules, m_slot->keep_submodules(m_repository, ref(iteration, leaf)));
    }
    Leftovers found;
    GDNCTL_TRY(move_nested(iteration, leaf, base, found));
    const std::string message =
        fmt::format("Not committed in iteration {}\n\nGdnctl-Run: {}\n", iteration, m_settings.run);
    GDNCTL_TRY_ASSIGN(const GitSnapshot left,
                      m_slot ? m_slot->snapshot(head, message) : m_repository.snapshot(head, message));
    candidate.hidden = left.hidden;
    if (m_slot && !left.hidden.empty()) GDNCTL_TRY(m_slot->show(left.hidden));
    GDNCTL_TRY(move_untracked(iteration, left.repositories, found));
    if (left.commit.empty() && found.repositories.empty()) return std::optional<Leftovers>();
    if (!left.commit.empty()) {
        found.commit = left.commit;
        GDNCTL_TRY(pin(ref(iteration, leaf), left.commit));
        GDNCTL_TRY_ASSIGN(const auto changes, m_repository.diff(head, left.commit));
        for (const auto& change : changes) found.paths.push_back(change.path);
        std::string stem(leaf);
        std::replace(stem.begin(), stem.end(), '/', '-');
        // Larger ones are only on the ref, since the log directory should hold hundreds of iterations.
        GDNCTL_TRY_ASSIGN(const auto sizes, sizes_of(tree(), changes));
        if (std::accumulate(sizes.begin(), sizes.end(), std::uintmax_t{0}) <= k_largest_patch) {
            found.patch = m_artefacts.path(iteration, stem + ".patch");
            GDNCTL_TRY(m_repository.write_patch(head, left.commit, found.patch));
        } else {
            const auto largest = static_cast<std::size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
            log::info("not committed, and too large for a patch: {}", found.paths[largest]);
        }
    }
    return std::optional(std::move(found));
}

Status Transactions::put_away(int iteration, int attempt, const Base& base) {
    GDNCTL_TRY_ASSIGN(const GitHead head, present(base));
    GDNCTL_TRY(distrust(nullptr));
    GDNCTL_TRY(tree().clear_stale_locks());
    const std::string leaf = fmt::format("attempt-{}", attempt);
    if (head.sha != base.sha) GDNCTL_TRY(pin(ref(iteration, leaf + "/head"), head.sha));
    Candidate ignored;
    GDNCTL_TRY(take_leftovers(iteration, leaf + "/leftovers", base, head.sha, ignored));
    return m_slot ? fill_slot(base.sha) : Status();
}

Result<bool> Transactions::produced(const Base& base) {
    GDNCTL_TRY_ASSIGN(const GitHead head, present(base));
    if (head.sha == base.sha) return false;
    GDNCTL_TRY_ASSIGN(const bool descends, m_repository.is_ancestor(base.sha, head.sha));
    if (!descends) return false;
    GDNCTL_TRY_ASSIGN(const auto dirty, tree().dirty_paths());
    return dirty.empty();
}

Result<bool> Transactions::committed(const Base& base) {
    return present(base).map([&](const GitHead& head) { return head.sha != base.sha; });
}

Status Transactions::clear(int iteration, const Base& base) {
    if (m_slot) return {};
    if (!m_repository.unfinished().empty()) GDNCTL_TRY(m_repository.forget_unfinished());
    // A stash cleans a tree completely or not at all. It may contain more than was pinned: a check wrote files, or
    // somebody worked here. An existing one was made by a call that was killed.
    const std::string message = fmt::format("gdnctl-codex-loop-{}-iter-{:03}-left", m_settings.run, iteration);
    GDNCTL_TRY(m_repository.stash(message));
    GDNCTL_TRY_ASSIGN(const auto all, m_repository.stashes());
    for (const auto& one : all) {
        if (!one.message.ends_with(message)) continue;
        GDNCTL_TRY(pin(ref(iteration, "cleared/" + one.commit.substr(0, 12)), one.commit));
        GDNCTL_TRY(m_repository.drop_stash(one.commit));
    }
    return m_repository.go_back_to(base.branch, base.sha);
}

// Fills in everything that follows from base, head and leftovers.
Status Transactions::judge(int iteration, const Base& base, Candidate& candidate) const {
    const GitCheckout& repository = m_repository;
    GDNCTL_TRY_ASSIGN(GitRange range, repository.range(base.sha, candidate.head));
    if (!range.descends) {
        candidate.broken = fmt::format("the history no longer contains the commit {} where the iteration started",
                                       base.sha.substr(0, 12));
    }
    candidate.commits = std::move(range.commits);
    GDNCTL_TRY_ASSIGN(candidate.subject, subject(base, candidate.head));
    GDNCTL_TRY_ASSIGN(candidate.files, repository.diff(base.sha, candidate.head));
    const auto is_log = [&](const GitFileChange& change) { return glob_covers(m_settings.log_paths, change.path); };
    candidate.diff = candidate.files.empty()                                               ? DiffClass::no_op
                     : std::all_of(candidate.files.begin(), candidate.files.end(), is_log) ? DiffClass::log_only
                                                                                           : DiffClass::change;
    GDNCTL_TRY(judge_links(iteration, candidate));
    const auto note = [&](const std::string& path) {
        if (glob_covers(m_settings.protected_paths, path)) candidate.protected_changes.push_back(path);
    };
    for (const auto& change : candidate.files) note(change.path);
    std::string end = candidate.head;
    if (!m_slot && candidate.leftovers && !candidate.leftovers->commit.empty()) {
        for (const auto& path : candidate.leftovers->paths) note(path);
        end = candidate.leftovers->commit;
    }
    auto& touched = candidate.protected_changes;
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    if (!touched.empty()) {
        GDNCTL_TRY_ASSIGN(candidate.protected_diff, repository.patch(base.sha, end, touched));
    }
    return {};
}

Result<Candidate> Transactions::collect(int iteration, const Base& base) {
    Candidate candidate;
    GDNCTL_TRY_ASSIGN(const GitHead head, present(base));
    GDNCTL_TRY(distrust(&candidate.config_changes));
    candidate.config_changes.insert(candidate.config_changes.end(), m_put_back.begin(), m_put_back.end());
    m_put_back.clear();
    candidate.head = head.sha;
    // First of all: if a later step fails, nothing is lost.
    GDNCTL_TRY(pin(ref(iteration, "head"), head.sha));
    GDNCTL_TRY_ASSIGN(candidate.leftovers, take_leftovers(iteration, "leftovers", base, head.sha, candidate));
    GDNCTL_TRY(look_at_names(iteration, base.branch));
    candidate.gone = std::exchange(m_gone, {});
    // A collection that was killed may already have taken them.
    if (!candidate.leftovers && m_resumed) GDNCTL_TRY(recall_leftovers(iteration, candidate));
    GDNCTL_TRY(judge(iteration, base, candidate));
    if (!m_slot && head.branch != base.branch) {
        candidate.broken = fmt::format("the checkout is on {}, the iteration started on {}",
                                       head.branch.empty() ? "no branch" : head.branch,
                                       base.branch.empty() ? "no branch" : base.branch);
    }
    if (!m_slot) {
        // There was none when the iteration started.
        const std::string name = m_repository.unfinished();
        if (!name.empty() && name != "rebase") {
            log::warning("abandoning a {} that the agent did not finish; its files stay unchanged", name);
            GDNCTL_TRY(m_repository.forget_unfinished());
        }
    }
    if (candidate.broken.empty()) GDNCTL_TRY(clear_around_nested(iteration, head));
    // Only what was committed is judged.
    if (m_slot && (candidate.leftovers || !candidate.hidden.empty())) GDNCTL_TRY(fill_slot(head.sha));
    return candidate;
}

Status Transactions::recall_leftovers(int iteration, Candidate& candidate) const {
    GDNCTL_TRY_ASSIGN(const auto commit, m_repository.resolve(ref(iteration, "leftovers")));
    if (!commit) return {};
    GDNCTL_TRY_ASSIGN(const auto parent, m_repository.resolve(*commit + "^1"));
    if (parent != candidate.head) return {};
    Leftovers found;
    found.commit = *commit;
    std::error_code problem;
    const fs::path patch = m_artefacts.path(iteration, "leftovers.patch");
    if (fs::exists(patch, problem)) found.patch = patch;
    GDNCTL_TRY_ASSIGN(const auto changes, m_repository.diff(candidate.head, *commit));
    for (const auto& change : changes) found.paths.push_back(change.path);
    candidate.leftovers = std::move(found);
    return {};
}

Result<Candidate> Transactions::recall(int iteration, const Base& base) const {
    Candidate candidate;
    GDNCTL_TRY_ASSIGN(const auto head, m_repository.resolve(ref(iteration, "head")));
    if (!head) return fail(ErrorKind::conflict, fmt::format("the ref {} no longer exists", ref(iteration, "head")));
    candidate.head = *head;
    GDNCTL_TRY(recall_leftovers(iteration, candidate));
    GDNCTL_TRY(judge(iteration, base, candidate));
    return candidate;
}

Result<std::vector<std::string>> Transactions::dirty() const { return m_repository.dirty_paths(); }

Result<std::optional<std::string>> Transactions::set_aside(int iteration, std::string_view message, bool again) {
    std::optional<std::string> commit;
    if (!again) GDNCTL_TRY(check_finished());
    if (again) {
        GDNCTL_TRY_ASSIGN(commit, stash_named(message));
    }
    if (commit) {
        // Killed between stashing and cleaning the tree: what is still there is stashed once more. If that is exactly
        // the same, only the cleaning was missing.
        GDNCTL_TRY_ASSIGN(const GitRestore back, m_repository.restore_stash(*commit));
        if (back != GitRestore::restored && back != GitRestore::was_there) {
            return fail(ErrorKind::conflict,
                        "the stash " + *commit + " of the run that was killed conflicts with the checkout",
                        fmt::format("git stash branch my-work {} checks it out on a separate branch", *commit));
        }
        GDNCTL_TRY(m_repository.drop_stash(*commit));
    }
    GDNCTL_TRY_ASSIGN(const auto made, m_repository.stash(message));
    if (!made) return std::optional<std::string>();
    GDNCTL_TRY(pin(ref(iteration, "stash"), made->commit));
    return std::optional(made->commit);
}

Result<std::optional<std::string>> Transactions::stash_named(std::string_view message) const {
    GDNCTL_TRY_ASSIGN(const auto all, m_repository.stashes());
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.message.ends_with(message); });
    return found == all.end() ? std::nullopt : std::optional(found->commit);
}

Result<GitRestore> Transactions::bring_back(std::string_view stash) {
    GDNCTL_TRY_ASSIGN(const GitRestore result, m_repository.restore_stash(stash));
    if (result == GitRestore::restored || result == GitRestore::was_there) {
        GDNCTL_TRY(m_repository.drop_stash(stash));
    }
    return result;
}

}  // namespace gdnctl::loop
