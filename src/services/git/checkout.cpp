// GitCheckout: opening, what is trusted, reads, refs, commits and snapshots.
#include "services/git/checkout.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/git/calls.h"
#include "services/git/git.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Words;

namespace {

tl::unexpected<Error> unreadable(std::string_view what) {
    return fail(ErrorKind::bad_input, fmt::format("cannot parse the output of git {}", what));
}

// Empty unless both are full ids, because otherwise the answer may change.
std::string key_of(std::string_view one, std::string_view other) {
    const auto full = [](std::string_view id) {
        return id.size() >= k_no_object.size() && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
    };
    return full(one) && full(other) ? fmt::format("{} {}", one, other) : std::string();
}

template <class T>
T remember(std::map<std::string, T>& known, const std::string& key, T answer) {
    constexpr std::size_t k_most = 4;
    if (key.empty()) return answer;
    if (known.size() >= k_most) known.clear();
    return known[key] = std::move(answer);
}

// Asks git for three places of the checkout at `start`: its root, its git folder and the shared one.
Result<std::vector<std::string>> ask_places(const fs::path& start, Process& process) {
    ProcessSpec spec;
    spec.argv =
        git_command({"rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"});
    spec.cwd = start;
    spec.env = git_environment();
    auto result = process.run(spec);
    if (!result) {
        Error error = std::move(result).error();
        if (error.kind == ErrorKind::local_io) {
            error.kind = ErrorKind::config;
            error.hint = "install git (Debian: apt-get install git)";
        }
        return tl::unexpected(std::move(error));
    }
    if (!result->ok()) {
        if (result->err.find("not a git repository") != std::string::npos) {
            return fail(ErrorKind::usage, "not inside a git repository: " + start.string(),
                        "cd to a checkout, or make one: git init");
        }
        if (result->err.find("must be run in a work tree") != std::string::npos) {
            return fail(ErrorKind::usage, "a bare repository has no work tree: " + start.string(),
                        "run it in a checkout of that repository");
        }
        return git::Calls{start, {}, {}, process, system_clock()}.refused("rev-parse", *result);
    }
    // The root's name contains a newline: the last two lines are the folders, each below or next to it.
    std::vector<std::string> lines;
    for (const auto line : text::split(std::string_view(result->out).substr(0, result->out.size() - 1), '\n')) {
        lines.emplace_back(line);
    }
    if (lines.size() != 3) {
        return fail(ErrorKind::usage, "the path of the repository contains a newline: " + start.string(),
                    "move it to a folder without one");
    }
    return lines;
}

}  // namespace

GitCheckout::GitCheckout(std::unique_ptr<git::Calls> calls) : m_calls(std::move(calls)) {}
GitCheckout::GitCheckout(GitCheckout&&) noexcept = default;
GitCheckout& GitCheckout::operator=(GitCheckout&&) noexcept = default;
GitCheckout::~GitCheckout() = default;

Result<GitCheckout> GitCheckout::open(const fs::path& start, Process& process, Clock& clock) {
    if (std::error_code problem; !fs::is_directory(start, problem)) {
        return fail(ErrorKind::usage, "not a folder: " + start.string());
    }
    GDNCTL_TRY_ASSIGN(const auto places, ask_places(start, process));
    GitCheckout checkout(std::make_unique<git::Calls>(places[0], places[1], places[2], process, clock));
    GDNCTL_TRY(checkout.head());
    return checkout;
}

const fs::path& GitCheckout::root() const { return m_calls->root; }
const fs::path& GitCheckout::git_dir() const { return m_calls->git_dir; }
const fs::path& GitCheckout::common_dir() const { return m_calls->common_dir; }

Result<std::map<std::string, std::string>> GitCheckout::executable_config() const {
    const git::Calls plain{root(), git_dir(), common_dir(), m_calls->process, m_calls->clock};
    GDNCTL_TRY_ASSIGN(const std::string list, plain.output({"config", "--list", "-z"}));
    m_calls->includes = git::has_includes(list);
    auto found = git::programs_in(list);
    std::error_code problem;
    for (fs::directory_iterator at(common_dir() / "hooks", problem), end; !problem && at != end;
         at.increment(problem)) {
        const fs::path& hook = at->path();
        if (hook.extension() == ".sample") continue;
        const auto content = read_file_if_exists(hook);
        found["hooks/" + hook.filename().string()] = content && *content ? **content : std::string();
    }
    return found;
}

Result<std::vector<std::string>> GitCheckout::trust(const std::map<std::string, std::string>& config) {
    GDNCTL_TRY_ASSIGN(const auto now, executable_config());
    std::vector<std::string> changed;
    m_calls->overrides.clear();
    for (const auto& [key, value] : config) {
        if (git::names_a_program(key)) m_calls->overrides[key] = value;
    }
    for (const auto& [key, value] : now) {
        const auto known = config.find(key);
        if (known != config.end() && known->second == value) continue;
        changed.push_back(key);
        if (known == config.end() && git::names_a_program(key)) m_calls->overrides[key] = "";
    }
    for (const auto& [key, value] : config) {
        if (!now.contains(key)) changed.push_back(key);
    }
    return changed;
}

