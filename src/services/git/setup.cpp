#include "services/git/setup.h"

#include <cstdlib>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Calls;

namespace {

constexpr std::size_t k_largest = std::size_t{16} << 20;

fs::path before_file(const fs::path& folder, const std::string& run) { return folder / ("before-" + run); }

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

// Files and links below a folder of hooks: those at its top may run the others.
template <class See>
void for_each_hook(const fs::path& folder, const See& see) {
    std::error_code problem;
    std::size_t left = 10'000;  // core.hooksPath may name any folder
    fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, problem);
    for (; !problem && at != fs::recursive_directory_iterator() && left > 0; at.increment(problem), --left) {
        std::error_code gone;
        const bool folds = fs::is_directory(at->symlink_status(gone));
        if (!folds && at->path().extension() != ".sample") see(at->path());
    }
}

fs::file_time_type change_of(const struct stat& facts) {
    const auto since = std::chrono::seconds(facts.st_ctim.tv_sec) + std::chrono::nanoseconds(facts.st_ctim.tv_nsec);
    return fs::file_time_type::clock::from_sys(std::chrono::sys_time<std::chrono::nanoseconds>(since));
}

// ---- a list of strings in a file

std::string packed(const std::vector<std::string>& items) {
    std::string text;
    for (const auto& item : items) text += fmt::format("{}:{}", item.size(), item);
    return text;
}

std::optional<std::vector<std::string>> unpacked(std::string_view text) {
    std::vector<std::string> items;
    while (!text.empty()) {
        const auto end = text.find(':');
        const auto size = end == std::string_view::npos ? std::nullopt : text::parse_int(text.substr(0, end));
        if (!size || *size < 0 || static_cast<std::size_t>(*size) > text.size() - end - 1) return std::nullopt;
        items.emplace_back(text.substr(end + 1, static_cast<std::size_t>(*size)));
        text.remove_prefix(end + 1 + static_cast<std::size_t>(*size));
    }
    return items;
}

}  // namespace

fs::path GitSetup::folder_of(const GitCheckout& repository) { return repository.common_dir() / "gdnctl-settings"; }

// Marks that hide changes: lower case is assume-unchanged, S skip-worktree, which is normal in a sparse checkout.
Result<std::map<std::string, char>> GitSetup::marks_of(const GitCheckout& repository) {
    const Calls& calls = *repository.m_calls;
    GDNCTL_TRY_ASSIGN(const std::string out, calls.output({"ls-files", "-v", "-z"}));
    std::map<std::string, char> marks;
    bool skips = false;
    for (const auto item : text::split(out, '\0')) {
        if (item.size() < 3) continue;
        const char mark = item.front();
        if (mark == 'S' || (mark >= 'a' && mark <= 'z')) marks.emplace(item.substr(2), mark);
        skips = skips || mark == 'S' || mark == 's';
    }
    if (!skips) return marks;
    GDNCTL_TRY_ASSIGN(const ProcessResult sparse, calls.run({"config", "--type=bool", "core.sparseCheckout"}));
    if (text::trim(sparse.out) == "true") std::erase_if(marks, [](const auto& one) { return one.second == 'S'; });
    return marks;
}

GitSetup::Place GitSetup::look_at(const fs::path& path) {
    Place place;
    struct stat facts{};
    if (lstat(path.c_str(), &facts) != 0) return place;
    std::error_code problem;
    place.kind = 'o';
    if (S_ISLNK(facts.st_mode)) {
        place.kind = 'l';
        place.bytes = fs::read_symlink(path, problem).string();
    } else if (S_ISREG(facts.st_mode)) {
        auto bytes = read_file_if_exists(path, k_largest);
        if (!bytes || !*bytes) return place;
        place.kind = 'f';
        place.mode = facts.st_mode & 07777;
        place.bytes = std::move(**bytes);
    }
    return place;
}

void GitSetup::watch(const fs::path& home, const fs::path& path, bool config) {
    const auto [at, anew] = m_places.emplace(path, Place());
    if (!anew) {
        at->second.config = at->second.config || config;
        return;
    }
    at->second = look_at(path);
    at->second.config = config;
    at->second.home = home;
    if (at->second.kind != 'l') return;
    std::error_code problem;
    const fs::path target = fs::canonical(path, problem);
    if (!problem) watch(target.parent_path(), target, config);
}

void GitSetup::watch_repository(const fs::path& folder) {
    watch(folder, folder / "config", true);
    watch(folder, folder / "config.worktree", true);
    for (const char* name : {"info/attributes", "info/exclude", "info/grafts", "info/sparse-checkout", "shallow",
                             "objects/info/alternates", "objects/info/http-alternates"}) {
        watch(folder, folder / name);
    }
    watch_hooks(folder, folder / "hooks");
}

void GitSetup::watch_hooks(const fs::path& home, const fs::path& folder) {
    std::error_code problem;
    if (fs::is_symlink(folder, problem)) watch(home, folder);
    m_hooks.emplace(folder, home);
    for_each_hook(folder, [&](const fs::path& hook) { watch(home, hook); });
}

