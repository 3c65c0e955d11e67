// Finds what is already downloaded.
#include <algorithm>
#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "core/log.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "services/hub/transfer/download.h"
#include "services/hub/transfer/layout.h"

namespace gdnctl::hub {

namespace {

constexpr std::size_t k_block = std::size_t{64} << 10;
constexpr std::size_t k_longest_metadata = 4096;
constexpr double k_clock_slack_s = 1;  // as in the official client

double seconds_of(const timespec& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace

std::string_view word_of(FileStatus status) {
    switch (status) {
        case FileStatus::downloaded: return "downloaded";
        case FileStatus::resumed: return "resumed";
        case FileStatus::up_to_date: return "up-to-date";
        case FileStatus::copied: return "copied";
        case FileStatus::failed: return "failed";
        case FileStatus::skipped: return "skipped";
    }
    return "";
}

Outcome<void> digest_file(int fd, std::int64_t begin, std::int64_t length, Digester& digester,
                          const std::stop_token& stop, const std::filesystem::path& name) {
    std::vector<char> buffer(k_block);
    for (std::int64_t at = 0; at < length;) {
        if (stop.stop_requested()) return tl::unexpected(failure_of(stopped_error()));
        const auto wanted =
            static_cast<std::size_t>(std::min<std::int64_t>(length - at, static_cast<std::int64_t>(k_block)));
        const ssize_t got = ::pread(fd, buffer.data(), wanted, begin + at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return tl::unexpected(local_failure("read", name, got < 0 ? errno : EIO));
        if (const Status ok = digester.update({buffer.data(), static_cast<std::size_t>(got)}); !ok) {
            return tl::unexpected(failure_of(ok.error()));
        }
        at += got;
    }
    return {};
}

Outcome<bool> Downloader::has_content(const Wanted& file, const UniqueFd& fd) const {
    struct stat facts{};
    if (::fstat(fd.get(), &facts) != 0 || facts.st_size != file.size) return false;
    auto digester = Digester::create(file.digest.kind, file.size);
    if (!digester) return tl::unexpected(failure_of(digester.error()));
    if (auto read = digest_file(fd.get(), 0, file.size, *digester, m_stop, m_folder.whole(file.local)); !read) {
        return tl::unexpected(std::move(read).error());
    }
    const auto hex = digester->hex();
    return hex && *hex == file.digest.hex;
}

Outcome<void> Downloader::write_metadata(const Wanted& file) {
    if (!m_options.records || m_options.dry_run) return {};
    auto facts = m_folder.facts(file.local);
    if (!facts) return tl::unexpected(std::move(facts).error());
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const double written = *facts ? seconds_of((*facts)->st_mtim) : now;  // the server's clock may be ahead
    return m_folder.replace(metadata_path(file.local),
                            metadata_text({m_options.commit, file.etag, std::max(now, written)}));
}

// By the record of an earlier download, or by the file's own hash.
Outcome<Downloader::Found> Downloader::is_there(const Wanted& file) {
    const auto facts = m_folder.facts(file.local);
    if (!facts) return tl::unexpected(facts.error());
    if (!*facts) return Found::missing;
    if (S_ISDIR((*facts)->st_mode)) return tl::unexpected(local_failure("write", m_folder.whole(file.local), EISDIR));
    if ((*facts)->st_size != file.size) return Found::other_content;
    if (m_options.records && !m_options.hash_all) {
        const std::string path = metadata_path(file.local);
        const auto text = m_folder.read(path, k_longest_metadata);
        const auto record = text && *text ? parse_metadata(**text) : std::nullopt;
        const bool valid = record && seconds_of((*facts)->st_mtim) - k_clock_slack_s <= record->time;
        if (valid && record->etag == file.etag) {
            if (record->commit == m_options.commit) return Found::by_record;
            if (auto written = write_metadata(file); !written) return tl::unexpected(std::move(written).error());
            return Found::by_record;
        }
        if (valid)
            return Found::other_content;  // the record is for another version, and the file was not modified since
        if (text && *text && !record && !m_options.dry_run) m_folder.remove(path);
    }
    auto fd = m_folder.open_file(file.local, O_RDONLY);
    if (!fd) return tl::unexpected(std::move(fd).error());
    const auto same = has_content(file, *fd);
    if (!same) return tl::unexpected(same.error());
    if (!*same) return Found::other_content;
    if (auto written = write_metadata(file); !written) return tl::unexpected(std::move(written).error());
    return Found::by_hash;
}

Outcome<bool> Downloader::copy_blob(const Wanted& file) {
    if (file.blob.empty()) return false;
    const UniqueFd source(
        ::open(file.blob.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // also opens a pipe without blocking
    if (!source.valid()) return false;
    auto same = has_content(file, source);
    if (!same || !*same || m_options.dry_run) return same;
    const auto part = part_path(file.local, file.etag, fmt::format(".{}", ::getpid()));
    if (!part) return tl::unexpected(failure_of(part.error()));
    auto target = m_folder.open_file(*part, O_WRONLY | O_CREAT | O_TRUNC);
    if (!target) return tl::unexpected(std::move(target).error());
    std::vector<char> buffer(k_block);
    for (std::int64_t at = 0; at < file.size;) {
        const ssize_t got = ::pread(source.get(), buffer.data(), buffer.size(), at);
        const int why = got <= 0 ? EIO : write_fully(target->get(), {buffer.data(), static_cast<std::size_t>(got)});
        if (why != 0) {
            m_folder.remove(*part);
            return tl::unexpected(local_failure("write", m_folder.whole(*part), why));
        }
        at += got;
    }
    if (auto done = publish(file, *part); !done) return tl::unexpected(std::move(done).error());
    return true;
}

Outcome<void> Downloader::publish(const Wanted& file, std::string_view part) {
    if (auto moved = m_folder.move(part, file.local); !moved) return moved;
    m_folder.remove(sidecar_path(part));
    return write_metadata(file);
}

FileResult Downloader::look_at(const Wanted& file) {
    FileResult result;
    const auto failed = [&result](Failure failure) {
        result.failure = std::move(failure);
        const bool stopped = kind_word(result.failure->kind) == "interrupted";
        result.status = stopped ? FileStatus::skipped : FileStatus::failed;
        return result;
    };
    bool differs = false;
    if (file.refused) return failed(*file.refused);
    if (m_stop.stop_requested()) return failed(failure_of(stopped_error()));
    if (!m_options.force) {
        auto there = is_there(file);
        if (!there) return failed(std::move(there).error());
        if (*there == Found::by_record || *there == Found::by_hash) {
            result.status = FileStatus::up_to_date;
            result.hashed = *there == Found::by_hash;
            return result;
        }
        auto copied = copy_blob(file);
        if (!copied) return failed(std::move(copied).error());
        if (*copied) {
            result.status = FileStatus::copied;
            result.hashed = true;
            return result;
        }
        differs = *there == Found::other_content;
    }
    if (m_options.offline) {
        Failure missing;
        missing.kind = differs && m_options.hash_all ? ErrorKind::conflict : ErrorKind::infrastructure;
        missing.message = fmt::format("{} {}, and nothing is fetched in offline mode", shown(file.path),
                                      differs ? "has other content on this machine" : "is not on this machine");
        return failed(std::move(missing));
    }
    if (differs && m_options.hash_all) {
        log::warning("{}: the file on this machine has another hash than the service's; it is downloaded again",
                     shown(file.path));
    }
    return result;
}

std::vector<FileResult> Downloader::look(const std::vector<Wanted>& files) {
    std::vector<FileResult> results;
    results.reserve(files.size());
    for (const Wanted& file : files) results.push_back(look_at(file));
    return results;
}

}  // namespace gdnctl::hub
