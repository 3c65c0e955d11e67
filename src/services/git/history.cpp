// Facts about the history, computed from raw reads, and these reads through the git program: slower than libgit2 by one
// process each, but correct wherever git is.
#include "services/git/history.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "services/git/git.h"

namespace gdnctl::git {

namespace {

constexpr std::string_view k_commit_format = "--format=%x1e%H%x1f%ct%x1f%P%x1f%B";

std::optional<Commit> parse_commit(std::string_view record) {
    std::array<std::string_view, 3> head;
    for (auto& field : head) {
        const auto end = record.find('\x1f');
        if (end == std::string_view::npos) return std::nullopt;
        field = record.substr(0, end);
        record.remove_prefix(end + 1);
    }
    const auto seconds = text::parse_int(head[1]);
    if (!seconds) return std::nullopt;
    Commit commit;
    commit.sha = head[0];
    commit.time = WallTime(std::chrono::seconds(*seconds));
    for (const auto parent : text::split(head[2], ' ')) {
        if (!parent.empty()) commit.parents.emplace_back(parent);
    }
    commit.message = record;
    return commit;
}

bool all_zero(std::string_view id) { return id.find_first_not_of('0') == std::string_view::npos; }

class ProgramRepository final : public Repository {
public:
    ProgramRepository(std::filesystem::path root, Process& process) : m_root(std::move(root)), m_process(process) {}

    // nullopt if git fails and `may_fail` is set.
    Result<std::optional<std::string>> git(std::vector<std::string> words, bool may_fail, std::string input = {}) {
        ProcessSpec spec;
        spec.argv = git_command(std::move(words));
        spec.cwd = m_root;
        spec.env = git_environment();  // without replacement objects, as with libgit2
        spec.stdin_bytes = std::move(input);
        spec.capture_limit = std::size_t{1} << 30;
        spec.wall_limit = std::chrono::minutes(2);
        GDNCTL_TRY_ASSIGN(auto result, m_process.run(spec));
        if (result.out_truncated)
            return fail(ErrorKind::bad_input, "git printed more than 1 GiB in " + m_root.string());
        if (result.ok()) return std::optional(std::move(result.out));
        if (may_fail && result.end == ProcessResult::End::exited) return std::optional<std::string>();
        return refused(result);
    }

    Result<std::optional<Commit>> commit(std::string_view revision) override {
        const std::string name(revision);
        GDNCTL_TRY_ASSIGN(const auto sha,
                          git({"rev-parse", "--verify", "--quiet", "--end-of-options", name + "^{commit}"}, true));
        if (!sha) return std::optional<Commit>();
        GDNCTL_TRY_ASSIGN(auto found, log({"--max-count=1", std::string(text::trim(*sha))}));
        if (found.empty()) return fail(ErrorKind::bad_input, "git log shows no commit " + name);
        return std::move(found.front());
    }

    Result<std::vector<Commit>> history(std::span<const std::string> tips) override {
        std::vector<std::string> words = {"--date-order"};
        words.insert(words.end(), tips.begin(), tips.end());
        return log(std::move(words));
    }

    Result<std::vector<std::string>> tips_under(std::string_view prefix) override {
        GDNCTL_TRY_ASSIGN(const auto out,
                          git({"for-each-ref", "--format=%(objecttype) %(objectname) %(*objecttype) %(*objectname)",
                               std::string(prefix)},
                              false));
        std::vector<std::string> tips;
        for (const auto line : text::split(*out, '\n')) {
            const auto words = text::split(line, ' ');
            if (words.size() >= 2 && words[0] == "commit") tips.emplace_back(words[1]);
            if (words.size() >= 4 && words[2] == "commit") tips.emplace_back(words[3]);
        }
        return tips;
    }

    Result<std::vector<FileVersion>> file_versions(std::string_view tip, std::string_view path) override {
        // -m lists a merge once per parent from which it differs; a merge that equals one of its parents is not a
        // version. %P gives the number of parents.
        GDNCTL_TRY_ASSIGN(const auto out, git({"log", "--date-order", "--full-history", "-m", "--raw", "--no-abbrev",
                                               "--no-renames", "--no-color", "--format=%x1e%H %P", std::string(tip),
                                               "--", ":(literal)" + std::string(path)},
                                              false));
        std::vector<FileVersion> versions;
        std::size_t parents = 0, differing = 0;
        const auto close = [&] {
            const bool counts = !versions.empty() && differing >= std::max<std::size_t>(parents, 1);
            if (!versions.empty() && (!counts || all_zero(versions.back().blob))) versions.pop_back();
        };
        for (const auto line : text::split(*out, '\n')) {
            if (line.starts_with('\x1e')) {
                const auto words = text::split(text::trim(line.substr(1)), ' ');
                if (!versions.empty() && versions.back().commit == words[0]) continue;  // the next parent of a merge
                close();
                versions.push_back({std::string(words[0]), {}, {}});
                parents = words.size() - 1;
                differing = 0;
            } else if (line.starts_with(':') && !versions.empty()) {
                const auto words = text::split(line, ' ');  // :mode mode blob blob status
                if (words.size() < 5) continue;
                if (words[2] == words[3]) continue;  // only the mode changed
                ++differing;
                versions.back().blob = words[3];
                if (!all_zero(words[2])) versions.back().parent_blobs.emplace_back(words[2]);
            }
        }
        close();
        return versions;
    }