Result<std::vector<std::string>> GitCheckout::trust_as(const GitCheckout& repository,
                                                       const std::map<std::string, std::string>& config,
                                                       std::vector<std::string> changed) {
    std::error_code problem;
    const bool own = fs::exists(git_dir() / "config.worktree", problem) ||
                     fs::exists(repository.git_dir() / "config.worktree", problem);
    if (own || repository.m_calls->includes) return trust(config);
    m_calls->overrides = repository.m_calls->overrides;
    return changed;
}

Result<GitHead> GitCheckout::head() const {
    GitHead head;
    // Both in one call; if git refuses, find out why.
    GDNCTL_TRY_ASSIGN(const ProcessResult both,
                      m_calls->run({"rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD"}));
    const auto lines = text::split(text::trim(both.out), '\n');
    if (both.ok() && lines.size() == 2) {
        head.sha = lines[0];
        if (lines[1] != "HEAD") head.branch = lines[1];
        return head;
    }
    GDNCTL_TRY_ASSIGN(const auto id, resolve("HEAD"));
    if (!id) {
        return fail(ErrorKind::usage, "the repository has no commit yet: " + root().string(),
                    "make a first commit: git commit");
    }
    head.sha = *id;
    GDNCTL_TRY_ASSIGN(const ProcessResult name, m_calls->run({"symbolic-ref", "--quiet", "HEAD"}));
    if (name.ok()) head.branch = text::trim(name.out);
    return head;
}

Result<std::optional<std::string>> GitCheckout::resolve(std::string_view revision) const {
    const Words words = {"rev-parse", "--verify", "--quiet", "--end-of-options", std::string(revision) + "^{commit}"};
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_calls->run(words));
    if (result.ok()) return std::optional(std::string(text::trim(result.out)));
    if (result.end == ProcessResult::End::exited && text::trim(result.err).empty()) return std::optional<std::string>();
    return m_calls->refused("rev-parse", result);
}

Result<bool> GitCheckout::is_ancestor(std::string_view old_one, std::string_view new_one) const {
    const Words words = {"merge-base", "--is-ancestor", std::string(old_one), std::string(new_one)};
    GDNCTL_TRY_ASSIGN(const ProcessResult result, m_calls->run(words));
    if (result.ok()) return true;
    if (result.end == ProcessResult::End::exited && result.exit_code == 1) return false;
    return m_calls->refused("merge-base", result);
}

Result<GitRange> GitCheckout::range(std::string_view base, std::string_view tip) const {
    const std::string key = key_of(base, tip);
    if (const auto known = m_calls->ranges.find(key); known != m_calls->ranges.end()) return known->second;
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"rev-list", "--reverse", "--topo-order", "--boundary",
                                                              std::string(tip), "^" + std::string(base), "--"}));
    GitRange range;
    range.descends = base == tip;
    for (const auto line : text::split(out, '\n')) {
        if (line.empty()) continue;
        if (line.front() != '-') {
            range.commits.emplace_back(line);
        } else if (line.substr(1) == base) {
            range.descends = true;  // on a way from tip to base, the last commit before base has it as a parent
        }
    }
    return remember(m_calls->ranges, key, std::move(range));
}

Result<std::vector<std::string>> GitCheckout::commits(std::string_view base, std::string_view tip) const {
    return range(base, tip).map([](GitRange&& range) { return std::move(range.commits); });
}

Result<std::vector<GitFileChange>> GitCheckout::diff(std::string_view from, std::string_view to) const {
    const std::string key = key_of(from, to);
    if (const auto known = m_calls->diffs.find(key); known != m_calls->diffs.end()) return known->second;
    GDNCTL_TRY_ASSIGN(const std::string out,
                      m_calls->output({"diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames",
                                       "--ignore-submodules=none", std::string(from), std::string(to), "--"}));
    auto changes = git::parse_raw_diff(out);
    if (!changes) return unreadable("diff-tree");
    return remember(m_calls->diffs, key, std::move(*changes));
}

namespace {

Words patch_words(std::string_view from, std::string_view to) {
    return {"diff-tree",
            "-r",
            "-p",
            "--binary",
            "--full-index",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--submodule=short",
            std::string(from),
            std::string(to),
            "--"};
}

}  // namespace

Result<std::vector<std::optional<std::string>>> GitCheckout::objects(std::span<const std::string> names) const {
    git::CallOptions options;
    for (const auto& name : names) {
        if (name.find('\n') != std::string::npos) return fail(ErrorKind::usage, "a path with a newline: " + name);
        options.input += name + "\n";
    }
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"cat-file", "--batch"}, options));
    auto found = git::parse_batch(out, names.size());
    if (!found) return unreadable("cat-file");
    return std::move(*found);
}

