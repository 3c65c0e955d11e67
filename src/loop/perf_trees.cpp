#include "loop/perf_trees.h"

#include <algorithm>

#include "gdnctl/core/glob.h"
#include "gdnctl/platform/fs.h"

namespace gdnctl::loop {

Result<std::filesystem::path> CommitTrees::at(const std::string& commit) {
    namespace fs = std::filesystem;
    if (!m_slot) {
        // What an earlier process left in it were files of a commit, to be measured.
        GDNCTL_TRY_ASSIGN(m_slot, GitSlot::open(m_repository, m_settings.folder, true, m_process, m_clock));
    }
    GDNCTL_TRY(m_slot->move_to(commit, m_settings.links));
    GDNCTL_TRY(m_slot->fill_submodules(m_repository));
    const fs::path& root = m_slot->checkout().root();
    for (const std::string& link : m_settings.links) {
        const fs::path target = m_repository.root() / link, here = root / link;
        std::error_code problem;
        if (!fs::exists(target, problem) || fs::exists(fs::symlink_status(here, problem))) continue;
        fs::create_directories(here.parent_path(), problem);
        fs::create_symlink(target, here, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "link", here, problem.value()));
    }
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
