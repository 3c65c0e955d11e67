// What every git that gdnctl starts is told, so that no configuration and no variable of a user or an agent changes
// what it sees or does.
#include "services/git/calls.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <set>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "services/git/git.h"

namespace gdnctl {

namespace {

// The values are git's own defaults unless the comment says otherwise.
//
// These stay the user's:
// - Facts about the file system: core.fileMode, core.symlinks, core.ignoreCase, core.precomposeUnicode.
// - What a commit stores: core.autocrlf, core.eol, *.renormalize, filter.* (an agent's filters: GitCheckout::trust()).
// - Which files count at all: core.excludesFile, core.attributesFile (an agent's: GitSettings).
// - Formats that the user's git shares: core.splitIndex, index.*, feature.*, core.untrackedCache (which git verifies),
//   core.sharedRepository, extensions.*.
// - Speed and space: pack.*, core.fsync*, core.compression, *.threads, *.workers, fetch.parallel.
// - Whose commits they are: user.*, author.*, committer.*.
// - How the user merges: merge.renames, merge.directoryRenames, merge.log, merge.<driver>.*.
// - diff.ignoreSubmodules, submodule.<name>.ignore: no call here touches work inside a submodule of the user.
// - How to reach a server: remote.*, url.*, http.*, credential.*, protocol.*, core.sshCommand (see trust()).
// - safe.*, init.*; and alias.*, since an alias cannot replace a command of git.
constexpr std::array k_fixed = {
    // Programs. Not defaults: nothing is run, signed, paged or collected.
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "commit.gpgSign=false",
    "log.showSignature=false", "merge.verifySignatures=false", "gc.auto=0", "maintenance.auto=false",
    "fetch.writeCommitGraph=false",
    // Which files count as changed. `core.ignoreStat` would mark files so that git never looks at them again, and the
    // weaker comparisons miss an edit that keeps size and time.
    "status.showUntrackedFiles=normal", "core.ignoreStat=false", "core.checkStat=default", "core.trustctime=true",
    "add.ignoreErrors=false", "diff.autoRefreshIndex=true",
    // Which commits count as parents: a file that anybody may write must not say. Not the default.
    "core.commitGraph=false",
    // What calls do besides what they are asked.
    "merge.autoStash=false", "rebase.autoStash=false", "rebase.updateRefs=false", "rebase.autoSquash=false",
    "rebase.backend=merge", "rebase.forkPoint=false", "rebase.missingCommitsCheck=ignore", "rerere.enabled=false",
    "rerere.autoUpdate=false", "submodule.recurse=false", "fetch.prune=false", "fetch.pruneTags=false",
    "clone.rejectShallow=false",
    "apply.whitespace=warn",  // `git stash apply --index` goes through `git apply`
    "apply.ignoreWhitespace=no", "commit.cleanup=default", "i18n.commitEncoding=UTF-8", "core.filesRefLockTimeout=100",
    "core.packedRefsTimeout=1000",
    // What calls print.
    "i18n.logOutputEncoding=UTF-8", "core.quotePath=false", "core.safecrlf=false", "core.warnAmbiguousRefs=false",
    "advice.addEmbeddedRepo=false", "advice.objectNameWarning=false", "color.ui=false", "color.diff=false",
    "color.status=false", "color.branch=false", "color.grep=false", "color.advice=false", "color.remote=false",
    "column.ui=never", "column.status=never", "status.branch=false", "status.showStash=false",
    "status.relativePaths=false", "status.submoduleSummary=false", "merge.stat=false", "merge.verbosity=2",
    "rebase.stat=false", "grep.fullName=false", "log.showRoot=true", "log.diffMerges=separate", "log.follow=false",
    "log.mailmap=false", "diff.noprefix=false", "diff.mnemonicPrefix=false", "diff.suppressBlankEmpty=false",
    "diff.context=3", "diff.interHunkContext=0", "diff.algorithm=default", "diff.indentHeuristic=true",
    "diff.relative=false", "diff.submodule=short",
    "diff.orderFile=/dev/null",  // not the default, but as good: a missing file would end even `git status`
};

// Variables that would send a call elsewhere, change what it takes its arguments for, or write into its output.
// The user keeps GIT_CONFIG_GLOBAL, GIT_CONFIG_SYSTEM and GIT_CONFIG_NOSYSTEM (where the configuration is),
// GIT_AUTHOR_* and GIT_COMMITTER_*, GIT_SSH*, GIT_SSL_*, GIT_HTTP_*, GIT_PROXY_* (how to reach a server),
// GIT_CEILING_DIRECTORIES, GIT_DISCOVERY_ACROSS_FILESYSTEM (where to look for a repository) and GIT_EXEC_PATH.
constexpr std::array k_unset = {
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_QUARANTINE_PATH",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_CONFIG",
    "GIT_SHALLOW_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_ATTR_SOURCE",
    "GIT_ATTR_NOSYSTEM",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_MERGE_VERBOSITY",
    "GIT_REFLOG_ACTION",
    "GIT_NOTES_REF",
    "GIT_NOTES_DISPLAY_REF",
    "GIT_NOTES_REWRITE_REF",
    "GIT_NOTES_REWRITE_MODE",
    "GIT_ADVICE",
    "GIT_DEFAULT_HASH",
    "GIT_DEFAULT_REF_FORMAT",
    "GIT_CURL_VERBOSE",
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_TRACE_FSMONITOR",
    "GIT_TRACE_PACK_ACCESS",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_PACKFILE",
    "GIT_TRACE_PERFORMANCE",
    "GIT_TRACE_REFS",
    "GIT_TRACE_SETUP",
    "GIT_TRACE_SHALLOW",
};

}  // namespace

std::vector<std::string> git_command(std::vector<std::string> words) {
    std::vector<std::string> argv = {"git"};
    for (const char* setting : k_fixed) argv.insert(argv.end(), {"-c", setting});
    argv.insert(argv.end(), std::make_move_iterator(words.begin()), std::make_move_iterator(words.end()));
    return argv;
}

std::map<std::string, std::optional<std::string>> git_environment() {
    std::map<std::string, std::optional<std::string>> environment = {{"GIT_TERMINAL_PROMPT", "0"},
                                                                     {"GIT_OPTIONAL_LOCKS", "0"},
                                                                     {"GIT_NO_REPLACE_OBJECTS", "1"},
                                                                     // /dev/null itself would be reported as a graft
                                                                     {"GIT_GRAFT_FILE", "/dev/null/none"},
                                                                     {"GIT_TRACE2", "0"},
                                                                     {"GIT_TRACE2_EVENT", "0"},
                                                                     {"GIT_TRACE2_PERF", "0"},
                                                                     {"GIT_PAGER", "cat"},
                                                                     {"LC_ALL", "C"}};
    for (const char* name : k_unset) environment[name] = std::nullopt;
    return environment;
}

}  // namespace gdnctl

