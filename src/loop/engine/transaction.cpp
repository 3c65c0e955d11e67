#include "loop/engine/transaction.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/engine/messages.h"
#include "loop/measure/worktrees.h"
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

// One line each: "<object> <ref>", for a stash "<object> refs/stash <message>".
std::string message_of(const std::vector<GitName>& names, const std::string& run) {
    std::string text = fmt::format("Other branches, tags and stashes\n\nGdnctl-Run: {}\n\n", run);
    for (const auto& name : names) {
        text += fmt::format("{} {}{}{}\n", name.object, name.ref, name.said.empty() ? "" : " ", name.said);
    }
    return text;
}

std::vector<GitName> names_in(std::string_view commit) {
    std::vector<GitName> names;
    const auto from = commit.find("\nGdnctl-Run: ");
    if (from == std::string_view::npos) return names;
    for (const auto line : text::split(commit.substr(from + 1), '\n')) {
        const auto object = line.find(' ');
        if (object == std::string_view::npos || line.substr(object + 1).substr(0, 5) != "refs/") continue;
        const auto ref = line.find(' ', object + 1);
        names.push_back({std::string(line.substr(object + 1, ref - object - 1)), std::string(line.substr(0, object))});
        if (ref != std::string_view::npos) names.back().said = line.substr(ref + 1);
    }
    return names;
}

// "the branch topic, which was at 0123456789ab"
std::string text_of(const GitName& name) {
    const std::string_view object = std::string_view(name.object).substr(0, 12);
    if (name.ref == k_stash_ref) return fmt::format("the stash {} ({})", object, name.said);
    std::string_view kind = "ref", rest = name.ref;
    for (const auto& [prefix, word] : {std::pair("refs/heads/", "branch"), std::pair("refs/tags/", "tag")}) {
        if (!rest.starts_with(prefix)) continue;
        kind = word;
        rest.remove_prefix(std::string_view(prefix).size());
    }
    return fmt::format("the {} {}, which was at {}", kind, rest, object);
}

std::string remedy_for(const GitName& name) {
    if (name.ref == k_stash_ref) return "git stash store " + name.object;
    return fmt::format("git update-ref {} {}", text::shell_quote(name.ref), name.object);
}

constexpr std::size_t k_most_said = 10;