Result<std::vector<std::uintmax_t>> GitCheckout::sizes(std::span<const std::string> objects) const {
    git::CallOptions options;
    for (const auto& object : objects) options.input += object + "\n";
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"cat-file", "--batch-check=%(objectsize)"}, options));
    std::vector<std::uintmax_t> found;
    for (const auto line : text::split(out, '\n')) {
        if (found.size() == objects.size()) break;
        found.push_back(static_cast<std::uintmax_t>(text::parse_int(line).value_or(0)));  // "ID missing"
    }
    if (found.size() < objects.size()) return unreadable("cat-file");
    return found;
}

Result<std::string> GitCheckout::patch(std::string_view from, std::string_view to,
                                       std::span<const std::string> paths) const {
    Words words = patch_words(from, to);
    for (const auto& path : paths) words.push_back(":(top,literal)" + path);
    return m_calls->output(words);
}

Status GitCheckout::write_patch(std::string_view from, std::string_view to, const fs::path& file) const {
    std::error_code problem;
    fs::remove(file, problem);
    git::CallOptions options;
    options.out_file = file;
    return m_calls->done(patch_words(from, to), options);
}

Status GitCheckout::patch_lines(std::string_view from, std::string_view to,
                                const std::function<void(std::string_view)>& line) const {
    git::CallOptions options;
    options.on_line = line;
    return m_calls->done(patch_words(from, to), options);
}

Result<std::vector<GitStatusEntry>> git::status_of(const Calls& calls, bool with_ignored, bool& unread) {
    Words words = {"status",       "--porcelain=v2",          "-z", "--untracked-files=all",
                   "--no-renames", "--ignore-submodules=none"};
    if (with_ignored) words.emplace_back("--ignored=traditional");
    GDNCTL_TRY_ASSIGN(const ProcessResult result, calls.run(words));
    if (!result.ok()) return calls.refused("status", result);
    unread = result.err.find("could not open directory") != std::string::npos;
    auto entries = parse_status(result.out);
    if (!entries) return unreadable("status");
    return std::move(*entries);
}

Result<std::vector<GitStatusEntry>> GitCheckout::status(bool with_ignored) const {
    bool unread = false;
    return git::status_of(*m_calls, with_ignored, unread);
}

Result<std::vector<std::string>> GitCheckout::dirty_paths() const {
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"status", "--porcelain=v2", "-z"}));
    const auto entries = git::parse_status(out);
    if (!entries) return unreadable("status");
    std::vector<std::string> paths;
    for (const auto& entry : *entries) paths.push_back(entry.path);
    return paths;
}

Result<std::map<std::string, std::string>> GitCheckout::refs(std::string_view prefix) const {
    GDNCTL_TRY_ASSIGN(const std::string out,
                      m_calls->output({"for-each-ref", "--format=%(objectname) %(refname)", std::string(prefix)}));
    std::map<std::string, std::string> found;
    for (const auto line : text::split(out, '\n')) {
        const auto at = line.find(' ');
        if (at != std::string_view::npos) found.emplace(line.substr(at + 1), line.substr(0, at));
    }
    return found;
}

Result<bool> git::is_bare_by_own_config(const Calls& calls) {
    std::error_code problem;
    const fs::path file = calls.common_dir / "config.worktree";
    if (!fs::exists(file, problem)) return false;
    GDNCTL_TRY_ASSIGN(const ProcessResult used, calls.run({"config", "--type=bool", "extensions.worktreeConfig"}));
    GDNCTL_TRY_ASSIGN(const ProcessResult bare,
                      calls.run({"config", "--file", file.string(), "--type=bool", "core.bare"}));
    return text::trim(used.out) == "true" && text::trim(bare.out) == "true";
}

Result<std::vector<GitWorktree>> GitCheckout::worktrees() const {
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"worktree", "list", "--porcelain", "-z"}));
    auto found = git::parse_worktrees(out);
    if (git_dir() != common_dir()) {
        // git takes a bare repository for a checkout if `core.bare` is in its own config.worktree, as its manual
        // advises.
        GDNCTL_TRY_ASSIGN(const bool bare, git::is_bare_by_own_config(*m_calls));
        const fs::path main = common_dir().filename() == ".git" ? common_dir().parent_path() : common_dir();
        if (bare) std::erase_if(found, [&](const GitWorktree& one) { return one.path == main; });
        return found;
    }
    // git reports the git directory if the repository is elsewhere (--separate-git-dir, a submodule), and a checkout
    // that was declared bare is not listed.
    const auto own = std::find_if(found.begin(), found.end(), [&](const GitWorktree& one) {
        return one.path == root() || one.path == common_dir();
    });
    if (own != found.end()) {
        own->path = root();
        return found;
    }
    GDNCTL_TRY_ASSIGN(const GitHead now, head());
    found.insert(found.begin(), {root(), now.sha, now.branch});
    return found;
}

