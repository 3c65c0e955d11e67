#include "services/git/facts.h"

#include <algorithm>
#include <string_view>

#include "core/text.h"
#include "platform/fs.h"
#include "services/git/git.h"

namespace gdnctl::git {

namespace {

std::string_view without_cr(std::string_view line) {
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    return line;
}

// Calls `use` with each line, without its ending.
template <class F>
void for_each_line(std::string_view text, F use) {
    while (!text.empty()) {
        const auto end = text.find('\n');
        use(without_cr(text.substr(0, end)));
        if (end == std::string_view::npos) break;
        text.remove_prefix(end + 1);
    }
}

bool is_heading(std::string_view line) { return line.starts_with('#'); }

bool has_line(std::string_view text, std::string_view line) {
    for (auto at = text.find(line); at != std::string_view::npos; at = text.find(line, at + 1)) {
        const std::size_t end = at + line.size();
        const bool begins = at == 0 || text[at - 1] == '\n';
        const bool ends = end == text.size() || text[end] == '\n' || (text.substr(end, 2) == "\r\n") ||
                          (text[end] == '\r' && end + 1 == text.size());
        if (begins && ends) return true;
    }
    return false;
}

// A bare repository (`HEAD`, `objects` and `refs` without a work tree) at or above `start`.
bool in_bare_repository(const std::filesystem::path& start) {
    namespace fs = std::filesystem;
    std::error_code ec;
    for (fs::path folder = fs::weakly_canonical(fs::absolute(start, ec), ec);; folder = folder.parent_path()) {
        if (fs::exists(folder / "HEAD", ec) && fs::exists(folder / "objects", ec) && fs::exists(folder / "refs", ec)) {
            return true;
        }
        if (folder == folder.parent_path()) return false;
    }
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

}  // namespace

CommitInfo info_of(const Commit& commit) {
    const auto summary = text::trim(std::string_view(commit.message).substr(0, commit.message.find('\n')));
    return {commit.sha, commit.time, std::string(summary), commit.parents.size() > 1};
}

std::vector<std::string> reverted_shas(std::string_view message) {
    static constexpr std::string_view k_phrase = "This reverts commit ";
    std::vector<std::string> found;
    for (auto at = message.find(k_phrase); at != std::string_view::npos; at = message.find(k_phrase, at + 1)) {
        const std::string_view rest = message.substr(at + k_phrase.size());
        std::size_t n = 0;
        while (n < rest.size() && is_hex(rest[n])) ++n;
        if (n >= 7 && n <= 64) found.emplace_back(rest.substr(0, n));
    }
    return found;
}

std::string_view trailer(std::string_view message, std::string_view key) {
    std::string_view value;
    bool blank_before = false;
    for_each_line(message, [&](std::string_view line) {
        if (text::trim(line).empty()) {
            blank_before = true;
            return;
        }
        if (blank_before) value = {};  // only the last paragraph counts
        blank_before = false;
        if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == ':') {
            value = text::trim(line.substr(key.size() + 1));
        }
    });
    return value;
}

Result<bool> HistoryFacts::is_shallow() {
    GDNCTL_TRY_ASSIGN(const auto cut, m_repository->shallow_commits());
    return !cut.empty();
}

Result<std::optional<CommitInfo>> HistoryFacts::resolve(std::string_view revision) {
    const std::string key(revision);
    if (const auto known = m_resolved.find(key); known != m_resolved.end()) return known->second;
    std::optional<CommitInfo> info;
    if (!key.empty()) {
        GDNCTL_TRY_ASSIGN(const auto commit, m_repository->commit(revision));
        if (commit) info = info_of(*commit);
    }
    m_resolved.emplace(key, info);
    return info;
}

Result<const HistoryFacts::History*> HistoryFacts::head_history() {
    if (m_head) return &*m_head;
    History history;
    GDNCTL_TRY_ASSIGN(const auto head, resolve("HEAD"));
    if (head) {  // otherwise an unborn branch: an empty history
        GDNCTL_TRY_ASSIGN(history.commits, m_repository->history(std::vector{head->sha}));
    }
    for (std::size_t i = 0; i < history.commits.size(); ++i) {
        const Commit& commit = history.commits[i];
        history.index.emplace(commit.sha, i);
        for (auto& sha : reverted_shas(commit.message)) m_reverts.emplace(std::move(sha), commit.sha);
    }
    m_head = std::move(history);
    return &*m_head;
}

Result<const HistoryFacts::History*> HistoryFacts::parked_history() {
    if (m_parked) return &*m_parked;
    GDNCTL_TRY_ASSIGN(const auto tips, m_repository->tips_under("refs/gdnctl/"));
    History history;
    if (!tips.empty()) {
        GDNCTL_TRY_ASSIGN(history.commits, m_repository->history(tips));
    }
    for (std::size_t i = 0; i < history.commits.size(); ++i) history.index.emplace(history.commits[i].sha, i);
    m_parked = std::move(history);
    return &*m_parked;
}

Result<std::string> HistoryFacts::full_sha(std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto info, resolve(sha));
    return info ? info->sha : std::string();
}

