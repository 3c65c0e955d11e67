// One checkout of a repository to work in: its contents and changes, commits and refs (GitCheckout), its branches
// (BranchMover), its stashes (GitStashes), and private worktrees (PrivateWorktree).
//
// Everything, including reads, goes through the `git` program: libgit2 1.5 stages deletions in sparse checkouts, drops
// a stash whose pop conflicted, and supports neither filters nor split indexes. A call costs about 3 ms.
//
// Someone else, such as an agent, may have changed the repository. So no call runs a hook, an external diff, a pager or
// an editor, signs anything, or prompts. GIT_DIR and GIT_WORK_TREE are given explicitly, so that a replaced `.git` has
// no effect. Programs that the configuration names and git needs (filters, merge drivers) are those from the moment of
// trust: see executable_config().
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

// Paths are bytes as git stores them, relative to the root of the checkout; any byte but NUL may occur.
struct GitFileChange {
    std::string path;
    char status = 'M';                   // A, D, M or T (type change between file, link and submodule)
    std::string old_mode, new_mode;      // "100644", "100755", "120000", "160000"; "000000": missing
    std::string old_object, new_object;  // full ids; zeros: missing
    bool is_submodule() const { return old_mode == "160000" || new_mode == "160000"; }
};

struct GitFile {
    std::string path, mode, object;
};

// The commits of `tip` that `base` does not have.
struct GitRange {
    bool descends = false;             // base is in the history of tip
    std::vector<std::string> commits;  // oldest first
};

struct GitStatusEntry {
    enum class Kind { tracked, conflict, untracked, ignored };
    Kind kind = Kind::tracked;
    std::string path;  // for an untracked repository inside the checkout, with a trailing slash
};

struct GitWorktree {
    std::filesystem::path path;
    std::string head;    // empty: unborn
    std::string branch;  // "refs/heads/main"; empty: detached
};

// Expected old value of a ref: any, or exactly this one; zeros (k_no_object): the ref must not exist.
inline constexpr std::string_view k_no_object = "0000000000000000000000000000000000000000";
struct GitRefUpdate {
    std::string name;
    std::string target;                                  // k_no_object: delete
    std::optional<std::string> expected = std::nullopt;  // nullopt: any
};

// Everything in a checkout, committed or not, as one commit on top of `parent`.
struct GitSnapshot {
    std::string commit;  // empty: the checkout is identical to `parent`
    std::string tree;
    std::vector<std::string> repositories;  // untracked repositories inside, which the commit does not include
    std::vector<std::string> hidden;        // files that were marked so that git ignores their changes
    bool unread = false;                    // a folder cannot be read, and the commit does not include it
};

// Repositories inside a checkout that are not its submodules, and that git does not handle well.
struct GitNested {
    std::vector<std::string> links;         // links in the index that .gitmodules does not name
    std::vector<std::string> around_files;  // folders with tracked files and a `.git`
    std::vector<std::string> bare;          // bare repositories, without tracked files
};

struct GitLanding {
    enum class Kind {
        landed,   // the branch is now at `head`
        already,  // it was there already, or has moved further since
        moved,    // someone else moved it to `tip`; nothing was done
        blocked,  // uncommitted work in the branch's checkout is in the way; nothing was done
    };
    Kind kind = Kind::landed;
    std::string tip;                      // where the branch is now
    std::filesystem::path checkout;       // the checkout that has the branch; empty: none
    std::string why;                      // if blocked: git's message
    std::vector<std::string> in_the_way;  // paths
};

struct GitStash {
    std::string commit;  // stays valid, unlike the number in `stash@{n}`
    std::string message;
};

// A user's ref and its object: a branch, a tag, a note, or one of the stashes.
struct GitName {
    std::string ref;        // "refs/heads/main"; for a stash k_stash_ref
    std::string object;     // full id; for an annotated tag the tag object's
    std::string said = {};  // for a stash: its message
    bool operator==(const GitName&) const = default;
};
inline constexpr std::string_view k_stash_ref = "refs/stash";

enum class GitRestore {
    restored,   // proven: the checkout holds exactly what both sides together give
    was_there,  // the checkout already held it
    conflict,   // it conflicts with the current files; the checkout was not changed
    unproven,   // restored, but something differs from before, which was reported
};

// Processes of ours were ended by force: a lock that was made in that time may be theirs, none of before or after is.
struct GitForcedEnd {
    std::filesystem::file_time_type begun, ended;
    // They worked in the checkout itself: its index and HEAD may have been locked by them.
    bool in_checkout = false;
};

