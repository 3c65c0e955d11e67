// Folders and paths that are safe to use.
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/fs.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

Status make_directories(const fs::path& path) {
    struct stat facts{};
    if (stat(path.c_str(), &facts) == 0) return {};
    const fs::path parent = path.parent_path();
    if (!parent.empty() && parent != path) GDNCTL_TRY(make_directories(parent));
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
        return tl::unexpected(file_error(ErrorKind::local_io, "create the folder", path, errno));
    }
    return {};
}

Error unsafe_path(std::string_view path, std::string_view why) {
    return {ErrorKind::local_io, fmt::format("unsafe path '{}': {}", path, why), {}, {}};
}

}  // namespace

Status make_private_directory(const fs::path& path, std::string_view hint) {
    // A trailing slash would make the last component empty.
    const fs::path folder = path.has_filename() ? path : path.parent_path();
    GDNCTL_TRY(make_directories(folder));
    struct stat facts{};
    if (stat(folder.c_str(), &facts) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "use the folder", folder, errno));
    }
    if (!S_ISDIR(facts.st_mode)) {
        return tl::unexpected(file_error(ErrorKind::local_io, "use the folder", folder, ENOTDIR));
    }
    if (facts.st_uid != geteuid()) {
        return fail(ErrorKind::local_io,
                    fmt::format("will not use the folder {}: it belongs to user {}, not to user {}", folder.string(),
                                facts.st_uid, geteuid()),
                    std::string(hint));
    }
    if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return fail(ErrorKind::local_io,
                    fmt::format("will not use the folder {}: others may write to it (mode {:04o})", folder.string(),
                                facts.st_mode & 07777U),
                    fmt::format("chmod go-w '{}'", folder.string()));
    }
    return {};
}

bool is_inside(const fs::path& root, const fs::path& path) {
    const fs::path relative = path.lexically_normal().lexically_relative(root.lexically_normal());
    return !relative.empty() && *relative.begin() != "..";
}

Result<fs::path> join_inside(const fs::path& root, std::string_view relative) {
    if (relative.empty()) return tl::unexpected(unsafe_path(relative, "it is empty"));
    if (relative.find('\0') != std::string_view::npos) {
        return tl::unexpected(unsafe_path(relative.substr(0, relative.find('\0')), "it contains a NUL byte"));
    }
    const fs::path wanted(relative);
    if (wanted.is_absolute()) return tl::unexpected(unsafe_path(relative, "it is absolute"));
    std::error_code problem;
    const fs::path real_root = fs::weakly_canonical(root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "resolve", root, problem.value()));
    for (const fs::path& part : wanted) {
        if (part == "..") return tl::unexpected(unsafe_path(relative, "it contains '..'"));
    }
    const fs::path real = fs::weakly_canonical(real_root / wanted, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "resolve", wanted, problem.value()));
    if (!is_inside(real_root, real)) {
        return tl::unexpected(unsafe_path(relative, "a symbolic link leads out of " + root.string()));
    }
    return root / wanted;
}

std::optional<fs::path> find_upward(const fs::path& start, std::string_view name) {
    fs::path folder = start.lexically_normal();
    for (;;) {
        struct stat facts{};
        fs::path candidate = folder / name;
        if (stat(candidate.c_str(), &facts) == 0) return candidate;
        fs::path parent = folder.parent_path();
        if (parent == folder || parent.empty()) return std::nullopt;
        folder = std::move(parent);
    }
}

std::optional<std::filesystem::path> find_repository_root(const std::filesystem::path& from) {
    std::error_code ignored;
    for (std::filesystem::path at = from.lexically_normal();; at = at.parent_path()) {
        if (std::filesystem::exists(at / ".git", ignored)) return at;
        if (!at.has_relative_path()) return std::nullopt;
    }
}

}  // namespace gdnctl
