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
#include "services/git/setup_config.h"

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

}  // namespace

// One restoration: the places that differ, what was found in them, and where that is kept.
class GitSetup::Found {
public:
    Found(GitSetup& setup, const GitCheckout& repository, const std::string& run, std::optional<Time> alive)
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
                "the history was cut at {} more commit(s) while the agent worked, and what is before them is not "
                "here: git fetch --unshallow",
                ends);
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

    GitSetup& m_setup;
    const GitCheckout& m_repository;
    const Calls& m_calls;
    const std::string& m_run;
    const std::optional<Time> m_alive;
    fs::path m_kept;
    std::string m_list;
    std::vector<std::string> m_names;  // of what was put back
    std::vector<std::string> m_outside, m_late;
};

Result<std::vector<std::string>> GitSetup::put_back(const GitCheckout& repository, const std::string& run,
                                                    std::optional<Time> alive) {
    return Found(*this, repository, run, alive).put_back();
}

}  // namespace gdnctl