class GitCheckout {
public:
    // The checkout that contains `start`. Errors: usage (not a repository, bare, no commit yet), config
    // (safe.directory, no git program).
    static Result<GitCheckout> open(const std::filesystem::path& start, Process& process, Clock& clock);
    GitCheckout(GitCheckout&&) noexcept;
    GitCheckout& operator=(GitCheckout&&) noexcept;
    ~GitCheckout();

    const std::filesystem::path& root() const;
    const std::filesystem::path& git_dir() const;     // for this checkout only
    const std::filesystem::path& common_dir() const;  // shared by all checkouts of the repository

    // Configuration that names programs (filter.*, merge.*.driver, core.sshCommand, ...) or other places (remote.*.url,
    // url.*). Also, though no call here runs them, hooks ("hooks/pre-commit", with their content) and programs of the
    // user's own git (core.fsmonitor, alias.*, ...). trust() makes all later calls use exactly these values; open()
    // trusts what it finds. Returns the keys whose value in the repository is different now.
    Result<std::map<std::string, std::string>> executable_config() const;
    Result<std::vector<std::string>> trust(const std::map<std::string, std::string>& config);
    // The same for a linked checkout of `repository`, whose trust() just returned `changed`. If no configuration is
    // specific to one checkout, that is the answer, without asking git again.
    Result<std::vector<std::string>> trust_as(const GitCheckout& repository,
                                              const std::map<std::string, std::string>& config,
                                              std::vector<std::string> changed);

    // ---- reads
    Result<GitHead> head() const;                                                 // usage: no commit yet
    Result<std::optional<std::string>> resolve(std::string_view revision) const;  // the full id of a commit
    Result<bool> is_ancestor(std::string_view old_one, std::string_view new_one) const;
    // Results between full ids are cached, since they cannot change.
    Result<GitRange> range(std::string_view base, std::string_view tip) const;
    Result<std::vector<std::string>> commits(std::string_view base, std::string_view tip) const;  // from range()
    Result<std::vector<GitFileChange>> diff(std::string_view from,
                                            std::string_view to) const;  // without rename detection
    // The bytes of each object ("<commit>:<path>", "<commit>"), in this order, in one call; nullopt: missing.
    Result<std::vector<std::optional<std::string>>> objects(std::span<const std::string> names) const;
    // Their sizes in bytes, in this order, in one call; 0: missing.
    Result<std::vector<std::uintmax_t>> sizes(std::span<const std::string> objects) const;
    // All files of a commit, in the order of their paths.
    Result<std::vector<GitFile>> files(std::string_view commit) const;
    // `git patch-id --stable` of the difference; empty: there is none.
    Result<std::string> patch_id(std::string_view from, std::string_view to) const;
    // A patch for `git apply --binary`. No paths: everything.
    Result<std::string> patch(std::string_view from, std::string_view to, std::span<const std::string> paths) const;
    Status write_patch(std::string_view from, std::string_view to, const std::filesystem::path& file) const;
    // The whole patch line by line, whatever its size.
    Status patch_lines(std::string_view from, std::string_view to,
                       const std::function<void(std::string_view)>& line) const;
    Result<std::vector<GitStatusEntry>> status(bool with_ignored = false) const;
    // As reported by `git status --porcelain`, whatever settings hide; empty: clean.
    Result<std::vector<std::string>> dirty_paths() const;
    Result<std::map<std::string, std::string>> refs(std::string_view prefix) const;
    // Branches, tags, notes (except ours) and stashes. Excludes fetched refs, which another fetch restores.
    Result<std::vector<GitName>> names() const;
    Result<std::vector<GitWorktree>> worktrees() const;
    // Excludes untracked ones, which a snapshot reports.
    Result<GitNested> nested() const;
    // Those of `paths` that .gitmodules of `commit` does not name (empty: of the index).
    Result<std::vector<std::string>> unnamed_links(std::string_view commit, std::span<const std::string> paths) const;
    Result<bool> has_link(std::string_view commit, std::string_view path) const;
    Result<bool> is_published(std::string_view commit) const;  // whether a remote-tracking branch contains it
    // Whether a branch, tag or other ref contains it.
    Result<bool> is_kept(std::string_view commit) const;