bool contains(const std::vector<std::string>& paths, const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
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
        GDNCTL_TRY_ASSIGN(put_back, GitSettings::recover(repository, settings.run, settings.alive));
    }
    std::optional<PrivateWorktree> slot;
    if (settings.isolation == Isolation::worktree) {
        if (is_inside(repository.root(), settings.slot)) {
            return fail(ErrorKind::usage,
                        "the worktree for iterations must be outside the repository: " + settings.slot.string(),
                        "set GDNCTL_STATE_DIR to a folder elsewhere");
        }
        GDNCTL_TRY(check_untracked(repository, settings.links));
        GDNCTL_TRY_ASSIGN(slot, PrivateWorktree::open(repository, settings.slot, trusted.has_value(), process, clock));
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

Result<std::optional<Leftovers>> Transactions::archive_leftovers(int iteration, std::string_view leaf, const Base& base,
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

Status Transactions::archive_attempt(int iteration, int attempt, const Base& base) {
    GDNCTL_TRY_ASSIGN(const GitHead head, present(base));
    GDNCTL_TRY(distrust(nullptr));
    GDNCTL_TRY(tree().clear_stale_locks());
    const std::string leaf = fmt::format("attempt-{}", attempt);
    if (head.sha != base.sha) GDNCTL_TRY(pin(ref(iteration, leaf + "/head"), head.sha));
    Candidate ignored;
    GDNCTL_TRY(archive_leftovers(iteration, leaf + "/leftovers", base, head.sha, ignored));
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
    GDNCTL_TRY(GitStashes(m_repository).make(message));
    GDNCTL_TRY_ASSIGN(const auto all, GitStashes(m_repository).list());
    for (const auto& one : all) {
        if (!one.message.ends_with(message)) continue;
        GDNCTL_TRY(pin(ref(iteration, "cleared/" + one.commit.substr(0, 12)), one.commit));
        GDNCTL_TRY(GitStashes(m_repository).drop(one.commit));
    }
    return BranchMover(m_repository).go_back_to(base.branch, base.sha);
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
    GDNCTL_TRY_ASSIGN(candidate.leftovers, archive_leftovers(iteration, "leftovers", base, head.sha, candidate));
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

Result<std::optional<std::string>> Transactions::stash_user_work(int iteration, std::string_view message, bool again) {
    std::optional<std::string> commit;
    if (!again) GDNCTL_TRY(check_finished());
    if (again) {
        GDNCTL_TRY_ASSIGN(commit, stash_named(message));
    }
    if (commit) {
        // Killed between stashing and cleaning the tree: what is still there is stashed once more. If that is exactly
        // the same, only the cleaning was missing.
        GDNCTL_TRY_ASSIGN(const GitRestore back, GitStashes(m_repository).restore(*commit));
        if (back != GitRestore::restored && back != GitRestore::was_there) {
            return fail(ErrorKind::conflict,
                        "the stash " + *commit + " of the run that was killed conflicts with the checkout",
                        fmt::format("git stash branch my-work {} checks it out on a separate branch", *commit));
        }
        GDNCTL_TRY(GitStashes(m_repository).drop(*commit));
    }
    GDNCTL_TRY_ASSIGN(const auto made, GitStashes(m_repository).make(message));
    if (!made) return std::optional<std::string>();
    GDNCTL_TRY(pin(ref(iteration, "stash"), made->commit));
    return std::optional(made->commit);
}

Result<std::optional<std::string>> Transactions::stash_named(std::string_view message) const {
    GDNCTL_TRY_ASSIGN(const auto all, GitStashes(m_repository).list());
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.message.ends_with(message); });
    return found == all.end() ? std::nullopt : std::optional(found->commit);
}

Result<GitRestore> Transactions::bring_back(std::string_view stash) {
    GDNCTL_TRY_ASSIGN(const GitRestore result, GitStashes(m_repository).restore(stash));
    if (result == GitRestore::restored || result == GitRestore::was_there)
        GDNCTL_TRY(GitStashes(m_repository).drop(stash));
    return result;
}

// What is not the agent's: other branches, tags and stashes, of which nothing is lost if an agent removes or rewrites
// one, and how git behaves in the repository.

std::string Transactions::ref_of_names(std::string_view leaf) const {
    return fmt::format("refs/gdnctl-others/{}/{}", m_settings.run, leaf);
}

// From an earlier process of this run, since this process may collect the agent's earlier work.
Status Transactions::recall_names() {
    if (m_names) return {};
    Names known;
    if (m_resumed) {
        GDNCTL_TRY_ASSIGN(const auto last, m_repository.resolve(ref_of_names("last")));
        if (last) {
            known.commit = *last;
            GDNCTL_TRY_ASSIGN(const auto objects, m_repository.objects(std::span(&known.commit, 1)));
            if (objects.front()) known.names = names_in(*objects.front());
        }
    }
    m_names = std::move(known);
    return {};
}

// Names missing from `now`, or moved to a history that lacks the old target.
std::vector<Transactions::GoneName> Transactions::gone_since_last(const std::vector<GitName>& now) const {
    // All stashes share one ref, so each is identified by its object.
    const auto key_of = [](const GitName& name) { return name.ref == k_stash_ref ? name.object : name.ref; };
    std::map<std::string, std::string> objects;
    for (const auto& name : now) objects.emplace(key_of(name), name.object);
    std::vector<GoneName> gone;
    for (const auto& name : m_names->names) {
        const auto at = objects.find(key_of(name));
        if (at == objects.end()) {
            gone.push_back({name, false});
        } else if (at->second != name.object) {
            // An error: one of the two is missing or not a commit.
            const auto further_on = m_repository.is_ancestor(name.object, at->second);
            if (!further_on || !*further_on) gone.push_back({name, true});
        }
    }
    return gone;
}

Status Transactions::look_at_names(int iteration, std::string_view branch) {
    GDNCTL_TRY(recall_names());
    GDNCTL_TRY_ASSIGN(auto now, m_repository.names());
    // The run's own branch has a ref for each of its commits, and stashed work has one too.
    std::optional<std::string> own_stash;
    const auto is_stash = [](const GitName& name) { return name.ref == k_stash_ref; };
    if (!m_slot && std::any_of(now.begin(), now.end(), is_stash)) {
        GDNCTL_TRY_ASSIGN(own_stash, m_repository.resolve(ref(iteration, "stash")));
    }
    std::erase_if(
        now, [&](const GitName& name) { return name.ref == branch || (is_stash(name) && name.object == own_stash); });
    if (now == m_names->names) return {};
    GDNCTL_TRY(keep_gone(gone_since_last(now)));
    Names next{std::move(now), {}};
    GDNCTL_TRY_ASSIGN(next.commit, m_repository.gather(next.names, message_of(next.names, m_settings.run)));
    GDNCTL_TRY(pin(ref_of_names("last"), next.commit));
    m_names = std::move(next);
    return {};
}

Status Transactions::keep_gone(const std::vector<GoneName>& gone) {
    if (gone.empty()) return {};
    const std::string name = ref_of_names(m_names->commit.substr(0, 12));
    const Status kept = pin(name, m_names->commit);
    if (!kept && kept.error().kind == ErrorKind::local_io) return kept;
    for (std::size_t i = 0; i < gone.size(); ++i) {
        const std::string text = fmt::format("{}: {}", gone[i].rewritten ? "rewritten" : "gone", text_of(gone[i].name));
        m_gone.push_back(text);
        if (i >= k_most_said) continue;
        log::warning("{}", text);
        log::warning("hint: {}", remedy_for(gone[i].name));
    }
    if (gone.size() > k_most_said) log::warning("and {} more", gone.size() - k_most_said);
    if (kept) {
        log::warning("if that was not you: they are kept at {}", name);
    } else {
        log::warning("they cannot be kept: {}", kept.error().text());
    }
    return {};
}

Status Transactions::leave_names() {
    if (!m_names || m_names->commit.empty()) return {};
    const GitRefUpdate away{ref_of_names("last"), std::string(k_no_object)};
    return m_repository.update_refs(std::span(&away, 1));
}

// From here on, the configuration may be the agent's.
Status Transactions::distrust(std::vector<std::string>* changed) {
    GDNCTL_TRY_ASSIGN(auto keys, m_repository.trust(m_trusted));
    if (m_slot) {
        GDNCTL_TRY_ASSIGN(keys, m_slot->checkout().trust_as(m_repository, m_trusted, std::move(keys)));
    }
    if (!keys.empty() && keys != m_told) {
        log::warning("settings that name programs were changed; this run ignores them: {}", text::join(keys, ", "));
    }
    m_told = keys;
    if (changed != nullptr) *changed = std::move(keys);
    return {};
}

// What the agent, or code that it wrote, changed in how the user's git behaves.
Status Transactions::restore_setup() {
    if (!m_setup) return {};
    GDNCTL_TRY_ASSIGN(const auto names, m_setup->put_back(m_repository, m_settings.run));
    m_put_back.insert(m_put_back.end(), names.begin(), names.end());
    // From here on, changes are the user's.
    m_setup.reset();
    GitSettings::forget(m_repository, m_settings.run);
    return {};
}

Status Transactions::remember_setup() {
    GDNCTL_TRY(restore_setup());
    GDNCTL_TRY_ASSIGN(m_setup, GitSettings::take(m_repository));
    return m_setup->save(m_repository, m_settings.run);
}

Status Transactions::clear_locks_of_killed(WallTime begun, WallTime ended, bool here) {
    using FileClock = std::filesystem::file_time_type::clock;
    return tree().clear_stale_locks(GitForcedEnd{FileClock::from_sys(begun), FileClock::from_sys(ended), here});
}

Result<std::string> Transactions::subject(const Base& base, const std::string& head) const {
    constexpr std::size_t k_longest = 200;
    if (head == base.sha) return std::string();
    GDNCTL_TRY_ASSIGN(const auto found, m_repository.objects(std::array{head}));
    const std::string object = found.front().value_or(std::string());
    const std::string_view message =
        text::trim(std::string_view(object).substr(std::min(object.find("\n\n"), object.size())));
    return std::string(message.substr(0, std::min(message.find('\n'), k_longest)));
}

// Repositories created inside the agent's working tree: their contents are kept and moved out of the way.

// In place, those that existed before may be the user's.
Status Transactions::look_inside() {
    if (m_slot) return {};
    GDNCTL_TRY_ASSIGN(GitNested nested, m_repository.nested());
    m_inside = std::move(nested.around_files);
    if (m_settings.clean) return {};
    GDNCTL_TRY_ASSIGN(const auto entries, m_repository.status());
    for (const auto& entry : entries) {
        const bool inside = entry.kind == GitStatusEntry::Kind::untracked && entry.path.ends_with('/');
        if (inside) m_inside->push_back(entry.path.substr(0, entry.path.size() - 1));
    }
    m_inside->insert(m_inside->end(), nested.bare.begin(), nested.bare.end());
    return {};
}

// At paths that the tree tracks, or in a slot where git ignores everything: done before a snapshot, which sees only
// links.
Status Transactions::move_nested(int iteration, std::string_view leaf, const Base& base, Leftovers& found) {
    GDNCTL_TRY_ASSIGN(const GitNested nested, tree().nested());
    std::vector<std::string> paths;
    for (const auto& link : nested.links) {
        GDNCTL_TRY_ASSIGN(const bool users, m_slot ? Result<bool>(false) : m_repository.has_link(base.sha, link));
        if (users) continue;
        paths.push_back(link);
        GDNCTL_TRY(m_repository.fetch_from(tree().root() / link,
                                           ref(iteration, fmt::format("{}-in-repository-{}", leaf, paths.size()))));
    }
    const std::vector<std::string> links = paths;
    const auto is_users = [&](const std::string& path) { return !m_slot && (!m_inside || contains(*m_inside, path)); };
    for (const auto& folder : nested.around_files) {
        if (!is_users(folder)) paths.push_back(folder + "/.git");
    }
    for (const auto& folder : nested.bare) {
        if (!is_users(folder)) paths.push_back(folder);
    }
    if (m_slot) {
        GDNCTL_TRY_ASSIGN(const auto unpublished, m_slot->unpublished());
        paths.insert(paths.end(), unpublished.begin(), unpublished.end());
    }
    GDNCTL_TRY(move_aside(iteration, paths, found));
    for (const auto& link : links) {
        GDNCTL_TRY_ASSIGN(const bool committed, tree().has_link("HEAD", link));
        if (!committed) GDNCTL_TRY(tree().unstage(link));
        // To git, an empty folder is a submodule that is not checked out; a missing one is a change.
        std::error_code problem;
        if (committed) fs::create_directories(tree().root() / link, problem);
    }
    return {};
}

// Moves the untracked paths that a snapshot reported.
Status Transactions::move_untracked(int iteration, std::vector<std::string> paths, Leftovers& found) {
    const auto is_users = [&](const std::string& path) { return !m_inside || contains(*m_inside, path); };
    if (!m_slot && !m_settings.clean) std::erase_if(paths, is_users);
    return move_aside(iteration, paths, found);
}

Status Transactions::move_aside(int iteration, const std::vector<std::string>& paths, Leftovers& found) {
    const fs::path folder = m_artefacts.path(iteration, k_repositories);
    GDNCTL_TRY_ASSIGN(
        auto places, m_slot ? m_slot->move_repositories_aside(paths, folder) : m_repository.move_inside(paths, folder));
    found.repositories.insert(found.repositories.end(), places.begin(), places.end());
    return {};
}

// In place: files that only such a repository tracked are uncommitted once its `.git` is gone. They are already pinned,
// and must not be there when the next iteration starts.
Status Transactions::clear_around_nested(int iteration, const GitHead& head) {
    std::error_code problem;
    const bool any = fs::exists(m_artefacts.path(iteration, k_repositories), problem);
    if (m_slot || !m_settings.clean || !any) return {};
    return clear(iteration, Base{head.sha, head.branch});
}

// Finds links that the iteration made and that no clone could follow: they belong to no submodule, or to a commit that
// was never pushed.
Status Transactions::judge_links(int iteration, Candidate& candidate) const {
    std::vector<std::string> links;
    for (const auto& change : candidate.files) {
        const bool made = change.new_mode == "160000" && (m_slot || change.old_mode != "160000");
        if (made) links.push_back(change.path);
    }
    GDNCTL_TRY_ASSIGN(candidate.bare_links, m_repository.unnamed_links(candidate.head, links));
    if (links.empty()) return {};
    std::set<std::string> unpublished;  // see PrivateWorktree::keep_submodules()
    GDNCTL_TRY_ASSIGN(const auto pinned, m_repository.refs(ref(iteration) + "/"));
    const std::string prefix = ref(iteration, "leftovers-in-submodule-");
    for (const auto& [name, target] : pinned) {
        if (name.starts_with(prefix) && name.ends_with("-link")) unpublished.insert(target);
    }
    for (const auto& change : candidate.files) {
        const bool local = change.new_mode == "160000" && unpublished.contains(change.new_object);
        if (local && !contains(candidate.bare_links, change.path)) candidate.local_links.push_back(change.path);
    }
    return {};
}

// What happens to a candidate: it lands, is removed, or follows a moved branch. Also the log commit.

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
    return BranchMover(m_repository).land(base.branch, base.sha, candidate.head, again);
}

