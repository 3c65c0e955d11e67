// BranchMover: moves a branch to new commits and back. Ignored files belong to users and are not touched.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

namespace {

// A folder with only the .gitignore files of a commit, so that its rules apply, not the checkout's current ones.
class RulesOf {
public:
    RulesOf(const git::Calls& calls, std::string_view commit)
        : m_calls(calls), m_commit(commit), m_folder(calls.git_dir / fmt::format("gdnctl-rules-{}", getpid())) {
        remove();
    }
    ~RulesOf() { remove(); }
    RulesOf(const RulesOf&) = delete;
    RulesOf& operator=(const RulesOf&) = delete;

    // Those of `paths` (each followed by a NUL) that the rules ignore.
    Result<std::string> ignored(std::string paths) const {
        git::CallOptions here;
        here.env = {{"GIT_INDEX_FILE", m_folder.string() + ".index"}, {"GIT_WORK_TREE", m_folder.string()}};
        std::error_code problem;
        fs::create_directory(m_folder, problem);
        GDNCTL_TRY(m_calls.done({"read-tree", m_commit}, here));
        git::CallOptions rules = here;
        GDNCTL_TRY_ASSIGN(rules.input,
                          m_calls.output({"ls-files", "-z", "--", ".gitignore", ":(glob)**/.gitignore"}, here));
        if (!rules.input.empty()) {
            GDNCTL_TRY(m_calls.done({"checkout-index", "-z", "--stdin", "--prefix=" + m_folder.string() + "/"}, rules));
        }
        here.input = std::move(paths);
        const Words check = {"-C", m_folder.string(), "check-ignore", "--no-index", "-z", "--stdin"};
        GDNCTL_TRY_ASSIGN(ProcessResult said, m_calls.run(check, here));
        constexpr int k_none = 1;
        if (said.ok() || (said.end == ProcessResult::End::exited && said.exit_code == k_none))
            return std::move(said.out);
        return m_calls.refused("check-ignore", said);
    }

private:
    void remove() const {
        std::error_code problem;
        fs::remove_all(m_folder, problem);
        for (const char* end : {".index", ".index.lock"}) fs::remove(m_folder.string() + end, problem);
    }
    const git::Calls& m_calls;
    std::string m_commit;
    fs::path m_folder;
};

}  // namespace

std::string git::exclude_line(std::string_view path) {
    std::string line = "/";
    for (const char c : path) {
        if (c == '*' || c == '?' || c == '[' || c == '\\' || c == ' ') line += '\\';
        line += c;
    }
    return line;
}

// An agent may have force-added an ignored file of the user's. Once out of the index and ignored again, it stays.
Result<ProcessResult> git::reset_beside_ignored(const GitCheckout& checkout, const Calls& calls, std::string_view base,
                                                std::string_view head) {
    const Words reset = {"reset", "-q", "--keep", std::string(base)};
    GDNCTL_TRY_ASSIGN(const auto changes, checkout.diff(base, head));
    std::string added, lines;
    for (const auto& change : changes) {
        if (change.status == 'A' && !change.is_submodule()) added += change.path + '\0';
    }
    if (added.empty()) return calls.run(reset);
    CallOptions paths;
    GDNCTL_TRY_ASSIGN(paths.input, RulesOf(calls, base).ignored(std::move(added)));
    if (paths.input.empty()) return calls.run(reset);
    GDNCTL_TRY(calls.done({"update-index", "-z", "--force-remove", "--stdin"}, paths));
    for (const auto path : text::split(paths.input, '\0')) {
        if (!path.empty()) lines += exclude_line(path) + '\n';
    }
    const fs::path rules = calls.git_dir / "gdnctl-exclude";
    GDNCTL_TRY(atomic_replace(rules, lines, 0600));
    Words words = {"-c", "core.excludesFile=" + rules.string()};
    words.insert(words.end(), reset.begin(), reset.end());
    auto done = calls.run(words);
    std::error_code problem;
    fs::remove(rules, problem);
    return done;
}

// Moves a branch to commits made elsewhere, together with the checkout that has it.

using Kind = GitLanding::Kind;