    // ---- writes that change no checkout
    Status update_refs(
        std::span<const GitRefUpdate> updates) const;  // all or none; conflict: an expected value differs
    // Does not change the index or files. Error: bad_input, something cannot be read.
    Result<GitSnapshot> snapshot(std::string_view parent, std::string_view message) const;
    // A commit on top of `parent` that writes these files. Identity: the user's, else ours.
    Result<std::string> commit_files(std::string_view parent, const std::map<std::string, std::string>& files,
                                     std::string_view message) const;
    // A commit without files whose parents are all commits that the names lead to, so that one ref keeps them.
    // Identity: ours. Names that are missing or do not lead to a commit are skipped.
    Result<std::string> gather(const std::vector<GitName>& names, std::string_view message) const;
    // Appends `text` to the note that `notes` has of `commit`, once: not where its last line is in there.
    Status add_note(std::string_view commit, std::string_view text, std::string_view notes = "refs/notes/gdnctl") const;
    // The first parent's files with `changes` laid over them, as a commit. Identity: ours; both dates are `when`, so
    // the same input has the same id. Only `commit` and `tree` are filled.
    Result<GitSnapshot> commit_changes(std::span<const std::string> parents, std::span<const GitFileChange> changes,
                                       std::string_view message, WallTime when) const;
    // `git fetch REMOTE BRANCH`; returns any exit code, and runs nothing that the repository configures. Errors:
    // timeout (after ten minutes), interrupted, terminated.
    Result<ProcessResult> fetch(std::string_view remote, std::string_view branch, std::stop_token stop) const;
    // Fetches HEAD of another repository to `ref`, if possible.
    Status fetch_from(const std::filesystem::path& repository, std::string_view ref) const;
    // The merged tree of two commits; nullopt: they conflict.
    Result<std::optional<std::string>> merged_tree(std::string_view ours, std::string_view theirs) const;
    // The commit that `git merge BRANCH` would make of that tree, where BRANCH is a remote-tracking branch at `theirs`.
    Result<std::string> commit_merge(std::string_view tree, std::string_view ours, std::string_view theirs,
                                     std::string_view branch) const;

    // ---- writes
    // Takes a linked worktree off the list and removes its folder with all that is in it.
    Status remove_worktree(const std::filesystem::path& folder) const;
    Status unstage(std::string_view path) const;  // removes it from the index; its file stays
    // Moves `paths` (relative) into `folder`, logs it, and returns the new places.
    Result<std::vector<std::filesystem::path>> move_inside(std::span<const std::string> paths,
                                                           const std::filesystem::path& folder) const;

    // Removes all locks of this checkout and of what checkouts share whose owners are gone for sure. `forced`:
    // processes of ours that were ended by force may have left locks that are not old yet.
    Status clear_stale_locks(const std::optional<GitForcedEnd>& forced = {}) const;
    // Clears the lock of the index before work in the checkout: waits for it, and removes it if its owner is gone for
    // sure. Error: conflict.
    Status clear_index_lock() const;
    // "merge", "rebase", "cherry-pick" or "revert" if one is in progress; empty: none.
    std::string unfinished() const;
    // Aborts it (not a rebase) and unstages everything; files stay as they are.
    Status forget_unfinished() const;
    // If HEAD is an unborn branch, moves HEAD to `branch` (empty: detached, at `commit`). Index and files stay.
    Status leave_unborn(std::string_view commit, std::string_view branch) const;
    Status exclude(const std::filesystem::path& folder) const;  // adds it to info/exclude, once; does nothing outside
                                                                // the root

private:
    friend class BranchMover;
    friend class GitStashes;
    friend class PrivateWorktree;
    friend class GitSettings;
    explicit GitCheckout(std::unique_ptr<git::Calls> calls);
    std::unique_ptr<git::Calls> m_calls;
};

// Moves the branches of a checkout, and the files of whichever checkout has them, forth and back.
class BranchMover {
public:
    explicit BranchMover(const GitCheckout& checkout) : m_checkout(checkout), m_calls(checkout.m_calls.get()) {}

    // Moves a branch (empty: the detached HEAD of this checkout) from `base` to its descendant `head`, and with it the
    // files of the checkout that has it. Uncommitted work that is not in the way stays. `again`: an earlier call may
    // have been killed half-way. Its traces are distinguished from users' work by their content, and completed.
    Result<GitLanding> land(std::string_view branch, std::string_view base, std::string_view head, bool again) const;
    // Removes the commits after `base` from the current branch; uncommitted work stays. Traces of an earlier call that
    // was killed half-way are distinguished from users' work by their content. conflict: users' work is in the way.
    Status undo_to(std::string_view base) const;
    // The same if HEAD may have moved: afterwards HEAD is on `branch` (empty: detached) at `commit`. A branch that it
    // was on keeps its position. A deleted branch is recreated.
    Status go_back_to(std::string_view branch, std::string_view commit) const;
    // Rebases base..head onto `onto` in this checkout, which becomes detached and must be clean. nullopt: a conflict;
    // the checkout is back at `head`.
    Result<std::optional<std::string>> rebase(std::string_view base, std::string_view head,
                                              std::string_view onto) const;

private:
    Result<GitLanding> land_here(std::string_view base, std::string_view head, bool again) const;
    Status take_back_landing(std::string_view base, std::string_view head, Error& why) const;
    Status complete_landing(std::string_view base, std::string_view head, GitLanding& landing) const;