Status Transactions::reject(const Base& base, const Candidate& candidate) {
    GDNCTL_TRY(restore_setup());
    if (m_slot) return {};
    GDNCTL_TRY_ASSIGN(const GitHead head, m_repository.head());
    if (!candidate.broken.empty()) {
        if (head.branch == base.branch && head.sha == base.sha) return {};
        log::info("returning the checkout to {} at {}", base.branch.empty() ? "no branch" : base.branch,
                  base.sha.substr(0, 12));
        return BranchMover(m_repository).go_back_to(base.branch, base.sha);
    }
    if (head.sha == base.sha) return {};  // nothing was committed, or this was done before a kill
    if (head.sha != candidate.head || head.branch != base.branch) {
        return fail(ErrorKind::conflict,
                    fmt::format("the branch was moved by someone else, to {}; the rejected commits stay on it",
                                head.sha.substr(0, 12)),
                    fmt::format("revert them by hand: git revert {}..{}", base.sha.substr(0, 12),
                                candidate.head.substr(0, 12)));
    }
    return BranchMover(m_repository).undo_to(base.sha);
}

Result<std::optional<Candidate>> Transactions::follow(int iteration, const Base& base, const Candidate& candidate,
                                                      std::string_view tip) {
    if (!m_slot) return std::optional<Candidate>();
    GDNCTL_TRY(fill_slot(candidate.head));
    GDNCTL_TRY_ASSIGN(const auto moved, BranchMover(m_slot->checkout()).rebase(base.sha, candidate.head, tip));
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
    if (!tip) return fail(ErrorKind::conflict, fmt::format("the branch {} no longer exists", branch));
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
    return BranchMover(m_repository).land(branch, *tip, *made, again);
}

}  // namespace gdnctl::loop
