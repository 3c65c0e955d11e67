#include "services/hub/transfer/out_folder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/fs.h"
#include "platform/hash.h"

namespace gdnctl::hub {

namespace {

constexpr std::size_t k_most_folders = 64;
constexpr int k_folder_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

}  // namespace

Error local_failure(std::string_view what, const std::filesystem::path& path, int error_number) {
    const auto error = [](std::string message, const char* hint) {
        return Error{ErrorKind::local_io, std::move(message), hint, {}};
    };
    const std::string name = text::visible(path.string());
    if (error_number == ENOSPC || error_number == EDQUOT) {
        return error("no space left on device: " + name,
                     "free space and run the same command again; downloaded data is kept");
    }
    if (error_number == ELOOP || error_number == EMLINK) {
        return error(fmt::format("cannot {} {}: it is, or is behind, a symbolic link", what, name),
                     "remove the link, or choose another --output-dir");
    }
    return error(fmt::format("cannot {} {}: {}", what, name, std::generic_category().message(error_number)),
                 "choose another place with --output-dir, or check its permissions");
}

Result<OutFolder> OutFolder::open(const std::filesystem::path& path, bool existing_only) {
    OutFolder folder;
    folder.m_path = path;
    if (!existing_only) {
        std::error_code error;
        std::filesystem::create_directories(path, error);
        if (error) return tl::unexpected(local_failure("create", path, error.value()));
    }
    folder.m_fd.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.m_fd.valid() && !(existing_only && errno == ENOENT)) {
        return tl::unexpected(local_failure("open", path, errno));
    }
    return folder;
}

Result<OutFolder::Parent> OutFolder::parent_of(std::string_view relative, bool create) {
    const std::size_t slash = relative.rfind('/');
    if (slash == std::string_view::npos) return Parent{m_fd.get(), std::string(relative)};
    const std::string_view folder = relative.substr(0, slash);
    const std::string name(relative.substr(slash + 1));
    if (const auto known = m_folders.find(folder); known != m_folders.end()) return Parent{known->second.get(), name};
    UniqueFd at;
    for (const std::string_view part : text::split(folder, '/')) {
        const std::string step(part);
        const int from = at.valid() ? at.get() : m_fd.get();
        if (create && ::mkdirat(from, step.c_str(), 0777) != 0 && errno != EEXIST) {
            return tl::unexpected(local_failure("create", whole(folder), errno));
        }
        UniqueFd next(::openat(from, step.c_str(), k_folder_flags));
        if (!next.valid()) {
            struct stat facts{};
            const int why = errno;  // for a symbolic link to a folder, this is ENOTDIR
            const bool link = ::fstatat(from, step.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(facts.st_mode);
            return tl::unexpected(local_failure("open", whole(folder), link ? ELOOP : why));
        }
        at = std::move(next);
    }
    if (m_folders.size() >= k_most_folders) m_folders.clear();
    const int fd = at.get();
    m_folders.emplace(std::string(folder), std::move(at));
    return Parent{fd, name};
}

Result<UniqueFd> OutFolder::open_file(std::string_view relative, int flags, mode_t mode) {
    GDNCTL_TRY_ASSIGN(auto parent, parent_of(relative, (flags & O_CREAT) != 0));
    UniqueFd fd(::openat(parent.fd, parent.name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, mode));
    if (!fd.valid()) return tl::unexpected(local_failure("open", whole(relative), errno));
    struct stat facts{};
    if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return tl::unexpected(local_failure("open", whole(relative), S_ISDIR(facts.st_mode) ? EISDIR : EINVAL));
    }
    return fd;
}