Result<bool> GitCheckout::is_kept(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"for-each-ref", "--count=1", "--format=%(refname)",
                                                              "--contains", std::string(commit)}));
    return !out.empty();
}

Status GitCheckout::update_refs(std::span<const GitRefUpdate> updates) const {
    if (updates.empty()) return {};
    git::CallOptions options;
    std::string& input = options.input;
    for (const auto& one : updates) {
        const bool gone = one.target == k_no_object;
        input += fmt::format("{} {}", gone ? "delete" : "update", one.name);
        input += '\0';
        if (!gone) input += one.target + '\0';
        input += one.expected.value_or("") + '\0';
    }
    GDNCTL_TRY_ASSIGN(const ProcessResult result,
                      m_calls->run({"update-ref", "--no-deref", "--stdin", "-z", "-m", "gdnctl"}, options));
    if (result.ok()) return {};
    if (result.err.find("but expected") != std::string::npos ||
        result.err.find("already exists") != std::string::npos ||
        result.err.find("unable to resolve reference") != std::string::npos) {
        return fail(ErrorKind::conflict, fmt::format("a ref was changed by someone else in {}: {}", root().string(),
                                                     git::reason_of(result.err)));
    }
    return m_calls->refused("update-ref", result);
}

// The objects of a repository's branches, tags, notes and stashes, and one commit that keeps all of them.

Result<std::vector<GitName>> GitCheckout::names() const {
    // Without reading the objects: a single broken ref would abort the listing.
    GDNCTL_TRY_ASSIGN(const std::string out, m_calls->output({"for-each-ref", "--format=%(objectname) %(refname)",
                                                              "refs/heads", "refs/tags", "refs/notes", "refs/stash"}));
    std::vector<GitName> found;
    for (const auto line : text::split(out, '\n')) {
        const auto at = line.find(' ');
        if (at == std::string_view::npos) continue;
        GitName name{std::string(line.substr(at + 1)), std::string(line.substr(0, at))};
        if (name.ref == "refs/notes/gdnctl") continue;
        if (name.ref != k_stash_ref) {
            found.push_back(std::move(name));
            continue;
        }
        GDNCTL_TRY_ASSIGN(const auto all, GitStashes(*this).list());
        for (const auto& one : all) found.push_back({name.ref, one.commit, one.message});
    }
    return found;
}

Result<std::string> GitCheckout::gather(const std::vector<GitName>& names, std::string_view message) const {
    git::CallOptions asked;
    for (const auto& name : names) asked.input += name.object + "^{commit}\n";
    std::set<std::string> parents;
    if (!names.empty()) {
        GDNCTL_TRY_ASSIGN(const std::string out,
                          m_calls->output({"cat-file", "--batch-check=%(objectname) %(objecttype)"}, asked));
        for (const auto line : text::split(out, '\n')) {
            // A tag of a file has no commit, and missing objects cannot be kept.
            if (line.ends_with(" commit")) parents.emplace(line.substr(0, line.find(' ')));
        }
    }
    GDNCTL_TRY_ASSIGN(const std::string tree, m_calls->line({"mktree"}));
    // Not by commit-tree: there may be more parents than fit on a command line.
    git::CallOptions commit;
    commit.input = "tree " + tree + "\n";
    for (const auto& parent : parents) commit.input += "parent " + parent + "\n";
    const auto now = std::chrono::duration_cast<std::chrono::seconds>(m_calls->clock.wall().time_since_epoch()).count();
    for (const char* who : {"author", "committer"}) {
        commit.input += fmt::format("{} {} <{}> {} +0000\n", who, git::k_our_name, git::k_our_mail, now);
    }
    commit.input += fmt::format("\n{}", message);
    return m_calls->line({"hash-object", "-t", "commit", "-w", "--stdin"}, commit);
}

// Repositories inside a checkout that are not its submodules. Git shows them as one link to a commit or, around tracked
// files, not at all; cleaning the checkout deletes their history.

namespace {

bool has_git(const fs::path& folder) {
    std::error_code problem;
    return fs::exists(fs::symlink_status(folder / ".git", problem));
}

// What every bare repository has, even before its first commit.
bool is_bare(const fs::path& folder) {
    std::error_code problem;
    return fs::is_regular_file(folder / "HEAD", problem) && fs::is_directory(folder / "objects", problem) &&
           fs::is_directory(folder / "refs", problem);
}

// Git sees them as folders of untracked files.
Result<std::vector<std::string>> find_bare(const git::Calls& calls, const std::set<std::string>& tracked) {
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "--others", "--exclude-standard", "-z"}));
    std::vector<std::string> found;
    for (const auto path : text::split(out, '\0')) {
        if (!path.ends_with("/HEAD")) continue;
        const std::string folder(path.substr(0, path.rfind('/')));
        const bool inside = !found.empty() && folder.starts_with(found.back() + "/");
        if (!inside && !tracked.contains(folder) && is_bare(calls.root / folder)) found.push_back(folder);
    }
    return found;
}