    Result<std::vector<std::string>> blobs(std::span<const std::string> ids) override {
        std::string input;
        for (const auto& id : ids) input += id + "\n";
        GDNCTL_TRY_ASSIGN(const auto out, git({"cat-file", "--batch"}, false, std::move(input)));
        std::vector<std::string> texts;
        std::string_view rest = *out;
        for (const auto& id : ids) {
            const auto end = rest.find('\n');
            const auto words = text::split(rest.substr(0, end), ' ');  // sha blob size
            const auto size = words.size() == 3 ? text::parse_int(words[2]) : std::nullopt;
            if (!size || words[1] != "blob" || end + 1 + static_cast<std::size_t>(*size) > rest.size()) {
                return fail(ErrorKind::bad_input, "git has no file contents " + id);
            }
            texts.emplace_back(rest.substr(end + 1, static_cast<std::size_t>(*size)));
            rest.remove_prefix(std::min(rest.size(), end + 2 + static_cast<std::size_t>(*size)));
        }
        return texts;
    }

    Result<std::optional<std::string>> file_at(std::string_view revision, std::string_view path) override {
        GDNCTL_TRY_ASSIGN(const auto found, commit(revision));
        if (!found) {
            return fail(ErrorKind::usage, "no such revision: " + std::string(revision));
        }
        return git({"cat-file", "blob", found->sha + ":" + std::string(path)}, true);
    }

    Result<std::vector<std::string>> shallow_commits() override {
        GDNCTL_TRY_ASSIGN(const auto name, git({"rev-parse", "--git-path", "shallow"}, false));
        std::ifstream file(m_root / std::string(text::trim(*name)));
        std::vector<std::string> shas;
        for (std::string line; std::getline(file, line);) shas.emplace_back(text::trim(line));
        return shas;
    }

private:
    Result<std::vector<Commit>> log(std::vector<std::string> arguments) {
        std::vector<std::string> words = {
            "log", "--no-color", "--no-decorate", "--no-notes", "--encoding=UTF-8", "-s", std::string(k_commit_format)};
        words.insert(words.end(), arguments.begin(), arguments.end());
        words.emplace_back("--");
        GDNCTL_TRY_ASSIGN(const auto out, git(std::move(words), false));
        std::vector<Commit> commits;
        for (const auto record : text::split(*out, '\x1e')) {
            if (text::trim(record).empty()) continue;
            // A message that contains the separator is cut there; the rest does not parse.
            if (auto commit = parse_commit(record)) commits.push_back(std::move(*commit));
        }
        return commits;
    }

    tl::unexpected<Error> refused(const ProcessResult& result) const {
        if (result.err.find("dubious ownership") != std::string::npos ||
            result.err.find("safe.directory") != std::string::npos) {
            return fail(ErrorKind::config, "git does not trust " + m_root.string() + ", which another user owns",
                        "git config --global --add safe.directory " + text::shell_quote(m_root.string()));
        }
        std::string_view reason = text::trim(result.err);
        reason = reason.substr(0, reason.find('\n'));
        if (reason.empty()) reason = "no reason given";
        return fail(ErrorKind::bad_input, fmt::format("git cannot read {}: {}", m_root.string(), reason));
    }

    std::filesystem::path m_root;
    Process& m_process;
};

}  // namespace

Result<std::unique_ptr<Repository>> open_with_program(const std::filesystem::path& root, Process& process) {
    auto repository = std::make_unique<ProgramRepository>(root, process);
    auto bare = repository->git({"rev-parse", "--is-bare-repository"}, false);
    if (!bare) {
        Error error = std::move(bare).error();
        if (error.kind == ErrorKind::local_io) {
            error.kind = ErrorKind::config;
            error.hint = "install git (Debian: apt-get install git) or libgit2-1.5";
        }
        return tl::unexpected(std::move(error));
    }
    if (text::trim(**bare) == "true") {
        return fail(ErrorKind::usage, "a bare repository has no work tree: " + root.string(),
                    "run it in a checkout of that repository");
    }
    return repository;
}

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
