#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "gdnctl/platform/fs.h"
#include "gdnctl/platform/zip.h"
#include "gdnctl/services/job_package.h"

namespace gdnctl {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t k_named = 10;  // of the largest files

struct Sized {
    std::uint64_t bytes;
    std::string name;
};

// Adds one file; nothing when it has been deleted since it was listed, or is a link to nothing or to a folder.
Status add_one(ZipWriter& zip, const fs::path& root, const std::string& relative) {
    std::error_code problem;
    const fs::path real = fs::canonical(root / relative, problem);
    if (problem) return {};
    if (!is_inside(root, real)) {
        return fail(ErrorKind::local_io, "unsafe path: " + relative + " leads out of the working directory",
                    "remove the link, or keep it out of the package with .gitignore");
    }
    if (!fs::is_regular_file(real, problem)) return {};
    const fs::perms mode = fs::status(real, problem).permissions();
    return zip.add_file(relative, real, (mode & fs::perms::owner_exec) != fs::perms::none);
}

}  // namespace

Error package_too_large(const WorkingTree& tree, std::uint64_t size, std::uint64_t limit) {
    std::vector<Sized> files;
    for (const std::string& name : tree.files) {
        std::error_code problem;
        const std::uint64_t bytes = fs::file_size(tree.root / name, problem);
        if (!problem) files.push_back({bytes, name});
    }
    const auto largest_first = [](const Sized& a, const Sized& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
    };
    std::sort(files.begin(), files.end(), largest_first);
    if (files.size() > k_named) files.resize(k_named);
    std::string largest;
    for (const Sized& file : files) largest += fmt::format("\n  {:>12}  {}", file.bytes, file.name);
    return {ErrorKind::usage,
            fmt::format("the package of the working directory has {} bytes, more than {}", size, limit),
            "keep large files out with .gitignore; the largest:" + largest,
            {}};
}

Result<std::uint64_t> pack_tree(const WorkingTree& tree, const fs::path& package, std::uint64_t limit) {
    std::error_code problem;
    const fs::path root = fs::canonical(tree.root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::usage, "open", tree.root, problem.value()));
    GDNCTL_TRY_ASSIGN(ZipWriter zip, ZipWriter::create(package));
    for (const std::string& relative : tree.files) GDNCTL_TRY(add_one(zip, root, relative));
    GDNCTL_TRY_ASSIGN(const std::uint64_t size, zip.finish());
    if (size > limit) return tl::unexpected(package_too_large(tree, size, limit));
    return size;
}

Status unpack_package(const fs::path& package, const fs::path& into) {
    GDNCTL_TRY(make_private_directory(into));
    {
        GDNCTL_TRY_ASSIGN(const ZipReader archive, ZipReader::open(package));
        constexpr std::uint64_t k_most = std::uint64_t{1} << 40;  // our own package: deflate may have shrunk it a lot
        GDNCTL_TRY(extract_zip(archive, into, k_most));
    }
    std::error_code problem;
    fs::remove(package, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "remove", package, problem.value()));
    return {};
}

}  // namespace gdnctl