Result<GitLanding> BranchMover::land(std::string_view branch, std::string_view base, std::string_view head,
                                     bool again) const {
    GitLanding landing;
    GDNCTL_TRY_ASSIGN(const auto all, m_checkout.worktrees());
    const auto owner =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return !branch.empty() && one.branch == branch; });
    std::optional<std::string> tip;
    if (owner != all.end() && !owner->head.empty()) {
        tip = owner->head;
    } else {
        GDNCTL_TRY_ASSIGN(tip, m_checkout.resolve(branch.empty() ? "HEAD" : branch));
    }
    landing.tip = tip.value_or("");
    // A killed landing may have moved the files but not the branch, never the other way round.
    if (tip && landing.tip != base) {
        GDNCTL_TRY_ASSIGN(const bool there, m_checkout.is_ancestor(head, landing.tip));
        landing.kind = there ? Kind::already : Kind::moved;
        return landing;
    }
    if (!tip) {
        landing.kind = Kind::moved;
        return landing;
    }
    if (branch.empty()) return land_here(base, head, again);
    if (owner == all.end()) {
        const GitRefUpdate update{std::string(branch), std::string(head), std::string(base)};
        GDNCTL_TRY(m_checkout.update_refs(std::span(&update, 1)));
        landing.tip = head;
        return landing;
    }
    if (owner->path == m_checkout.root()) return land_here(base, head, again);
    GDNCTL_TRY_ASSIGN(GitCheckout checkout, GitCheckout::open(owner->path, m_calls->process, m_calls->clock));
    checkout.m_calls->overrides = m_calls->overrides;
    return BranchMover(checkout).land_here(base, head, again);
}

Result<GitLanding> BranchMover::land_here(std::string_view base, std::string_view head, bool again) const {
    GitLanding landing;
    landing.checkout = m_checkout.root();
    landing.tip = base;
    const Words words = {"merge",     "--ff-only", "--no-autostash", "--no-overwrite-ignore",
                         "--no-stat", "-q",        std::string(head)};
    GDNCTL_TRY_ASSIGN(const ProcessResult merged, m_calls->run(words));
    GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
    landing.tip = now.sha;
    if (now.sha == head) return landing;
    if (merged.err.find("Not possible to fast-forward") != std::string::npos || now.sha != base) {
        landing.kind = Kind::moved;
        return landing;
    }
    landing.kind = Kind::blocked;
    landing.why = git::reason_of(merged.err);
    landing.in_the_way = git::parse_listed_paths(merged.err);
    if (landing.in_the_way.empty()) {
        auto refused = m_calls->refused("merge", merged);
        const ErrorKind kind = refused.value().kind;
        // A full disk, a read-only folder, or a locked branch: some files have already been moved.
        if (kind == ErrorKind::local_io || kind == ErrorKind::conflict) {
            GDNCTL_TRY(take_back_landing(base, head, refused.value()));
            return refused;
        }
    }
    if (again) GDNCTL_TRY(complete_landing(base, head, landing));
    return landing;
}

