// One checkout of a repository, to work in: what is in it, what was changed, commits, refs, landing, stash.
//
// Everything goes through the `git` program, also the reads: libgit2 1.5 stages deletions in sparse checkouts, drops a
// stash whose pop conflicted, and knows neither filters nor split indexes. A call costs about 3 ms.
//
// Somebody else may have worked in the repository meanwhile, an agent say, so no call runs a hook, an external diff, a
// pager or an editor, none signs, and none asks; GIT_DIR and GIT_WORK_TREE are given explicitly, so that a `.git` that
// was replaced leads nowhere. Programs that the configuration names and git needs (filters, merge drivers) are those
// of the moment of trust: see executable_config().
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl {

class Clock;
class Process;
struct ProcessResult;

namespace git {
struct Calls;
}

struct GitHead {
    std::string sha;
    std::string branch;  // "refs/heads/main"; empty: detached
};

// Paths are bytes as git has them, relative to the root of the checkout; any byte but NUL can be in them.
struct GitFileChange {
    std::string path;
    char status = 'M';                   // A, D, M or T (file, link and submodule changed into one another)
    std::string old_mode, new_mode;      // "100644", "100755", "120000", "160000"; "000000": not there
    std::string old_object, new_object;  // full ids; zeros: not there
    bool is_submodule() const { return old_mode == "160000" || new_mode == "160000"; }
};

struct GitFile {
    std::string path, mode, object;
};

// What `tip` has and `base` has not.
struct GitRange {
    bool descends = false;             // base is in the history of tip
    std::vector<std::string> commits;  // oldest first
};

struct GitStatusEntry {
    enum class Kind { tracked, conflict, untracked, ignored };
    Kind kind = Kind::tracked;
    std::string path;       // of an untracked repository inside the checkout: with a slash at its end
    std::string submodule;  // "N...": none; "SCMU": its commit changed, modified files, untracked files
};

struct GitWorktree {
    std::filesystem::path path;
    std::string head;    // empty: unborn
    std::string branch;  // "refs/heads/main"; empty: detached
};

// Old value of a ref: any, or exactly this one; zeros (k_no_object): it must not exist.
inline constexpr std::string_view k_no_object = "0000000000000000000000000000000000000000";
struct GitRefUpdate {
    std::string name;
    std::string target;                                  // k_no_object: delete
    std::optional<std::string> expected = std::nullopt;  // nullopt: whatever it was
};

// Everything that is in a checkout, committed or not, as one commit on top of `parent`.
struct GitSnapshot {
    std::string commit;  // empty: the checkout is exactly `parent`
    std::string tree;
    std::vector<std::string> repositories;  // untracked repositories inside: not in the commit
    std::vector<std::string> hidden;        // files that were marked so that git would not see their changes
    bool unread = false;                    // a folder may not be read; what is in it is not in the commit
};

// Repositories inside a checkout that are none of its submodules, and that git shows badly.
struct GitNested {
    std::vector<std::string> links;         // each a link in the index that .gitmodules does not name
    std::vector<std::string> around_files;  // folders of tracked files that have a `.git`
    std::vector<std::string> bare;          // bare ones, of which nothing is tracked
};

struct GitLanding {
    enum class Kind {
        landed,   // the branch is at `head` now
        already,  // it was, or is further on by now
        moved,    // it was moved by someone else, to `tip`; nothing was done
        blocked,  // uncommitted work in the checkout of the branch is in the way; nothing was done
    };
    Kind kind = Kind::landed;
    std::string tip;                      // where the branch is now
    std::filesystem::path checkout;       // that has the branch; empty: none
    std::string why;                      // of blocked: git's words
    std::vector<std::string> in_the_way;  // paths
};

struct GitStash {
    std::string commit;  // valid for good; the number in `stash@{n}` is not
    std::string message;
};

// What a name leads to that people give: a branch, a tag, a note, or one of the stashes.
struct GitName {
    std::string ref;        // "refs/heads/main"; of a stash k_stash_ref
    std::string object;     // full id; of an annotated tag that of the tag itself
    std::string said = {};  // of a stash: its message
    bool operator==(const GitName&) const = default;
};
inline constexpr std::string_view k_stash_ref = "refs/stash";

enum class GitRestore {
    restored,   // and proven: the checkout holds exactly what both sides together give
    was_there,  // the checkout held it already
    conflict,   // it does not fit to what is there now; the checkout was not touched
    unproven,   // it is there, and something of it is not as it was: that was said
};

class GitCheckout {
public:
    // The checkout that `start` is in. Errors: usage (no repository, bare, no commit yet), config (safe.directory, no
    // git program).
    static Result<GitCheckout> open(const std::filesystem::path& start, Process& process, Clock& clock);
    GitCheckout(GitCheckout&&) noexcept;
    GitCheckout& operator=(GitCheckout&&) noexcept;
    ~GitCheckout();

    const std::filesystem::path& root() const;
    const std::filesystem::path& git_dir() const;     // of this checkout alone
    const std::filesystem::path& common_dir() const;  // shared by all checkouts of the repository

    // Configuration that names programs (filter.*, merge.*.driver, core.sshCommand, ...) or leads elsewhere
    // (remote.*.url, url.*); and, though no call here runs them, hooks ("hooks/pre-commit", with their content) and the
    // programs of a user's own git (core.fsmonitor, alias.*, ...). trust() makes every later call use these values and
    // no others; open() trusts what it finds. Returns the keys whose value is another one in the repository now.
    Result<std::map<std::string, std::string>> executable_config() const;
    Result<std::vector<std::string>> trust(const std::map<std::string, std::string>& config);
    // The same of a linked checkout of `repository`, whose trust() found `changed` just now: where nothing of the
    // configuration is one checkout's alone, that is the answer, without asking git again.
    Result<std::vector<std::string>> trust_as(const GitCheckout& repository,
                                              const std::map<std::string, std::string>& config,
                                              std::vector<std::string> changed);

    // ---- reads
    Result<GitHead> head() const;                                                 // usage: no commit yet
    Result<std::optional<std::string>> resolve(std::string_view revision) const;  // the full id of a commit
    Result<bool> is_ancestor(std::string_view old_one, std::string_view new_one) const;
    // Between full ids both are asked of git once: what they say cannot change.
    Result<GitRange> range(std::string_view base, std::string_view tip) const;
    Result<std::vector<std::string>> commits(std::string_view base, std::string_view tip) const;  // of range()
    Result<std::vector<GitFileChange>> diff(std::string_view from, std::string_view to) const;    // no renames
    // The bytes of each object ("<commit>:<path>", "<commit>"), in this order, in one call; nullopt: there is none.
    Result<std::vector<std::optional<std::string>>> objects(std::span<const std::string> names) const;
    // Their sizes in bytes, in this order, in one call; 0: there is none.
    Result<std::vector<std::uintmax_t>> sizes(std::span<const std::string> objects) const;
    // All files of a commit, in the order of their paths.
    Result<std::vector<GitFile>> files(std::string_view commit) const;
    // `git patch-id --stable` of the difference; empty: there is none.
    Result<std::string> patch_id(std::string_view from, std::string_view to) const;
    // `git apply --binary` takes it. No paths: everything.
    Result<std::string> patch(std::string_view from, std::string_view to, std::span<const std::string> paths) const;
    Status write_patch(std::string_view from, std::string_view to, const std::filesystem::path& file) const;
    // The whole of it line by line, however large it is.
    Status patch_lines(std::string_view from, std::string_view to,
                       const std::function<void(std::string_view)>& line) const;
    Result<std::vector<GitStatusEntry>> status(bool with_ignored = false) const;
    // As `git status --porcelain` says it, the user's settings obeyed; empty: clean.
    Result<std::vector<std::string>> dirty_paths() const;
    Result<std::map<std::string, std::string>> refs(std::string_view prefix) const;
    // Branches, tags, notes but ours, and stashes. Not what was fetched: a fetch brings that back.
    Result<std::vector<GitName>> names() const;
    Result<std::vector<GitWorktree>> worktrees() const;
    // Untracked ones are not among them: those a snapshot names.
    Result<GitNested> nested() const;
    // Those of `paths` that .gitmodules of `commit` does not name (empty: of the index).
    Result<std::vector<std::string>> unnamed_links(std::string_view commit, std::span<const std::string> paths) const;
    Result<bool> has_link(std::string_view commit, std::string_view path) const;
    Result<bool> is_published(std::string_view commit) const;  // a remote-tracking branch has it
    // Whether a branch, tag or other ref has it in its history.
    Result<bool> is_kept(std::string_view commit) const;

    // ---- writes that touch no checkout
    Status update_refs(
        std::span<const GitRefUpdate> updates) const;  // all or none; conflict: an expected value differs
    // Leaves index and files alone. Error bad_input: what cannot be read.
    Result<GitSnapshot> snapshot(std::string_view parent, std::string_view message) const;
    // A commit on top of `parent` that sets these files to these bytes. Identity: the user's; ours where there
    // is none.
    Result<std::string> commit_files(std::string_view parent, const std::map<std::string, std::string>& files,
                                     std::string_view message) const;
    // A commit without files that has all commits the names lead to as parents, so that one ref keeps them. Identity:
    // ours. What is missing, or leads to no commit, is left out.
    Result<std::string> gather(const std::vector<GitName>& names, std::string_view message) const;
    // Appends `text` to the note that `notes` has of `commit`, once: not where its last line is in there.
    Status add_note(std::string_view commit, std::string_view text, std::string_view notes = "refs/notes/gdnctl") const;
    // The first parent's files with `changes` laid over them, as a commit. Identity: ours; both dates are `when`, so
    // the same input has the same id. Only `commit` and `tree` are filled.
    Result<GitSnapshot> commit_changes(std::span<const std::string> parents, std::span<const GitFileChange> changes,
                                       std::string_view message, WallTime when) const;
    // `git fetch REMOTE BRANCH`, with any exit code, and nothing that the repository names is run by it. Errors:
    // timeout (after ten minutes), interrupted, terminated.
    Result<ProcessResult> fetch(std::string_view remote, std::string_view branch, std::stop_token stop) const;
    // What HEAD of another repository leads to is at `ref` afterwards, where that can be had.
    Status fetch_from(const std::filesystem::path& repository, std::string_view ref) const;
    // The tree of the merge of two commits; nullopt: they conflict.
    Result<std::optional<std::string>> merged_tree(std::string_view ours, std::string_view theirs) const;
    // The commit that `git merge BRANCH` would make of that tree, BRANCH being remote-tracking and at `theirs`.
    Result<std::string> commit_merge(std::string_view tree, std::string_view ours, std::string_view theirs,
                                     std::string_view branch) const;

    // ---- writes
    // Moves a branch (empty: the detached HEAD of this checkout) from `base` to `head`, its descendant, and with it the
    // files of the checkout that has it, where uncommitted work that is not in the way stays. `again`: an earlier call
    // may have been killed half-way; its traces are told from people's work by their content and completed.
    Result<GitLanding> land(std::string_view branch, std::string_view base, std::string_view head, bool again) const;
    // Takes the commits after `base` off the current branch; uncommitted work stays. What an earlier call, killed
    // half-way, has left is told from people's work by its content. conflict: their work is in the way.
    Status undo_to(std::string_view base) const;
    // The same where HEAD may have gone elsewhere: it is on `branch` (empty: detached) at `commit` afterwards, and a
    // branch that it was on stays where that is. A branch that is gone is there again.
    Status go_back_to(std::string_view branch, std::string_view commit) const;
    // Rewrites base..head on top of `onto`, in this checkout, which becomes detached and must be clean. nullopt: a
    // conflict; the checkout is at `head` again.
    Result<std::optional<std::string>> rebase(std::string_view base, std::string_view head,
                                              std::string_view onto) const;

    // Takes a linked worktree off the list and removes its folder with all that is in it.
    Status remove_worktree(const std::filesystem::path& folder) const;
    Status unstage(std::string_view path) const;  // out of the index; its file stays
    // Moves what is at `paths` (relative) into `folder`, says so, and returns the new places.
    Result<std::vector<std::filesystem::path>> move_inside(std::span<const std::string> paths,
                                                           const std::filesystem::path& folder) const;

    // What git ignores stays, empty folders too. nullopt: there was nothing to stash. conflict: something stays in the
    // tree that git cannot stash (named).
    Result<std::optional<GitStash>> stash(std::string_view message) const;
    Result<std::vector<GitStash>> stashes() const;
    // Brings a stash of stash() back and proves it: bytes, modes, times and empty folders of the files that nobody else
    // changed are as before. Never leaves conflict marks. The stash stays: see drop_stash().
    Result<GitRestore> restore_stash(std::string_view commit) const;
    Status drop_stash(std::string_view commit) const;  // no such stash any more: fine
    // Removes the locks on index, HEAD, branch, stash and refs/gdnctl* that a git which was killed has left, where no
    // git is at work.
    Status clear_stale_locks() const;
    // That of the index, before anything is done in the checkout: it is waited for, and removed where no git is at
    // work. Error conflict: one is.
    Status clear_index_lock() const;
    // "merge", "rebase", "cherry-pick" or "revert" when one was begun and is neither finished nor aborted; empty: none.
    std::string unfinished() const;
    // Not a rebase: what was begun is given up, and nothing is staged; the files stay as they are.
    Status forget_unfinished() const;
    // Where HEAD is a branch without a commit it is `branch` again (empty: detached, at `commit`). Index and files
    // stay.
    Status leave_unborn(std::string_view commit, std::string_view branch) const;
    Status exclude(const std::filesystem::path& folder) const;  // to info/exclude, once; outside of the root: nothing

private:
    friend class GitSlot;
    explicit GitCheckout(std::unique_ptr<git::Calls> calls);
    Result<GitLanding> land_in(const GitCheckout& checkout, std::string_view base, std::string_view head,
                               bool again) const;
    Result<GitRestore> restore_content(const std::string& stash, std::string& tree) const;
    Result<GitRestore> restore_exactly(const std::string& stash, const std::string& tree, GitRestore back) const;
    Status take_back_landing(std::string_view base, std::string_view head, Error& why) const;
    Status complete_landing(std::string_view base, std::string_view head, GitLanding& landing) const;
    std::unique_ptr<git::Calls> m_calls;
};

// A linked worktree outside the repository that is ours alone, kept and moved from commit to commit: only files that
// differ are written. Always detached.
class GitSlot {
public:
    // Makes it when it is not there. `repository` is where it belongs. Work that an earlier user left in it (commits
    // that no ref has, uncommitted files) is pinned first, at refs/gdnctl/rescued/<commit>; see rescued().
    // `ours`: what is in it is the caller's own, to be collected: nothing is pinned.
    static Result<GitSlot> open(const GitCheckout& repository, const std::filesystem::path& folder, bool ours,
                                Process& process, Clock& clock);

    const GitCheckout& checkout() const { return m_checkout; }
    GitCheckout& checkout() { return m_checkout; }
    // Refs that open() made; empty: nothing was left.
    const std::vector<std::string>& rescued() const { return m_rescued; }

    // Whoever worked in it may have removed its folder, or taken it off the list of worktrees: it is there again
    // afterwards, at the commit that it was at as far as that is known. Its files may be missing.
    Status mend(const GitCheckout& repository);
    // The files of `commit` and nothing else, save `keep` (relative paths). What was there is gone: collect it first.
    // What may not be removed takes the whole folder with it to another name, which is said.
    Status move_to(std::string_view commit, std::span<const std::string> keep);
    // GitCheckout::snapshot(). What may not be read is made readable, or takes the whole folder with it likewise.
    Result<GitSnapshot> snapshot(std::string_view parent, std::string_view message);
    // Repositories inside the slot, and a `.git` that is not ours, are moved to `folder`; returns their new places.
    Result<std::vector<std::filesystem::path>> move_repositories_aside(std::span<const std::string> paths,
                                                                       const std::filesystem::path& folder);
    // Repositories below ignored folders with commits that no remote of theirs has. move_to() would delete them.
    Result<std::vector<std::string>> unpublished() const;
    // The submodules that `repository` has checked out are checked out here, too, at the commits of HEAD; what they
    // held is gone. Their objects are the user's: nothing is fetched. Error config: a commit is missing there.
    Status fill_submodules(const GitCheckout& repository);
    // Commits and uncommitted files of submodules that the user's ones lack are fetched into these, to `ref`, those of
    // submodules that he has not checked out into `repository`; returns the paths of those submodules.
    Result<std::vector<std::string>> keep_submodules(const GitCheckout& repository, std::string_view ref);
    // Takes hide marks (assume-unchanged, skip-worktree) off.
    Status show(const std::vector<std::string>& hidden);

private:
    GitSlot(GitCheckout checkout, std::filesystem::path admin)
        : m_checkout(std::move(checkout)), m_admin(std::move(admin)) {}
    Status mend_link() const;
    Status rescue_repositories();  // to a folder beside the slot
    Status try_move_to(std::string_view commit, std::span<const std::string> keep);
    Status move_aside();
    GitCheckout m_checkout;
    std::filesystem::path m_admin;
    std::vector<std::string> m_rescued;
};

}  // namespace gdnctl