namespace gdnctl::git {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::minutes k_longest_call{10};
constexpr int k_lock_tries = 3;
constexpr std::chrono::seconds k_lock_pause{2};

}  // namespace

std::string reason_of(std::string_view words) {
    std::string first, fatal;
    for (const auto raw : text::split(words, '\n')) {
        const auto line = text::trim(raw);
        if (line.empty() || line.starts_with("warning:") || line.starts_with("hint:")) continue;
        if (first.empty()) first = line;
        if (fatal.empty() && (line.starts_with("fatal:") || line.starts_with("error:"))) fatal = line;
    }
    std::string reason = fatal.empty() ? first : fatal;
    return reason.empty() ? "no reason given" : reason;
}

bool names_a_program(std::string_view key) {
    const auto has = [&](std::string_view start, std::string_view end) {
        return key.starts_with(start) && key.ends_with(end);
    };
    return key.starts_with("filter.") || has("merge.", ".driver") || key.starts_with("credential") ||
           key.starts_with("url.") || has("remote.", "url") || has("remote.", ".uploadpack") ||
           has("remote.", ".receivepack") || has("remote.", ".vcs") || has("submodule.", ".update") ||
           key == "core.sshcommand" || key == "core.gitproxy" || key == "core.askpass" ||
           key == "core.alternaterefscommand" || key.starts_with("protocol.") || has("http.", "proxy") ||
           key == "core.attributesfile";
}