// Paths named by .gitmodules in `tree` ("" is the index).
Result<std::set<std::string>> named_modules(const git::Calls& calls, std::string_view tree) {
    GDNCTL_TRY_ASSIGN(const ProcessResult said,
                      calls.run({"config", "-z", "--blob", fmt::format("{}:.gitmodules", tree), "--get-regexp",
                                 R"(^submodule\..*\.path$)"}));
    std::set<std::string> paths;
    if (!said.ok()) return paths;  // the file is missing, or names none
    for (const auto item : text::split(said.out, '\0')) {
        const auto at = item.find('\n');
        if (at != std::string_view::npos) paths.emplace(item.substr(at + 1));
    }
    return paths;
}

// From the index: paths of links, and all folders that contain other files.
Status read_index(const git::Calls& calls, std::set<std::string>& links, std::set<std::string>& folders) {
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "--stage", "-z"}));
    std::string_view last;
    for (const auto item : text::split(out, '\0')) {
        const auto tab = item.find('\t');  // MODE ID STAGE\tPATH
        if (tab == std::string_view::npos) continue;
        const std::string_view path = item.substr(tab + 1);
        if (item.starts_with("160000 ")) links.emplace(path);
        auto end = path.rfind('/');
        if (end == std::string_view::npos || path.substr(0, end) == last) continue;
        last = path.substr(0, end);
        for (; end != std::string_view::npos; end = path.rfind('/', end - 1)) {
            if (!folders.emplace(path.substr(0, end)).second || end == 0) break;
        }
    }
    return {};
}

}  // namespace

Result<std::vector<std::string>> GitCheckout::unnamed_links(std::string_view commit,
                                                            std::span<const std::string> paths) const {
    std::vector<std::string> unnamed;
    if (paths.empty()) return unnamed;
    GDNCTL_TRY_ASSIGN(const auto named, named_modules(*m_calls, commit));
    std::copy_if(paths.begin(), paths.end(), std::back_inserter(unnamed),
                 [&](const std::string& path) { return !named.contains(path); });
    return unnamed;
}

Result<GitNested> GitCheckout::nested() const {
    std::set<std::string> links, folders;
    GDNCTL_TRY(read_index(*m_calls, links, folders));
    GitNested found;
    std::vector<std::string> filled;
    for (const auto& path : links) {
        if (has_git(root() / path)) filled.push_back(path);
    }
    GDNCTL_TRY_ASSIGN(found.links, unnamed_links({}, filled));
    for (const auto& path : folders) {
        if (has_git(root() / path)) found.around_files.push_back(path);
    }
    GDNCTL_TRY_ASSIGN(found.bare, find_bare(*m_calls, folders));
    return found;
}

Result<bool> GitCheckout::has_link(std::string_view commit, std::string_view path) const {
    GDNCTL_TRY_ASSIGN(const std::string entry, m_calls->output({"--literal-pathspecs", "ls-tree", "-z", "--full-tree",
                                                                std::string(commit), "--", std::string(path)}));
    return entry.starts_with("160000 ");
}

Result<bool> GitCheckout::is_published(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const std::string own,
                      m_calls->output({"rev-list", "--max-count=1", std::string(commit), "--not", "--remotes"}));
    return own.empty();
}

Status GitCheckout::fetch_from(const fs::path& repository, std::string_view ref) const {
    GDNCTL_TRY_ASSIGN(
        const ProcessResult fetched,
        m_calls->run({"-c", "protocol.file.allow=always", "fetch", "-q", "--no-tags", "--no-write-fetch-head",
                      "--recurse-submodules=no", repository.string(), fmt::format("+HEAD:{}", ref)}));
    // One without a commit, or a damaged one.
    if (!fetched.ok()) log::debug("nothing is fetched from {}: {}", repository.string(), git::reason_of(fetched.err));
    return {};
}

Status GitCheckout::unstage(std::string_view path) const {
    git::CallOptions paths;
    paths.input = std::string(path) + '\0';
    return m_calls->done({"update-index", "-z", "--force-remove", "--stdin"}, paths);
}

Result<std::vector<fs::path>> GitCheckout::move_inside(std::span<const std::string> paths,
                                                       const fs::path& folder) const {
    std::vector<fs::path> places;
    for (const auto& path : paths) {
        fs::path to = folder / path;
        std::error_code problem;
        for (int n = 2; fs::exists(fs::symlink_status(to, problem)); ++n) to = folder / fmt::format("{}.{}", path, n);
        GDNCTL_TRY(git::move_folder(root() / path, to));
        log::warning("{} in {} is a nested repository: moved it to {}", path, root().string(), to.string());
        places.push_back(std::move(to));
    }
    return places;
}

// Lock files of git: which of them may be removed, and when.

