// Repositories created inside the agent's working tree: their contents are kept and moved out of the way.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "loop/engine/transaction.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

bool contains(const std::vector<std::string>& paths, const std::string& path) {
    return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace

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

// Those that a snapshot reported.
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
    std::set<std::string> unpublished;  // see GitSlot::keep_submodules()
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

}  // namespace gdnctl::loop
