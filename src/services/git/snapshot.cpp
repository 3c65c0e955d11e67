// Creates commits and trees without touching the checkout.
#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"
#include "services/git/hidden.h"
#include "services/git/temporary_index.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

namespace git {

Result<std::vector<std::string>> hidden_files(const Calls& calls) {
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "-v", "-z"}));
    std::vector<std::string> assumed, skipped;
    for (const auto item : text::split(out, '\0')) {
        if (item.size() < 3) continue;
        const char mark = item.front();
        if (mark == 'S' || mark == 's') {
            skipped.emplace_back(item.substr(2));
        } else if (mark >= 'a' && mark <= 'z') {
            assumed.emplace_back(item.substr(2));
        }
    }
    if (!skipped.empty()) {
        // In a sparse checkout, that mark is normal.
        GDNCTL_TRY_ASSIGN(const ProcessResult sparse, calls.run({"config", "--type=bool", "core.sparseCheckout"}));
        if (text::trim(sparse.out) != "true") assumed.insert(assumed.end(), skipped.begin(), skipped.end());
    }
    return assumed;
}

Status show_files(const Calls& calls, const std::vector<std::string>& paths, CallOptions options) {
    if (paths.empty()) return {};
    for (const auto& path : paths) options.input += path + '\0';
    GDNCTL_TRY(calls.done({"update-index", "--no-assume-unchanged", "-z", "--stdin"}, options));
    return calls.done({"update-index", "--no-skip-worktree", "-z", "--stdin"}, options);
}

}  // namespace git

Result<GitSnapshot> GitCheckout::snapshot(std::string_view parent, std::string_view message) const {
    GitSnapshot made;
    GDNCTL_TRY_ASSIGN(made.hidden, git::hidden_files(*m_calls));
    GDNCTL_TRY_ASSIGN(const auto entries, git::status_of(*m_calls, false, made.unread));
    GDNCTL_TRY_ASSIGN(const std::string trees,
                      m_calls->line({"rev-parse", std::string(parent) + "^{tree}", "HEAD^{tree}"}));
    const std::string old_tree = trees.substr(0, trees.find('\n'));
    if (entries.empty() && made.hidden.empty()) {
        made.tree = trees.substr(trees.find('\n') + 1);
    } else {
        const git::TemporaryIndex index(*m_calls);
        GDNCTL_TRY(index.start_from(git_dir() / "index"));
        GDNCTL_TRY(git::show_files(*m_calls, made.hidden, index.options));
        Words add = {"add", "-A", "--sparse", "--", "."};
        for (const auto& entry : entries) {
            if (entry.kind != GitStatusEntry::Kind::untracked || !entry.path.ends_with('/')) continue;
            made.repositories.push_back(entry.path.substr(0, entry.path.size() - 1));
            add.push_back(":(top,literal,exclude)" + made.repositories.back());
        }
        GDNCTL_TRY(m_calls->done(add, index.options));
        GDNCTL_TRY_ASSIGN(made.tree, m_calls->line({"write-tree"}, index.options));
    }
    if (made.tree == old_tree) return made;
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = message;
    GDNCTL_TRY_ASSIGN(made.commit,
                      m_calls->line({"commit-tree", "-p", std::string(parent), "-F", "-", made.tree}, ours));
    return made;
}

namespace {

// For a call that makes a commit, with `input`.
Result<git::CallOptions> options_of_commit(const git::Calls& calls, std::string_view input) {
    git::CallOptions commit;
    commit.input = input;
    // A user may have configured a name for their own commits only; then there is none for ours.
    GDNCTL_TRY_ASSIGN(const ProcessResult identity, calls.run({"var", "GIT_COMMITTER_IDENT"}));
    commit.our_name = !identity.ok();
    return commit;
}

// `words`: the parents.
Result<std::string> commit_tree(const git::Calls& calls, Words words, const std::string& tree,
                                std::string_view message) {
    GDNCTL_TRY_ASSIGN(const git::CallOptions commit, options_of_commit(calls, message));
    words.insert(words.begin(), "commit-tree");
    words.insert(words.end(), {"-F", "-", tree});
    return calls.line(words, commit);
}

}  // namespace

