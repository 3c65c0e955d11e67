// Reads the content of a checkout.
#include "services/git/checkout.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/git.h"
#include "services/git/hidden.h"
#include "services/git/parse.h"

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

}  // namespace gdnctl
