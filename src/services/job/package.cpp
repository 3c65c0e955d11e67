#include "services/job/package.h"

#include <algorithm>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/zip.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_named = 10;  // of the largest files

struct Sized {
    std::uint64_t bytes;
    std::string name;
};

// Adds the files of a tree one by one.
class TreePacker {
public:
    TreePacker(ZipWriter& zip, fs::path root) : m_zip(zip), m_root(std::move(root)) {}

    // Adds nothing if the file was deleted since it was listed, or is a link to nothing or to a folder.
    Status add(const std::string& relative) {
        std::error_code problem;
        const fs::path path = m_root / relative;
        const fs::file_status facts = fs::symlink_status(path, problem);
        if (!fs::exists(facts)) return {};
        if (fs::is_regular_file(facts) && is_plain_folder(relative)) return add_file(relative, path, facts);
        const fs::path real = fs::canonical(path, problem);
        if (problem) return {};
        if (!is_inside(m_root, real)) {
            return fail(ErrorKind::local_io, "unsafe path: " + relative + " leads out of the working directory",
                        "remove the link, or keep it out of the package with .gitignore");
        }
        const fs::file_status real_facts = fs::status(real, problem);
        return fs::is_regular_file(real_facts) ? add_file(relative, real, real_facts) : Status{};
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

    Status add_file(const std::string& relative, const fs::path& path, const fs::file_status& facts) {
        return m_zip.add_file(relative, path, (facts.permissions() & fs::perms::owner_exec) != fs::perms::none);
    }

    ZipWriter& m_zip;
    fs::path m_root;  // without links
    std::unordered_map<std::string, bool> m_plain;
};

}  // namespace

Error package_too_large(const WorkingTree& tree, std::uint64_t limit) {
    std::vector<Sized> files;
    std::uint64_t all = 0;
    for (const std::string& name : tree.files) {
        std::error_code problem;
        const std::uint64_t bytes = fs::file_size(tree.root / name, problem);
        if (problem) continue;
        files.push_back({bytes, name});
        all += bytes;
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
        "keep large files out with .gitignore; the largest:" + largest,
        {}};
}

Result<std::uint64_t> pack_tree(const WorkingTree& tree, const fs::path& package, std::stop_token stop,
                                std::uint64_t limit) {
    std::error_code problem;
    const fs::path root = fs::canonical(tree.root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::usage, "open", tree.root, problem.value()));
    const auto watch = [&](std::uint64_t bytes) -> Status {
        if (stop.stop_requested()) return tl::unexpected(stopped_error());
        // A file that does not shrink is stored after all; until then the archive may be slightly larger.
        const std::uint64_t slack = limit / 1024;
        return bytes <= limit + slack ? Status{} : tl::unexpected(package_too_large(tree, limit));
    };
    GDNCTL_TRY_ASSIGN(ZipWriter zip, ZipWriter::create(package, watch));
    TreePacker packer(zip, root);
    for (const std::string& relative : tree.files) GDNCTL_TRY(packer.add(relative));
    GDNCTL_TRY_ASSIGN(const std::uint64_t size, zip.finish());
    if (size > limit) return tl::unexpected(package_too_large(tree, limit));
    return size;
}

Status unpack_package(const fs::path& package, const fs::path& into) {
    GDNCTL_TRY(make_private_directory(into));
    {
        GDNCTL_TRY_ASSIGN(const ZipReader archive, ZipReader::open(package));
        constexpr std::uint64_t k_most = std::uint64_t{1} << 40;  // the package is our own, and deflate may have shrunk
                                                                  // it a lot
        GDNCTL_TRY(extract_zip(archive, into, k_most));
    }
    std::error_code problem;
    fs::remove(package, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", package, problem.value()));
    return {};
}

}  // namespace gdnctl
