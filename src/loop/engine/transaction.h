// An iteration as a transaction on a repository.
//
// It starts at a commit pinned by a ref. What the agent leaves is collected and pinned before anything is decided:
// commits base..HEAD, including merges, and everything uncommitted as one more commit and a patch. Accepted work moves
// the branch; everything else stays on its refs, and the branch does not move. Every step can be repeated after a kill.
//
//   refs/gdnctl/<run>/iter-NNN/base         where it started
//   refs/gdnctl/<run>/iter-NNN/head         what it committed
//   refs/gdnctl/<run>/iter-NNN/leftovers    what it did not commit, on top of head
//   refs/gdnctl/<run>/iter-NNN/leftovers-in-repository-N    the commit of a repository created inside
//   refs/gdnctl/<run>/iter-NNN/attempt-K/…  head and leftovers of an attempt that was repeated
//   refs/gdnctl/<run>/iter-NNN/stash        the user's work that was set aside (in place)
//   refs/gdnctl/<run>/iter-NNN/log          the log commit
//   refs/gdnctl-others/<run>/last           targets of other branches, tags and stashes; see look_at_names()
//   refs/gdnctl-others/<run>/<commit>       the same before some of them were removed
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loop/engine/log_dir.h"
#include "services/git/checkout.h"
#include "services/git/settings.h"

namespace gdnctl::loop {

// worktree: in a slot outside the repository; the user's checkout changes only when accepted work lands. inplace: in
// the user's checkout.
enum class Isolation { worktree, inplace };

struct TransactionSettings {
    std::string run;  // [a-z0-9-]{1,40}
    Isolation isolation = Isolation::worktree;
    std::filesystem::path slot;                // for worktree: see slot_folder()
    std::vector<std::string> protected_paths;  // globs that no iteration may change
    std::vector<std::string> log_paths;        // globs: log, records, docs; a change of only these counts as no change
    bool clean = true;                         // for inplace: iterations do not start with uncommitted files
    std::vector<std::string> links;            // for worktree: ignored paths of the checkout to link into the slot
    // When an earlier session of the run, which was killed, was last seen alive. See GitSettings.
    std::optional<std::filesystem::file_time_type> alive = {};
};

struct Base {
    std::string sha;
    std::string branch;  // "refs/heads/main"; empty: detached
};

enum class DiffClass { no_op, log_only, change };
std::string_view to_text(DiffClass diff);

struct Leftovers {
    std::string commit;           // empty: only repositories
    std::filesystem::path patch;  // for `git apply --binary`; empty: it would be too large
    std::vector<std::string> paths;
    std::vector<std::filesystem::path> repositories;  // that were inside, at their new place
};

// The result of one attempt.
struct Candidate {
    std::string head;                  // equal to the base: nothing was committed
    std::vector<std::string> commits;  // base..head, parents first
    std::vector<GitFileChange> files;  // base to head
    std::string subject;               // of the head's message; empty: nothing was committed
    DiffClass diff = DiffClass::no_op;
    std::optional<Leftovers> leftovers;
    std::vector<std::string> protected_changes;  // committed paths; in place also uncommitted ones
    std::string protected_diff;
    // Found and undone: files hidden from git, and changes of GitSettings; also configuration that is not used.
    std::vector<std::string> hidden, config_changes;
    std::vector<std::string> bare_links;   // committed links that .gitmodules does not mention
    std::vector<std::string> local_links;  // new submodules at commits that none of their remotes has
    std::vector<std::string> submodules;   // submodules with new commits or files, pinned in the user's copy
    std::vector<std::string> gone;         // other branches, tags and stashes whose targets a ref now keeps
    // Why it cannot be judged: another branch, or a history without the base. Empty: it can be judged.
    std::string broken;
};

// A repository's slot in the state directory: <state>/worktrees/<name>-<hash of the common directory>.
Result<std::filesystem::path> slot_folder(const std::filesystem::path& state_dir,
                                          const std::filesystem::path& common_dir);

// The contents of an iteration's log commit.
struct LogEntry {
    std::map<std::string, std::string> files;  // paths relative to the root: whole contents
    std::string message;
    std::string tip = {};     // the commit on which `files` are based; empty: the tip of the branch
    std::string said = {};    // for people, once it is on the branch
    std::string noted = {};   // a commit: `message` becomes a note on it, and there is no log commit
    std::string number = {};  // of the log entry
    bool stamped = false;     // the entry existed and now has its commit
};

class Transactions {
public:
    // `trusted`: the result of trusted() when the run started; nullopt: use the current configuration. Errors: those of
    // GitCheckout, usage (the run's name).
    static Result<Transactions> open(const std::filesystem::path& start, TransactionSettings settings,
                                     const Artefacts& artefacts, const std::optional<std::set<std::string>>& trusted,
                                     Process& process, Clock& clock);