    const GitCheckout& m_checkout;
    const git::Calls* m_calls;
};

// Stashes of a checkout, by commit id, which restore files exactly as they were.
class GitStashes {
public:
    explicit GitStashes(const GitCheckout& checkout) : m_checkout(checkout), m_calls(checkout.m_calls.get()) {}

    // Leaves ignored files and empty folders. nullopt: nothing to stash. conflict: the tree has something that git
    // cannot stash (named).
    Result<std::optional<GitStash>> make(std::string_view message) const;
    Result<std::vector<GitStash>> list() const;
    // Restores a stash of make() and verifies it: bytes, modes, times and empty folders of files that did not change
    // meanwhile are as before. Never leaves conflict markers. The stash stays: see drop().
    Result<GitRestore> restore(std::string_view commit) const;
    Status drop(std::string_view commit) const;  // no error if the stash is already gone
    // Lists it again, as the newest one.
    Status store(const std::string& commit, const std::string& message) const;

private:
    Result<GitRestore> restore_content(const std::string& stash, std::string& tree) const;
    Result<GitRestore> restore_exactly(const std::string& stash, const std::string& tree, GitRestore back) const;

    const GitCheckout& m_checkout;
    const git::Calls* m_calls;
};

// A private linked worktree outside the repository that moves from commit to commit. Only files that differ are
// written. Always detached.
class PrivateWorktree {
public:
    // Creates the worktree if it is missing. `repository` is the one it belongs to. Work that an earlier user left in
    // it (commits without a ref, uncommitted files) is first pinned at refs/gdnctl/rescued/<commit>; see rescued().
    // `ours`: the content is the caller's own and will be collected, so nothing is pinned.
    static Result<PrivateWorktree> open(const GitCheckout& repository, const std::filesystem::path& folder, bool ours,
                                        Process& process, Clock& clock);

    const GitCheckout& checkout() const { return m_checkout; }
    GitCheckout& checkout() { return m_checkout; }
    // Refs that open() created; empty: nothing was left.
    const std::vector<std::string>& rescued() const { return m_rescued; }

    // Repairs the worktree if someone removed its folder or its entry in the list of worktrees. Afterwards it exists,
    // at its previous commit if that is known. Files may be missing.
    Status mend(const GitCheckout& repository);
    // Replaces the content by the files of `commit`, except `keep` (relative paths). Collect the old content first. If
    // something cannot be removed, the whole folder is renamed, which is logged.
    Status move_to(std::string_view commit, std::span<const std::string> keep);
    // GitCheckout::snapshot(). What cannot be read is made readable, or the whole folder is renamed likewise.
    Result<GitSnapshot> snapshot(std::string_view parent, std::string_view message);
    // Moves repositories inside the worktree, and a foreign `.git`, to `folder`; returns their new places.
    Result<std::vector<std::filesystem::path>> move_repositories_aside(std::span<const std::string> paths,
                                                                       const std::filesystem::path& folder);
    // Repositories below ignored folders with commits that none of their remotes has. move_to() would delete them.
    Result<std::vector<std::string>> unpublished() const;
    // Checks out the submodules that `repository` has checked out, at the commits of HEAD; their old content is lost.
    // Objects come from the user's checkout, and nothing is fetched. Error: config, a commit is missing there.
    Status fill_submodules(const GitCheckout& repository);
    // Saves commits and uncommitted files of submodules: fetches what the user's submodules lack into these, to `ref`,
    // and those of submodules that the user has not checked out into `repository`. Returns the paths of these
    // submodules.
    Result<std::vector<std::string>> keep_submodules(const GitCheckout& repository, std::string_view ref);
    // Removes hide marks (assume-unchanged, skip-worktree).
    Status show(const std::vector<std::string>& hidden);

private:
    PrivateWorktree(GitCheckout checkout, std::filesystem::path admin)
        : m_checkout(std::move(checkout)), m_admin(std::move(admin)) {}
    Status mend_link() const;
    Status rescue_repositories();  // to a folder next to the worktree
    Status try_move_to(std::string_view commit, std::span<const std::string> keep);
    Status move_aside();
    GitCheckout m_checkout;
    std::filesystem::path m_admin;
    std::vector<std::string> m_rescued;
};

}  // namespace gdnctl
