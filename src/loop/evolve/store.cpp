#include "loop/evolve/store.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/log.h"
#include "core/text.h"
#include "loop/evolve/ref_guard.h"
#include "loop/measure/worktrees.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/machine.h"

namespace gdnctl::loop::evolve {

namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 6> k_like_c = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu"};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The text without its comments; a block comment becomes a blank.
std::string stripped(std::string_view text, bool like_c) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        const char c = text[i];
        const bool starts_word = i == 0 || is_blank(text[i - 1]) || text[i - 1] == '\n';
        if (like_c ? text.substr(i, 2) == "//" : c == '#' && starts_word && text.substr(i, 2) != "#!") {
            i = std::min(text.find('\n', i), text.size());
        } else if (like_c && text.substr(i, 2) == "/*") {
            const std::size_t end = text.find("*/", i + 2);
            i = end == std::string_view::npos ? text.size() : end + 2;
            out += ' ';
        } else if (c == '"' || c == '\'') {
            const std::size_t start = i++;
            while (i < text.size() && text[i] != c && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
            i = std::min(i + 1, text.size());
            out += text.substr(start, i - start);
        } else {
            out += c;
            ++i;
        }
    }
    return out;
}

constexpr std::uintmax_t k_largest_file = std::uintmax_t{5} << 20;
constexpr std::size_t k_most_ignored = 100;

bool leads_out(std::string_view link, std::string_view target) {
    if (target.empty() || target.front() == '/') return true;
    const fs::path place = (fs::path(link).parent_path() / target).lexically_normal();
    return place.empty() || *place.begin() == "..";
}

}  // namespace

std::string without_comments(std::string_view path, std::string_view content) {
    const auto ends = [&](std::string_view ending) { return path.ends_with(ending); };
    const bool like_c = std::any_of(k_like_c.begin(), k_like_c.end(), ends), is_python = ends(".py");
    if (!like_c && !is_python && !ends(".sh")) return std::string(content);
    std::string out;
    const std::string bare = stripped(content, like_c);
    for (const std::string_view line : text::split(bare, '\n')) {
        const std::string_view words = text::trim(line);
        if (words.empty()) continue;
        if (is_python) out += line.substr(0, static_cast<std::size_t>(words.data() - line.data()));
        for (std::size_t i = 0; i < words.size(); ++i) {
            if (!is_blank(words[i])) {
                out += words[i];
            } else if (!is_blank(words[i - 1])) {
                out += ' ';
            }
        }
        out += '\n';
    }
    return out;
}

std::string ref_of(std::string_view run, std::string_view name) {
    return fmt::format("refs/gdnctl/evolve/{}/{}", run, name);
}

bool PathRules::is_protected(std::string_view path) const {
    return path == "gdnctl.toml" || glob_covers(guarded, path);
}

bool PathRules::is_mutable(std::string_view path) const { return !is_protected(path) && glob_covers(kernel, path); }

Result<fs::path> Store::prepare(const std::string& commit) {
    if (!m_slot) {
        GDNCTL_TRY_ASSIGN(m_slot, PrivateWorktree::open(m_repository, slot_folder(), true, m_process, m_clock));
    }
    GDNCTL_TRY(m_slot->mend(m_repository));
    GDNCTL_TRY(m_slot->move_to(commit, {}));
    GDNCTL_TRY(m_slot->fill_submodules(m_repository));
    return m_slot->checkout().root();
}

Status Store::sort_change(const GitFileChange& change, Work& work) const {
    const bool goes = change.status == 'D';
    if (change.is_submodule()) {
        work.refused.push_back(change.path);
        return {};
    }
    if (!goes) {
        const std::vector<std::string> object = {change.new_object};
        GDNCTL_TRY_ASSIGN(const auto sizes, m_repository.sizes(object));
        if (sizes.front() > k_largest_file) {
            work.refused.push_back(change.path);
            return {};
        }
        if (change.new_mode == "120000") {
            GDNCTL_TRY_ASSIGN(const auto target, m_repository.objects(object));
            if (leads_out(change.path, target.front().value_or(""))) {
                work.refused.push_back(change.path);
                if (m_rules.is_protected(change.path)) work.tampered.push_back(change.path);
                return {};
            }
        }
    }
    if (m_rules.is_mutable(change.path)) {
        work.changes.push_back(change);
        return {};
    }
    work.forbidden.push_back(change.path);
    if (m_rules.is_protected(change.path)) work.tampered.push_back(change.path);
    return {};
}

Result<Work> Store::collect(const std::string& parent) {
    Work work;
    GDNCTL_TRY(m_slot->mend(m_repository));
    const GitCheckout& checkout = m_slot->checkout();
    GDNCTL_TRY_ASSIGN(const GitHead head, checkout.head());
    GDNCTL_TRY_ASSIGN(const GitRange range, m_repository.range(parent, head.sha));
    work.agent_commits = range.descends ? static_cast<int>(range.commits.size()) : 0;
    GDNCTL_TRY_ASSIGN(const GitSnapshot all, m_slot->snapshot(parent, "what the agent left\n"));
    work.refused = all.repositories;
    GDNCTL_TRY_ASSIGN(const auto status, checkout.status(true));
    for (const GitStatusEntry& entry : status) {
        if (entry.kind != GitStatusEntry::Kind::ignored || work.ignored.size() == k_most_ignored) continue;
        work.ignored.push_back(entry.path);
    }
    // The tree of a snapshot without a commit is the parent's own, or HEAD's.
    if (all.commit.empty()) return work;
    GDNCTL_TRY_ASSIGN(const auto changes, m_repository.diff(parent, all.commit));
    for (const GitFileChange& change : changes) GDNCTL_TRY(sort_change(change, work));
    return work;
}

