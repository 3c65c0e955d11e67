// What differs from an earlier setup is kept and put back.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/git/calls.h"
#include "services/git/hidden.h"
#include "services/git/setup.h"

namespace gdnctl {

namespace fs = std::filesystem;
using git::Calls;

namespace {

std::set<std::string> lines_of(std::string_view text) {
    std::set<std::string> lines;
    for (const auto line : text::split(text, '\n')) {
        if (!text::trim(line).empty()) lines.emplace(text::trim(line));
    }
    return lines;
}

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

}  // namespace

// One restoration: the places that differ, what was found in them, and where that is kept.
class GitSetup::Found {
public:
    Found(GitSetup& setup, const GitCheckout& repository, const std::string& run)
        : m_setup(setup), m_repository(repository), m_calls(*repository.m_calls), m_run(run) {}

    Result<std::vector<std::string>> put_back() {
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
        GDNCTL_TRY(restore_marks());
        say();
        return std::move(m_names);
    }

private:
    // Of the setup, for people.
    std::string name_of(const fs::path& path) const {
        if (!is_inside(m_repository.common_dir(), path)) return path.string();
        return path.lexically_relative(m_repository.common_dir()).string();
    }

    // A copy of what was found, which is moved if it is neither a file nor a link.
    Status keep(const fs::path& path, const Place& now) {
        GDNCTL_TRY(make_kept());
        std::string name = name_of(path);
        std::replace(name.begin(), name.end(), '/', '%');
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
        if (wanted.config) {
            GDNCTL_TRY(choose_config(wanted, now, path, names));
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
            GDNCTL_TRY(keep(folder, now));
            m_names.push_back(name_of(folder));
            GDNCTL_TRY(write(folder, Place()));
        }
        return {};
    }

    static Status write(const fs::path& path, const Place& place) {
        std::error_code problem;
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
        const fs::path copy = m_kept / "before";
        GDNCTL_TRY_ASSIGN(const auto found, values_of(now, copy));
        GDNCTL_TRY_ASSIGN(const auto before, values_of(wanted, copy));
        std::vector<std::string> changed;
        if (found && before) {
            for (const auto& key : differing_keys(*before, *found)) {
                if (!newly_follows(key, *before, *found)) {
                    changed.push_back(key);
                    continue;
                }
                for (const auto& value : found->at(key)) {
                    GDNCTL_TRY(ask({"config", "--file", copy.string(), "--add", key, value}));
                }
            }
            if (changed.empty()) wanted = now;
        }
        if (!changed.empty()) {
            const bool main = path == m_repository.common_dir() / "config";
            names.clear();
            for (const auto& key : changed) names.push_back(redact(key) + (main ? "" : " in " + name_of(path)));
            if (wanted.kind == 'f') {
                GDNCTL_TRY_ASSIGN(wanted.bytes, read_file(copy));
            }
        }
        std::error_code ignored;
        fs::remove(copy, ignored);
        fs::remove(m_kept, ignored);  // if nothing is kept in it
        if (!fs::exists(m_kept, ignored)) m_kept.clear();
        return {};
    }

    // `copy` has the content afterwards. nullopt: git cannot read it.
    Result<std::optional<Values>> values_of(const Place& place, const fs::path& copy) const {
        if (place.kind != 'f') return std::optional(Values());
        GDNCTL_TRY(atomic_replace(copy, place.bytes, 0600));
        GDNCTL_TRY_ASSIGN(const ProcessResult list, ask({"config", "--file", copy.string(), "--list", "-z"}));
        return list.ok() ? std::optional(values_in(list.out)) : std::nullopt;
    }

    // Without the repository, whose configuration may be broken.
    Result<ProcessResult> ask(const git::Words& words) const {
        git::CallOptions elsewhere;
        elsewhere.env = {{"GIT_DIR", "/dev/null"},           {"GIT_COMMON_DIR", std::nullopt},
                         {"GIT_WORK_TREE", std::nullopt},    {"GIT_CONFIG_COUNT", std::nullopt},
                         {"GIT_CONFIG_GLOBAL", "/dev/null"}, {"GIT_CONFIG_NOSYSTEM", "1"}};
        return m_calls.run(words, elsewhere);
    }

    // What has been fetched since is no loss. A commit whose parents are missing must stay an end of the history.
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
        if (ends > 0) {
            log::warning(
                "the history was cut at {} more commit(s) while the agent worked, and what is before them is not "
                "here: git fetch --unshallow",
                ends);
        }
        if (all) {
            wanted = now;
            return {};
        }
        wanted.kind = bytes.empty() ? '-' : 'f';
        wanted.mode = now.mode;
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
        for (const auto& [ref, object] : now) {
            const auto known = before.find(ref);
            if (known != before.end() && known->second == object) continue;
            const std::string leaf = ref.substr(k_replace.size());
            const GitRefUpdate pin{fmt::format("refs/gdnctl-others/{}/replace/{}", m_run, leaf), object};
            GDNCTL_TRY(m_repository.update_refs(std::span(&pin, 1)));
            GDNCTL_TRY(make_kept());
            m_list += fmt::format("{} was: {}\n", pin.name, ref);
            GDNCTL_TRY(atomic_replace(m_kept / "list.txt", m_list, 0600));
            updates.push_back({ref, {ref, known == before.end() ? std::string(k_no_object) : known->second, object}});
        }
        for (const auto& [ref, object] : before) {
            if (!now.contains(ref)) updates.push_back({ref, {ref, object, std::string(k_no_object)}});
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
        if (m_names.empty()) return;
        constexpr std::size_t k_most = 12;
        std::vector<std::string> few(m_names.begin(),
                                     m_names.begin() + static_cast<std::ptrdiff_t>(std::min(m_names.size(), k_most)));
        if (m_names.size() > k_most) few.push_back(fmt::format("and {} more", m_names.size() - k_most));
        for (auto& name : few) name = text::visible(name);
        log::warning("git's settings were changed while the agent worked, and are put back: {}", text::join(few, ", "));
        if (!m_kept.empty()) log::warning("if that was not the agent: what was found is kept in {}", m_kept.string());
    }

    GitSetup& m_setup;
    const GitCheckout& m_repository;
    const Calls& m_calls;
    const std::string& m_run;
    fs::path m_kept;
    std::string m_list;
    std::vector<std::string> m_names;
};

Result<std::vector<std::string>> GitSetup::put_back(const GitCheckout& repository, const std::string& run) {
    return Found(*this, repository, run).put_back();
}

}  // namespace gdnctl