Result<std::string> GitCheckout::commit_files(std::string_view parent, const std::map<std::string, std::string>& files,
                                              std::string_view message) const {
    const git::TemporaryIndex index(*m_calls);
    GDNCTL_TRY(m_calls->done({"read-tree", std::string(parent)}, index.options));
    git::CallOptions entries = index.options;
    for (const auto& [path, bytes] : files) {
        git::CallOptions content;
        content.input = bytes;
        // --path: applies the filters of that path, as for a manual commit. An empty file cannot be passed as input.
        const Words words = bytes.empty() ? Words{"hash-object", "-w", "/dev/null"}
                                          : Words{"hash-object", "-w", "--stdin", "--path=" + path};
        GDNCTL_TRY_ASSIGN(const std::string blob, m_calls->line(words, content));
        GDNCTL_TRY_ASSIGN(const std::string known, m_calls->output({"ls-tree", "-z", std::string(parent), "--", path}));
        entries.input += fmt::format("{} {}\t{}", known.starts_with("100755") ? "100755" : "100644", blob, path) + '\0';
    }
    GDNCTL_TRY(m_calls->done({"update-index", "-z", "--index-info"}, entries));
    GDNCTL_TRY_ASSIGN(const std::string tree, m_calls->line({"write-tree"}, index.options));
    return commit_tree(*m_calls, {"-p", std::string(parent)}, tree, message);
}

Status GitCheckout::add_note(std::string_view commit, std::string_view text, std::string_view notes) const {
    const std::string ref = fmt::format("--ref={}", notes);
    const auto line = text::trim(text.substr(text.find_last_of('\n', text.find_last_not_of('\n')) + 1));
    GDNCTL_TRY_ASSIGN(const ProcessResult present, m_calls->run({"notes", ref, "show", std::string(commit)}));
    if (present.ok() && ("\n" + present.out).find(fmt::format("\n{}\n", line)) != std::string::npos) return {};
    GDNCTL_TRY_ASSIGN(git::CallOptions note, options_of_commit(*m_calls, text));
    return m_calls->done({"notes", ref, "append", "-F", "-", std::string(commit)}, note);
}

Result<std::string> GitCheckout::commit_merge(std::string_view tree, std::string_view ours, std::string_view theirs,
                                              std::string_view branch) const {
    git::CallOptions merged;
    merged.input = fmt::format("{}\t\tremote-tracking branch '{}'\n", theirs, branch);
    GDNCTL_TRY_ASSIGN(const std::string message, m_calls->output({"fmt-merge-msg"}, merged));
    return commit_tree(*m_calls, {"-p", std::string(ours), "-p", std::string(theirs)}, std::string(tree), message);
}

Result<std::optional<std::string>> GitCheckout::merged_tree(std::string_view ours, std::string_view theirs) const {
    GDNCTL_TRY_ASSIGN(const ProcessResult merged,
                      m_calls->run({"merge-tree", "--write-tree", "-z", std::string(ours), std::string(theirs)}));
    if (merged.ok()) return std::optional(merged.out.substr(0, merged.out.find('\0')));
    if (merged.end == ProcessResult::End::exited && merged.exit_code == 1) return std::optional<std::string>();
    return m_calls->refused("merge-tree", merged);
}

// Overlays one tree with the files of another; nullopt: both have a path with different content.
Result<std::optional<std::string>> git::overlaid_tree(const Calls& calls, std::string_view tree,
                                                      std::string_view files) {
    const git::TemporaryIndex index(calls);
    GDNCTL_TRY(calls.done({"read-tree", std::string(tree)}, index.options));
    CallOptions entries = index.options;
    GDNCTL_TRY_ASSIGN(entries.input, calls.output({"ls-tree", "-r", "-z", "--full-tree", std::string(files)}));
    GDNCTL_TRY(calls.done({"update-index", "-z", "--index-info"}, entries));
    const auto written = calls.line({"write-tree"}, index.options);
    if (!written && written.error().kind == ErrorKind::local_io) return tl::unexpected(written.error());
    if (!written) return std::optional<std::string>();  // a file where the other tree has a folder
    GDNCTL_TRY_ASSIGN(const std::string changed, calls.output({"diff-tree", "-r", "-z", "--name-status", "--no-renames",
                                                               std::string(tree), *written}));
    for (std::size_t at = 0; at < changed.size();) {
        if (changed[at] != 'A') return std::optional<std::string>();
        const auto path = changed.find('\0', at) + 1;
        at = changed.find('\0', path) + 1;
    }
    return std::optional(*written);
}

}  // namespace gdnctl
