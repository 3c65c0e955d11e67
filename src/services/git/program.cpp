// The same reads through the git program: slower by one process each, but correct wherever git is.
#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/process.h"
#include "services/git/git.h"
#include "services/git/repository.h"

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

}  // namespace gdnctl::git