Result<std::optional<struct stat>> OutFolder::facts(std::string_view relative) {
    if (!exists()) return std::optional<struct stat>();
    // A missing folder in the path is not an error.
    std::string way;
    for (const std::string_view part : text::split(relative, '/')) {
        way += (way.empty() ? "" : "/") + std::string(part);
        struct stat found{};
        GDNCTL_TRY_ASSIGN(auto parent, parent_of(way, false));
        if (::fstatat(parent.fd, parent.name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) return std::optional<struct stat>();
            return tl::unexpected(local_failure("look at", whole(way), errno));
        }
        if (S_ISLNK(found.st_mode)) return tl::unexpected(local_failure("write", whole(way), ELOOP));
        if (way.size() == relative.size()) return std::optional(found);
        if (!S_ISDIR(found.st_mode)) return tl::unexpected(local_failure("write", whole(relative), ENOTDIR));
    }
    return std::optional<struct stat>();
}

Result<std::optional<std::string>> OutFolder::read(std::string_view relative, std::size_t limit) {
    GDNCTL_TRY_ASSIGN(auto found, facts(relative));
    if (!found || !S_ISREG(found->st_mode)) return std::optional<std::string>();
    GDNCTL_TRY_ASSIGN(auto fd, open_file(relative, O_RDONLY));
    auto text = read_descriptor(fd.get(), relative, limit);
    if (!text && text.error().kind != ErrorKind::bad_input) return tl::unexpected(text.error());
    return text ? std::optional(std::move(*text)) : std::nullopt;
}

Status OutFolder::replace(std::string_view relative, std::string_view bytes) {
    constexpr std::size_t k_name_room = 200;  // of 255, leaving room for suffixes
    const std::size_t name_at = relative.rfind('/') + 1;
    const std::string_view start = relative.substr(0, std::min(relative.size(), name_at + k_name_room));
    const std::string temporary = fmt::format("{}.{}.tmp", start, ::getpid());
    remove(temporary);
    {
        GDNCTL_TRY_ASSIGN(auto fd, open_file(temporary, O_WRONLY | O_CREAT | O_EXCL));
        if (const int why = write_fully(fd.get(), bytes); why != 0) {
            remove(temporary);
            return tl::unexpected(local_failure("write", whole(relative), why));
        }
    }
    auto moved = move(temporary, relative);
    if (!moved) remove(temporary);
    return moved;
}

Status OutFolder::move(std::string_view from, std::string_view to) {
    GDNCTL_TRY_ASSIGN(auto source, parent_of(from, false));
    const UniqueFd held(::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));  // the next line may close it
    GDNCTL_TRY_ASSIGN(auto target, parent_of(to, true));
    if (::renameat(held.get(), source.name.c_str(), target.fd, target.name.c_str()) == 0) return {};
    return tl::unexpected(local_failure("write", whole(to), errno));
}

void OutFolder::remove(std::string_view relative) {
    const auto parent = parent_of(relative, false);
    if (parent) ::unlinkat(parent->fd, parent->name.c_str(), 0);
}

std::optional<std::uint64_t> OutFolder::free_bytes() const {
    struct statvfs facts{};
    if (::fstatvfs(m_fd.get(), &facts) != 0) return std::nullopt;
    return static_cast<std::uint64_t>(facts.f_bavail) * facts.f_frsize;
}

bool OutFolder::locks_can_be_trusted() const {
    constexpr std::array<unsigned long, 3> k_shared = {0x6969UL, 0x0BD00BD0UL, 0x47504653UL};  // NFS, Lustre, GPFS
    struct statfs facts{};
    if (::fstatfs(m_fd.get(), &facts) != 0) return false;
    const auto kind = static_cast<unsigned long>(static_cast<unsigned int>(facts.f_type));
    for (const unsigned long shared : k_shared) {
        if (kind == shared) return false;
    }
    return true;
}

