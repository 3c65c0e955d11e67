// Stashes by commit id, with verified restoring.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"
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

namespace {

// "On main: MESSAGE"
std::string message_in(std::string_view subject) {
    const auto at = subject.find(": ");
    return std::string(at == std::string_view::npos ? subject : subject.substr(at + 2));
}

// Keeps shelves of stashes that are in the list, or that a run of the loop has pinned.
Status sweep_shelves(const git::Calls& calls, const std::vector<GitStash>& stashes) {
    std::error_code problem;
    if (!fs::exists(calls.git_dir / "gdnctl-shelf", problem)) return {};
    std::vector<std::string> messages;
    for (const auto& one : stashes) messages.push_back(message_in(one.message));
    GDNCTL_TRY_ASSIGN(const std::string pinned,
                      calls.output({"for-each-ref", "--format=%(subject)", "refs/gdnctl/**/stash"}));
    for (const auto line : text::split(pinned, '\n')) messages.push_back(message_in(line));
    return git::Shelf::sweep(calls, messages);
}

// git's message, with a hint.
Error not_stashed(const git::Calls& calls, Error error) {
    const auto intended = calls.output({"diff", "--name-only", "-z", "--diff-filter=A"});
    if (!intended || intended->empty()) {
        if (error.hint.empty()) error.hint = "commit or remove what git names, then run the command again";
        return error;
    }
    const std::string path = intended->substr(0, intended->find('\0'));
    error.hint = fmt::format("git cannot stash a file added with `git add -N`: run git add -- {0}, or git reset -- {0}",
                             text::shell_quote(path));
    return error;
}

}  // namespace