bool is_for_users(std::string_view key) {
    const auto has = [&](std::string_view start, std::string_view end) {
        return key.starts_with(start) && key.ends_with(end);
    };
    return key == "core.hookspath" || key == "core.fsmonitor" || key == "core.editor" || key == "core.pager" ||
           key == "core.bare" || key == "sequence.editor" || key == "commit.gpgsign" || has("gpg.", "program") ||
           key == "diff.external" || has("diff.", ".command") || has("diff.", ".textconv") ||
           key == "interactive.difffilter" || key.starts_with("alias.") || key.starts_with("pager.") ||
           key == "uploadpack.packobjectshook" || has("mergetool.", ".cmd") || has("difftool.", ".cmd");
}

bool has_includes(std::string_view list) {
    const auto items = text::split(list, '\0');
    return std::any_of(items.begin(), items.end(), [](std::string_view item) { return item.starts_with("include"); });
}

std::map<std::string, std::string> programs_in(std::string_view list) {
    std::map<std::string, std::string> found;
    for (const auto item : text::split(list, '\0')) {
        const auto end = item.find('\n');  // a key without '=' has no value: true
        const std::string key(item.substr(0, end));
        const std::string value = end == std::string_view::npos ? "true" : std::string(item.substr(end + 1));
        if (names_a_program(key)) found[key] = value;
        // Our calls get the last of these.
        if (is_for_users(key)) found[key] += value + "\n";
    }
    return found;
}

Result<ProcessResult> Calls::run_once(const Words& words, const CallOptions& options) const {
    ProcessSpec spec;
    spec.argv = git_command(words);
    spec.cwd = root;
    spec.env = git_environment();
    spec.env["GIT_DIR"] = git_dir.string();
    spec.env["GIT_COMMON_DIR"] = common_dir.string();
    spec.env["GIT_WORK_TREE"] = root.string();
    spec.env["GIT_EDITOR"] = ":";
    spec.env["GIT_SEQUENCE_EDITOR"] = ":";
    for (const char* name : {"GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_ASKPASS"}) spec.env[name] = std::nullopt;
    if (!overrides.empty()) {
        std::size_t n = 0;
        for (const auto& [key, value] : overrides) {
            spec.env[fmt::format("GIT_CONFIG_KEY_{}", n)] = key;
            spec.env[fmt::format("GIT_CONFIG_VALUE_{}", n++)] = value;
        }
        spec.env["GIT_CONFIG_COUNT"] = std::to_string(n);
    }
    if (options.our_name) {
        for (const char* who : {"GIT_AUTHOR_", "GIT_COMMITTER_"}) {
            spec.env[std::string(who) + "NAME"] = k_our_name;
            spec.env[std::string(who) + "EMAIL"] = k_our_mail;
        }
    }
    for (const auto& [name, value] : options.env) spec.env[name] = value;
    spec.stdin_bytes = options.input;
    spec.stdout_file = options.out_file;
    spec.survives_size_limit = true;
    spec.death_signal = SIGTERM;  // git removes its locks at that
    spec.on_stdout_line = options.on_line;
    if (!options.on_line) spec.capture_limit = std::size_t{256} << 20;
    spec.wall_limit = k_longest_call;
    spec.stop = options.stop;
    return process.run(spec);
}

Result<ProcessResult> Calls::run(Words words, const CallOptions& options) const {
    std::set<std::string> removed;
    for (int attempt = 0;; ++attempt) {
        GDNCTL_TRY_ASSIGN(ProcessResult result, run_once(words, options));
        if (result.out_truncated) {
            return fail(ErrorKind::bad_input,
                        fmt::format("git {} printed more than 256 MiB in {}", words.front(), root.string()));
        }
        if (result.end == ProcessResult::End::wall_limit) {
            return fail(ErrorKind::timeout, fmt::format("git {} took longer than {} in {}", words.front(),
                                                        format_duration(k_longest_call), root.string()));
        }
        if (result.ok()) return result;
        std::string lock = lock_in_the_way(result.err);
        // `git stash` does not report this.
        std::error_code problem;
        if (words.front() == "stash" && fs::exists(git_dir / "index.lock", problem)) lock = git_dir / "index.lock";
        if (lock.empty() || removed.contains(lock)) return result;
        if (lock.ends_with("/commondir") && fs::file_size(lock, problem) != 0) return result;
        if (attempt < k_lock_tries) {
            clock.sleep_for(k_lock_pause, {});
            continue;
        }
        if (!is_inside(common_dir, lock) || !remove_abandoned(*this, lock, {})) return result;
        removed.insert(lock);
        attempt = -1;  // there may be another lock
    }
}

