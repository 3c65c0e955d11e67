#include "services/git/shelf.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "services/git/hidden.h"

namespace gdnctl::git {

namespace fs = std::filesystem;

namespace {

using Kind = Shelved::Kind;

constexpr unsigned k_permissions = 07777;
constexpr std::size_t k_longest_list = std::size_t{256} << 20;

tl::unexpected<Error> io_error(std::string_view verb, const fs::path& path, int number) {
    return tl::unexpected(file_error(ErrorKind::local_io, verb, path, number));
}

bool is_folder(const Shelved& entry) { return entry.kind == Kind::folder || entry.kind == Kind::empty_folder; }

// nullopt: nothing is there.
Result<std::optional<Shelved>> look_at(const fs::path& place) {
    struct stat facts{};
    if (lstat(place.c_str(), &facts) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return std::optional<Shelved>();
        return io_error("read", place, errno);
    }
    Shelved entry;
    entry.mode = facts.st_mode & k_permissions;
    entry.modified = facts.st_mtim;
    entry.inode = facts.st_ino;
    if (S_ISREG(facts.st_mode)) {
        GDNCTL_TRY_ASSIGN(entry.hash, hash_file_hex(HashKind::sha256, place));
    } else if (S_ISLNK(facts.st_mode)) {
        entry.kind = Kind::link;
        std::error_code problem;
        GDNCTL_TRY_ASSIGN(entry.hash, hash_hex(HashKind::sha256, fs::read_symlink(place, problem).string()));
    } else {
        entry.kind = S_ISDIR(facts.st_mode) ? Kind::folder : Kind::other;
    }
    return std::optional(std::move(entry));
}

bool same_time(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

Result<bool> is_as_it_was(const fs::path& place, const Shelved& entry) {
    GDNCTL_TRY_ASSIGN(const auto now, look_at(place));
    if (!now) return false;
    if (is_folder(entry)) return now->kind == Kind::folder && now->mode == entry.mode;
    if (now->kind != entry.kind || now->hash != entry.hash || !same_time(now->modified, entry.modified)) return false;
    if (entry.kind == Kind::other && now->inode != entry.inode) return false;
    return entry.kind == Kind::link || now->mode == entry.mode;
}

Status set_mode(const fs::path& place, const Shelved& entry) {
    if (chmod(place.c_str(), entry.mode) != 0) return io_error("set the mode of", place, errno);
    return {};
}

Status set_time(const fs::path& place, const Shelved& entry) {
    const timespec times[2] = {{0, UTIME_OMIT}, entry.modified};
    if (utimensat(AT_FDCWD, place.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
        return io_error("set the time of", place, errno);
    }
    return {};
}

// A hard link to the file, else a copy; `to` must not exist.
Status link_or_copy(const fs::path& from, const fs::path& to, const Shelved& entry) {
    if (link(from.c_str(), to.c_str()) == 0) return {};
    const int why = errno;
    std::error_code problem;
    if (entry.kind == Kind::link) {
        fs::copy_symlink(from, to, problem);
    } else if (entry.kind == Kind::file) {
        fs::copy_file(from, to, problem);
    } else {
        return io_error("keep", from, why);
    }
    if (problem) return io_error("copy", from, problem.value());
    if (entry.kind == Kind::file) GDNCTL_TRY(set_mode(to, entry));
    return set_time(to, entry);
}

// Folders with tracked files, and their parents.
Result<std::set<std::string>> tracked_folders(const Calls& calls) {
    GDNCTL_TRY_ASSIGN(const std::string files, calls.output({"ls-files", "-z"}));
    std::set<std::string> folders = {""};
    for (const auto path : text::split(files, '\0')) {
        for (auto end = path.rfind('/'); end != std::string_view::npos && end > 0; end = path.rfind('/', end - 1)) {
            if (!folders.emplace(path.substr(0, end)).second) break;
        }
    }
    return folders;
}

// What status does not report: folders without tracked files, and in them anything that is neither file nor link.
class FolderWalk {
public:
    FolderWalk(fs::path root, std::set<std::string> tracked, std::set<std::string> ignored)
        : m_root(std::move(root)), m_tracked(std::move(tracked)), m_ignored(std::move(ignored)) {}

    // Whether it contains anything but folders.
    Result<bool> into(const std::string& relative) {
        const bool tracked = m_tracked.contains(relative);
        const std::size_t own = found.size();
        if (!tracked) {
            GDNCTL_TRY_ASSIGN(auto entry, look_at(m_root / relative));
            if (!entry) return false;
            entry->path = relative;
            found.push_back(std::move(*entry));
        }
        bool filled = false;
        std::error_code problem;
        for (fs::directory_iterator at(m_root / relative, problem), end; !problem && at != end; at.increment(problem)) {
            const std::string name = at->path().filename().string();
            if (name == ".git") continue;
            const std::string path = relative.empty() ? name : fmt::format("{}/{}", relative, name);
            std::error_code inner;
            const auto type = at->symlink_status(inner).type();
            if (type != fs::file_type::directory) {
                filled = true;
                const bool known = tracked || type == fs::file_type::regular || type == fs::file_type::symlink;
                if (!known) GDNCTL_TRY(add_other(path));
                continue;
            }
            const bool foreign = m_ignored.contains(path) || fs::exists(m_root / path / ".git", inner);
            if (foreign) filled = true;
            if (foreign) continue;
            GDNCTL_TRY_ASSIGN(const bool more, into(path));
            filled = filled || more;
        }
        if (!tracked) found[own].kind = filled ? Kind::folder : Kind::empty_folder;
        return filled;
    }

    std::vector<Shelved> found;  // parents before children

private:
    Status add_other(const std::string& path) {
        GDNCTL_TRY_ASSIGN(auto entry, look_at(m_root / path));
        if (!entry) return {};
        entry->path = path;
        found.push_back(std::move(*entry));
        return {};
    }

    fs::path m_root;
    std::set<std::string> m_tracked, m_ignored;
};

Result<std::vector<Shelved>> uncommitted(const Calls& calls) {
    std::vector<Shelved> found;
    bool unread = false;
    GDNCTL_TRY_ASSIGN(const auto entries, status_of(calls, false, unread));
    if (entries.empty()) return found;
    GDNCTL_TRY_ASSIGN(auto tracked, tracked_folders(calls));
    GDNCTL_TRY_ASSIGN(const std::string list,
                      calls.output({"ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"}));
    std::set<std::string> ignored;
    for (const auto path : text::split(list, '\0')) {
        if (path.ends_with('/')) ignored.emplace(path.substr(0, path.size() - 1));
    }
    FolderWalk walk(calls.root, std::move(tracked), std::move(ignored));
    GDNCTL_TRY(walk.into(""));
    found = std::move(walk.found);
    for (const auto& entry : entries) {
        if (entry.path.ends_with('/')) continue;
        GDNCTL_TRY_ASSIGN(auto file, look_at(calls.root / entry.path));
        if (!file || is_folder(*file)) continue;
        file->path = entry.path;
        found.push_back(std::move(*file));
    }
    return found;
}

std::string text_of(const std::vector<Shelved>& entries) {
    std::string text;
    for (const auto& one : entries) {
        text += fmt::format("{} {} {} {} {} {}", static_cast<char>(one.kind), one.mode, one.modified.tv_sec,
                            one.modified.tv_nsec, one.inode, one.hash.empty() ? "-" : one.hash);
        text += '\0' + one.path + '\0';
    }
    return text;
}

std::optional<std::vector<Shelved>> parse_list(std::string_view text) {
    std::vector<Shelved> entries;
    const auto items = text::split(text, '\0');
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const auto words = text::split(items[i], ' ');
        if (words.size() != 6 || words[0].size() != 1) return std::nullopt;
        const auto mode = text::parse_int(words[1]), seconds = text::parse_int(words[2]),
                   nanoseconds = text::parse_int(words[3]), inode = text::parse_int(words[4]);
        if (!mode || !seconds || !nanoseconds || !inode) return std::nullopt;
        Shelved entry;
        entry.kind = static_cast<Kind>(words[0].front());
        entry.mode = static_cast<unsigned>(*mode);
        entry.modified = {static_cast<time_t>(*seconds), static_cast<long>(*nanoseconds)};
        entry.inode = static_cast<std::uint64_t>(*inode);
        if (words[5] != "-") entry.hash = words[5];
        entry.path = items[i + 1];
        entries.push_back(std::move(entry));
    }
    return entries;
}

}  // namespace

Result<Shelf> Shelf::of(const Calls& calls, std::string_view message) {
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha256, message));
    return Shelf(calls.root, calls.git_dir / "gdnctl-shelf" / hash.substr(0, 16));
}