namespace {

constexpr std::chrono::minutes k_old{10};

fs::path of_process(const ProcessInfo& one, const char* name) {
    return fs::path("/proc") / std::to_string(one.id.pid) / name;
}

std::optional<uid_t> owner_of(const fs::path& path) {
    struct stat facts{};
    return lstat(path.c_str(), &facts) == 0 ? std::optional(facts.st_uid) : std::nullopt;
}

// Whether a process works in the folder of the file, or has it open. One that we cannot look into may, if it belongs to
// the file's owner.
bool may_use(const ProcessInfo& one, const fs::path& file, uid_t owner) {
    if (one.id.pid == 1) return false;  // init: nobody may look into it, and it makes no locks
    std::error_code problem;
    const fs::path cwd = fs::read_symlink(of_process(one, "cwd"), problem);
    if (!problem && is_inside(file.parent_path(), cwd)) return true;
    bool hidden = problem == std::errc::permission_denied;
    fs::directory_iterator at(of_process(one, "fd"), problem);
    hidden = hidden || problem == std::errc::permission_denied;
    for (; !problem && at != fs::directory_iterator(); at.increment(problem)) {
        std::error_code gone;
        if (fs::read_symlink(at->path(), gone) == file && !gone) return true;
    }
    return hidden && owner_of(of_process(one, "")) == owner;
}

bool is_git(const ProcessInfo& one) {
    std::ifstream file(of_process(one, "comm"));
    std::string name;
    std::getline(file, name);
    return name.starts_with("git");
}

}  // namespace

bool git::git_runs_in(const fs::path& root, const fs::path& common) {
    for (const ProcessInfo& one : all_processes()) {
        if (one.dead() || !is_git(one)) continue;
        std::error_code problem;
        const fs::path cwd = fs::read_symlink(of_process(one, "cwd"), problem);
        if (problem == std::errc::no_such_file_or_directory || problem == std::errc::no_such_process)
            continue;  // it has ended
        // We cannot look into this process, so it may be here.
        if (problem || is_inside(root, cwd) || is_inside(common, cwd)) return true;
    }
    return false;
}

// The program that made it may have closed it, work elsewhere, and not be called git. Time tells then: nothing holds a
// lock for ten minutes without having it open.
bool git::is_abandoned(const Calls& calls, const fs::path& lock, const std::optional<GitForcedEnd>& forced) {
    std::error_code problem;
    const auto written = fs::last_write_time(lock, problem);
    if (problem || git_runs_in(calls.root, calls.common_dir)) return false;
    const fs::path file = fs::canonical(lock, problem);
    if (problem || owner_of(file) != geteuid()) return false;
    for (const ProcessInfo& one : all_processes()) {
        if (!one.dead() && may_use(one, file, geteuid())) return false;
    }
    if (fs::file_time_type::clock::now() - written >= k_old) return true;
    // An empty commondir is no lock: whoever makes one fills it at once, or has died.
    const bool ours = file.filename() == "commondir" || (calls.is_private && is_inside(calls.git_dir, lock)) ||
                      is_inside(calls.common_dir / "refs/gdnctl", lock) ||
                      is_inside(calls.common_dir / "refs/gdnctl-others", lock) ||
                      lock.filename().string().starts_with("gdnctl-");
    const fs::path name = lock.filename();
    const bool of_checkout = lock.parent_path() == calls.git_dir && (name == "index.lock" || name == "HEAD.lock");
    const bool theirs =
        forced && written >= forced->begun && written <= forced->ended && (forced->in_checkout || !of_checkout);
    return ours || theirs;
}

bool git::remove_abandoned(const Calls& calls, const fs::path& lock, const std::optional<GitForcedEnd>& forced) {
    if (!is_abandoned(calls, lock, forced)) return false;
    log::warning("removing {}, left behind by a process that has ended", lock.string());
    std::error_code problem;
    fs::remove(lock, problem);
    return !problem;
}

std::string git::lock_in_the_way(std::string_view words) {
    // What is between `before` and `after`, and ends with `name`.
    const auto named = [&](std::string_view before, std::string_view name, std::string_view after) -> std::string {
        const auto at = words.find(before);
        if (at == std::string_view::npos) return {};
        const std::string_view rest = words.substr(at + before.size());
        const auto end = rest.find(std::string(name) + std::string(after));
        return end == std::string_view::npos ? std::string() : std::string(rest.substr(0, end + name.size()));
    };
    std::string lock = named("Unable to create '", ".lock", "': File exists");
    // At an empty one, every `git worktree` fails, whichever worktree it is about.
    return lock.empty() ? named("failed to read ", "/commondir", ": ") : lock;
}

Status GitCheckout::clear_index_lock() const {
    constexpr int k_looks = 3;
    constexpr std::chrono::seconds k_pause{2};
    const fs::path lock = git_dir() / "index.lock";
    std::error_code problem;
    for (int i = 0; fs::exists(lock, problem); ++i) {
        if (i < k_looks) {
            m_calls->clock.sleep_for(k_pause, {});
            continue;
        }
        if (git::remove_abandoned(*m_calls, lock, {})) return {};
        return fail(ErrorKind::conflict,
                    fmt::format("another program may be changing the index of {}", root().string()),
                    fmt::format("wait for it; if there is none: rm {}", text::shell_quote(lock.string())));
    }
    return {};
}

