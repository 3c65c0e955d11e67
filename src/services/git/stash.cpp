// Exact copies of uncommitted files, in addition to a stash. A stash only holds git's view of files: line ends after
// its filters, one bit of the mode, no times, no empty folders. The backup keeps the files themselves as hard links, so
// that they can be restored exactly.
//
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/list          one record per file and folder
//   <git dir>/gdnctl-shelf/<hash of the stash's message>/files/<path>  the file, in folders with the original modes
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "services/git/calls.h"
#include "services/git/checkout.h"

namespace gdnctl::git {

namespace {

struct SavedFile {
    enum class Kind : char { file = 'f', link = 'l', other = 'o', folder = 'd', empty_folder = 'e' };
    Kind kind = Kind::file;
    unsigned mode = 0;  // permission bits
    timespec modified{};
    std::uint64_t inode = 0;  // for an `other`, such as a pipe, nothing else can be compared
    std::string hash;         // SHA-256 of a file's bytes, or of a link's target
    std::string path;         // relative to the root
};

// The result of restore(): paths of the list.
struct RestoredFiles {
    std::vector<std::string> different;  // different from before
    std::set<std::string> proven;        // exactly as before
};

class WorktreeBackup {
public:
    // Errors: those of hash_hex().
    static Result<WorktreeBackup> of(const Calls& calls, std::string_view message);

    // Saves what git is about to stash, and the folders that it will remove. Changes nothing in the checkout.
    Status fill(const Calls& calls) const;
    // After the stash: recreates folders that were empty.
    Status keep_empty_folders() const;
    // After git has restored the stash: restores each file and folder exactly. For those in `merged`, which have
    // further changes, only the mode. nullopt: no such backup.
    Result<std::optional<RestoredFiles>> restore(const std::set<std::string>& merged) const;
    Status drop() const;

    // Where the files are, under their own names; nullopt: no such backup.
    std::optional<std::filesystem::path> files() const;
    // Removes this checkout's shelves that belong to none of these messages: their stash was never made, or its owner
    // dropped it.
    static Status sweep(const Calls& calls, const std::vector<std::string>& messages);

private:
    WorktreeBackup(std::filesystem::path root, std::filesystem::path folder)
        : m_root(std::move(root)), m_folder(std::move(folder)) {}