// Submodules' names may have slashes, and submodules may have submodules.
void GitSetup::watch_modules(const fs::path& folder) {
    std::error_code problem;
    for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
        std::error_code inner;
        if (!at->is_directory(inner) || at->is_symlink(inner)) continue;
        if (fs::exists(at->path() / "HEAD", inner)) {
            watch_repository(at->path());
            watch_modules(at->path() / "modules");
        } else {
            watch_modules(at->path());
        }
    }
}

// The user's own configuration, and files that any configuration names. Those in the checkout are the agent's to
// change: the commit shows it.
Status GitSetup::watch_users(const GitCheckout& repository) {
    const fs::path& root = repository.root();
    const auto place_of = [&](const fs::path& name) -> std::optional<fs::path> {
        const fs::path path = name.is_absolute() ? name.lexically_normal() : (root / name).lexically_normal();
        const bool tracked = is_inside(root, path) && !is_inside(repository.common_dir(), path);
        return tracked ? std::nullopt : std::optional(path);
    };
    const auto add = [&](const fs::path& name, bool config) {
        if (const auto path = place_of(name)) watch("/", *path, config);
    };
    const std::string home = variable("HOME");
    const auto expand = [&](const std::string& name) { return name.starts_with("~/") ? home + name.substr(1) : name; };
    std::string xdg = variable("XDG_CONFIG_HOME");
    if (xdg.empty() && !home.empty()) xdg = home + "/.config";
    // An agent may not have this variable, and write to the others.
    if (const std::string global = variable("GIT_CONFIG_GLOBAL"); !global.empty()) add(global, true);
    if (!home.empty()) add(home + "/.gitconfig", true);
    if (!xdg.empty()) {
        add(xdg + "/git/config", true);
        add(xdg + "/git/attributes", false);
        add(xdg + "/git/ignore", false);
    }
    if (variable("GIT_CONFIG_NOSYSTEM").empty()) {
        add("/etc/gitconfig", true);
        add("/etc/gitattributes", false);
    }
    const Calls plain{root, repository.git_dir(), repository.common_dir(), repository.m_calls->process,
                      repository.m_calls->clock};
    GDNCTL_TRY_ASSIGN(const std::string list, plain.output({"config", "--list", "--show-origin", "-z"}));
    const auto items = text::split(list, '\0');
    std::string hooks;
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        if (!items[i].starts_with("file:")) continue;  // of this call
        constexpr std::string_view k_hooks = "core.hookspath\n";
        if (items[i + 1].starts_with(k_hooks)) hooks = items[i + 1].substr(k_hooks.size());
        add(std::string(items[i].substr(5)), true);
        for (const std::string_view key : {"core.excludesfile\n", "core.attributesfile\n"}) {
            if (!items[i + 1].starts_with(key)) continue;
            const std::string value(items[i + 1].substr(key.size()));
            if (!value.empty()) add(expand(value), false);
        }
    }
    if (const auto folder = hooks.empty() ? std::nullopt : place_of(expand(hooks))) watch_hooks("/", *folder);
    return {};
}

Result<GitSetup> GitSetup::take(const GitCheckout& repository) {
    GitSetup setup;
    const fs::path& common = repository.common_dir();
    setup.watch_repository(common);
    setup.watch_modules(common / "modules");
    std::error_code problem;
    for (fs::directory_iterator at(common / "worktrees", problem), end; !problem && at != end; at.increment(problem)) {
        setup.watch(at->path(), at->path() / "config.worktree", true);
        for (const char* name : {"info/sparse-checkout", "gitdir", "commondir"}) {
            setup.watch(at->path(), at->path() / name);
        }
    }
    if (!fs::is_directory(fs::symlink_status(repository.root() / ".git", problem))) {
        setup.watch(repository.root(), repository.root() / ".git");
    }
    GDNCTL_TRY(setup.watch_users(repository));
    GDNCTL_TRY_ASSIGN(setup.m_replaced, repository.refs(k_replace));
    GDNCTL_TRY_ASSIGN(setup.m_marks, marks_of(repository));
    return setup;
}

Status GitSetup::save(const GitCheckout& repository, const std::string& run) const {
    std::vector<std::string> items;
    for (const auto& [path, place] : m_places) {
        items.insert(items.end(), {"place", path.string(), place.home.string(), std::string(1, place.kind),
                                   std::to_string(place.mode), place.config ? "1" : "0", place.bytes});
    }
    for (const auto& [folder, home] : m_hooks) items.insert(items.end(), {"hooks", folder.string(), home.string()});
    for (const auto& [ref, object] : m_replaced) items.insert(items.end(), {"replace", ref, object});
    for (const auto& [path, mark] : m_marks) items.insert(items.end(), {"mark", path, std::string(1, mark)});
    GDNCTL_TRY(make_private_directory(folder_of(repository), ""));
    return atomic_replace(before_file(folder_of(repository), run), packed(items), 0600);
}