Status Shelf::fill(const Calls& calls) const {
    GDNCTL_TRY(drop());
    GDNCTL_TRY_ASSIGN(const auto entries, uncommitted(calls));
    if (entries.empty()) return {};
    for (const fs::path& folder : {m_folder.parent_path(), m_folder}) {
        if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return io_error("make", folder, errno);
    }
    GDNCTL_TRY(make_folder({}));
    for (const auto& entry : entries) {
        GDNCTL_TRY(is_folder(entry) ? make_folder(entry.path) : put(entry));
    }
    GDNCTL_TRY(sync_directory(m_folder));
    return atomic_replace(m_folder / "list", text_of(entries), 0600);
}

// With its mode in the checkout, so that users can copy everything back at once, but writable for us.
Status Shelf::make_folder(const fs::path& relative) const {
    const fs::path place = relative.empty() ? m_folder / "files" : m_folder / "files" / relative;
    std::error_code problem;
    if (fs::is_directory(fs::symlink_status(place, problem))) return {};
    if (!relative.empty()) GDNCTL_TRY(make_folder(relative.parent_path()));
    if (mkdir(place.c_str(), 0700) != 0 && errno != EEXIST) return io_error("make", place, errno);
    struct stat facts{};
    if (lstat((m_root / relative).c_str(), &facts) != 0) return {};
    if (chmod(place.c_str(), (facts.st_mode & k_permissions) | 0700) != 0) return io_error("make", place, errno);
    return {};
}

