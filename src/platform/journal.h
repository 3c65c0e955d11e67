// Append-only JSONL. A record that append() has acknowledged survives any crash.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/fs.h"
#include "platform/lock.h"

namespace gdnctl {

struct JournalContents {
    std::vector<std::string> records;  // lines without newline; empty lines are dropped
    std::string torn;                  // an unfinished last line, left by a crash; empty: none
    std::uint64_t whole_bytes = 0;     // size of the file without `torn`
};

// A last line without newline counts if it is a whole JSON object (an editor may have dropped the newline); otherwise
// it is torn. Pure.
JournalContents parse_journal(std::string_view text);

// A missing file is an empty journal. Takes no lock: a record that is being appended is either torn or whole.
Result<JournalContents> read_journal(const std::filesystem::path& path, std::size_t limit = std::size_t{256} << 20);

// The only writer. Holds PATH.lock for its lifetime.
class Journal {
public:
    // Creates the file (0600), or repairs it by cutting off a torn last line. Errors: conflict (another writer; the
    // message has its process id), local_io.
    static Result<Journal> open(const std::filesystem::path& path, const LockWait& wait = {});

    // Appends one record (a JSON object on one line; a newline inside is an internal error) with a single write, and
    // returns once it is on disk. Errors: local_io, with nothing of the record left in the file; conflict, the file was
    // removed in the meantime.
    Status append(std::string_view record);

    // What open() cut off; empty: nothing.
    const std::string& cut_off() const { return m_cut_off; }

private:
    Journal(std::filesystem::path path, FileLock lock, UniqueFd fd, std::string cut_off)
        : m_path(std::move(path)), m_lock(std::move(lock)), m_fd(std::move(fd)), m_cut_off(std::move(cut_off)) {}

    std::filesystem::path m_path;
    FileLock m_lock;
    UniqueFd m_fd;
    std::string m_cut_off;
};

}  // namespace gdnctl