namespace {

void add_locks_in(const fs::path& folder, std::vector<fs::path>& locks) {
    std::error_code problem;
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        const bool ours = at->path().filename().string().starts_with("gdnctl-");  // of FileLock; they stay
        if (at->path().extension() == ".lock" && !ours) locks.push_back(at->path());
    }
}

void add_locks_below(const fs::path& folder, std::vector<fs::path>& locks) {
    std::error_code problem;
    // Refs appear and vanish meanwhile, and `++` would throw.
    fs::recursive_directory_iterator at(folder, problem);
    for (; !problem && at != fs::recursive_directory_iterator(); at.increment(problem)) {
        if (at->path().extension() == ".lock") locks.push_back(at->path());
    }
}

}  // namespace

Status GitCheckout::clear_stale_locks(const std::optional<GitForcedEnd>& forced) const {
    std::vector<fs::path> locks;
    add_locks_in(git_dir(), locks);
    add_locks_below(git_dir() / "refs", locks);
    std::error_code problem;
    if (git_dir() != common_dir()) {
        std::vector<fs::path> shared;
        add_locks_in(common_dir(), shared);
        // Those two belong to the main checkout, which is another one.
        for (auto& lock : shared) {
            const fs::path name = lock.filename();
            if (name != "index.lock" && name != "HEAD.lock") locks.push_back(std::move(lock));
        }
        add_locks_below(common_dir() / "refs", locks);
    }
    add_locks_in(common_dir() / "info", locks);
    add_locks_below(common_dir() / "objects/info", locks);
    for (fs::directory_iterator at(common_dir() / "worktrees", problem), end; !problem && at != end;
         at.increment(problem)) {
        std::error_code missing;
        const fs::path common = at->path() / "commondir";
        if (fs::file_size(common, missing) == 0 && !missing) locks.push_back(common);
    }
    for (const auto& lock : locks) git::remove_abandoned(*m_calls, lock, forced);
    return {};
}

}  // namespace gdnctl

namespace gdnctl::git {

namespace {

// A separate index, to make trees without changing the checkout.

// A separate index next to the real one, removed with its owner.
class TemporaryIndex {
public:
    explicit TemporaryIndex(const Calls& calls) : m_path(calls.git_dir / fmt::format("gdnctl-index-{}", getpid())) {
        remove();
        options.env["GIT_INDEX_FILE"] = m_path.string();
        options.our_name = true;
    }
    ~TemporaryIndex() { remove(); }
    TemporaryIndex(const TemporaryIndex&) = delete;
    TemporaryIndex& operator=(const TemporaryIndex&) = delete;

