#include "loop/measure/trees.h"

#include <algorithm>

#include "core/glob.h"
#include "loop/measure/slot_links.h"

namespace gdnctl::loop {

Result<std::filesystem::path> CommitTrees::at(const std::string& commit) {
    if (!m_slot) {
        // The slot may contain files from an earlier process, but they belong to a commit that was to be measured.
        GDNCTL_TRY_ASSIGN(m_slot, GitSlot::open(m_repository, m_settings.folder, true, m_process, m_clock));
    }
    GDNCTL_TRY(m_slot->move_to(commit, m_settings.links));
    GDNCTL_TRY(m_slot->fill_submodules(m_repository));
    const std::filesystem::path& root = m_slot->checkout().root();
    GDNCTL_TRY(make_links(root, m_repository.root(), m_settings.links));
    return root;
}

Result<bool> CommitTrees::differs(const std::string& from, const std::string& to) const {
    if (from == to) return false;
    GDNCTL_TRY_ASSIGN(const auto known, m_repository.resolve(from));
    if (!known) return true;
    GDNCTL_TRY_ASSIGN(const auto changes, m_repository.diff(*known, to));
    return std::any_of(changes.begin(), changes.end(),
                       [&](const GitFileChange& change) { return !glob_covers(m_settings.log_paths, change.path); });
}

}  // namespace gdnctl::loop
