// An iteration as a transaction on a repository.
//
// It begins at a commit that a ref pins. What the agent leaves is collected and pinned before anything is decided:
// commits base..HEAD, however many, merges too, and everything uncommitted as one more commit and a patch. Accepted
// work moves the branch; anything else stays on its refs, and the branch where it was. Every step may be repeated
// after a kill.
//
//   refs/gdnctl/<run>/iter-NNN/base         where it began
//   refs/gdnctl/<run>/iter-NNN/head         what it committed
//   refs/gdnctl/<run>/iter-NNN/leftovers    what it did not, on top of head
//   refs/gdnctl/<run>/iter-NNN/leftovers-in-repository-N    the commit of a repository that it made inside
//   refs/gdnctl/<run>/iter-NNN/attempt-K/…  head and leftovers of an attempt that was repeated
//   refs/gdnctl/<run>/iter-NNN/stash        the user's work that was set aside (in place)
//   refs/gdnctl/<run>/iter-NNN/log          the log commit
//   refs/gdnctl-others/<run>/last           what other branches, tags and stashes led to; see look_at_names()
//   refs/gdnctl-others/<run>/<commit>       the same before some of it was gone
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loop/engine/artefacts.h"
#include "services/git/checkout.h"

namespace gdnctl::loop {

// worktree: in a slot outside of the repository; the user's checkout is touched only when accepted work lands.
// inplace: in the user's checkout.
enum class Isolation { worktree, inplace };

struct TransactionSettings {
    std::string run;  // [a-z0-9-]{1,40}
    Isolation isolation = Isolation::worktree;
    std::filesystem::path slot;                // of worktree: see slot_folder()
    std::vector<std::string> protected_paths;  // globs: no iteration may change them
    std::vector<std::string> log_paths;        // globs: log, records, docs; a change of nothing else is no change
    bool clean = true;                         // of inplace: no iteration begins with uncommitted files
    std::vector<std::string> links;            // of worktree: ignored paths of the checkout that the slot gets links to
};

struct Base {
    std::string sha;
    std::string branch;  // "refs/heads/main"; empty: detached
};

enum class DiffClass { no_op, log_only, change };
std::string_view to_text(DiffClass diff);

struct Leftovers {
    std::string commit;           // empty: only repositories
    std::filesystem::path patch;  // `git apply --binary` takes it; empty: it would be large
    std::vector<std::string> paths;
    std::vector<std::filesystem::path> repositories;  // that were inside, where they are now
};

// What one attempt left.
struct Candidate {
    std::string head;                  // equal to the base: nothing was committed
    std::vector<std::string> commits;  // base..head, parents first
    std::vector<GitFileChange> files;  // base to head
    DiffClass diff = DiffClass::no_op;
    std::optional<Leftovers> leftovers;
    std::vector<std::string> protected_changes;  // paths, committed; in place also uncommitted
    std::string protected_diff;
    // What was found and undone: files hidden from git, configuration that names programs.
    std::vector<std::string> hidden, config_changes;
    std::vector<std::string> bare_links;   // committed links that .gitmodules does not name
    std::vector<std::string> local_links;  // new submodules, at commits that no remote of theirs has
    std::vector<std::string> submodules;   // that have new commits or files, pinned in the user's
    std::vector<std::string> gone;         // other branches, tags and stashes, of which a ref keeps what they led to
    // Why it cannot be judged: another branch, or a history without the base. Empty: it can.
    std::string broken;
};

// The slot of a repository below the state directory: <state>/worktrees/<name>-<hash of the common directory>.
Result<std::filesystem::path> slot_folder(const std::filesystem::path& state_dir,
                                          const std::filesystem::path& common_dir);

// What goes into the log commit of an iteration.
struct LogEntry {
    std::map<std::string, std::string> files;  // relative to the root: whole contents
    std::string message;
    std::string tip = {};     // the commit that `files` go on top of; empty: whatever the branch has
    std::string said = {};    // for people, once it is on the branch
    std::string noted = {};   // a commit: `message` becomes a note of it, and there is no log commit
    std::string number = {};  // of the entry in the log
    bool stamped = false;     // it was there, and has its commit now
};

class Transactions {
public:
    // `trusted`: trusted() of the run's start; nullopt: what is configured now. Errors: those of GitCheckout, usage
    // (the run's name).
    static Result<Transactions> open(const std::filesystem::path& start, TransactionSettings settings,
                                     const Artefacts& artefacts, const std::optional<std::set<std::string>>& trusted,
                                     Process& process, Clock& clock);

    const std::filesystem::path& workdir() const;  // where the agent works
    GitCheckout& repository() { return m_repository; }
    const GitCheckout& repository() const { return m_repository; }
    // executable_config() of the run's start (see GitCheckout), each entry as its SHA-256: addresses and helpers may
    // hold passwords, which a journal must not.
    Result<std::set<std::string>> trusted() const;
    // refs/gdnctl/<run>/iter-NNN[/<leaf>]
    std::string ref(int iteration, std::string_view leaf = {}) const;