Result<std::optional<GitStash>> GitCheckout::stash(std::string_view message) const {
    GDNCTL_TRY_ASSIGN(const auto before, stashes());
    GDNCTL_TRY(sweep_shelves(*m_calls, before));
    GDNCTL_TRY_ASSIGN(const auto shelf, git::Shelf::of(*m_calls, message));
    GDNCTL_TRY(shelf.fill(*m_calls));
    const Status pushed = m_calls->done({"stash", "push", "-q", "--include-untracked", "-m", std::string(message)});
    GDNCTL_TRY_ASSIGN(const auto after, stashes());
    if (!pushed) {
        // Without a stash, the shelf only holds further names of files that users keep editing.
        if (after.size() == before.size()) GDNCTL_TRY(shelf.drop());
        return tl::unexpected(not_stashed(*m_calls, pushed.error()));
    }
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

// A file that `tree` lacks, because git ignores it now, at the path of another file in the stash.
Result<bool> is_in_the_way(const GitCheckout& checkout, const git::Calls& calls, const std::string& tree,
                           const std::string& untracked) {
    GDNCTL_TRY_ASSIGN(const auto changes, checkout.diff(tree, untracked));
    for (const auto& change : changes) {
        std::error_code problem;
        const fs::path place = checkout.root() / change.path;
        const bool here = change.status == 'A' && fs::is_regular_file(fs::symlink_status(place, problem));
        if (!here) continue;
        GDNCTL_TRY_ASSIGN(const std::string blob,
                          calls.line({"hash-object", "--path=" + change.path, "--", place.string()}));
        if (blob != change.new_object) return true;
    }
    return false;
}

// The tree after applying a stash; nullopt: it conflicts.
Result<std::optional<std::string>> tree_with_stash(const GitCheckout& checkout, const git::Calls& calls,
                                                   const std::string& stash, const std::string& tree) {
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = "a side of a merge\n";
    // Based on the commit where the stash was made, so that this is the merge base whatever happened to the branch.
    GDNCTL_TRY_ASSIGN(const std::string side, calls.line({"commit-tree", "-p", stash + "^1", "-F", "-", tree}, ours));
    GDNCTL_TRY_ASSIGN(auto merged, checkout.merged_tree(side, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (!merged || !untracked) return merged;
    GDNCTL_TRY_ASSIGN(const bool hidden, is_in_the_way(checkout, calls, tree, *untracked));
    if (hidden) return std::optional<std::string>();
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

// Whether the file holds the beginning of the blob, but not all of it.
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

// On a full disk, git leaves only the beginning of files. The stash holds them completely, so nothing is lost by
// removing those. false: there are none.
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
        if (committed.ok() != (change.status != 'A')) continue;  // someone else's file
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

// Independent of the list of stashes.
Result<git::Shelf> shelf_of(const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const std::string subject, calls.line({"log", "-1", "--format=%s", stash}));
    return git::Shelf::of(calls, message_in(subject));
}

// Paths changed both by the stash and between its base and HEAD.
Result<std::vector<std::string>> changed_by_both(const GitCheckout& checkout, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const GitHead head, checkout.head());
    GDNCTL_TRY_ASSIGN(auto ours, checkout.diff(stash + "^1", stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (untracked) {
        GDNCTL_TRY_ASSIGN(const auto files, checkout.diff(stash + "^1", *untracked));
        for (const auto& file : files) {
            if (file.status != 'D') ours.push_back(file);
        }
    }
    GDNCTL_TRY_ASSIGN(const auto theirs, checkout.diff(stash + "^1", head.sha));
    std::set<std::string> changed, both;
    for (const auto& change : theirs) changed.insert(change.path);
    for (const auto& change : ours) {
        if (changed.contains(change.path)) both.insert(change.path);
    }
    return std::vector<std::string>(both.begin(), both.end());
}

// Reports a conflicting stash: the paths, and where the exact files are.
Status say_conflict(const GitCheckout& checkout, const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const auto both, changed_by_both(checkout, stash));
    if (!both.empty()) log::warning("changed by you and by the branch: {}", text::join(both, ", "));
    GDNCTL_TRY_ASSIGN(const auto shelf, shelf_of(calls, stash));
    const auto files = shelf.files();
    if (!files) {
        log::warning("hint: git stash branch my-work {} checks them out on a separate branch", stash);
        return {};
    }
    log::warning("exact copies of your files are in {}", files->string());
    log::warning("hint: cp -a {} {} copies all of them back and replaces the current files",
                 text::shell_quote((*files / ".").string()), text::shell_quote(checkout.root().string()));
    return {};
}

}  // namespace

// Git has restored its view of the files; the shelf supplies the rest. `tree` is git's view of the result.
Result<GitRestore> GitCheckout::restore_exactly(const std::string& stash, const std::string& tree,
                                                GitRestore back) const {
    GDNCTL_TRY_ASSIGN(const auto shelf, shelf_of(*m_calls, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, resolve(stash + "^3"));
    std::optional<std::string> stashed = stash;
    if (untracked) {
        GDNCTL_TRY_ASSIGN(stashed, git::overlaid_tree(*m_calls, stash, *untracked));
    }
    std::set<std::string> merged;  // also changed by the branch
    if (stashed) {
        GDNCTL_TRY_ASSIGN(const auto changes, diff(*stashed, tree));
        for (const auto& change : changes) merged.insert(change.path);
    }
    GDNCTL_TRY_ASSIGN(const auto found, shelf.restore(merged));
    if (!found) {
        if (back == GitRestore::was_there) return back;  // nothing was written
        log::warning("only git's copy of your files was left: their modes, times and line endings may differ");
        return GitRestore::unproven;
    }
    std::set<std::string> different(found->different.begin(), found->different.end());
    // The files are now different from those the index knows.
    GDNCTL_TRY(m_calls->run({"update-index", "-q", "--refresh"}));
    if (back == GitRestore::unproven) {
        // Git does not see some files, because a .gitignore of the branch now covers them.
        GDNCTL_TRY_ASSIGN(const GitHead now, head());
        GDNCTL_TRY_ASSIGN(const GitSnapshot after, snapshot(now.sha, "with a stash\n"));
        GDNCTL_TRY_ASSIGN(const auto changes, diff(tree, after.tree));
        for (const auto& change : changes) {
            if (!found->proven.contains(change.path)) different.insert(change.path);
        }
        back = GitRestore::restored;
    }
    for (const auto& path : different) log::warning("differs from before: {}", (root() / path).string());
    const auto files = shelf.files();
    if (!different.empty() && files) log::warning("exact copies of your files are in {}", files->string());
    return different.empty() ? back : GitRestore::unproven;
}

Result<GitRestore> GitCheckout::restore_stash(std::string_view commit) const {
    const std::string stash(commit);
    std::string tree;
    GDNCTL_TRY_ASSIGN(const GitRestore back, restore_content(stash, tree));
    if (back != GitRestore::conflict) return restore_exactly(stash, tree, back);
    GDNCTL_TRY(say_conflict(*this, *m_calls, stash));
    return back;
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
        // In the common case nothing is uncommitted, and git's own command also restores what was staged.
        GDNCTL_TRY_ASSIGN(const ProcessResult with_index, m_calls->run({"stash", "apply", "-q", "--index", stash}));
        if (!with_index.ok()) GDNCTL_TRY(m_calls->run({"stash", "apply", "-q", stash}));
    }
    GDNCTL_TRY_ASSIGN(const GitSnapshot applied, snapshot(now.sha, "with a stash\n"));
    if (applied.tree != *expected) {
        // Part of it was already there, or there was other uncommitted work: write what differs file by file.
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
    // First, because without the stash the shelf could not be found. The contents of both are restored, or kept by a
    // ref.
    const auto shelf = shelf_of(*m_calls, std::string(commit));
    if (shelf) GDNCTL_TRY(shelf->drop());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].commit == commit) return m_calls->done({"stash", "drop", "-q", fmt::format("stash@{{{}}}", i)});
    }
    return {};
}

Status GitCheckout::store_stash(const std::string& commit, const std::string& message) const {
    return m_calls->done({"stash", "store", "-q", "-m", message, commit});
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