    const std::filesystem::path& workdir() const;  // where the agent works
    GitCheckout& repository() { return m_repository; }
    const GitCheckout& repository() const { return m_repository; }
    // executable_config() at the start of the run (see GitCheckout), each entry as its SHA-256, since addresses and
    // helpers may contain passwords, which must not be in a journal.
    Result<std::set<std::string>> trusted() const;
    // refs/gdnctl/<run>/iter-NNN[/<leaf>]
    std::string ref(int iteration, std::string_view leaf = {}) const;

    // Checks that the user has no unfinished merge, rebase or similar in the checkout. Error conflict.
    Status check_finished() const;
    // The same, and error config: the tree has uncommitted work.
    Status check_clean() const;
    // In place: checks that the checkout is on `branch`, the run's (empty: not known yet). Error conflict.
    Status check_branch(std::string_view branch) const;
    // Pins HEAD of the user's checkout, or in a slot the tip of `branch` if known. Afterwards a slot contains exactly
    // its files. `again`: keep a base that an earlier call pinned.
    Result<Base> begin(int iteration, bool again, std::string_view branch = {});
    // Keeps the attempt's result under its number. Afterwards a slot is clean; a checkout is unchanged.
    Status archive_attempt(int iteration, int attempt, const Base& base);
    // Whether the attempt left finished work: commits on top of the base, and a clean tree.
    Result<bool> produced(const Base& base);
    // Whether HEAD differs from the base.
    Result<bool> committed(const Base& base);
    // In place: removes the attempt's result from branch and tree, and returns to the base and its branch.
    // archive_attempt() or collect() must have pinned the result. Does nothing in a slot.
    Status clear(int iteration, const Base& base);
    Result<Candidate> collect(int iteration, const Base& base);
    // What collect() found, read back from its refs, if the run was killed in between.
    Result<Candidate> recall(int iteration, const Base& base) const;
    // Worktree: moves the branch to the candidate's head. In place it is already there.
    Result<GitLanding> accept(const Base& base, const Candidate& candidate, bool again);
    // In place: removes the candidate's commits from the branch. If HEAD is on another branch or history, it returns to
    // the base. Otherwise does nothing.
    Status reject(const Base& base, const Candidate& candidate);
    // After the branch has moved, or was rewritten (its owner amended a commit): the candidate's commits on top of
    // `tip`, its new base; nullopt: they conflict. The result must be judged again.
    Result<std::optional<Candidate>> follow(int iteration, const Base& base, const Candidate& candidate,
                                            std::string_view tip);
    // Commits only the entry's files on top of the branch and moves the branch there. `again`: lands the commit of an
    // earlier call, if it exists. Kind::moved: the branch is no longer where the entry was prepared for.
    Result<GitLanding> commit_log(int iteration, std::string_view branch, const LogEntry& entry, bool again);
    // The iteration's log commit, if it is on the branch.
    Result<std::optional<std::string>> landed_log(int iteration, std::string_view branch) const;

    // From begin() on, a ref keeps the targets of other people's branches, tags and stashes. If collect() or the next
    // begin() finds one removed or rewritten, by the agent or its owner, this is reported and another ref keeps the old
    // target. At the end of a run the first of these refs is deleted.
    Status leave_names();