bool OutFolder::ignores_case(std::string_view existing) const {
    std::string upper(existing);
    for (char& c : upper) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return ::faccessat(m_fd.get(), upper.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

namespace {

constexpr std::string_view k_cachedir_tag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by huggingface_hub.\n"
    "# For information about cache directory tags, see:\n"
    "#\thttps://bford.info/cachedir/\n";

std::string record(std::string_view local, std::string_view suffix) {
    return fmt::format("{}/download/{}{}", k_records, local, suffix);
}

// RFC 4648 section 5, with '='.
std::string base64_url(const std::vector<unsigned char>& bytes) {
    constexpr std::string_view k_url_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const unsigned group = (static_cast<unsigned>(bytes[i]) << 16U) |
                               (left > 1 ? static_cast<unsigned>(bytes[i + 1]) << 8U : 0U) |
                               (left > 2 ? static_cast<unsigned>(bytes[i + 2]) : 0U);
        text += k_url_digits[group >> 18U];
        text += k_url_digits[(group >> 12U) & 63U];
        text += left > 1 ? k_url_digits[(group >> 6U) & 63U] : '=';
        text += left > 2 ? k_url_digits[group & 63U] : '=';
    }
    return text;
}

std::vector<unsigned char> bytes_of(std::string_view hex) {
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        unsigned value = 0;
        std::from_chars(hex.data() + i, hex.data() + i + 2, value, 16);
        bytes.push_back(static_cast<unsigned char>(value));
    }
    return bytes;
}

}  // namespace

bool has_room_for_records(std::string_view local) {
    constexpr std::size_t k_longest_file_name = 255;
    const std::string_view name = local.substr(local.rfind('/') + 1);
    return name.size() + std::string_view(".metadata").size() <= k_longest_file_name;
}

std::string metadata_path(std::string_view local) { return record(local, ".metadata"); }
std::string lock_path(std::string_view local) { return record(local, ".lock"); }
std::string tree_path(std::string_view commit) { return fmt::format("{}/trees/{}.json", k_records, commit); }

Result<std::string> part_path(std::string_view local, std::string_view etag, std::string_view owner) {
    const std::size_t slash = local.rfind('/');
    const bool in_folder = slash != std::string_view::npos;
    const std::string_view name = in_folder ? local.substr(slash + 1) : local;
    GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha1, std::string(name) + ".metadata"));
    const std::string part = fmt::format("{}.{}{}.gdnctl.part", base64_url(bytes_of(hash)), etag, owner);
    return record(in_folder ? local.substr(0, slash + 1) : "", part);
}

std::string sidecar_path(std::string_view part) {
    constexpr std::string_view k_end = ".part";
    return std::string(part.substr(0, part.size() - k_end.size())) + ".json";
}

std::string python_time(double seconds) {
    std::array<char, 64> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), seconds, std::chars_format::fixed);
    std::string text(digits.data(), end.ptr);
    if (text.find('.') == std::string::npos) text += ".0";
    return text;
}

std::string metadata_text(const Metadata& metadata) {
    return fmt::format("{}\n{}\n{}\n", metadata.commit, metadata.etag, python_time(metadata.time));
}

std::optional<Metadata> parse_metadata(std::string_view text) {
    const auto lines = text::split(text, '\n');
    if (lines.size() < 3) return std::nullopt;
    const auto time = text::parse_double(text::trim(lines[2]));
    Metadata metadata{std::string(text::trim(lines[0])), std::string(text::trim(lines[1])), time.value_or(0)};
    if (!time || metadata.commit.empty() || metadata.etag.empty()) return std::nullopt;
    return metadata;
}

Status write_markers(OutFolder& folder) {
    const std::array<std::pair<std::string, std::string_view>, 2> markers = {
        {{fmt::format("{}/.gitignore", k_records), "*"}, {fmt::format("{}/CACHEDIR.TAG", k_records), k_cachedir_tag}}};
    for (const auto& [path, bytes] : markers) {
        GDNCTL_TRY_ASSIGN(const auto there, folder.facts(path));
        if (there) continue;
        GDNCTL_TRY(folder.replace(path, bytes));
    }
    return {};
}

}  // namespace gdnctl::hub