Result<bool> HistoryFacts::is_ancestor_of_head(std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto full, full_sha(sha));
    if (full.empty()) return false;
    GDNCTL_TRY_ASSIGN(const auto* history, head_history());
    return history->index.contains(full);
}

Result<bool> HistoryFacts::on_parked_ref(std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto full, full_sha(sha));
    if (full.empty()) return false;
    GDNCTL_TRY_ASSIGN(const auto* history, parked_history());
    return history->index.contains(full);
}

// A revert that was itself reverted does not count.
bool HistoryFacts::reverted_by_living_commit(const std::string& sha, std::unordered_set<std::string>& seen) const {
    if (!seen.insert(sha).second) return false;
    for (std::size_t n = 7; n <= sha.size(); ++n) {
        const auto [first, last] = m_reverts.equal_range(sha.substr(0, n));
        for (auto it = first; it != last; ++it) {
            if (!reverted_by_living_commit(it->second, seen)) return true;
        }
    }
    return false;
}

Result<bool> HistoryFacts::is_reverted(std::string_view sha) {
    GDNCTL_TRY_ASSIGN(const auto full, full_sha(sha));
    if (full.empty()) return false;
    GDNCTL_TRY(head_history());
    std::unordered_set<std::string> seen;
    return reverted_by_living_commit(full, seen);
}

Result<HistoryFacts::FileIndex*> HistoryFacts::file_index(std::string_view path) {
    if (const auto known = m_files.find(path); known != m_files.end()) return &known->second;
    FileIndex file;
    GDNCTL_TRY_ASSIGN(const auto head, resolve("HEAD"));
    if (head) {
        GDNCTL_TRY_ASSIGN(file.versions, m_repository->file_versions(head->sha, path));
    }
    std::reverse(file.versions.begin(), file.versions.end());
    // Most queries are for headings, so all headings are indexed in one pass over the versions. Any other line is
    // searched for on request.
    GDNCTL_TRY(each_version(file, [&](const FileVersion& version, const std::string& now, const Texts& parents) {
        std::unordered_set<std::string_view> before;
        for (const std::string* parent : parents) {
            for_each_line(*parent, [&](std::string_view line) {
                if (is_heading(line)) before.insert(line);
            });
        }
        for_each_line(now, [&](std::string_view line) {
            if (is_heading(line) && !before.contains(line)) file.lines.emplace(std::string(line), version.commit);
        });
        return true;
    }));
    return &m_files.emplace(std::string(path), std::move(file)).first->second;
}

// Calls `use(version, its text, its parents' texts)` from the oldest version on, until it returns false. Fetches blobs
// for a few versions at a time: one child process for several, and little memory.
template <class F>
Status HistoryFacts::each_version(const FileIndex& file, F use) {
    static constexpr std::size_t k_group = 4;
    for (std::size_t begin = 0; begin < file.versions.size(); begin += k_group) {
        const std::size_t end = std::min(begin + k_group, file.versions.size());
        std::vector<std::string> ids;
        for (std::size_t i = begin; i < end; ++i) {
            const FileVersion& version = file.versions[i];
            ids.push_back(version.blob);
            ids.insert(ids.end(), version.parent_blobs.begin(), version.parent_blobs.end());
        }
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        GDNCTL_TRY_ASSIGN(const auto texts, m_repository->blobs(ids));
        const auto text_of = [&](const std::string& id) {
            return &texts[static_cast<std::size_t>(std::lower_bound(ids.begin(), ids.end(), id) - ids.begin())];
        };
        for (std::size_t i = begin; i < end; ++i) {
            Texts parents;
            for (const auto& id : file.versions[i].parent_blobs) parents.push_back(text_of(id));
            if (!use(file.versions[i], *text_of(file.versions[i].blob), parents)) return {};
        }
    }
    return {};
}

