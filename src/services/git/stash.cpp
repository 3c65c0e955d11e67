// Stash by commit id, brought back with proof.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "gdnctl/core/log.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/fs.h"
#include "gdnctl/services/git_checkout.h"
#include "services/git/calls.h"
#include "services/git/hidden.h"
#include "services/git/shelf.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

Result<std::vector<GitStash>> GitCheckout::stashes() const {
    GDNCTL_TRY_ASSIGN(const ProcessResult list,
                      m_calls->run({"reflog", "show", "-z", "--format=%H %gs", std::string(k_stash_ref), "--"}));
    std::vector<GitStash> found;
    if (!list.ok()) return found;  // no refs/stash: never stashed
    for (const auto item : text::split(list.out, '\0')) {
        const auto at = item.find(' ');
        if (at != std::string_view::npos)
            found.push_back({std::string(item.substr(0, at)), std::string(item.substr(at + 1))});
    }
    return found;
}

Result<std::optional<GitStash>> GitCheckout::stash(std::string_view message) const {
    GDNCTL_TRY_ASSIGN(const auto before, stashes());
    GDNCTL_TRY_ASSIGN(const auto shelf, git::Shelf::of(*m_calls, message));
    GDNCTL_TRY(shelf.fill(*m_calls));
    GDNCTL_TRY(m_calls->done({"stash", "push", "-q", "--include-untracked", "-m", std::string(message)}));
    GDNCTL_TRY_ASSIGN(const auto after, stashes());
    std::optional<GitStash> made;
    for (const auto& one : after) {
        const bool known =
            std::any_of(before.begin(), before.end(), [&](const auto& b) { return b.commit == one.commit; });
        if (!known && one.message.ends_with(message)) made = one;
    }
    GDNCTL_TRY(shelf.keep_empty_folders());
    if (!made) GDNCTL_TRY(shelf.drop());
    GDNCTL_TRY_ASSIGN(const auto left, dirty_paths());
    if (left.empty()) return made;
    std::string hint = "commit, remove or ignore it, then run the command again";
    if (made) {
        const auto back = restore_stash(made->commit);
        if (back && (*back == GitRestore::restored || *back == GitRestore::was_there)) {
            GDNCTL_TRY(drop_stash(made->commit));
        } else {
            hint += "; your changes are in the stash " + made->commit;
        }
    }
    return fail(ErrorKind::conflict, fmt::format("git cannot stash {} in {}", left.front(), root().string()), hint);
}

