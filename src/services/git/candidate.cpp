// Commits that are put together from chosen changes, and what tells two of them apart.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "core/text.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"
#include "services/git/temporary_index.h"

namespace gdnctl {

namespace fs = std::filesystem;

Result<std::vector<GitFile>> GitCheckout::files(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const std::string out,
                      m_calls->output({"ls-tree", "-r", "-z", "--full-tree", std::string(commit)}));
    std::vector<GitFile> files;
    for (const std::string_view item : text::split(out, '\0')) {
        // "<mode> <type> <object>\t<path>"
        const auto tab = item.find('\t');
        const auto words = text::split(item.substr(0, tab), ' ');
        if (tab == std::string_view::npos || words.size() != 3) continue;
        files.push_back({std::string(item.substr(tab + 1)), std::string(words[0]), std::string(words[2])});
    }
    return files;
}

Result<std::string> GitCheckout::patch_id(std::string_view from, std::string_view to) const {
    git::CallOptions options;
    GDNCTL_TRY_ASSIGN(options.input, patch(from, to, {}));
    if (options.input.empty()) return std::string();
    GDNCTL_TRY_ASSIGN(const std::string line, m_calls->line({"patch-id", "--stable"}, options));
    return line.substr(0, line.find(' '));
}

Result<GitSnapshot> GitCheckout::commit_changes(std::span<const std::string> parents,
                                                std::span<const GitFileChange> changes, std::string_view message,
                                                WallTime when) const {
    const git::TemporaryIndex index(*m_calls);
    GDNCTL_TRY(m_calls->done({"read-tree", parents.front()}, index.options));
    git::CallOptions entries = index.options;
    // A file may replace a folder, so deletions come first.
    for (const bool goes : {true, false}) {
        for (const GitFileChange& change : changes) {
            if ((change.status == 'D') != goes) continue;
            entries.input += goes ? fmt::format("0 {}\t{}", k_no_object, change.path)
                                  : fmt::format("{} {}\t{}", change.new_mode, change.new_object, change.path);
            entries.input += '\0';
        }
    }
    if (!entries.input.empty()) GDNCTL_TRY(m_calls->done({"update-index", "-z", "--index-info"}, entries));
    GitSnapshot made;
    GDNCTL_TRY_ASSIGN(made.tree, m_calls->line({"write-tree"}, index.options));
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = message;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(when.time_since_epoch()).count();
    for (const char* name : {"GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"}) {
        ours.env[name] = fmt::format("{} +0000", seconds);
    }
    git::Words words = {"commit-tree"};
    for (const std::string& parent : parents) words.insert(words.end(), {"-p", parent});
    words.insert(words.end(), {"-F", "-", made.tree});
    GDNCTL_TRY_ASSIGN(made.commit, m_calls->line(words, ours));
    return made;
}

Status GitCheckout::remove_worktree(const fs::path& folder) const {
    GDNCTL_TRY_ASSIGN(const ProcessResult removed,
                      m_calls->run({"worktree", "remove", "--force", "--force", folder.string()}));
    std::error_code problem;
    fs::remove_all(folder, problem);
    if (!removed.ok()) GDNCTL_TRY(m_calls->done({"worktree", "prune"}));
    return {};
}

}  // namespace gdnctl