Result<std::optional<std::string>> HistoryFacts::search_line(const FileIndex& file, std::string_view line) {
    std::optional<std::string> sha;
    GDNCTL_TRY(each_version(file, [&](const FileVersion& version, const std::string& now, const Texts& parents) {
        const auto holds = [&](const std::string* text) { return has_line(*text, line); };
        if (has_line(now, line) && std::none_of(parents.begin(), parents.end(), holds)) sha = version.commit;
        return !sha;
    }));
    return sha;
}

Result<std::optional<CommitInfo>> HistoryFacts::introduced_line(std::string_view path, std::string_view line) {
    line = without_cr(line);
    GDNCTL_TRY_ASSIGN(const auto* file, file_index(path));
    std::optional<std::string> sha;
    if (is_heading(line)) {
        if (const auto known = file->lines.find(std::string(line)); known != file->lines.end()) sha = known->second;
    } else {
        GDNCTL_TRY_ASSIGN(sha, search_line(*file, line));
    }
    if (!sha) return std::optional<CommitInfo>();
    GDNCTL_TRY_ASSIGN(const auto cut, m_repository->shallow_commits());
    if (std::find(cut.begin(), cut.end(), *sha) != cut.end()) {
        return fail(ErrorKind::config, "the clone is shallow and ends before the commit that introduced the line",
                    std::string(k_fetch_all));
    }
    return resolve(*sha);
}

std::optional<CommitInfo> HistoryFacts::find_trailer(const History& history, std::string_view record_id) const {
    for (const Commit& commit : history.commits) {
        if (trailer(commit.message, "Gdnctl-Iteration") == record_id) return info_of(commit);
    }
    return std::nullopt;
}

Result<std::optional<CommitInfo>> HistoryFacts::with_iteration_trailer(std::string_view record_id) {
    if (record_id.empty()) return std::optional<CommitInfo>();
    GDNCTL_TRY_ASSIGN(const auto* head, head_history());
    if (auto found = find_trailer(*head, record_id)) return found;
    GDNCTL_TRY_ASSIGN(const auto* parked, parked_history());
    return find_trailer(*parked, record_id);
}

Result<std::optional<std::string>> HistoryFacts::file_at(std::string_view revision, std::string_view path) {
    return m_repository->file_at(revision, path);
}

}  // namespace gdnctl::git

namespace gdnctl {

Result<std::unique_ptr<CommitFacts>> open_commit_facts(const std::filesystem::path& start, Process& process,
                                                       GitReader reader) {
    const auto root = find_repository_root(start);
    if (!root && git::in_bare_repository(start)) {
        return fail(ErrorKind::usage, "a bare repository has no work tree: " + start.string(),
                    "run it in a checkout of that repository");
    }
    if (!root) {
        return fail(ErrorKind::usage, "not inside a git repository: " + start.string(),
                    "name a path inside a checkout, or work without git");
    }
    std::string why;
    if (reader != GitReader::program) {
        GDNCTL_TRY_ASSIGN(auto repository, git::open_with_libgit2(*root, why));
        if (repository) return std::make_unique<git::HistoryFacts>(std::move(repository));
        if (reader == GitReader::libgit2) return fail(ErrorKind::config, "libgit2 cannot be used: " + why);
    }
    auto repository = git::open_with_program(*root, process);
    if (!repository) {
        Error error = std::move(repository).error();
        if (!why.empty() && error.hint.empty()) error.hint = "libgit2 was tried first: " + why;
        return tl::unexpected(std::move(error));
    }
    return std::make_unique<git::HistoryFacts>(std::move(*repository));
}

}  // namespace gdnctl
