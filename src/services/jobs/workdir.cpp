#include "services/jobs/workdir.h"

#include <system_error>

#include "gdnctl/platform/fs.h"

namespace gdnctl::local {

namespace fs = std::filesystem;

namespace {

Status copy_one(const fs::path& root, const std::string& relative, const fs::path& into) {
    std::error_code problem;
    const fs::path source = root / relative;
    const fs::path real = fs::canonical(source, problem);
    if (problem) return {};  // deleted since it was listed, or a link to nothing
    if (!is_inside(root, real)) {
        return fail(ErrorKind::local_io, "unsafe path: " + relative + " leads out of the working directory",
                    "remove the link, or keep it out of the package with .gitignore");
    }
    if (!fs::is_regular_file(real, problem)) return {};
    const fs::path target = (into / relative).lexically_normal();
    if (!is_inside(into, target)) return fail(ErrorKind::local_io, "unsafe path: " + relative);
    fs::create_directories(target.parent_path(), problem);
    if (!problem) fs::copy_file(real, target, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "copy", source, problem.value()));
    return {};
}

}  // namespace

Status unpack_tree(const WorkingTree& tree, const fs::path& into) {
    std::error_code problem;
    fs::create_directory(into, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", into, problem.value()));
    const fs::path root = fs::canonical(tree.root, problem);
    if (problem) return tl::unexpected(file_error(ErrorKind::usage, "open", tree.root, problem.value()));
    for (const std::string& relative : tree.files) GDNCTL_TRY(copy_one(root, relative, into));
    return {};
}

}  // namespace gdnctl::local
