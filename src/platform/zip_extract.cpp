#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/zip.h"

namespace gdnctl {

namespace {

tl::unexpected<Error> unsafe(const ZipMember& member, std::string_view why) {
    return fail(ErrorKind::local_io, fmt::format("member '{}' is not unpacked: {}", member.name, why),
                "do not use this archive, or unpack it by hand where it can do no harm");
}

tl::unexpected<Error> io_error(std::string_view verb, const std::string& path, int error_number) {
    return tl::unexpected(file_error(ErrorKind::local_io, verb, path, error_number));
}

// The components of a member's name. Error local_io: it leads, or may lead, out of the folder.
Result<std::vector<std::string>> safe_parts(const ZipMember& member) {
    std::string_view name = member.name;
    if (name.starts_with('/')) return unsafe(member, "the name is absolute");
    if (name.ends_with('/')) name.remove_suffix(1);
    std::vector<std::string> parts;
    for (const std::string_view part : text::split(name, '/')) {
        if (part.empty() || part == "." || part == "..") return unsafe(member, "the name leads elsewhere");
        parts.emplace_back(part);
    }
    constexpr std::uint32_t k_type_bits = S_IFMT;
    const std::uint32_t type = member.unix_mode & k_type_bits;
    if (type != 0 && type != S_IFREG && type != S_IFDIR) return unsafe(member, "a link or a special file");
    return parts;
}

class Extractor {
public:
    Extractor(const ZipReader& archive, std::filesystem::path folder, UniqueFd root)
        : m_archive(archive), m_folder(std::move(folder)), m_root(std::move(root)) {}

    Status extract(const ZipMember& member, const std::vector<std::string>& parts) {
        if (member.is_directory()) return open_folder(parts, parts.size()).map([](const UniqueFd&) {});
        GDNCTL_TRY_ASSIGN(const UniqueFd parent, open_folder(parts, parts.size() - 1));
        return write_file(member, parent, parts.back());
    }

    ZipExtraction done;

private:
    // Opens the folder of the first `count` components, and creates it if missing. A symbolic link in the path is an
    // error: someone who can write to the folder could otherwise lead us out of it.
    Result<UniqueFd> open_folder(const std::vector<std::string>& parts, std::size_t count) const {
        UniqueFd at(::fcntl(m_root.get(), F_DUPFD_CLOEXEC, 0));
        std::string path = m_folder.string();
        for (std::size_t i = 0; i < count; ++i) {
            path += "/" + parts[i];
            if (::mkdirat(at.get(), parts[i].c_str(), 0777) != 0 && errno != EEXIST) {
                return io_error("make the folder", path, errno);
            }
            UniqueFd next(::openat(at.get(), parts[i].c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
            if (next.get() < 0) return io_error("enter", path, errno);
            at = std::move(next);
        }
        return at;
    }

    Status write_file(const ZipMember& member, const UniqueFd& parent, const std::string& leaf) {
        const std::string path = (m_folder / member.name).string();
        UniqueFd file(::openat(parent.get(), leaf.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                               member.is_executable() ? 0755 : 0644));
        if (file.get() < 0) return io_error("write", path, errno);
        int write_errno = 0;
        const Status status = m_archive.read(member, [&](std::string_view piece) {
            if (received_signal()) return false;
            while (!piece.empty()) {
                const ssize_t written = ::write(file.get(), piece.data(), piece.size());
                if (written < 0 && errno == EINTR) continue;
                if (written < 0) {
                    write_errno = errno;
                    return false;
                }
                piece.remove_prefix(static_cast<std::size_t>(written));
            }
            return true;
        });
        if (received_signal()) return tl::unexpected(stopped_error());
        if (write_errno != 0) return io_error("write", path, write_errno);
        GDNCTL_TRY(status);
        if (::close(file.release()) != 0) return io_error("write", path, errno);
        done.files += 1;
        done.bytes += member.size;
        return {};
    }

    const ZipReader& m_archive;
    std::filesystem::path m_folder;
    UniqueFd m_root;
};

}  // namespace

Result<ZipExtraction> extract_zip(const ZipReader& archive, const std::filesystem::path& folder,
                                  std::uint64_t max_total_bytes) {
    std::vector<std::vector<std::string>> names;
    std::uint64_t total = 0;
    for (const ZipMember& member : archive.members()) {
        GDNCTL_TRY_ASSIGN(names.emplace_back(), safe_parts(member));
        if (member.size > max_total_bytes - total) {
            return fail(ErrorKind::bad_input,
                        fmt::format("the archive unpacks to more than {} bytes", max_total_bytes));
        }
        total += member.size;
    }
    UniqueFd root(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (root.get() < 0) return io_error("enter", folder.string(), errno);
    Extractor extractor(archive, folder, std::move(root));
    for (std::size_t i = 0; i < names.size(); ++i) {
        GDNCTL_TRY(extractor.extract(archive.members()[i], names[i]));
    }
    return extractor.done;
}

}  // namespace gdnctl