Status Shelf::put(const Shelved& entry) const {
    // A file that was only removed from the index occurs twice in the status: as deleted and as untracked.
    std::error_code problem;
    if (fs::exists(fs::symlink_status(place_of(entry), problem))) return {};
    GDNCTL_TRY(make_folder(fs::path(entry.path).parent_path()));
    return link_or_copy(m_root / entry.path, place_of(entry), entry);
}

std::optional<fs::path> Shelf::files() const {
    std::error_code problem;
    if (!fs::exists(m_folder / "list", problem)) return std::nullopt;
    return m_folder / "files";
}

Status Shelf::sweep(const Calls& calls, const std::vector<std::string>& messages) {
    std::set<std::string> known;
    for (const auto& message : messages) {
        GDNCTL_TRY_ASSIGN(const Shelf shelf, of(calls, message));
        known.insert(shelf.m_folder.filename().string());
    }
    std::error_code problem;
    std::vector<fs::path> gone;
    for (const auto& entry : fs::directory_iterator(calls.git_dir / "gdnctl-shelf", problem)) {
        if (!known.contains(entry.path().stem().string())) gone.push_back(entry.path());  // or <hash>.gone
    }
    for (const auto& folder : gone) GDNCTL_TRY(Shelf(calls.root, folder).drop());
    return {};
}

Result<std::optional<std::vector<Shelved>>> Shelf::list() const {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(m_folder / "list", k_longest_list));
    if (!text) return std::optional<std::vector<Shelved>>();
    return parse_list(*text);
}

