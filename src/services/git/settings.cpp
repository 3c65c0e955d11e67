// GitSettings: what is watched, what differs, and which values of a changed configuration file are put back.
#include "services/git/settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/result.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"

namespace gdnctl::git {

namespace fs = std::filesystem;

namespace {

struct ConfigChoice {
    std::vector<std::string> changed;  // keys to put back
    std::string bytes;                 // of the file, with the values of before and what may stay
};

using Values = std::map<std::string, std::vector<std::string>>;

Values values_in(std::string_view list) {
    Values values;
    for (const auto item : text::split(list, '\0')) {
        if (item.empty()) continue;
        const auto end = item.find('\n');  // a key without '=' has no value
        values[std::string(item.substr(0, end))].emplace_back(end == std::string_view::npos ? "true"
                                                                                            : item.substr(end + 1));
    }
    return values;
}

// A branch that newly follows a remote of before, as after `git push -u` or `git checkout -b` meanwhile.
bool newly_follows(const std::string& key, const Values& before, const Values& now) {
    if (!key.starts_with("branch.") || before.contains(key)) return false;
    const std::string remote_key = key.substr(0, key.rfind('.')) + ".remote";
    if (before.contains(remote_key) || (key != remote_key && !key.ends_with(".merge"))) return false;
    const auto remote = now.find(remote_key);
    if (remote == now.end() || remote->second.size() != 1) return false;
    const std::string& name = remote->second.front();
    return name == "." || before.contains("remote." + name + ".url");
}

std::set<std::string> differing_keys(const Values& one, const Values& other) {
    std::set<std::string> keys;
    for (const auto& [key, values] : one) {
        const auto at = other.find(key);
        if (at == other.end() || at->second != values) keys.insert(key);
    }
    for (const auto& [key, values] : other) {
        if (!one.contains(key)) keys.insert(key);
    }
    return keys;
}

// Without the repository, whose configuration may be broken.
Result<ProcessResult> ask(const Calls& calls, const Words& words) {
    CallOptions elsewhere;
    elsewhere.env = {{"GIT_DIR", "/dev/null"},           {"GIT_COMMON_DIR", std::nullopt},
                     {"GIT_WORK_TREE", std::nullopt},    {"GIT_CONFIG_COUNT", std::nullopt},
                     {"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
    return calls.run(words, elsewhere);
}

// `copy` has the content afterwards. nullopt: git cannot read it.
Result<std::optional<Values>> values_of(const Calls& calls, const std::string& bytes, const fs::path& copy) {
    GDNCTL_TRY(atomic_replace(copy, bytes, 0600));
    GDNCTL_TRY_ASSIGN(const ProcessResult list, ask(calls, {"config", "--file", copy.string(), "--list", "-z"}));
    return list.ok() ? std::optional(values_in(list.out)) : std::nullopt;
}

// Between a file's bytes `before` (nullopt: there was none) and those that were found. nullopt: git cannot read one of
// them. `copy` is a file that may be written and is removed.
Result<std::optional<ConfigChoice>> choose_config(const Calls& calls, const std::optional<std::string>& before,
                                                  const std::string& found, const fs::path& copy) {
    GDNCTL_TRY_ASSIGN(const auto now, values_of(calls, found, copy));
    GDNCTL_TRY_ASSIGN(const auto then, values_of(calls, before.value_or(""), copy));
    std::error_code ignored;
    std::optional<ConfigChoice> choice;
    if (now && then) {
        choice.emplace();
        for (const auto& key : differing_keys(*then, *now)) {
            if (!newly_follows(key, *then, *now)) {
                choice->changed.push_back(key);
                continue;
            }
            for (const auto& value : now->at(key)) {
                GDNCTL_TRY(ask(calls, {"config", "--file", copy.string(), "--add", key, value}));
            }
        }
        GDNCTL_TRY_ASSIGN(choice->bytes, read_file(copy));
    }
    fs::remove(copy, ignored);
    return choice;
}

}  // namespace

}  // namespace gdnctl::git

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

fs::path GitSettings::folder_of(const GitCheckout& repository) { return repository.common_dir() / "gdnctl-settings"; }

// Marks that hide changes: lower case is assume-unchanged, S skip-worktree, which is normal in a sparse checkout.
Result<std::map<std::string, char>> GitSettings::marks_of(const GitCheckout& repository) {
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

GitSettings::Place GitSettings::look_at(const fs::path& path) {
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

void GitSettings::watch(const fs::path& home, const fs::path& path, bool config) {
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

void GitSettings::watch_repository(const fs::path& folder) {
    watch(folder, folder / "config", true);
    watch(folder, folder / "config.worktree", true);
    for (const char* name : {"info/attributes", "info/exclude", "info/grafts", "info/sparse-checkout", "shallow",
                             "objects/info/alternates", "objects/info/http-alternates"}) {
        watch(folder, folder / name);
    }
    watch_hooks(folder, folder / "hooks");
}

void GitSettings::watch_hooks(const fs::path& home, const fs::path& folder) {
    std::error_code problem;
    if (fs::is_symlink(folder, problem)) watch(home, folder);
    m_hooks.emplace(folder, home);
    for_each_hook(folder, [&](const fs::path& hook) { watch(home, hook); });
}

// Submodules' names may have slashes, and submodules may have submodules.
void GitSettings::watch_modules(const fs::path& folder) {
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
Status GitSettings::watch_users(const GitCheckout& repository) {
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

Result<GitSettings> GitSettings::take(const GitCheckout& repository) {
    GitSettings setup;
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

Status GitSettings::save(const GitCheckout& repository, const std::string& run) const {
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

Result<std::optional<GitSettings>> GitSettings::load(const GitCheckout& repository, const std::string& run) {
    GDNCTL_TRY_ASSIGN(const auto text,
                      read_file_if_exists(before_file(folder_of(repository), run), std::size_t{256} << 20));
    if (!text) return std::optional<GitSettings>();
    const auto items = unpacked(*text);
    GitSettings setup;
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
            return std::optional<GitSettings>();
        }
    }
    return items ? std::optional(std::move(setup)) : std::nullopt;
}

Status GitSettings::mend(const fs::path& start, const std::string& run, std::optional<Time> alive, Process& process,
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

Result<std::vector<std::string>> GitSettings::recover(const GitCheckout& repository, const std::string& run,
                                                      std::optional<Time> alive) {
    GDNCTL_TRY_ASSIGN(auto setup, load(repository, run));
    if (!setup) return std::vector<std::string>();
    GDNCTL_TRY_ASSIGN(auto names, setup->put_back(repository, run, alive));
    forget(repository, run);
    return names;
}

void GitSettings::forget(const GitCheckout& repository, const std::string& run) {
    std::error_code ignored;
    fs::remove(before_file(folder_of(repository), run), ignored);
    fs::remove(folder_of(repository), ignored);  // if it is empty
}

GitSettings::Places GitSettings::differing() const {
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
std::optional<GitSettings::Time> GitSettings::changed_at(const fs::path& path, const fs::path& home) {
    struct stat facts{};
    for (fs::path at = path; at != home; at = at.parent_path()) {
        if (lstat(at.c_str(), &facts) == 0) return change_of(facts);
        if (at == at.parent_path()) break;
    }
    return std::nullopt;
}

// After `git worktree move`, the new place points back to this folder of administration.
bool GitSettings::is_moved_worktree(const fs::path& gitdir, const Place& now) {
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

// What differs from an earlier setup is kept and put back.

namespace {

std::set<std::string> lines_of(std::string_view text) {
    std::set<std::string> lines;
    for (const auto line : text::split(text, '\n')) {
        if (!text::trim(line).empty()) lines.emplace(text::trim(line));
    }
    return lines;
}

}  // namespace

// One restoration: the places that differ, what was found in them, and where that is kept.
class GitSettings::Found {
public:
    Found(GitSettings& setup, const GitCheckout& repository, const std::string& run, std::optional<Time> alive)
        : m_setup(setup), m_repository(repository), m_calls(*repository.m_calls), m_run(run), m_alive(alive) {}

    Result<std::vector<std::string>> put_back() {
        const Status done = put_all_back();
        say();
        GDNCTL_TRY(done);
        return std::move(m_names);
    }

private:
    Status put_all_back() {
        GDNCTL_TRY(remove_links());
        const Places found = m_setup.differing();
        // First without git, which may not work with what is there. Borrowed objects may be needed until they are
        // copied.
        for (const bool needs_git : {false, true}) {
            for (const auto& [path, now] : found) {
                const bool last = path.filename() == "alternates" || path.filename() == "shallow";
                if (last == needs_git) GDNCTL_TRY(restore(path, now));
            }
        }
        GDNCTL_TRY(restore_replaced());
        return restore_marks();
    }

    bool is_outside(const fs::path& path) const {
        std::error_code problem;
        for (const fs::path& folder : {m_repository.common_dir(), m_repository.root()}) {
            if (is_inside(folder, path) || is_inside(fs::weakly_canonical(folder, problem), path)) return false;
        }
        return true;
    }

    // Changed by the user since the killed session ended.
    bool is_late(const fs::path& path, const fs::path& home) const {
        const auto changed = m_alive ? changed_at(path, home) : std::nullopt;
        return changed && *changed > *m_alive;
    }

    // Reported once, with a copy of how it was.
    Status leave(const fs::path& path, const Place& now, std::vector<std::string>& among,
                 const std::vector<std::string>& names) {
        Place& known = m_setup.m_places[path];
        GDNCTL_TRY(make_kept());
        const std::string name = "before-" + file_name_of(path);
        if (known.kind == 'f') GDNCTL_TRY(atomic_replace(m_kept / name, known.bytes, 0600));
        m_list += known.kind == 'f' ? fmt::format("{} was before, and is not put back: {}\n", name, path.string())
                  : known.kind == 'l'
                      ? fmt::format("a link to {} before, and not put back: {}\n", known.bytes, path.string())
                      : fmt::format("missing before, and not removed: {}\n", path.string());
        GDNCTL_TRY(atomic_replace(m_kept / "list.txt", m_list, 0600));
        among.insert(among.end(), names.begin(), names.end());
        known.kind = now.kind;
        known.mode = now.mode;
        known.bytes = now.bytes;
        return {};
    }

    // Of the setup, for people.
    std::string name_of(const fs::path& path) const {
        if (!is_inside(m_repository.common_dir(), path)) return path.string();
        return path.lexically_relative(m_repository.common_dir()).string();
    }

    std::string file_name_of(const fs::path& path) const {
        std::string name = name_of(path);
        std::replace(name.begin(), name.end(), '/', '%');
        return name;
    }

    // A copy of what was found, which is moved if it is neither a file nor a link.
    Status keep(const fs::path& path, const Place& now) {
        GDNCTL_TRY(make_kept());
        const std::string name = file_name_of(path);
        if (now.kind == 'f') GDNCTL_TRY(atomic_replace(m_kept / name, now.bytes, 0600));
        if (now.kind == 'o') GDNCTL_TRY(git::move_folder(path, m_kept / name));
        m_list += now.kind == '-'   ? fmt::format("missing: {}\n", path.string())
                  : now.kind == 'l' ? fmt::format("a link to {}: {}\n", now.bytes, path.string())
                                    : fmt::format("{} was: {}\n", name, path.string());
        return atomic_replace(m_kept / "list.txt", m_list, 0600);
    }

    Status make_kept() {
        if (!m_kept.empty()) return {};
        GDNCTL_TRY(make_private_directory(folder_of(m_repository), ""));
        std::error_code problem;
        for (int n = 1;; ++n) {
            m_kept = folder_of(m_repository) / fmt::format("{}-{}", m_run, n);
            if (!fs::exists(m_kept, problem)) break;
        }
        return make_private_directory(m_kept, "");
    }

    Status restore(const fs::path& path, const Place& now) {
        const auto known = m_setup.m_places.find(path);
        Place wanted = known == m_setup.m_places.end() ? Place() : known->second;
        std::vector<std::string> names = {name_of(path)};
        const bool outside = is_outside(path), late = is_late(path, wanted.home);
        if (wanted.config) {
            GDNCTL_TRY(choose_config(wanted, now, path, names));
        } else if (outside || late || is_moved_worktree(path, now)) {
            if (!outside && !late) wanted = now;
        } else if (path.filename() == "shallow") {
            GDNCTL_TRY(choose_shallow(wanted, now));
        } else if (path.filename() == "alternates") {
            GDNCTL_TRY(copy_borrowed(wanted, now));
        }
        if (wanted.same(now)) {  // it stays, and is not asked about again
            known->second.kind = now.kind;
            known->second.mode = now.mode;
            known->second.bytes = now.bytes;
            return {};
        }
        if (outside || late) return leave(path, now, outside ? m_outside : m_late, names);
        GDNCTL_TRY(keep(path, now));
        m_names.insert(m_names.end(), names.begin(), names.end());
        return write(path, wanted);
    }

    // A link in place of a folder of hooks: what is behind it is not the user's.
    Status remove_links() {
        std::error_code problem;
        for (const auto& [folder, home] : m_setup.m_hooks) {
            if (!fs::is_symlink(folder, problem) || m_setup.m_places.contains(folder)) continue;
            const Place now = look_at(folder);
            if (const bool outside = is_outside(folder); outside || is_late(folder, home)) {
                GDNCTL_TRY(leave(folder, now, outside ? m_outside : m_late, {name_of(folder)}));
                continue;
            }
            GDNCTL_TRY(keep(folder, now));
            m_names.push_back(name_of(folder));
            GDNCTL_TRY(write(folder, Place()));
        }
        return {};
    }

    static Status write(const fs::path& path, const Place& place) {
        std::error_code problem;
        if (place.kind == '-' && !fs::exists(fs::symlink_status(path, problem))) return {};
        if (place.kind != 'f' || !fs::is_regular_file(fs::symlink_status(path, problem))) fs::remove(path, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", path, problem.value()));
        if (place.kind == '-') return {};
        fs::create_directories(path.parent_path(), problem);
        if (place.kind == 'l') {
            fs::create_symlink(place.bytes, path, problem);
            return problem ? Status(tl::unexpected(file_error(ErrorKind::local_io, "write", path, problem.value())))
                           : Status();
        }
        GDNCTL_TRY(atomic_replace(path, place.bytes, 0600));
        fs::permissions(path, static_cast<fs::perms>(place.mode), problem);
        return {};
    }

    // `wanted` becomes what the file shall be. A file in which only comments differ is left alone.
    Status choose_config(Place& wanted, const Place& now, const fs::path& path, std::vector<std::string>& names) {
        if (now.kind != 'f') return {};
        GDNCTL_TRY(make_kept());
        const auto before = wanted.kind == 'f' ? std::optional(wanted.bytes) : std::nullopt;
        GDNCTL_TRY_ASSIGN(const auto choice, git::choose_config(m_calls, before, now.bytes, m_kept / "before"));
        if (choice && choice->changed.empty()) wanted = now;
        if (choice && !choice->changed.empty()) {
            const bool main = path == m_repository.common_dir() / "config";
            names.clear();
            for (const auto& key : choice->changed) names.push_back(redact(key) + (main ? "" : " in " + name_of(path)));
            wanted.bytes = choice->bytes;
        }
        std::error_code ignored;
        fs::remove(m_kept, ignored);  // if nothing is kept in it
        if (!fs::exists(m_kept, ignored)) m_kept.clear();
        return {};
    }

    // What has been fetched since is no loss. A commit whose parents are missing must stay an end of the history, or
    // git fails wherever it meets that commit.
    Status choose_shallow(Place& wanted, const Place& now) {
        if (now.kind == 'l' || now.kind == 'o') return {};
        const auto before = lines_of(wanted.bytes), found = lines_of(now.bytes);
        std::string bytes;
        bool all = true;
        int ends = 0;
        for (const auto& commit : found) {
            bool stays = before.contains(commit);
            if (!stays) {
                GDNCTL_TRY_ASSIGN(stays, lacks_a_parent(commit));
            }
            if (stays) bytes += commit + "\n";
            all = all && stays;
            ends += stays && !before.contains(commit) ? 1 : 0;
        }
        for (const auto& commit : before) {
            if (found.contains(commit)) continue;
            GDNCTL_TRY_ASSIGN(const bool stays, lacks_a_parent(commit));
            if (stays) bytes += commit + "\n";
            all = all && !stays;
        }
        if (ends > 0) {
            log::warning(
                "the history became shallow at {} more commit{} while the agent worked; git fetch --unshallow restores "
                "it",
                ends, ends == 1 ? "" : "s");
        }
        if (all) {
            wanted = now;
            return {};
        }
        wanted.kind = bytes.empty() ? '-' : 'f';
        if (now.kind == 'f') wanted.mode = now.mode;
        wanted.bytes = std::move(bytes);
        return {};
    }

    Result<bool> lacks_a_parent(const std::string& commit) const {
        GDNCTL_TRY_ASSIGN(const auto bytes, m_repository.objects(std::span(&commit, 1)));
        if (!bytes.front()) return true;
        for (const auto line : text::split(*bytes.front(), '\n')) {
            if (line.empty()) break;
            if (!line.starts_with("parent ")) continue;
            GDNCTL_TRY_ASSIGN(const ProcessResult there, m_calls.run({"cat-file", "-e", std::string(line.substr(7))}));
            if (!there.ok()) return true;
        }
        return false;
    }

    // Commits made meanwhile may need objects of the other repository.
    Status copy_borrowed(const Place& wanted, const Place& now) const {
        const auto before = lines_of(wanted.bytes), found = lines_of(now.bytes);
        const bool more = !std::includes(before.begin(), before.end(), found.begin(), found.end());
        return more ? m_calls.done({"repack", "-a", "-n", "-q"}) : Status();
    }

    Status restore_replaced() {
        GDNCTL_TRY_ASSIGN(const auto now, m_repository.refs(k_replace));
        const auto& before = m_setup.m_replaced;
        if (now == before) return {};
        std::vector<std::pair<std::string, GitRefUpdate>> updates;
        const fs::path& common = m_repository.common_dir();
        const auto is_users = [&](const std::string& ref) {
            std::error_code problem;
            const bool loose = fs::exists(common / ref, problem);
            return is_late(now.contains(ref) && !loose ? common / "packed-refs" : common / ref, common / "refs");
        };
        for (const auto& [ref, object] : now) {
            const auto known = before.find(ref);
            if (known != before.end() && known->second == object) continue;
            if (is_users(ref)) {
                m_late.push_back(ref);
                continue;
            }
            const std::string leaf = ref.substr(k_replace.size());
            const GitRefUpdate pin{fmt::format("refs/gdnctl-others/{}/replace/{}", m_run, leaf), object};
            GDNCTL_TRY(m_repository.update_refs(std::span(&pin, 1)));
            GDNCTL_TRY(make_kept());
            m_list += fmt::format("{} was: {}\n", pin.name, ref);
            GDNCTL_TRY(atomic_replace(m_kept / "list.txt", m_list, 0600));
            updates.push_back({ref, {ref, known == before.end() ? std::string(k_no_object) : known->second, object}});
        }
        for (const auto& [ref, object] : before) {
            if (now.contains(ref)) continue;
            if (is_users(ref)) {
                m_late.push_back(ref);
            } else {
                updates.push_back({ref, {ref, object, std::string(k_no_object)}});
            }
        }
        for (const auto& [ref, update] : updates) {
            const Status done = m_repository.update_refs(std::span(&update, 1));
            if (!done && done.error().kind == ErrorKind::local_io) return done;
            if (done) m_names.push_back(ref);
            if (!done) log::warning("{} was changed, and cannot be put back: {}", ref, done.error().message);
        }
        return {};
    }

    // Files that a sparse checkout removed are written again; none that is there is touched.
    Status restore_marks() {
        GDNCTL_TRY_ASSIGN(const auto now, marks_of(m_repository));
        if (now == m_setup.m_marks) return {};
        if (is_late(m_repository.git_dir() / "index", m_repository.git_dir())) {
            m_late.emplace_back("marks that hide files");
            return {};
        }
        std::vector<std::string> shown;
        git::CallOptions missing, assumed, skipped;
        for (const auto& [path, mark] : now) {
            const auto known = m_setup.m_marks.find(path);
            if (known != m_setup.m_marks.end() && known->second == mark) continue;
            shown.push_back(path);
            std::error_code problem;
            const bool gone = !fs::exists(fs::symlink_status(m_repository.root() / path, problem));
            if (gone && (mark == 'S' || mark == 's')) missing.input += path + '\0';
        }
        GDNCTL_TRY(git::show_files(m_calls, shown, {}));
        GDNCTL_TRY_ASSIGN(const std::string list, m_calls.output({"ls-files", "-z"}));
        std::set<std::string> lost;
        for (const auto path : text::split(list, '\0')) lost.emplace(path);
        std::erase_if(lost, [&](const std::string& path) {
            const auto before = m_setup.m_marks.find(path);
            const auto at = now.find(path);
            return before == m_setup.m_marks.end() || (at != now.end() && at->second == before->second);
        });
        for (const auto& path : lost) {
            const char mark = m_setup.m_marks.at(path);
            if (mark >= 'a' && mark <= 'z') assumed.input += path + '\0';
            if (mark == 'S' || mark == 's') skipped.input += path + '\0';
        }
        const auto mark_again = [&](const char* option, const git::CallOptions& paths) {
            return paths.input.empty() ? Status() : m_calls.done({"update-index", option, "-z", "--stdin"}, paths);
        };
        GDNCTL_TRY(mark_again("--assume-unchanged", assumed));
        GDNCTL_TRY(mark_again("--skip-worktree", skipped));
        if (!missing.input.empty()) GDNCTL_TRY(m_calls.done({"checkout-index", "-q", "-z", "--stdin"}, missing));
        for (const auto& path : shown) {
            if (!m_setup.m_marks.contains(path)) m_names.push_back("hidden file " + path);
        }
        for (const auto& path : lost) m_names.push_back("mark of " + path);
        return {};
    }

    void say() const {
        const auto list = [](const std::vector<std::string>& names) {
            constexpr std::size_t k_most = 12;
            std::vector<std::string> few;
            for (const auto& name : names) {
                if (few.size() < k_most) few.push_back(text::visible(name));
            }
            if (names.size() > k_most) few.push_back(fmt::format("and {} more", names.size() - k_most));
            return text::join(few, ", ");
        };
        if (!m_names.empty()) {
            log::warning("git's settings were changed while the agent worked, and are put back: {}", list(m_names));
            if (!m_kept.empty()) log::warning("If you made these changes, copies are in {}", m_kept.string());
        }
        if (!m_outside.empty()) {
            log::warning(
                "settings outside the repository were changed while the agent worked, and are not put back: {}",
                list(m_outside));
        }
        if (!m_late.empty()) {
            log::warning("git's settings were changed after the run was interrupted, and are not put back: {}",
                         list(m_late));
        }
        if ((!m_outside.empty() || !m_late.empty()) && !m_kept.empty()) {
            log::warning("If you did not make these changes, copies of the files before them are in {}",
                         m_kept.string());
        }
    }

    GitSettings& m_setup;
    const GitCheckout& m_repository;
    const Calls& m_calls;
    const std::string& m_run;
    const std::optional<Time> m_alive;
    fs::path m_kept;
    std::string m_list;
    std::vector<std::string> m_names;  // of what was put back
    std::vector<std::string> m_outside, m_late;
};

Result<std::vector<std::string>> GitSettings::put_back(const GitCheckout& repository, const std::string& run,
                                                       std::optional<Time> alive) {
    return Found(*this, repository, run, alive).put_back();
}

}  // namespace gdnctl
