#include "loop/measure/worktrees.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/log.h"
#include "platform/fs.h"

namespace gdnctl::loop {

namespace fs = std::filesystem;

namespace {

// `place` is in a folder that has been shown to be inside the slot.
Status put_link(const fs::path& place, const fs::path& target) {
    std::error_code problem;
    if (fs::is_symlink(fs::symlink_status(place, problem)) && fs::read_symlink(place, problem) == target) return {};
    fs::remove_all(place, problem);  // removes a link itself, not its target
    if (!problem) fs::create_directories(place.parent_path(), problem);
    if (!problem) fs::create_symlink(target, place, problem);
    return problem ? Status(tl::unexpected(file_error(ErrorKind::local_io, "link", place, problem.value()))) : Status();
}

}  // namespace

Result<std::string> slot_link(std::string_view given) {
    const auto refused = [&](std::string_view why) {
        return fail(ErrorKind::usage, fmt::format("--worktree-link {}: {}", given, why),
                    "name an ignored path relative to the root of the repository, such as .venv");
    };
    if (given.empty() || given.find('\0') != std::string_view::npos) return refused("is not a path");
    if (given.front() == '/') return refused("is absolute");
    fs::path path = fs::path(given).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (path.empty() || path == ".") return refused("is the repository itself");
    if (*path.begin() == "..") return refused("leads out of the repository");
    if (std::find(path.begin(), path.end(), fs::path(".git")) != path.end()) return refused("is git's own");
    return path.string();
}

Status check_untracked(const GitCheckout& repository, const std::vector<std::string>& links) {
    if (links.empty()) return {};
    std::vector<std::string> names;
    for (const auto& link : links) names.push_back("HEAD:" + link);
    GDNCTL_TRY_ASSIGN(const auto files, repository.objects(names));
    GDNCTL_TRY_ASSIGN(const auto sizes, repository.sizes(names));  // also covers folders
    for (std::size_t i = 0; i < links.size(); ++i) {
        if (!files[i] && sizes[i] == 0) continue;
        return fail(ErrorKind::usage, fmt::format("--worktree-link {}: git tracks it", links[i]),
                    "only ignored paths can be linked; a worktree already has the others");
    }
    return {};
}

Status make_links(const fs::path& slot, const fs::path& checkout, const std::vector<std::string>& links) {
    for (const auto& link : links) {
        const fs::path target = checkout / link;
        std::error_code problem;
        if (!fs::exists(target, problem)) continue;
        const fs::path folder = fs::path(link).parent_path();
        if (!folder.empty() && !join_inside(slot, folder.string())) {
            log::warning("--worktree-link {}: {} leads out of the worktree: skipped", link, folder.string());
            continue;
        }
        GDNCTL_TRY(put_link(slot / link, target));
    }
    return {};
}

Result<std::filesystem::path> CommitTrees::at(const std::string& commit) {
    if (!m_slot) {
        // The slot may contain files from an earlier process, but they belong to a commit that was to be measured.
        GDNCTL_TRY_ASSIGN(m_slot, PrivateWorktree::open(m_repository, m_settings.folder, true, m_process, m_clock));
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
