// Syncs a working tree to the host of a held TPU: which files differ by their hashes, the pack of those, and their
// placement on the host. Hashes are remembered between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/process.h"
#include "services/devtpu/host_connection.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

// What is known about files here and on a host. A key holds everything that changes with the content.
class FileHashes {
public:
    // A missing or damaged file knows nothing.
    explicit FileHashes(std::filesystem::path file);

    std::optional<std::string> find(const std::string& key);
    // `settled`: the file has not changed for so long that a later change must show in its key.
    void put(const std::string& key, std::string hash, bool settled);
    // Keeps what was asked for or added since the start. Failures are logged at debug level.
    void save() const;

private:
    struct Entry {
        std::string hash;
        bool used = false, settled = true;
    };
    std::filesystem::path m_file;
    std::unordered_map<std::string, Entry> m_entries;
    bool m_changed = false;
};

struct LocalFile {
    std::string name;  // relative to the tree
    std::string hash;
    std::uint64_t size = 0;
    bool executable = false;
};

// The regular files among `names` below `root`, links followed, in the given order. Errors: local_io (unreadable, or a
// link that leads out of the tree), interrupted.
Result<std::vector<LocalFile>> local_files(const std::filesystem::path& root, const std::vector<std::string>& names,
                                           FileHashes& known, const std::stop_token& stop);

// The synced tree on a TPU's host: what is there, what earlier syncs sent, and the scripts that change it. All of it is
// kept on the host, so that every client sees the same.

// Where a tree came from.
struct TreeSource {
    std::string root;    // absolute
    std::string commit;  // HEAD; "unborn": a repository without commits; empty: not a repository
    bool operator==(const TreeSource&) const = default;
};

// What earlier syncs sent: names with hashes, and the folders that they are in.
using SentFiles = std::map<std::string, std::string>;
inline constexpr std::string_view k_folder_hash = "----------------------------------------------------------------";
std::string sent_text(const SentFiles& sent);  // the host's record of it
SentFiles sent_files(std::string_view text);
// Identifies a synced tree by its content: the SHA-256 of that record.
Result<std::string> tree_mark(std::string_view sent_text);

struct HostFile {
    std::string line;  // as stat printed it: changes whenever the file does
    bool regular = false, folder = false, executable = false;
    std::int64_t modified_s = 0;
};

struct HostTree {
    bool busy = false;  // a command that must not see the tree change is running
    std::int64_t now_s = 0;
    TreeSource source;
    std::string mark;  // tree_mark() of the host's record
    std::string sent_record;
    SentFiles sent;
    std::map<std::string, HostFile> there;  // of the names asked for and of those sent, those that exist

    // Whether the path leads through real folders only.
    bool reachable(std::string_view name) const;
    const HostFile* find(const std::string& name) const;
};

// Asks for these names and for everything that was sent. Errors: those of ask_host().
Result<HostTree> look_at_host(const HostConnection& connection, const std::set<std::string>& names, Process& process,
                              std::stop_token stop);
HostTree parse_host_tree(std::string_view answer);  // pure

// Hashes of regular files there. Files that have vanished are missing from the result.
Result<SentFiles> host_hashes(const HostConnection& connection, const std::vector<std::string>& names, Process& process,
                              std::stop_token stop);

// The folders that a name is in, outermost first, without the tree itself.
std::vector<std::string> folders_of(std::string_view name);

// What has to change on the host so that it has these files.
struct Changes {
    std::vector<LocalFile> send;
    std::vector<std::string> remove;  // sent earlier and unchanged since; no longer in the tree here
    std::vector<std::string> aside;   // in the way of a file, and not ours to remove
    std::vector<std::string> stay;    // no longer in the tree here, but changed there
    SentFiles sent;                   // the record afterwards
};
// `exists_here`: whether a name that is not among `files` still is a file in the working tree. Pure.
Changes changes_for(const std::vector<LocalFile>& files, const HostTree& host, const SentFiles& host_hashes,
                    const std::function<bool(const std::string&)>& exists_here);

// Where a sync collects its files on the host, outside of the tree. `id`: one word.
std::string incoming_folder(const HostConnection& connection, std::string_view id);  // a shell word
// A line that unpacks a tar archive from standard input there.
std::string unpack_line(const HostConnection& connection, std::string_view id, bool compressed);
// Removes what a failed sync has left there.
std::string discard_line(const HostConnection& connection, std::string_view id);

enum class Placed { done, busy, changed };
// Moves what was collected into the tree in one step of the host, under its lock. `busy`: a command that must not see
// the tree change is running; `changed`: another sync was there since the look at the host. Nothing is done then.
// Appends to `moved` what was set aside, also if an error follows.
Result<Placed> place_files(const HostConnection& connection, std::string_view id, const HostTree& seen,
                           const Changes& changes, const TreeSource& source, std::vector<std::string>& moved,
                           Process& process, std::stop_token stop);

// Copies the working tree to the host of a held TPU: all current files that git does not ignore, compared by content.
// Removed there is only what an earlier sync sent, what has not changed there since, and what the tree no longer has.

struct SyncRequest {
    WorkingTree tree;
    TreeSource source;
    bool replaces_other = false;                                // also a tree that came from another repository
    std::function<bool(const std::string& commit)> has_commit;  // of the repository that `tree` is
    std::filesystem::path hashes;                               // the file of FileHashes
};

struct SyncReport {
    std::size_t files = 0;  // on the host, with the content that they have here
    std::string by;         // "rsync", "tar", "copy"; empty: nothing had to be sent
    std::string mark;       // tree_mark() of the host's tree
};

// Returns when the host has every file with its content, as the host's own hashes show. Says on stderr what was moved
// aside, what stays on the host, and that it waits for another command that uses the tree. A tree without files
// changes nothing there. Errors: usage (the host's tree came from another place), conflict (another command has used
// the tree for half an hour), infrastructure (ssh, the host's disk), authentication, local_io (an unreadable file, a
// link that leads out of the tree), interrupted.
Result<SyncReport> sync_tree(const HostConnection& connection, const SyncRequest& request, Process& process,
                             Clock& clock, std::stop_token stop);

// How long commands wait for their turn on a host.
inline constexpr std::chrono::minutes k_turn_limit{30};
inline constexpr std::chrono::milliseconds k_turn_pause{500};
Error no_turn(const HostConnection& connection);

}  // namespace gdnctl::devtpu
