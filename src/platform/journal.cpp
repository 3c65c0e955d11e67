#include "platform/journal.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "platform/fs.h"

namespace gdnctl {

JournalContents parse_journal(std::string_view text) {
    JournalContents contents;
    std::size_t start = 0;
    while (start < text.size()) {
        const std::size_t end = text.find('\n', start);
        const std::string_view line = text.substr(start, end == std::string_view::npos ? end : end - start);
        // A proper prefix of a JSON object is never an object, so a whole one was not torn.
        if (end == std::string_view::npos &&
            !(line.front() == '{' && !Json::parse(line, nullptr, false).is_discarded())) {
            contents.torn = line;
            break;
        }
        if (!line.empty()) contents.records.emplace_back(line);
        start = end == std::string_view::npos ? text.size() : end + 1;
    }
    contents.whole_bytes = text.size() - contents.torn.size();
    return contents;
}

Result<JournalContents> read_journal(const std::filesystem::path& path, std::size_t limit) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, limit));
    return parse_journal(text ? std::string_view(*text) : std::string_view());
}

namespace {

// Only the end of a journal can be torn, so this reads at most one record's length from it.
Result<std::string> read_last_line(int fd, const std::filesystem::path& path, off_t size) {
    constexpr off_t k_step = off_t{64} << 10;
    std::string tail;
    for (off_t at = size; at > 0 && tail.find('\n') == std::string::npos;) {
        const off_t from = std::max<off_t>(0, at - k_step);
        std::string piece(static_cast<std::size_t>(at - from), '\0');
        const ssize_t n = pread(fd, piece.data(), piece.size(), from);
        if (n != static_cast<ssize_t>(piece.size())) {
            return tl::unexpected(file_error(ErrorKind::local_io, "read", path, n < 0 ? errno : EIO));
        }
        tail.insert(0, piece);
        at = from;
    }
    return tail.substr(tail.rfind('\n') + 1);  // npos + 1 is 0: no newline anywhere
}

// Returns what was cut off.
Result<std::string> mend(int fd, const std::filesystem::path& path) {
    struct stat facts{};
    if (fstat(fd, &facts) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", path, errno));
    GDNCTL_TRY_ASSIGN(const std::string last, read_last_line(fd, path, facts.st_size));
    if (last.empty()) return std::string();
    JournalContents end = parse_journal(last);
    const bool whole = end.torn.empty();
    const int done = whole ? write_fully(fd, "\n")
                           : (ftruncate(fd, facts.st_size - static_cast<off_t>(end.torn.size())) == 0 ? 0 : errno);
    if (done != 0 || fsync(fd) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "mend", path, done != 0 ? done : errno));
    }
    return end.torn;
}

}  // namespace

Result<Journal> Journal::open(const std::filesystem::path& path, const LockWait& wait) {
    GDNCTL_TRY_ASSIGN(FileLock lock, FileLock::acquire(path.string() + ".lock", wait));
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", path, errno));
    GDNCTL_TRY_ASSIGN(std::string cut_off, mend(fd.get(), path));
    GDNCTL_TRY(sync_directory(path.parent_path()));
    return Journal(path, std::move(lock), std::move(fd), std::move(cut_off));
}

Status Journal::append(std::string_view record) {
    if (record.empty() || record.find('\n') != std::string_view::npos) {
        return fail(ErrorKind::internal, fmt::format("a record for {} is not one line", m_path.string()));
    }
    struct stat before{};
    if (fstat(m_fd.get(), &before) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "append to", m_path, errno));
    }
    if (before.st_nlink == 0) {
        return fail(ErrorKind::conflict, fmt::format("{} was removed while it was in use", m_path.string()));
    }
    std::string line(record);
    line += '\n';
    ssize_t n = 0;
    do {
        n = write(m_fd.get(), line.data(), line.size());
    } while (n < 0 && errno == EINTR);
    int problem = n < 0 ? errno : 0;
    // A short write is usually the first sign of a full disk.
    if (n >= 0 && n < static_cast<ssize_t>(line.size())) {
        problem = write_fully(m_fd.get(), std::string_view(line).substr(static_cast<std::size_t>(n)));
    }
    if (problem == 0 && fdatasync(m_fd.get()) != 0) problem = errno;
    if (problem == 0) return {};
    [[maybe_unused]] const int restored = ftruncate(m_fd.get(), before.st_size);
    return tl::unexpected(file_error(ErrorKind::local_io, "append to", m_path, problem));
}

}  // namespace gdnctl