Result<std::optional<GitSetup>> GitSetup::load(const GitCheckout& repository, const std::string& run) {
    GDNCTL_TRY_ASSIGN(const auto text,
                      read_file_if_exists(before_file(folder_of(repository), run), std::size_t{256} << 20));
    if (!text) return std::optional<GitSetup>();
    const auto items = unpacked(*text);
    GitSetup setup;
    for (std::size_t i = 0; items && i < items->size();) {
        const auto item = [&](std::size_t n) { return i + n < items->size() ? (*items)[i + n] : std::string(); };
        if (item(0) == "place") {
            Place place{item(3).empty() ? '-' : item(3).front(),
                        static_cast<unsigned>(text::parse_int(item(4)).value_or(0)), item(6), item(5) == "1", item(2)};
            setup.m_places[item(1)] = std::move(place);
            i += 7;
        } else if (item(0) == "hooks" || item(0) == "replace" || item(0) == "mark") {
            if (item(0) == "hooks") setup.m_hooks[item(1)] = item(2);
            if (item(0) == "replace") setup.m_replaced[item(1)] = item(2);
            if (item(0) == "mark" && !item(2).empty()) setup.m_marks[item(1)] = item(2).front();
            i += 3;
        } else {
            return std::optional<GitSetup>();
        }
    }
    return items ? std::optional(std::move(setup)) : std::nullopt;
}

Status GitSetup::mend(const fs::path& start, const std::string& run, std::optional<Time> alive, Process& process,
                      Clock& clock) {
    const auto root = find_repository_root(start);
    if (run.empty() || !root || GitCheckout::open(start, process, clock)) return {};
    fs::path git_dir = *root / ".git";
    std::error_code problem;
    if (fs::is_regular_file(git_dir, problem)) {
        GDNCTL_TRY_ASSIGN(const std::string link, read_file(git_dir));
        constexpr std::string_view k_start = "gitdir: ";
        if (!link.starts_with(k_start)) return {};
        git_dir = *root / std::string(text::trim(std::string_view(link).substr(k_start.size())));
    }
    GDNCTL_TRY_ASSIGN(const auto shared, read_file_if_exists(git_dir / "commondir"));
    const fs::path common = shared ? (git_dir / std::string(text::trim(*shared))).lexically_normal() : git_dir;
    const GitCheckout checkout(std::make_unique<Calls>(*root, git_dir, common, process, clock));
    GDNCTL_TRY_ASSIGN(auto setup, load(checkout, run));
    if (setup) GDNCTL_TRY(setup->put_back(checkout, run, alive));
    return {};
}

Result<std::vector<std::string>> GitSetup::recover(const GitCheckout& repository, const std::string& run,
                                                   std::optional<Time> alive) {
    GDNCTL_TRY_ASSIGN(auto setup, load(repository, run));
    if (!setup) return std::vector<std::string>();
    GDNCTL_TRY_ASSIGN(auto names, setup->put_back(repository, run, alive));
    forget(repository, run);
    return names;
}

void GitSetup::forget(const GitCheckout& repository, const std::string& run) {
    std::error_code ignored;
    fs::remove(before_file(folder_of(repository), run), ignored);
    fs::remove(folder_of(repository), ignored);  // if it is empty
}

GitSetup::Places GitSetup::differing() const {
    Places found;
    std::error_code problem;
    for (const auto& [path, place] : m_places) {
        if (!fs::is_directory(place.home, problem) || place.kind == 'o') continue;
        Place now = look_at(path);
        if (!now.same(place)) found.emplace(path, std::move(now));
    }
    for (const auto& [folder, home] : m_hooks) {
        for_each_hook(folder, [&](const fs::path& hook) {
            if (m_places.contains(hook)) return;
            Place now = look_at(hook);
            if (now.kind != '-') found.emplace(hook, std::move(now));  // it may be gone by now
        });
    }
    return found;
}

// When what is at a path was last changed. For a missing file, when its folder was, which is `home` or below; nullopt:
// not known, as in a folder where git itself makes and removes files all the time.
std::optional<GitSetup::Time> GitSetup::changed_at(const fs::path& path, const fs::path& home) {
    struct stat facts{};
    for (fs::path at = path; at != home; at = at.parent_path()) {
        if (lstat(at.c_str(), &facts) == 0) return change_of(facts);
        if (at == at.parent_path()) break;
    }
    return std::nullopt;
}

// After `git worktree move`, the new place points back to this folder of administration.
bool GitSetup::is_moved_worktree(const fs::path& gitdir, const Place& now) {
    constexpr std::string_view k_start = "gitdir: ";
    const fs::path admin = gitdir.parent_path();
    if (admin.parent_path().filename() != "worktrees" || gitdir.filename() != "gitdir" || now.kind != 'f') return false;
    const fs::path link = admin / std::string(text::trim(now.bytes));
    const Place there = look_at(link);
    if (there.kind != 'f' || !there.bytes.starts_with(k_start)) return false;
    const fs::path back =
        link.parent_path() / std::string(text::trim(std::string_view(there.bytes).substr(k_start.size())));
    std::error_code problem;
    return fs::equivalent(back, admin, problem) && !problem;
}

}  // namespace gdnctl