tl::unexpected<Error> Calls::refused(std::string_view what, const ProcessResult& result) const {
    const std::string reason = reason_of(result.err);
    if (reason.find("dubious ownership") != std::string::npos || reason.find("safe.directory") != std::string::npos) {
        return fail(ErrorKind::config, "git does not trust " + root.string() + ", which another user owns",
                    "git config --global --add safe.directory " + text::shell_quote(root.string()));
    }
    if (result.err.find("No space left on device") != std::string::npos ||
        result.err.find("Disk quota exceeded") != std::string::npos ||
        result.err.find("Out of diskspace") != std::string::npos) {
        return fail(ErrorKind::local_io, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
                    "free space there, then run the command again");
    }
    if (result.err.find("File too large") != std::string::npos) {
        return fail(ErrorKind::local_io, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
                    "raise the file size limit (ulimit -f), then run the command again");
    }
    if (result.err.find("external filter") != std::string::npos) {
        return fail(ErrorKind::config, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
                    "a filter named in .gitattributes does not work: see git config --get-regexp '^filter'");
    }
    if (result.err.find("Read-only file system") != std::string::npos ||
        result.err.find("Permission denied") != std::string::npos ||
        result.err.find("unable to create directory for") != std::string::npos) {
        return fail(ErrorKind::local_io, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
                    "make the repository writable and all its files readable");
    }
    // For files, indexes and refs, git does not say why.
    if (result.err.find("unable to write") != std::string::npos ||
        result.err.find("couldn't write") != std::string::npos) {
        return fail(
            ErrorKind::local_io, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
            "free space there (df -h) or raise the limit on the size of files (ulimit -f), then run the command "
            "again");
    }
    if (!lock_in_the_way(result.err).empty()) {
        return fail(ErrorKind::conflict, fmt::format("git {} failed in {}: {}", what, root.string(), reason),
                    "another git process is running there: wait for it, or remove the lock if there is none");
    }
    if (result.err.find("Please tell me who you are") != std::string::npos ||
        result.err.find("empty ident name") != std::string::npos) {
        return fail(ErrorKind::config, "git has no name and email for commits in " + root.string(),
                    "git config --global user.name NAME; git config --global user.email ADDRESS");
    }
    // Not all messages of git reveal a full disk.
    constexpr std::uintmax_t k_next_to_nothing = std::uintmax_t{256} << 10;
    std::error_code problem;
    if (const auto disk = fs::space(common_dir, problem); !problem && disk.available < k_next_to_nothing) {
        return fail(ErrorKind::local_io,
                    fmt::format("git {} failed in {}, whose disk is full (No space left on device): {}", what,
                                root.string(), reason),
                    "free space there, then run the command again");
    }
    return fail(ErrorKind::bad_input, fmt::format("git {} failed in {}: {}", what, root.string(), reason));
}

Result<std::string> Calls::output(const Words& words, const CallOptions& options) const {
    GDNCTL_TRY_ASSIGN(ProcessResult result, run(words, options));
    if (result.ok()) return std::move(result.out);
    const auto name = std::find_if(words.begin(), words.end(), [](const auto& word) { return !word.starts_with('-'); });
    return refused(name == words.end() ? words.front() : *name, result);
}

Status Calls::done(const Words& words, const CallOptions& options) const {
    GDNCTL_TRY(output(words, options));
    return {};
}

