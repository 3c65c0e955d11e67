#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"
#include "platform/zip.h"
#include "services/job/job.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_named = 10;  // of the largest files

struct Sized {
    std::uint64_t bytes;
    std::string name;
};

// Passes on the files of a tree, one at a time: each with its name in the package, and whether it is executable.
class TreeReader {
public:
    using Take = std::function<Status(const std::string& name, const fs::path& file, bool executable)>;
    TreeReader(fs::path root, Take take) : m_root(std::move(root)), m_take(std::move(take)) {}

    // Nothing when the file has been deleted since it was listed, or is a broken link or a link to a folder.
    Status read(const std::string& relative) {
        std::error_code problem;
        const fs::path path = m_root / relative;
        const fs::file_status facts = fs::symlink_status(path, problem);
        if (!fs::exists(facts)) return {};
        if (fs::is_regular_file(facts) && is_plain_folder(relative)) return hand_on(relative, path, facts);
        const fs::path real = fs::canonical(path, problem);
        if (problem) return {};
        if (!is_inside(m_root, real)) {
            return fail(ErrorKind::local_io, "unsafe path: " + relative + " leads out of the working directory",
                        "remove the link, or exclude it with .gitignore");
        }
        const fs::file_status real_facts = fs::status(real, problem);
        return fs::is_regular_file(real_facts) ? hand_on(relative, real, real_facts) : Status{};
    }

private:
    // Whether the path to a file's folder contains no link. Each folder is checked once, not once per file.
    bool is_plain_folder(const std::string& relative) {
        const std::string folder = relative.substr(0, relative.find_last_of('/') + 1);
        const auto [known, is_new] = m_plain.try_emplace(folder, true);
        if (!is_new || folder.empty()) return known->second;
        std::error_code problem;
        const fs::path lexical = (m_root / folder).lexically_normal().parent_path();
        known->second = fs::canonical(lexical, problem) == lexical && is_inside(m_root, lexical);
        return known->second;
    }

    Status hand_on(const std::string& relative, const fs::path& path, const fs::file_status& facts) {
        return m_take(relative, path, (facts.permissions() & fs::perms::owner_exec) != fs::perms::none);
    }

    fs::path m_root;  // without links
    Take m_take;
    std::unordered_map<std::string, bool> m_plain;
};

Status for_each_file(const WorkingTree& tree, TreeReader::Take take) {
    std::error_code problem;
    const fs::path root = fs::canonical(tree.root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::usage, "open", tree.root, problem.value()));
    for (const auto& [name, file] : tree.added) GDNCTL_TRY(take(name, file, true));
    TreeReader reader(root, std::move(take));
    for (const std::string& relative : tree.files) {
        if (!tree.added.contains(relative)) GDNCTL_TRY(reader.read(relative));
    }
    return {};
}

// The next piece of a file; 0: its end. The kernel copies it if it can.
ssize_t copy_piece(int from, int to, bool& by_system, std::string& buffer) {
    constexpr std::size_t k_piece = std::size_t{16} << 20, k_buffer = std::size_t{256} << 10;
    if (by_system) {
        const ssize_t n = copy_file_range(from, nullptr, to, nullptr, k_piece, 0);
        // A file of /proc and the like has a size of 0: whether it has ended is asked once more in the other way.
        if (n > 0 || (n < 0 && (errno == EINTR || errno == ENOSPC || errno == EDQUOT || errno == EFBIG))) return n;
        by_system = false;
    }
    buffer.resize(k_buffer);
    const ssize_t n = ::read(from, buffer.data(), k_buffer);
    for (ssize_t done = 0; done < n;) {
        const ssize_t written = ::write(to, buffer.data() + done, static_cast<std::size_t>(n - done));
        if (written < 0 && errno != EINTR) return -1;
        done += std::max<ssize_t>(written, 0);
    }
    return n;
}