Status Shelf::keep_empty_folders() const {
    GDNCTL_TRY_ASSIGN(const auto entries, list());
    if (!entries) return {};
    std::vector<const Shelved*> made;
    for (const auto& entry : *entries) {
        std::error_code problem;
        if (entry.kind != Kind::empty_folder || fs::exists(fs::symlink_status(m_root / entry.path, problem))) continue;
        fs::create_directories(m_root / entry.path, problem);
        if (problem) return io_error("make", m_root / entry.path, problem.value());
        made.push_back(&entry);
    }
    for (auto at = made.rbegin(); at != made.rend(); ++at) {
        GDNCTL_TRY(set_mode(m_root / (*at)->path, **at));
        GDNCTL_TRY(set_time(m_root / (*at)->path, **at));
    }
    return {};
}

Status Shelf::restore_file(std::size_t number, const Shelved& entry) const {
    const fs::path place = m_root / entry.path, kept = place_of(entry);
    GDNCTL_TRY_ASSIGN(const bool there, is_as_it_was(place, entry));
    if (there) return {};
    GDNCTL_TRY_ASSIGN(const bool good, is_as_it_was(kept, entry));
    if (!good) return {};  // someone changed it
    std::error_code problem;
    const fs::path beside = place.parent_path() / fmt::format(".gdnctl-shelf-{}", number);
    fs::remove(beside, problem);
    GDNCTL_TRY(link_or_copy(kept, beside, entry));
    fs::rename(beside, place, problem);
    if (problem) {
        std::error_code ignored;
        fs::remove(beside, ignored);
        return io_error("write", place, problem.value());
    }
    return {};
}

Result<std::optional<Unshelved>> Shelf::restore(const std::set<std::string>& merged) const {
    GDNCTL_TRY_ASSIGN(const auto entries, list());
    if (!entries) return std::optional<Unshelved>();
    std::error_code problem;
    for (const auto& entry : *entries) {
        if (is_folder(entry)) fs::create_directories(m_root / entry.path, problem);  // checked below
    }
    for (std::size_t i = 0; i < entries->size(); ++i) {
        const Shelved& entry = (*entries)[i];
        if (is_folder(entry)) continue;
        if (!merged.contains(entry.path)) {
            GDNCTL_TRY(restore_file(i, entry));
        } else if (fs::is_regular_file(fs::symlink_status(m_root / entry.path, problem)) && entry.kind == Kind::file) {
            GDNCTL_TRY(set_mode(m_root / entry.path, entry));
        }
    }
    // Children first, because a change in a folder sets its time.
    for (auto at = entries->rbegin(); at != entries->rend(); ++at) {
        if (!is_folder(*at) || !fs::is_directory(fs::symlink_status(m_root / at->path, problem))) continue;
        GDNCTL_TRY(set_mode(m_root / at->path, *at));
        GDNCTL_TRY(set_time(m_root / at->path, *at));
    }
    Unshelved found;
    for (const auto& entry : *entries) {
        if (merged.contains(entry.path)) continue;
        GDNCTL_TRY_ASSIGN(const bool back, is_as_it_was(m_root / entry.path, entry));
        if (back) {
            found.proven.insert(entry.path);
        } else {
            found.different.push_back(entry.path);
        }
    }
    return std::optional(std::move(found));
}

Status Shelf::drop() const {
    std::error_code problem;
    const fs::path gone = m_folder.string() + ".gone";
    fs::remove_all(gone, problem);
    if (!problem && fs::exists(m_folder, problem)) fs::rename(m_folder, gone, problem);
    if (!problem) fs::remove_all(gone, problem);
    if (problem) return io_error("remove", m_folder, problem.value());
    fs::remove(m_folder.parent_path(), problem);  // if it was the last one
    return {};
}

}  // namespace gdnctl::git