    // Processes that started at `begun`, and had ended at `ended`, were ended by force: removes the locks that they
    // left. `here`: they worked in workdir().
    Status clear_locks_of_killed(WallTime begun, WallTime ended, bool here);

    // How git behaves in the user's repository, from before the agent, or code that it wrote, runs. It is put back by
    // whatever comes next here, or by the next call of one of these.
    Status remember_setup();
    Status restore_setup();

    // The refs with the agent's work in this iteration so far; empty: it left nothing.
    Result<std::vector<std::string>> kept(int iteration) const;

    // ---- the user's uncommitted work, in place
    Result<std::vector<std::string>> dirty() const;
    // nullopt: there is none. `again`: an earlier call may have made a stash with this message.
    Result<std::optional<std::string>> stash_user_work(int iteration, std::string_view message, bool again);
    Result<GitRestore> bring_back(std::string_view stash);
    // The stash with this message; nullopt: none.
    Result<std::optional<std::string>> stash_named(std::string_view message) const;

private:
    Transactions(GitCheckout repository, std::optional<PrivateWorktree> slot, TransactionSettings settings,
                 Artefacts artefacts, std::map<std::string, std::string> trusted, bool resumed)
        : m_repository(std::move(repository)),
          m_slot(std::move(slot)),
          m_settings(std::move(settings)),
          m_artefacts(std::move(artefacts)),
          m_trusted(std::move(trusted)),
          m_resumed(resumed) {}

    const GitCheckout& tree() const { return m_slot ? m_slot->checkout() : m_repository; }
    Result<Base> start_of(std::string_view branch) const;
    Result<GitHead> present(const Base& base);
    Status distrust(std::vector<std::string>* changed);
    Status fill_slot(std::string_view commit);
    Result<std::optional<Leftovers>> archive_leftovers(int iteration, std::string_view leaf, const Base& base,
                                                       const std::string& head, Candidate& candidate);
    Status look_inside();
    Status move_nested(int iteration, std::string_view leaf, const Base& base, Leftovers& found);
    Status move_untracked(int iteration, std::vector<std::string> paths, Leftovers& found);
    Status move_aside(int iteration, const std::vector<std::string>& paths, Leftovers& found);
    Status clear_around_nested(int iteration, const GitHead& head);
    Status judge_links(int iteration, Candidate& candidate) const;
    Status recall_leftovers(int iteration, Candidate& candidate) const;
    Status judge(int iteration, const Base& base, Candidate& candidate) const;
    Result<std::string> subject(const Base& base, const std::string& head) const;
    Status pin(const std::string& name, std::string_view target) const;
    struct GoneName {
        GitName name;
        bool rewritten;  // it exists, but its history lacks the old target
    };
    std::string ref_of_names(std::string_view leaf) const;
    Status recall_names();
    Status look_at_names(int iteration, std::string_view branch);
    std::vector<GoneName> gone_since_last(const std::vector<GitName>& now) const;
    Status keep_gone(const std::vector<GoneName>& gone);

    GitCheckout m_repository;
    std::optional<PrivateWorktree> m_slot;
    TransactionSettings m_settings;
    Artefacts m_artefacts;
    std::map<std::string, std::string> m_trusted;
    std::vector<std::string> m_told;      // what had changed in it when this was last reported
    std::optional<GitSettings> m_setup;   // nullopt: neither the agent nor its code has run since it was put back
    std::vector<std::string> m_put_back;  // of it, since the last collect()
    bool m_resumed;                       // an earlier process may have started the open iteration
    struct Names {
        std::vector<GitName> names;
        std::string commit;  // that keeps them; empty: there were none
    };
    std::optional<Names> m_names;     // at the last look; nullopt: not known yet
    std::vector<std::string> m_gone;  // since the last collect()
    // In place: the user's own repositories inside the tree, at begin(); nullopt: an earlier process started the
    // iteration.
    std::optional<std::vector<std::string>> m_inside;
};

}  // namespace gdnctl::loop