    // That no merge, rebase or the like of the user's is under way in the checkout. Error conflict.
    Status check_finished() const;
    // In place: that the checkout is on `branch`, that of the run (empty: not known yet). Error conflict.
    Status check_branch(std::string_view branch) const;
    // Pins HEAD of the user's checkout, in a slot the tip of `branch` where that is known; a slot holds its files and
    // nothing else afterwards. `again`: a base that an earlier call pinned stays.
    Result<Base> begin(int iteration, bool again, std::string_view branch = {});
    // Keeps what the attempt left under its number; a slot is clean afterwards, a checkout as it was.
    Status put_away(int iteration, int attempt, const Base& base);
    // Whether the attempt left finished work: commits on top of the base, and nothing else in the tree.
    Result<bool> produced(const Base& base);
    // Whether HEAD is anywhere else than at the base.
    Result<bool> committed(const Base& base);
    // In place: takes what the attempt left off the branch and out of the tree, which is as at the base afterwards, and
    // on its branch. It must have been pinned before, by put_away() or collect(). In a slot there is nothing to do.
    Status clear(int iteration, const Base& base);
    Result<Candidate> collect(int iteration, const Base& base);
    // What collect() found, from its refs; for the steps after it when the run was killed in between.
    Result<Candidate> recall(int iteration, const Base& base) const;
    // Worktree: the branch goes to the candidate's head. In place it is there already.
    Result<GitLanding> accept(const Base& base, const Candidate& candidate, bool again);
    // In place: takes the candidate's commits off the branch; where HEAD is on another one, or the history is another,
    // it is as at the base again. Else there is nothing to do.
    Status reject(const Base& base, const Candidate& candidate);
    // The branch has moved: the candidate on top of `tip`, its new base; nullopt: they conflict. What it becomes has to
    // be judged anew.
    Result<std::optional<Candidate>> follow(int iteration, const Base& base, const Candidate& candidate,
                                            std::string_view tip);
    // A commit of the entry's files alone on top of the branch, which goes there. `again`: the commit that an earlier
    // call made is landed, if there is one. Kind::moved: the branch is not where the entry was made for.
    Result<GitLanding> commit_log(int iteration, std::string_view branch, const LogEntry& entry, bool again);
    // The log commit of the iteration, where the branch has it.
    Result<std::optional<std::string>> landed_log(int iteration, std::string_view branch) const;

    // What people's other branches, tags and stashes lead to is kept by a ref from begin() on. Where one is gone or
    // rewritten at collect(), or the next begin(), that is said, and another ref keeps what it was: the agent may have
    // done that, or its owner. At the end of a run the first of these refs goes.
    Status leave_names();

    // The refs that hold what the agent did in the iteration so far; empty: it left nothing.
    Result<std::vector<std::string>> kept(int iteration) const;

    // ---- the user's uncommitted work, in place
    Result<std::vector<std::string>> dirty() const;
    // nullopt: there is none. `again`: a stash with this message may have been made before.
    Result<std::optional<std::string>> set_aside(int iteration, std::string_view message, bool again);
    Result<GitRestore> bring_back(std::string_view stash);
    // The stash with this message; nullopt: there is none.
    Result<std::optional<std::string>> stash_named(std::string_view message) const;

private:
    Transactions(GitCheckout repository, std::optional<GitSlot> slot, TransactionSettings settings, Artefacts artefacts,
                 std::map<std::string, std::string> trusted, bool resumed)
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
    Result<std::optional<Leftovers>> take_leftovers(int iteration, std::string_view leaf, const Base& base,
                                                    const std::string& head, Candidate& candidate);
    Status look_inside();
    Status move_nested(int iteration, std::string_view leaf, const Base& base, Leftovers& found);
    Status move_untracked(int iteration, std::vector<std::string> paths, Leftovers& found);
    Status move_aside(int iteration, const std::vector<std::string>& paths, Leftovers& found);
    Status clear_around_nested(int iteration, const GitHead& head);
    Status judge_links(int iteration, Candidate& candidate) const;
    Status recall_leftovers(int iteration, Candidate& candidate) const;
    Status judge(int iteration, const Base& base, Candidate& candidate) const;
    Status pin(const std::string& name, std::string_view target) const;
    struct GoneName {
        GitName name;
        bool rewritten;  // it is there, with a history that lacks what it led to
    };
    std::string ref_of_names(std::string_view leaf) const;
    Status recall_names();
    Status look_at_names(int iteration, std::string_view branch);
    std::vector<GoneName> gone_since_last(const std::vector<GitName>& now) const;
    Status keep_gone(const std::vector<GoneName>& gone);

    GitCheckout m_repository;
    std::optional<GitSlot> m_slot;
    TransactionSettings m_settings;
    Artefacts m_artefacts;
    std::map<std::string, std::string> m_trusted;
    std::vector<std::string> m_told;  // of it, what was changed when that was said last
    bool m_resumed;                   // an earlier process may have begun the iteration that is open
    struct Names {
        std::vector<GitName> names;
        std::string commit;  // that keeps them; empty: there were none
    };
    std::optional<Names> m_names;     // the last ones; nullopt: not known yet
    std::vector<std::string> m_gone;  // since the last collect()
    // In place: the user's own repositories inside, at begin(); nullopt: an earlier process began the iteration.
    std::optional<std::vector<std::string>> m_inside;
};

}  // namespace gdnctl::loop