namespace {

// What a checkout has at the paths of base..head after git was interrupted while moving the files.
struct LandingTraces {
    GitSnapshot present;
    std::vector<GitFileChange> wanted;  // base to head
    std::vector<GitFileChange> ours;    // base to current state, for files that git changed
    std::vector<std::string> theirs;    // files that contain users' work
};

// An interrupted git leaves some files in the old state, some in the new one, and one missing or with the beginning of
// its new content.
Result<bool> is_gits_doing(const git::Calls& calls, const GitFileChange& found, const GitFileChange& want) {
    if (found.status == 'D' || found.new_object == want.new_object) return true;
    // git deletes files as a whole, and leaves the files of submodules alone.
    if (want.status == 'D' || want.is_submodule() || found.is_submodule()) return false;
    GDNCTL_TRY_ASSIGN(const std::string here, calls.output({"cat-file", "blob", found.new_object}));
    GDNCTL_TRY_ASSIGN(const std::string full, calls.output({"cat-file", "blob", want.new_object}));
    return full.starts_with(here);
}

// A file that snapshots do not include, and that git did not write.
Result<bool> is_ignored_file(const GitCheckout& checkout, const git::Calls& calls, const GitFileChange& want) {
    const std::filesystem::path file = checkout.root() / want.path;
    std::error_code problem;
    if (want.status != 'A' || want.is_submodule()) return false;
    const auto type = std::filesystem::symlink_status(file, problem).type();
    const bool link = type == std::filesystem::file_type::symlink;
    if (!link && type != std::filesystem::file_type::regular) return false;
    std::string here;
    if (link) {
        here = std::filesystem::read_symlink(file, problem).string();
    } else {
        GDNCTL_TRY_ASSIGN(here, read_file(file));
    }
    GDNCTL_TRY_ASSIGN(const std::string full, calls.output({"cat-file", "blob", want.new_object}));
    return !full.starts_with(here);
}

Result<LandingTraces> traces_of_landing(const GitCheckout& checkout, const git::Calls& calls, std::string_view base,
                                        std::string_view head) {
    LandingTraces traces;
    GDNCTL_TRY_ASSIGN(traces.present, checkout.snapshot(base, "what a landing met\n"));
    GDNCTL_TRY_ASSIGN(traces.wanted, checkout.diff(base, head));
    GDNCTL_TRY_ASSIGN(const auto changes, checkout.diff(base, traces.present.tree));
    std::unordered_map<std::string, const GitFileChange*> found;
    for (const auto& change : changes) found.emplace(change.path, &change);
    for (const auto& want : traces.wanted) {
        const auto at = found.find(want.path);
        if (at == found.end()) {
            GDNCTL_TRY_ASSIGN(const bool ignored, is_ignored_file(checkout, calls, want));
            if (ignored) traces.theirs.push_back(want.path);
            continue;
        }
        GDNCTL_TRY_ASSIGN(const bool gits, is_gits_doing(calls, *at->second, want));
        if (gits) {
            traces.ours.push_back(*at->second);
        } else {
            traces.theirs.push_back(want.path);
        }
    }
    return traces;
}

std::string few_of(std::vector<std::string> paths) {
    constexpr std::size_t k_most = 10;
    const std::size_t more = paths.size() - std::min(paths.size(), k_most);
    paths.resize(paths.size() - more);
    return text::join(paths, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

// Anything that is neither in the old state, nor in the new one, nor on the way there, is users' work.
Status BranchMover::complete_landing(std::string_view base, std::string_view head, GitLanding& landing) const {
    GDNCTL_TRY_ASSIGN(LandingTraces traces, traces_of_landing(m_checkout, *m_calls, base, head));
    if (!traces.theirs.empty()) {
        landing.in_the_way = std::move(traces.theirs);
        return {};
    }
    git::CallOptions paths;
    for (const auto& want : traces.wanted) paths.input += want.path + '\0';
    log::info("completing what a killed run started: {} files of {}", traces.wanted.size(), m_checkout.root().string());
    GDNCTL_TRY(m_calls->done({"--literal-pathspecs", "restore", "--source=" + std::string(head), "--staged",
                              "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul"},
                             paths));
    GDNCTL_TRY(m_calls->done({"update-ref", "-m", "gdnctl: landed", "HEAD", std::string(head), std::string(base)}));
    landing = {Kind::landed, std::string(head), m_checkout.root(), {}, {}};
    return {};
}

// Reverts the files that a failed landing has moved. A file stays, and `why` names it, if someone has edited it since,
// or if git had not touched it because its staged version was already the new one.
Status BranchMover::take_back_landing(std::string_view base, std::string_view head, Error& why) const {
    GDNCTL_TRY_ASSIGN(const LandingTraces traces, traces_of_landing(m_checkout, *m_calls, base, head));
    if (!traces.theirs.empty()) {
        why.message +=
            fmt::format("; left unchanged, because it differs from what git would write: {}", few_of(traces.theirs));
    }
    // Ignored files are in no snapshot, and nothing here touches them.
    if (!traces.theirs.empty() && !traces.present.commit.empty()) {
        // Pin first, so that it exists whatever happens to the files from here on.
        const GitRefUpdate pin{"refs/gdnctl/rescued/" + traces.present.commit, traces.present.commit};
        GDNCTL_TRY(m_checkout.update_refs(std::span(&pin, 1)));
        why.message += fmt::format(" (also kept at {})", pin.name);
    }
    git::CallOptions paths, added;
    for (const auto& change : traces.ours) {
        if (change.status != 'A') {
            paths.input += change.path + '\0';
            continue;
        }
        std::error_code problem;
        std::filesystem::remove(m_checkout.root() / change.path, problem);
        added.input += change.path + '\0';
    }
    // If git reached the branch, the index has them.
    if (!added.input.empty()) {
        GDNCTL_TRY(m_calls->done({"update-index", "-z", "--force-remove", "--stdin"}, added));
    }
    if (paths.input.empty()) return {};
    return m_calls->done({"--literal-pathspecs", "restore", "--source=" + std::string(base), "--staged", "--worktree",
                          "--pathspec-from-file=-", "--pathspec-file-nul"},
                         paths);
}

Status BranchMover::undo_to(std::string_view base) const {
    GDNCTL_TRY_ASSIGN(const GitHead tip, m_checkout.head());
    GDNCTL_TRY_ASSIGN(const ProcessResult result, git::reset_beside_ignored(m_checkout, *m_calls, base, tip.sha));
    if (result.ok()) return {};
    if (result.err.find("not uptodate") != std::string::npos || result.err.find("would be") != std::string::npos) {
        // A git killed in the middle of this has left files in the new state.
        GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
        GitLanding back;
        back.kind = Kind::blocked;
        GDNCTL_TRY(complete_landing(now.sha, base, back));
        if (back.kind == Kind::landed) return {};
        return fail(ErrorKind::conflict,
                    fmt::format("uncommitted work in {} prevents removing the commits: {}", m_checkout.root().string(),
                                git::reason_of(result.err)),
                    "git stash; git reset --keep " + std::string(base) + "; git stash pop");
    }
    return m_calls->refused("reset", result);
}

// Every step can be repeated: only the second one changes files, and meanwhile HEAD is on no branch.
Status BranchMover::go_back_to(std::string_view branch, std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
    if (now.branch == branch) return now.sha == commit ? Status() : undo_to(commit);
    if (!branch.empty()) {
        GDNCTL_TRY_ASSIGN(const auto tip, m_checkout.resolve(branch));
        const GitRefUpdate made{std::string(branch), std::string(commit), std::string(k_no_object)};
        if (!tip) GDNCTL_TRY(m_checkout.update_refs(std::span(&made, 1)));
        if (tip && *tip != commit) {
            return fail(ErrorKind::conflict, fmt::format("{} was moved to {}", branch, tip->substr(0, 12)),
                        fmt::format("git switch {}", branch.substr(std::string_view("refs/heads/").size())));
        }
    }
    if (!now.branch.empty()) {
        GDNCTL_TRY(m_calls->done({"update-ref", "--no-deref", "-m", "gdnctl: back", "HEAD", now.sha}));
    }
    if (now.sha != commit) GDNCTL_TRY(undo_to(commit));
    if (branch.empty()) return {};
    return m_calls->done({"symbolic-ref", "-m", "gdnctl: back", "HEAD", std::string(branch)});
}

Result<std::optional<std::string>> BranchMover::rebase(std::string_view base, std::string_view head,
                                                       std::string_view onto) const {
    GDNCTL_TRY(m_calls->done({"checkout", "-q", "--detach", std::string(head)}));
    const Words words = {"rebase", "-q", "--rebase-merges", "--onto", std::string(onto), std::string(base)};
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_calls->run(words));
    if (result.ok()) {
        GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
        return std::optional(now.sha);
    }
    const bool conflict = result.out.find("CONFLICT") != std::string::npos ||
                          result.err.find("could not apply") != std::string::npos ||
                          result.err.find("Could not apply") != std::string::npos;
    GDNCTL_TRY_ASSIGN(const ProcessResult aborted, m_calls->run({"rebase", "--abort"}));
    if (!conflict) return m_calls->refused("rebase", result);
    if (!aborted.ok()) return m_calls->refused("rebase --abort", aborted);
    return std::optional<std::string>();
}

}  // namespace gdnctl
