#include "services/git/calls.h"

#include <algorithm>
#include <csignal>
#include <set>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/clock.h"
#include "platform/fs.h"
#include "services/git/git.h"

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

}  // namespace gdnctl::git