    Result<std::optional<std::vector<SavedFile>>> list() const;
    std::filesystem::path place_of(const SavedFile& entry) const { return m_folder / "files" / entry.path; }
    Status make_folder(const std::filesystem::path& relative) const;
    Status put(const SavedFile& entry) const;
    Status restore_file(std::size_t number, const SavedFile& entry) const;
    std::filesystem::path m_root, m_folder;
};

namespace fs = std::filesystem;

using Kind = SavedFile::Kind;

constexpr unsigned k_permissions = 07777;
constexpr std::size_t k_longest_list = std::size_t{256} << 20;

tl::unexpected<Error> io_error(std::string_view verb, const fs::path& path, int number) {
    return tl::unexpected(file_error(ErrorKind::local_io, verb, path, number));
}

bool is_folder(const SavedFile& entry) { return entry.kind == Kind::folder || entry.kind == Kind::empty_folder; }

// nullopt: nothing is there.
Result<std::optional<SavedFile>> look_at(const fs::path& place) {
    struct stat facts{};
    if (lstat(place.c_str(), &facts) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) return std::optional<SavedFile>();
        return io_error("read", place, errno);
    }
    SavedFile entry;
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

Result<bool> is_as_it_was(const fs::path& place, const SavedFile& entry) {
    GDNCTL_TRY_ASSIGN(const auto now, look_at(place));
    if (!now) return false;
    if (is_folder(entry)) return now->kind == Kind::folder && now->mode == entry.mode;
    if (now->kind != entry.kind || now->hash != entry.hash || !same_time(now->modified, entry.modified)) return false;
    if (entry.kind == Kind::other && now->inode != entry.inode) return false;
    return entry.kind == Kind::link || now->mode == entry.mode;
}

Status set_mode(const fs::path& place, const SavedFile& entry) {
    if (chmod(place.c_str(), entry.mode) != 0) return io_error("set the mode of", place, errno);
    return {};
}

Status set_time(const fs::path& place, const SavedFile& entry) {
    const timespec times[2] = {{0, UTIME_OMIT}, entry.modified};
    if (utimensat(AT_FDCWD, place.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
        return io_error("set the time of", place, errno);
    }
    return {};
}

// A hard link to the file, else a copy; `to` must not exist.
Status link_or_copy(const fs::path& from, const fs::path& to, const SavedFile& entry) {
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

    std::vector<SavedFile> found;  // parents before children

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

Result<std::vector<SavedFile>> uncommitted(const Calls& calls) {
    std::vector<SavedFile> found;
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

std::string text_of(const std::vector<SavedFile>& entries) {
    std::string text;
    for (const auto& one : entries) {
        text += fmt::format("{} {} {} {} {} {}", static_cast<char>(one.kind), one.mode, one.modified.tv_sec,
                            one.modified.tv_nsec, one.inode, one.hash.empty() ? "-" : one.hash);
        text += '\0' + one.path + '\0';
    }
    return text;
}

std::optional<std::vector<SavedFile>> parse_list(std::string_view text) {
    std::vector<SavedFile> entries;
    const auto items = text::split(text, '\0');
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const auto words = text::split(items[i], ' ');
        if (words.size() != 6 || words[0].size() != 1) return std::nullopt;
        const auto mode = text::parse_int(words[1]), seconds = text::parse_int(words[2]),
                   nanoseconds = text::parse_int(words[3]), inode = text::parse_int(words[4]);
        if (!mode || !seconds || !nanoseconds || !inode) return std::nullopt;
        SavedFile entry;
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

Result<WorktreeBackup> WorktreeBackup::of(const Calls& calls, std::string_view message) {
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha256, message));
    return WorktreeBackup(calls.root, calls.git_dir / "gdnctl-shelf" / hash.substr(0, 16));
}

Status WorktreeBackup::fill(const Calls& calls) const {
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
Status WorktreeBackup::make_folder(const fs::path& relative) const {
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

Status WorktreeBackup::put(const SavedFile& entry) const {
    // A file that was only removed from the index occurs twice in the status: as deleted and as untracked.
    std::error_code problem;
    if (fs::exists(fs::symlink_status(place_of(entry), problem))) return {};
    GDNCTL_TRY(make_folder(fs::path(entry.path).parent_path()));
    return link_or_copy(m_root / entry.path, place_of(entry), entry);
}

std::optional<fs::path> WorktreeBackup::files() const {
    std::error_code problem;
    if (!fs::exists(m_folder / "list", problem)) return std::nullopt;
    return m_folder / "files";
}

Status WorktreeBackup::sweep(const Calls& calls, const std::vector<std::string>& messages) {
    std::set<std::string> known;
    for (const auto& message : messages) {
        GDNCTL_TRY_ASSIGN(const WorktreeBackup backup, of(calls, message));
        known.insert(backup.m_folder.filename().string());
    }
    std::error_code problem;
    std::vector<fs::path> gone;
    for (const auto& entry : fs::directory_iterator(calls.git_dir / "gdnctl-shelf", problem)) {
        if (!known.contains(entry.path().stem().string())) gone.push_back(entry.path());  // or <hash>.gone
    }
    for (const auto& folder : gone) GDNCTL_TRY(WorktreeBackup(calls.root, folder).drop());
    return {};
}

Result<std::optional<std::vector<SavedFile>>> WorktreeBackup::list() const {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(m_folder / "list", k_longest_list));
    if (!text) return std::optional<std::vector<SavedFile>>();
    return parse_list(*text);
}

Status WorktreeBackup::keep_empty_folders() const {
    GDNCTL_TRY_ASSIGN(const auto entries, list());
    if (!entries) return {};
    std::vector<const SavedFile*> made;
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

Status WorktreeBackup::restore_file(std::size_t number, const SavedFile& entry) const {
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

Result<std::optional<RestoredFiles>> WorktreeBackup::restore(const std::set<std::string>& merged) const {
    GDNCTL_TRY_ASSIGN(const auto entries, list());
    if (!entries) return std::optional<RestoredFiles>();
    std::error_code problem;
    for (const auto& entry : *entries) {
        if (is_folder(entry)) fs::create_directories(m_root / entry.path, problem);  // checked below
    }
    for (std::size_t i = 0; i < entries->size(); ++i) {
        const SavedFile& entry = (*entries)[i];
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
    RestoredFiles found;
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

Status WorktreeBackup::drop() const {
    std::error_code problem;
    const fs::path gone = m_folder.string() + ".gone";
    fs::remove_all(gone, problem);
    if (!problem && fs::exists(m_folder, problem)) fs::rename(m_folder, gone, problem);
    if (!problem) fs::remove_all(gone, problem);
    if (problem) return io_error("remove", m_folder, problem.value());
    fs::remove(m_folder.parent_path(), problem);  // if it was the last one
    return {};
}

}  // namespace

}  // namespace gdnctl::git

namespace gdnctl {

// Stashes by commit id, with verified restoring.

namespace fs = std::filesystem;
using git::Words;

Result<std::vector<GitStash>> GitStashes::list() const {
    GDNCTL_TRY_ASSIGN(const ProcessResult listed,
                      m_calls->run({"reflog", "show", "-z", "--format=%H %gs", std::string(k_stash_ref), "--"}));
    std::vector<GitStash> found;
    if (!listed.ok()) return found;  // no refs/stash: never stashed
    for (const auto item : text::split(listed.out, '\0')) {
        const auto at = item.find(' ');
        if (at != std::string_view::npos)
            found.push_back({std::string(item.substr(0, at)), std::string(item.substr(at + 1))});
    }
    return found;
}

namespace {

// "On main: MESSAGE"
std::string message_in(std::string_view subject) {
    const auto at = subject.find(": ");
    return std::string(at == std::string_view::npos ? subject : subject.substr(at + 2));
}

// Keeps shelves of stashes that are in the list, or that a run of the loop has pinned.
Status sweep_shelves(const git::Calls& calls, const std::vector<GitStash>& stashes) {
    std::error_code problem;
    if (!fs::exists(calls.git_dir / "gdnctl-shelf", problem)) return {};
    std::vector<std::string> messages;
    for (const auto& one : stashes) messages.push_back(message_in(one.message));
    GDNCTL_TRY_ASSIGN(const std::string pinned,
                      calls.output({"for-each-ref", "--format=%(subject)", "refs/gdnctl/**/stash"}));
    for (const auto line : text::split(pinned, '\n')) messages.push_back(message_in(line));
    return git::WorktreeBackup::sweep(calls, messages);
}

// git's message, with a hint.
Error not_stashed(const git::Calls& calls, Error error) {
    const auto intended = calls.output({"diff", "--name-only", "-z", "--diff-filter=A"});
    if (!intended || intended->empty()) {
        if (error.hint.empty()) error.hint = "commit or remove what git names, then run the command again";
        return error;
    }
    const std::string path = intended->substr(0, intended->find('\0'));
    error.hint = fmt::format("git cannot stash a file added with `git add -N`: run git add -- {0}, or git reset -- {0}",
                             text::shell_quote(path));
    return error;
}

}  // namespace

Result<std::optional<GitStash>> GitStashes::make(std::string_view message) const {
    GDNCTL_TRY_ASSIGN(const auto before, list());
    GDNCTL_TRY(sweep_shelves(*m_calls, before));
    GDNCTL_TRY_ASSIGN(const auto backup, git::WorktreeBackup::of(*m_calls, message));
    GDNCTL_TRY(backup.fill(*m_calls));
    const Status pushed = m_calls->done({"stash", "push", "-q", "--include-untracked", "-m", std::string(message)});
    GDNCTL_TRY_ASSIGN(const auto after, list());
    if (!pushed) {
        // Without a stash, the backup only holds further names of files that users keep editing.
        if (after.size() == before.size()) GDNCTL_TRY(backup.drop());
        return tl::unexpected(not_stashed(*m_calls, pushed.error()));
    }
    std::optional<GitStash> made;
    for (const auto& one : after) {
        const bool known =
            std::any_of(before.begin(), before.end(), [&](const auto& b) { return b.commit == one.commit; });
        if (!known && one.message.ends_with(message)) made = one;
    }
    GDNCTL_TRY(backup.keep_empty_folders());
    if (!made) GDNCTL_TRY(backup.drop());
    GDNCTL_TRY_ASSIGN(const auto left, m_checkout.dirty_paths());
    if (left.empty()) return made;
    std::string hint = "commit, remove or ignore it, then run the command again";
    if (made) {
        const auto back = restore(made->commit);
        if (back && (*back == GitRestore::restored || *back == GitRestore::was_there)) {
            GDNCTL_TRY(drop(made->commit));
        } else {
            hint += "; your changes are in the stash " + made->commit;
        }
    }
    return fail(ErrorKind::conflict, fmt::format("git cannot stash {} in {}", left.front(), m_checkout.root().string()),
                hint);
}

namespace {

// A file that `tree` lacks, because git ignores it now, at the path of another file in the stash.
Result<bool> is_in_the_way(const GitCheckout& checkout, const git::Calls& calls, const std::string& tree,
                           const std::string& untracked) {
    GDNCTL_TRY_ASSIGN(const auto changes, checkout.diff(tree, untracked));
    for (const auto& change : changes) {
        std::error_code problem;
        const fs::path place = checkout.root() / change.path;
        const bool here = change.status == 'A' && fs::is_regular_file(fs::symlink_status(place, problem));
        if (!here) continue;
        GDNCTL_TRY_ASSIGN(const std::string blob,
                          calls.line({"hash-object", "--path=" + change.path, "--", place.string()}));
        if (blob != change.new_object) return true;
    }
    return false;
}

// The tree after applying a stash; nullopt: it conflicts.
Result<std::optional<std::string>> tree_with_stash(const GitCheckout& checkout, const git::Calls& calls,
                                                   const std::string& stash, const std::string& tree) {
    git::CallOptions ours;
    ours.our_name = true;
    ours.input = "a side of a merge\n";
    // Based on the commit where the stash was made, so that this is the merge base whatever happened to the branch.
    GDNCTL_TRY_ASSIGN(const std::string side, calls.line({"commit-tree", "-p", stash + "^1", "-F", "-", tree}, ours));
    GDNCTL_TRY_ASSIGN(auto merged, checkout.merged_tree(side, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (!merged || !untracked) return merged;
    GDNCTL_TRY_ASSIGN(const bool hidden, is_in_the_way(checkout, calls, tree, *untracked));
    if (hidden) return std::optional<std::string>();
    return git::overlaid_tree(calls, *merged, *untracked);
}

Status remove_files(const GitCheckout& checkout, const std::vector<std::string>& paths) {
    for (const auto& path : paths) {
        std::error_code problem;
        fs::remove(checkout.root() / path, problem);
        if (problem)
            return tl::unexpected(file_error(ErrorKind::local_io, "remove", checkout.root() / path, problem.value()));
    }
    return {};
}

// Whether the file holds the beginning of the blob, but not all of it.
Result<bool> is_beginning(const git::Calls& calls, const fs::path& file, const std::string& blob) {
    std::error_code problem;
    if (!fs::is_regular_file(fs::symlink_status(file, problem))) return false;
    GDNCTL_TRY_ASSIGN(const std::string size, calls.line({"cat-file", "-s", blob}));
    const auto whole = text::parse_int(size);
    if (!whole || fs::file_size(file, problem) >= static_cast<std::uintmax_t>(*whole) || problem) return false;
    GDNCTL_TRY_ASSIGN(const std::string here, read_file(file));
    GDNCTL_TRY_ASSIGN(const std::string full, calls.output({"cat-file", "blob", blob}));
    return full.starts_with(here);
}

// On a full disk, git leaves only the beginning of files. The stash holds them completely, so nothing is lost by
// removing those. false: there are none.
Result<bool> forget_beginnings(const GitCheckout& checkout, const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(auto changes, checkout.diff(stash + "^1", stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (untracked) {
        GDNCTL_TRY_ASSIGN(const std::string none, calls.line({"hash-object", "-t", "tree", "/dev/null"}));
        GDNCTL_TRY_ASSIGN(const auto more, checkout.diff(none, *untracked));
        changes.insert(changes.end(), more.begin(), more.end());
    }
    std::vector<std::string> added;
    git::CallOptions changed;
    for (const auto& change : changes) {
        if (change.status == 'D' || change.is_submodule()) continue;
        GDNCTL_TRY_ASSIGN(const bool begun, is_beginning(calls, checkout.root() / change.path, change.new_object));
        if (!begun) continue;
        GDNCTL_TRY_ASSIGN(const ProcessResult committed, calls.run({"cat-file", "-e", "HEAD:" + change.path}));
        if (committed.ok() != (change.status != 'A')) continue;  // someone else's file
        if (change.status == 'A') {
            added.push_back(change.path);
        } else {
            changed.input += change.path + '\0';
        }
    }
    GDNCTL_TRY(remove_files(checkout, added));
    if (!changed.input.empty()) {
        GDNCTL_TRY(calls.done({"--literal-pathspecs", "restore", "--source=HEAD", "--worktree",
                               "--pathspec-from-file=-", "--pathspec-file-nul"},
                              changed));
    }
    return !added.empty() || !changed.input.empty();
}

// Independent of the list of stashes.
Result<git::WorktreeBackup> backup_of(const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const std::string subject, calls.line({"log", "-1", "--format=%s", stash}));
    return git::WorktreeBackup::of(calls, message_in(subject));
}

// Paths changed both by the stash and between its base and HEAD.
Result<std::vector<std::string>> changed_by_both(const GitCheckout& checkout, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const GitHead head, checkout.head());
    GDNCTL_TRY_ASSIGN(auto ours, checkout.diff(stash + "^1", stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, checkout.resolve(stash + "^3"));
    if (untracked) {
        GDNCTL_TRY_ASSIGN(const auto files, checkout.diff(stash + "^1", *untracked));
        for (const auto& file : files) {
            if (file.status != 'D') ours.push_back(file);
        }
    }
    GDNCTL_TRY_ASSIGN(const auto theirs, checkout.diff(stash + "^1", head.sha));
    std::set<std::string> changed, both;
    for (const auto& change : theirs) changed.insert(change.path);
    for (const auto& change : ours) {
        if (changed.contains(change.path)) both.insert(change.path);
    }
    return std::vector<std::string>(both.begin(), both.end());
}

// Reports a conflicting stash: the paths, and where the exact files are.
Status say_conflict(const GitCheckout& checkout, const git::Calls& calls, const std::string& stash) {
    GDNCTL_TRY_ASSIGN(const auto both, changed_by_both(checkout, stash));
    if (!both.empty()) log::warning("changed by you and by the branch: {}", text::join(both, ", "));
    GDNCTL_TRY_ASSIGN(const auto backup, backup_of(calls, stash));
    const auto files = backup.files();
    if (!files) {
        log::warning("hint: `git stash branch my-work {}` checks them out on a separate branch", stash);
        return {};
    }
    log::warning("exact copies of your files are in {}", files->string());
    log::warning("hint: `cp -a {} {}` copies all of them back and replaces the current files",
                 text::shell_quote((*files / ".").string()), text::shell_quote(checkout.root().string()));
    return {};
}

}  // namespace

// Git has restored its view of the files; the backup supplies the rest. `tree` is git's view of the result.
Result<GitRestore> GitStashes::restore_exactly(const std::string& stash, const std::string& tree,
                                               GitRestore back) const {
    GDNCTL_TRY_ASSIGN(const auto backup, backup_of(*m_calls, stash));
    GDNCTL_TRY_ASSIGN(const auto untracked, m_checkout.resolve(stash + "^3"));
    std::optional<std::string> stashed = stash;
    if (untracked) {
        GDNCTL_TRY_ASSIGN(stashed, git::overlaid_tree(*m_calls, stash, *untracked));
    }
    std::set<std::string> merged;  // also changed by the branch
    if (stashed) {
        GDNCTL_TRY_ASSIGN(const auto changes, m_checkout.diff(*stashed, tree));
        for (const auto& change : changes) merged.insert(change.path);
    }
    GDNCTL_TRY_ASSIGN(const auto found, backup.restore(merged));
    if (!found) {
        if (back == GitRestore::was_there) return back;  // nothing was written
        log::warning("only git's copy of your files was left: their modes, times and line endings may differ");
        return GitRestore::unproven;
    }
    std::set<std::string> different(found->different.begin(), found->different.end());
    // The files are now different from those the index knows.
    GDNCTL_TRY(m_calls->run({"update-index", "-q", "--refresh"}));
    if (back == GitRestore::unproven) {
        // Git does not see some files, because a .gitignore of the branch now covers them.
        GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
        GDNCTL_TRY_ASSIGN(const GitSnapshot after, m_checkout.snapshot(now.sha, "with a stash\n"));
        GDNCTL_TRY_ASSIGN(const auto changes, m_checkout.diff(tree, after.tree));
        for (const auto& change : changes) {
            if (!found->proven.contains(change.path)) different.insert(change.path);
        }
        back = GitRestore::restored;
    }
    for (const auto& path : different) log::warning("differs from before: {}", (m_checkout.root() / path).string());
    const auto files = backup.files();
    if (!different.empty() && files) log::warning("exact copies of your files are in {}", files->string());
    return different.empty() ? back : GitRestore::unproven;
}

Result<GitRestore> GitStashes::restore(std::string_view commit) const {
    const std::string stash(commit);
    std::string tree;
    GDNCTL_TRY_ASSIGN(const GitRestore back, restore_content(stash, tree));
    if (back != GitRestore::conflict) return restore_exactly(stash, tree, back);
    GDNCTL_TRY(say_conflict(m_checkout, *m_calls, stash));
    return back;
}

Result<GitRestore> GitStashes::restore_content(const std::string& stash, std::string& tree) const {
    GDNCTL_TRY_ASSIGN(const GitHead now, m_checkout.head());
    GDNCTL_TRY_ASSIGN(GitSnapshot before, m_checkout.snapshot(now.sha, "before a stash came back\n"));
    GDNCTL_TRY_ASSIGN(auto expected, tree_with_stash(m_checkout, *m_calls, stash, before.tree));
    if (!expected) {
        GDNCTL_TRY_ASSIGN(const bool begun, forget_beginnings(m_checkout, *m_calls, stash));
        if (begun) {
            GDNCTL_TRY_ASSIGN(before, m_checkout.snapshot(now.sha, "before a stash came back\n"));
            GDNCTL_TRY_ASSIGN(expected, tree_with_stash(m_checkout, *m_calls, stash, before.tree));
        }
    }
    if (!expected) return GitRestore::conflict;
    tree = *expected;
    if (before.tree == *expected) return GitRestore::was_there;

    if (before.commit.empty()) {
        // In the common case nothing is uncommitted, and git's own command also restores what was staged.
        GDNCTL_TRY_ASSIGN(const ProcessResult with_index, m_calls->run({"stash", "apply", "-q", "--index", stash}));
        if (!with_index.ok()) GDNCTL_TRY(m_calls->run({"stash", "apply", "-q", stash}));
    }
    GDNCTL_TRY_ASSIGN(const GitSnapshot applied, m_checkout.snapshot(now.sha, "with a stash\n"));
    if (applied.tree != *expected) {
        // Part of it was already there, or there was other uncommitted work: write what differs file by file.
        GDNCTL_TRY_ASSIGN(const auto changes, m_checkout.diff(applied.tree, *expected));
        git::CallOptions paths;
        std::vector<std::string> gone;
        for (const auto& change : changes) {
            if (change.status == 'D') {
                gone.push_back(change.path);
            } else {
                paths.input += change.path + '\0';
            }
        }
        GDNCTL_TRY(remove_files(m_checkout, gone));
        if (!paths.input.empty()) {
            GDNCTL_TRY(m_calls->done({"--literal-pathspecs", "restore", "--source=" + *expected, "--worktree",
                                      "--pathspec-from-file=-", "--pathspec-file-nul"},
                                     paths));
        }
    }
    GDNCTL_TRY_ASSIGN(const GitSnapshot after, m_checkout.snapshot(now.sha, "with a stash\n"));
    return after.tree == *expected ? GitRestore::restored : GitRestore::unproven;
}

Status GitStashes::drop(std::string_view commit) const {
    GDNCTL_TRY_ASSIGN(const auto all, list());
    // First, because without the stash the backup could not be found. The contents of both are restored, or kept by a
    // ref.
    const auto backup = backup_of(*m_calls, std::string(commit));
    if (backup) GDNCTL_TRY(backup->drop());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (all[i].commit == commit) return m_calls->done({"stash", "drop", "-q", fmt::format("stash@{{{}}}", i)});
    }
    return {};
}

Status GitStashes::store(const std::string& commit, const std::string& message) const {
    return m_calls->done({"stash", "store", "-q", "-m", message, commit});
}

}  // namespace gdnctl
