// Lock files of git: which of them may be removed, and when.
#include <array>
#include <fstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/descendants.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl {

namespace fs = std::filesystem;

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