Result<std::string> Calls::line(const Words& words, const CallOptions& options) const {
    GDNCTL_TRY_ASSIGN(std::string out, output(words, options));
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

namespace {

// Takes the part before the NUL from the front of `text`.
std::optional<std::string_view> take(std::string_view& text) {
    const auto end = text.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(end + 1);
    return part;
}

// What follows the n-th blank.
std::optional<std::string_view> after_words(std::string_view line, int n) {
    while (n-- > 0) {
        const auto at = line.find(' ');
        if (at == std::string_view::npos) return std::nullopt;
        line.remove_prefix(at + 1);
    }
    return line;
}

}  // namespace

std::optional<std::vector<GitStatusEntry>> parse_status(std::string_view text) {
    using Kind = GitStatusEntry::Kind;
    std::vector<GitStatusEntry> entries;
    while (!text.empty()) {
        const auto line = take(text);
        if (!line || line->size() < 3) return std::nullopt;
        const char type = line->front();
        if (type == '#') continue;
        // Fields before the path: `1 XY sub mH mI mW hH hI`; a rename adds its score; a conflict has four modes and
        // three ids.
        const int words = type == '1' ? 8 : type == '2' ? 9 : type == 'u' ? 10 : type == '?' || type == '!' ? 1 : 0;
        if (words == 0) return std::nullopt;
        const auto path = after_words(*line, words);
        if (!path || path->empty()) return std::nullopt;
        GitStatusEntry entry;
        entry.path = *path;
        entry.kind = type == 'u'   ? Kind::conflict
                     : type == '?' ? Kind::untracked
                     : type == '!' ? Kind::ignored
                                   : Kind::tracked;
        if (type == '2' && !take(text)) return std::nullopt;  // its old path
        entries.push_back(std::move(entry));
    }
    return entries;
}

std::optional<std::vector<GitFileChange>> parse_raw_diff(std::string_view text) {
    std::vector<GitFileChange> changes;
    while (!text.empty()) {
        const auto facts = take(text);
        const auto path = facts ? take(text) : std::nullopt;
        if (!path || !facts->starts_with(':')) return std::nullopt;
        const auto words = text::split(facts->substr(1), ' ');
        if (words.size() != 5 || words[4].size() != 1) return std::nullopt;
        GitFileChange change;
        change.path = *path;
        change.status = words[4][0];
        change.old_mode = words[0];
        change.new_mode = words[1];
        change.old_object = words[2];
        change.new_object = words[3];
        changes.push_back(std::move(change));
    }
    return changes;
}

std::vector<GitWorktree> parse_worktrees(std::string_view text) {
    std::vector<GitWorktree> found;
    bool usable = true;
    while (const auto line = take(text)) {
        if (line->starts_with("worktree ")) {
            if (!usable) found.pop_back();
            usable = true;
            found.push_back({std::filesystem::path(std::string(line->substr(9))), {}, {}});
        } else if (found.empty()) {
            continue;
        } else if (line->starts_with("HEAD ")) {
            found.back().head = line->substr(5);
        } else if (line->starts_with("branch ")) {
            found.back().branch = line->substr(7);
        } else if (*line == "bare" || line->starts_with("prunable")) {
            usable = false;
        }
    }
    if (!usable) found.pop_back();
    return found;
}

std::optional<std::vector<std::optional<std::string>>> parse_batch(std::string_view text, std::size_t count) {
    std::vector<std::optional<std::string>> objects;
    while (objects.size() < count) {
        const std::size_t end = text.find('\n');
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (line.ends_with(" missing")) {
            objects.emplace_back();
            continue;
        }
        const auto size = text::parse_int(line.substr(line.rfind(' ') + 1));
        if (!size || *size < 0 || static_cast<std::size_t>(*size) >= text.size()) return std::nullopt;
        const auto bytes = static_cast<std::size_t>(*size);
        const bool folder = line.find(" tree ") != std::string_view::npos;
        objects.push_back(folder ? std::nullopt : std::optional(std::string(text.substr(0, bytes))));
        text.remove_prefix(bytes + 1);
    }
    return objects;
}

std::vector<std::string> parse_listed_paths(std::string_view words) {
    std::vector<std::string> paths;
    for (const auto line : text::split(words, '\n')) {
        if (line.size() > 1 && line.front() == '\t') paths.emplace_back(line.substr(1));
    }
    return paths;
}

}  // namespace gdnctl::git