Result<AgentHead> Store::leave_branch() {
    std::error_code problem;
    if (!m_slot && !fs::exists(slot_folder(), problem)) return AgentHead{};
    if (!m_slot) {
        GDNCTL_TRY_ASSIGN(m_slot, PrivateWorktree::open(m_repository, slot_folder(), true, m_process, m_clock));
    }
    const GitCheckout& checkout = m_slot->checkout();
    const auto head = checkout.head();
    // Detaches HEAD, because its branch may be about to be deleted.
    if (head && !head->branch.empty()) GDNCTL_TRY(atomic_replace(checkout.git_dir() / "HEAD", head->sha + "\n"));
    return AgentHead{commits_of_head(checkout.git_dir()), head ? head->branch : std::string()};
}

Status Store::remember_setup() {
    if (m_setup) return {};
    GDNCTL_TRY_ASSIGN(m_setup, GitSettings::take(m_repository));
    return m_setup->save(m_repository, m_run);
}

Result<std::vector<std::string>> Store::restore_setup() {
    if (!m_setup) return std::vector<std::string>();
    GDNCTL_TRY_ASSIGN(auto names, m_setup->put_back(m_repository, m_run));
    // From here on, changes are the user's.
    m_setup.reset();
    GitSettings::forget(m_repository, m_run);
    return names;
}

Result<std::optional<Candidate>> Store::commit(const Work& work, std::span<const std::string> parents,
                                               std::string_view message, WallTime when) const {
    if (work.changes.empty()) return std::optional<Candidate>();
    Candidate made;
    GDNCTL_TRY_ASSIGN(const GitSnapshot commit, m_repository.commit_changes(parents, work.changes, message, when));
    made.commit = commit.commit;
    made.tree = commit.tree;
    GDNCTL_TRY_ASSIGN(made.mutable_key, mutable_key(made.commit));
    GDNCTL_TRY_ASSIGN(made.patch_id, m_repository.patch_id(parents.front(), made.commit));
    GDNCTL_TRY_ASSIGN(made.code_key, code_key(work.changes));
    for (const GitFileChange& change : work.changes) made.files.push_back(change.path);
    GDNCTL_TRY(m_repository.patch_lines(parents.front(), made.commit, [&made](std::string_view line) {
        if (line.starts_with('+') && !line.starts_with("+++ ")) ++made.added;
        if (line.starts_with('-') && !line.starts_with("--- ")) ++made.removed;
    }));
    return std::optional(std::move(made));
}

Result<std::string> Store::code_key(std::span<const GitFileChange> changes) const {
    std::vector<std::string> objects;
    for (const GitFileChange& change : changes) {
        objects.push_back(change.old_object);
        objects.push_back(change.new_object);
    }
    GDNCTL_TRY_ASSIGN(const auto bytes, m_repository.objects(objects));
    std::string all;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        const GitFileChange& change = changes[i];
        const std::string now = without_comments(change.path, bytes[2 * i + 1].value_or(""));
        const bool same =
            change.old_mode == change.new_mode && now == without_comments(change.path, bytes[2 * i].value_or(""));
        if (!same) all += fmt::format("{} {} {} {}\n{}", change.status, change.new_mode, change.path, now.size(), now);
    }
    return hash_hex(HashKind::sha256, all);
}

Status Store::write_patch(const std::string& from, const std::string& to, const fs::path& file) const {
    return m_repository.write_patch(from, to, file);
}

Result<std::string> Store::mutable_key(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const auto files, m_repository.files(commit));
    std::string text;
    for (const GitFile& file : files) {
        if (m_rules.is_mutable(file.path)) text += fmt::format("{} {} {}\n", file.mode, file.object, file.path);
    }
    return hash_hex(HashKind::sha256, text);
}

Result<std::map<std::string, std::string>> Store::guards(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const auto files, m_repository.files(commit));
    std::map<std::string, std::string> out;
    for (const GitFile& file : files) {
        if (m_rules.is_protected(file.path)) out[file.path] = file.object;
    }
    return out;
}

Result<std::map<std::string, std::string>> Store::mutable_text(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const auto files, m_repository.files(commit));
    std::vector<std::string> paths, objects;
    for (const GitFile& file : files) {
        if (!m_rules.is_mutable(file.path) || !file.mode.starts_with("100")) continue;
        paths.push_back(file.path);
        objects.push_back(file.object);
    }
    GDNCTL_TRY_ASSIGN(const auto bytes, m_repository.objects(objects));
    std::map<std::string, std::string> out;
    for (std::size_t i = 0; i < paths.size(); ++i) out[paths[i]] = bytes[i].value_or("");
    return out;
}

Status Store::pin(std::string_view name, const std::string& commit) const {
    return m_repository.update_refs(std::array{GitRefUpdate{ref_of(m_run, name), commit}});
}

Status Store::note(const std::string& commit, std::string_view text) const {
    return m_repository.add_note(commit, text, "refs/notes/gdnctl-" + m_run);
}

Status Store::tidy() const {
    std::error_code problem;
    if (!fs::exists(slot_folder(), problem)) return {};
    GDNCTL_TRY(m_repository.remove_worktree(slot_folder()));
    fs::remove(m_worktrees, problem);
    return {};
}

Status Store::with_fresh_checkout(const std::string& commit, const UseTree& use) const {
    const fs::path folder = m_worktrees / random_hex(32);
    Status used;
    {
        CommitTrees trees(m_repository, {folder, {}, {}}, m_process, m_clock);
        auto tree = trees.at(commit);
        used = tree ? use(*tree) : Status(tl::unexpected(std::move(tree.error())));
    }
    const Status removed = m_repository.remove_worktree(folder);
    if (!removed) log::warning("{}", removed.error().text());
    return used;
}

}  // namespace gdnctl::loop::evolve