    Status start_from(const std::filesystem::path& index) const {
        std::error_code problem;
        if (!std::filesystem::exists(index, problem)) return {};
        std::filesystem::copy_file(index, m_path, std::filesystem::copy_options::overwrite_existing, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", index, problem.value()));
        // By the time of its index git knows which files may have changed within the clock's grain after it was
        // written.
        std::filesystem::last_write_time(m_path, std::filesystem::last_write_time(index, problem), problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", index, problem.value()));
        return {};
    }
    CallOptions options;

private:
    void remove() const {
        std::error_code problem;
        std::filesystem::remove(m_path, problem);
        std::filesystem::remove(m_path.string() + ".lock", problem);
    }
    std::filesystem::path m_path;
};

}  // namespace

}  // namespace gdnctl::git

namespace gdnctl {

// Creates commits and trees without touching the checkout.

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

// Commits that are put together from chosen changes, and what tells two of them apart.

Result<std::vector<GitFile>> GitCheckout::files(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const std::string out,
                      m_calls->output({"ls-tree", "-r", "-z", "--full-tree", std::string(commit)}));
    std::vector<GitFile> files;
    for (const std::string_view item : text::split(out, '\0')) {
        // "<mode> <type> <object>\t<path>"
        const auto tab = item.find('\t');
        const auto words = text::split(item.substr(0, tab), ' ');
        if (tab == std::string_view::npos || words.size() != 3) continue;
        files.push_back({std::string(item.substr(tab + 1)), std::string(words[0]), std::string(words[2])});
    }
    return files;
}

Result<std::string> GitCheckout::patch_id(std::string_view from, std::string_view to) const {
    git::CallOptions options;
    GDNCTL_TRY_ASSIGN(options.input, patch(from, to, {}));
    if (options.input.empty()) return std::string();
    GDNCTL_TRY_ASSIGN(const std::string line, m_calls->line({"patch-id", "--stable"}, options));
    return line.substr(0, line.find(' '));
}

Result<GitSnapshot> GitCheckout::commit_changes(std::span<const std::string> parents,
                                                std::span<const GitFileChange> changes, std::string_view message,
                                                WallTime when) const {
    const git::TemporaryIndex index(*m_calls);
    GDNCTL_TRY(m_calls->done({"read-tree", parents.front()}, index.options));
    git::CallOptions entries = index.options;
    // A file may replace a folder, so deletions come first.
    for (const bool goes : {true, false}) {
        for (const GitFileChange& change : changes) {
            if ((change.status == 'D') != goes) continue;
            entries.input += goes ? fmt::format("0 {}\t{}", k_no_object, change.path)
                                  : fmt::format("{} {}\t{}", change.new_mode, change.new_object, change.path);
            entries.input += '\0';
        }
    }
    if (!entries.input.empty()) GDNCTL_TRY(m_calls->done({"update-index", "-z", "--index-info"}, entries));
    GitSnapshot made;
    GDNCTL_TRY_ASSIGN(made.tree, m_calls->line({"write-tree"}, index.options));
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = message;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(when.time_since_epoch()).count();
    for (const char* name : {"GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"}) {
        ours.env[name] = fmt::format("{} +0000", seconds);
    }
    git::Words words = {"commit-tree"};
    for (const std::string& parent : parents) words.insert(words.end(), {"-p", parent});
    words.insert(words.end(), {"-F", "-", made.tree});
    GDNCTL_TRY_ASSIGN(made.commit, m_calls->line(words, ours));
    return made;
}

std::string GitCheckout::unfinished() const {
    constexpr std::array<std::pair<const char*, const char*>, 5> k_signs = {{{"MERGE_HEAD", "merge"},
                                                                             {"rebase-merge", "rebase"},
                                                                             {"rebase-apply", "rebase"},
                                                                             {"CHERRY_PICK_HEAD", "cherry-pick"},
                                                                             {"REVERT_HEAD", "revert"}}};
    for (const auto& [file, name] : k_signs) {
        std::error_code problem;
        if (std::filesystem::exists(git_dir() / file, problem)) return name;
    }
    return {};
}

Result<ProcessResult> GitCheckout::fetch(std::string_view remote, std::string_view branch, std::stop_token stop) const {
    git::CallOptions options;
    options.env = {{"GIT_TERMINAL_PROMPT", "0"}};
    options.stop = std::move(stop);
    GDNCTL_TRY_ASSIGN(ProcessResult done, m_calls->run({"fetch", std::string(remote), std::string(branch)}, options));
    if (done.end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    return done;
}

Status GitCheckout::forget_unfinished() const { return m_calls->done({"reset", "-q"}); }

Status GitCheckout::leave_unborn(std::string_view commit, std::string_view branch) const {
    GDNCTL_TRY_ASSIGN(const ProcessResult there, m_calls->run({"rev-parse", "--verify", "--quiet", "HEAD^{commit}"}));
    if (there.ok()) return {};
    GDNCTL_TRY_ASSIGN(const ProcessResult name, m_calls->run({"symbolic-ref", "--quiet", "HEAD"}));
    if (!name.ok()) return {};
    log::warning("HEAD of {} is {}, which has no commit: restored it", root().string(), text::trim(name.out));
    if (!branch.empty()) return m_calls->done({"symbolic-ref", "-m", "gdnctl: back", "HEAD", std::string(branch)});
    return m_calls->done({"update-ref", "--no-deref", "-m", "gdnctl: back", "HEAD", std::string(commit)});
}

Status GitCheckout::exclude(const fs::path& folder) const {
    if (!is_inside(root(), folder)) return {};
    const std::string relative =
        folder.lexically_normal().lexically_relative(root().lexically_normal()).generic_string();
    if (relative == "." || relative.find('\n') != std::string::npos) {
        return fail(ErrorKind::usage, "the log directory cannot be kept out of git: " + folder.string(),
                    "choose another one with --log-dir");
    }
    const std::string line = git::exclude_line(relative) + '/';
    const fs::path file = common_dir() / "info" / "exclude";
    GDNCTL_TRY_ASSIGN(const auto known, read_file_if_exists(file));
    std::string content = known.value_or("");
    for (const auto one : text::split(content, '\n')) {
        if (one == line) return {};
    }
    if (!content.empty() && content.back() != '\n') content += '\n';
    std::error_code problem;
    fs::create_directories(file.parent_path(), problem);
    return atomic_replace(file, content + line + '\n');
}

Status GitCheckout::remove_worktree(const fs::path& folder) const {
    GDNCTL_TRY_ASSIGN(const ProcessResult removed,
                      m_calls->run({"worktree", "remove", "--force", "--force", folder.string()}));
    std::error_code problem;
    fs::remove_all(folder, problem);
    if (!removed.ok()) GDNCTL_TRY(m_calls->done({"worktree", "prune"}));
    return {};
}

}  // namespace gdnctl