namespace {

// Where a stash must lead: nullopt, it does not fit.
Result<std::optional<std::string>> tree_with_stash(const GitCheckout& checkout, const git::Calls& calls,
                                                   const std::string& stash, const std::string& tree) {
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = "a side of a merge\n";
    // On top of the commit that the stash was made on, so that this is the merge's base whatever became of the branch.
    GDNCTL_TRY_ASSIGN(const std::string side, calls.line({"commit-tree", "-p", stash + "^1", "-F", "-", tree}, ours));
    GDNCTL_TRY_ASSIGN(auto merged, checkout.merged_tree(side, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (!merged || !untracked) return merged;
    return git::overlaid_tree(calls, *merged, *untracked);
}

Status remove_files(const GitCheckout& checkout, const std::vector<std::string>& paths) {
    for (const auto& path : paths) {
        std::error_code problem;
        fs::remove(checkout.root() / path, problem);
        if (problem)
            return tl::unexpected(file_error(ErrorKind::local_io, "remove", checkout.root() / path, problem.value()));
    }
    return {};
}

// Whether the file holds the beginning of the blob, and not all of it.
Result<bool> is_beginning(const git::Calls& calls, const fs::path& file, const std::string& blob) {
    std::error_code problem;
    if (!fs::is_regular_file(fs::symlink_status(file, problem))) return false;
    GDNCTL_TRY_ASSIGN(const std::string size, calls.line({"cat-file", "-s", blob}));
    const auto whole = text::parse_int(size);
    if (!whole || fs::file_size(file, problem) >= static_cast<std::uintmax_t>(*whole) || problem) return false;
    GDNCTL_TRY_ASSIGN(const std::string here, read_file(file));
    GDNCTL_TRY_ASSIGN(const std::string full, calls.output({"cat-file", "blob", blob}));
    return full.starts_with(here);
}

// On a disk that was full git has left the beginning of files that a stash holds: nothing that it does not hold is lost
// with them. false: there are none.
Result<bool> forget_beginnings(const GitCheckout& checkout, const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(auto changes, checkout.diff(stash + "^1", stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (untracked) {
        GDNCTL_TRY_ASSIGN(const std::string none, calls.line({"hash-object", "-t", "tree", "/dev/null"}));
        GDNCTL_TRY_ASSIGN(const auto more, checkout.diff(none, *untracked));
        changes.insert(changes.end(), more.begin(), more.end());
    }
    std::vector<std::string> added;
    git::CallOptions changed;
    for (const auto& change : changes) {
        if (change.status == 'D' || change.is_submodule()) continue;
        GDNCTL_TRY_ASSIGN(const bool begun, is_beginning(calls, checkout.root() / change.path, change.new_object));
        if (!begun) continue;
        GDNCTL_TRY_ASSIGN(const ProcessResult committed, calls.run({"cat-file", "-e", "HEAD:" + change.path}));
        if (committed.ok() != (change.status != 'A')) continue;  // somebody else's
        if (change.status == 'A') {
            added.push_back(change.path);
        } else {
            changed.input += change.path + '\0';
        }
    }
    GDNCTL_TRY(remove_files(checkout, added));
    if (!changed.input.empty()) {
        GDNCTL_TRY(calls.done({"--literal-pathspecs", "restore", "--source=HEAD", "--worktree",
                               "--pathspec-from-file=-", "--pathspec-file-nul"},
                              changed));
    }
    return !added.empty() || !changed.input.empty();
}

// "On main: MESSAGE", whatever became of the list of stashes.
Result<git::Shelf> shelf_of(const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const std::string subject, calls.line({"log", "-1", "--format=%s", stash}));
    const auto at = subject.find(": ");
    return git::Shelf::of(
        calls, at == std::string::npos ? std::string_view(subject) : std::string_view(subject).substr(at + 2));
}

}  // namespace

// Git has brought back what it knows of the files: the rest comes from the shelf. `tree` is what they are by git.
Result<GitRestore> GitCheckout::restore_exactly(const std::string& stash, const std::string& tree,
                                                GitRestore back) const {
    GDNCTL_TRY_ASSIGN(const auto shelf, shelf_of(*m_calls, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, resolve(stash + "^3"));
    std::optional<std::string> stashed = stash;
    if (untracked) {
        GDNCTL_TRY_ASSIGN(stashed, git::overlaid_tree(*m_calls, stash, *untracked));
    }
    std::set<std::string> merged;  // what the branch changed, too
    if (stashed) {
        GDNCTL_TRY_ASSIGN(const auto changes, diff(*stashed, tree));
        for (const auto& change : changes) merged.insert(change.path);
    }
    GDNCTL_TRY_ASSIGN(const auto different, shelf.restore(merged));
    if (!different) {
        if (back == GitRestore::was_there) return back;  // nothing was written
        log::warning("only git's copy of your files was left: their modes, times and line ends may be others");
        return GitRestore::unproven;
    }
    for (const auto& path : *different) log::warning("not as it was before: {}", (root() / path).string());
    // The files are others than those that the index knows.
    GDNCTL_TRY(m_calls->run({"update-index", "-q", "--refresh"}));
    return different->empty() ? back : GitRestore::unproven;
}

Result<GitRestore> GitCheckout::restore_stash(std::string_view commit) const {
    const std::string stash(commit);
    std::string tree;
    GDNCTL_TRY_ASSIGN(const GitRestore back, restore_content(stash, tree));
    const bool by_git = back == GitRestore::restored || back == GitRestore::was_there;
    return by_git ? restore_exactly(stash, tree, back) : back;
}

Result<GitRestore> GitCheckout::restore_content(const std::string& stash, std::string& tree) const {
    GDNCTL_TRY_ASSIGN(const GitHead now, head());
    GDNCTL_TRY_ASSIGN(GitSnapshot before, snapshot(now.sha, "before a stash came back\n"));
    GDNCTL_TRY_ASSIGN(auto expected, tree_with_stash(*this, *m_calls, stash, before.tree));
    if (!expected) {
        GDNCTL_TRY_ASSIGN(const bool begun, forget_beginnings(*this, *m_calls, stash));
        if (begun) {
            GDNCTL_TRY_ASSIGN(before, snapshot(now.sha, "before a stash came back\n"));
            GDNCTL_TRY_ASSIGN(expected, tree_with_stash(*this, *m_calls, stash, before.tree));
        }
    }
    if (!expected) return GitRestore::conflict;
    tree = *expected;
    if (before.tree == *expected) return GitRestore::was_there;

    if (before.commit.empty()) {
        // The usual case, nothing uncommitted: git's own way also brings back what was staged.
        GDNCTL_TRY_ASSIGN(const ProcessResult with_index, m_calls->run({"stash", "apply", "-q", "--index", stash}));
        if (!with_index.ok()) GDNCTL_TRY(m_calls->run({"stash", "apply", "-q", stash}));
    }
    GDNCTL_TRY_ASSIGN(const GitSnapshot applied, snapshot(now.sha, "with a stash\n"));
    if (applied.tree != *expected) {
        // Half of it was there already, or beside other uncommitted work: what differs is written file by file.
        GDNCTL_TRY_ASSIGN(const auto changes, diff(applied.tree, *expected));
        git::CallOptions paths;
        std::vector<std::string> gone;
        for (const auto& change : changes) {
            if (change.status == 'D') {
                gone.push_back(change.path);
            } else {
                paths.input += change.path + '\0';
            }
        }
        GDNCTL_TRY(remove_files(*this, gone));
        if (!paths.input.empty()) {
            GDNCTL_TRY(m_calls->done({"--literal-pathspecs", "restore", "--source=" + *expected, "--worktree",
                                      "--pathspec-from-file=-", "--pathspec-file-nul"},
                                     paths));
        }
    }
    GDNCTL_TRY_ASSIGN(const GitSnapshot after, snapshot(now.sha, "with a stash\n"));
    return after.tree == *expected ? GitRestore::restored : GitRestore::unproven;
}

Status GitCheckout::drop_stash(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const auto all, stashes());
    // First: without the stash nobody would know of the shelf. What both have is back, or kept by a ref.
    const auto shelf = shelf_of(*m_calls, std::string(commit));
    if (shelf) GDNCTL_TRY(shelf->drop());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].commit == commit) return m_calls->done({"stash", "drop", "-q", fmt::format("stash@{{{}}}", i)});
    }
    return {};
}

Status GitCheckout::exclude(const fs::path& folder) const {
    if (!is_inside(root(), folder)) return {};
    const std::string relative =
        folder.lexically_normal().lexically_relative(root().lexically_normal()).generic_string();
    if (relative == "." || relative.find('\n') != std::string::npos) {
        return fail(ErrorKind::usage, "the log directory cannot be kept out of git: " + folder.string(),
                    "choose another one with --log-dir");
    }
    const std::string line = git::exclude_line(relative) + '/';
    const fs::path file = common_dir() / "info" / "exclude";
    GDNCTL_TRY_ASSIGN(const auto known, read_file_if_exists(file));
    std::string content = known.value_or("");
    for (const auto one : text::split(content, '\n')) {
        if (one == line) return {};
    }
    if (!content.empty() && content.back() != '\n') content += '\n';
    std::error_code problem;
    fs::create_directories(file.parent_path(), problem);
    return atomic_replace(file, content + line + '\n');
}

}  // namespace gdnctl