// Copies to `to`; does nothing if `from` no longer exists.
Status copy_one(const fs::path& from, const fs::path& to, bool executable, const std::stop_token& stop) {
    const UniqueFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
    if (!source.valid() && errno == ENOENT) return {};
    if (!source.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", from, errno));
    UniqueFd copy(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, executable ? 0755 : 0644));
    if (!copy.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "write", to, errno));
    bool by_system = true;
    std::string buffer;
    for (;;) {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        const ssize_t n = copy_piece(source.get(), copy.get(), by_system, buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tl::unexpected(file_error(ErrorKind::local_io, "copy", from, errno));
        if (n == 0) break;
    }
    if (::close(copy.release()) != 0) return tl::unexpected(file_error(ErrorKind::local_io, "write", to, errno));
    return {};
}

}  // namespace

Error package_too_large(const WorkingTree& tree, std::uint64_t limit) {
    std::vector<Sized> files;
    std::uint64_t all = 0;
    const auto count_in = [&](const std::string& name, const fs::path& file) {
        std::error_code problem;
        const std::uint64_t bytes = fs::file_size(file, problem);
        if (problem) return;
        files.push_back({bytes, name});
        all += bytes;
    };
    for (const auto& [name, file] : tree.added) count_in(name, file);
    for (const std::string& name : tree.files) {
        if (!tree.added.contains(name)) count_in(name, tree.root / name);
    }
    const std::size_t count = files.size();
    const auto largest_first = [](const Sized& a, const Sized& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
    };
    std::sort(files.begin(), files.end(), largest_first);
    if (files.size() > k_named) files.resize(k_named);
    std::string largest;
    for (const Sized& file : files) largest += fmt::format("\n  {:>12}  {}", file.bytes, file.name);
    return {
        ErrorKind::usage,
        fmt::format("the package of the working directory has more than {} bytes: it would hold {} files of {:.1f} MB",
                    limit, count, static_cast<double>(all) / 1e6),
        "exclude large files with .gitignore; the largest:" + largest,
        {}};
}

Result<std::uint64_t> pack_tree(const WorkingTree& tree, const fs::path& package, std::stop_token stop,
                                std::uint64_t limit) {
    const auto watch = [&](std::uint64_t bytes) -> Status {
        Progress::keep_ticking();
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        // A file that does not shrink is stored after all; until then the archive may be slightly larger.
        const std::uint64_t slack = limit / 1024;
        return bytes <= limit + slack ? Status{} : tl::unexpected(package_too_large(tree, limit));
    };
    GDNCTL_TRY_ASSIGN(ZipWriter zip, ZipWriter::create(package, watch));
    GDNCTL_TRY(for_each_file(tree, [&](const std::string& name, const fs::path& file, bool executable) {
        return zip.add_file(name, file, executable);
    }));
    GDNCTL_TRY_ASSIGN(const std::uint64_t size, zip.finish());
    if (size > limit) return tl::unexpected(package_too_large(tree, limit));
    return size;
}

Status copy_tree(const WorkingTree& tree, const fs::path& into, std::stop_token stop, std::uint64_t limit) {
    std::uint64_t bytes = 0;
    for (const std::string& name : tree.files) {
        std::error_code gone;
        const std::uint64_t size = fs::file_size(tree.root / name, gone);
        if (!gone) bytes += size;
    }
    if (bytes > limit) {  // its package may be smaller
        const fs::path package = into.parent_path() / "package.zip";
        GDNCTL_TRY(pack_tree(tree, package, stop, limit));
        std::error_code problem;
        fs::remove(package, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", package, problem.value()));
    }
    GDNCTL_TRY(make_private_directory(into));
    fs::path made = into;
    return for_each_file(tree, [&](const std::string& name, const fs::path& file, bool executable) -> Status {
        const fs::path to = into / name;
        if (fs::path parent = to.parent_path(); parent != made) {
            std::error_code problem;
            fs::create_directories(parent, problem);
            if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", parent, problem.value()));
            made = std::move(parent);
        }
        return copy_one(file, to, executable, stop);
    });
}

}  // namespace gdnctl
