// Turning the spelling of a library kernel into a shared object.
#include <fmt/format.h>

#include "harness/child/compile.h"
#include "harness/child/kernel.h"
#include "platform/fs.h"

namespace gdnctl::harness {

// gdn/gdn_kernel.h as text: a kernel compiles wherever this binary is, installed or not.
extern const std::string_view k_kernel_header, k_linear_ce_header;  // kernel_header.cpp.in

namespace {

Result<std::filesystem::path> existing_file(std::string_view name, const Context& context) {
    const std::filesystem::path path = context.cwd / name;
    std::error_code problem;
    if (std::filesystem::is_regular_file(path, problem)) return path;
    return fail(ErrorKind::usage,
                fmt::format("the kernel {} {}", path.string(),
                            std::filesystem::exists(path, problem) ? "is not a file" : "does not exist"));
}

Result<std::optional<oracle::KernelFault>> build(const std::filesystem::path& source,
                                                 const std::filesystem::path& folder, const Context& context) {
    std::error_code problem;
    std::filesystem::create_directory(folder / "gdn", problem);
    GDNCTL_TRY(atomic_replace(folder / "gdn" / "gdn_kernel.h", k_kernel_header));
    GDNCTL_TRY(atomic_replace(folder / "gdn" / "linear_ce_kernel.h", k_linear_ce_header));
    return compile(
        source.string(),
        {"-shared", "-fPIC", "-I", folder.string(), source.string(), "-o", (folder / "kernel.so").string(), "-lm"},
        context.cwd, context);
}

}  // namespace

Result<Library> Library::open(const std::string& spelling, const Context& context) {
    Library library;
    GDNCTL_TRY_ASSIGN(const auto file, existing_file(std::string_view(spelling).substr(4), context));
    if (spelling.starts_with("lib:")) {
        library.m_path = file;
        return library;
    }
    GDNCTL_TRY_ASSIGN(library.m_folder, make_folder(context));
    library.m_path = library.m_folder.path() / "kernel.so";
    GDNCTL_TRY_ASSIGN(library.m_fault, build(file, library.m_folder.path(), context));
    return library;
}

}  // namespace gdnctl::harness
