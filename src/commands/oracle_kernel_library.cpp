// Turning the spelling of a library kernel into a shared object.
#include <fmt/format.h>

#include "commands/oracle_kernel.h"
#include "gdnctl/core/text.h"
#include "gdnctl/platform/env.h"
#include "gdnctl/platform/fs.h"
#include "gdnctl/platform/process.h"
#include "gdnctl/platform/signals.h"

namespace gdnctl::commands::oracle_kernel {

// gdn/gdn_kernel.h as text: a kernel compiles wherever this binary is, installed or not.
extern const std::string_view k_kernel_header;  // kernel_header.cpp.in

namespace {

constexpr std::chrono::seconds k_compile_limit{300};

Result<std::filesystem::path> existing_file(std::string_view name, const Context& context) {
    const std::filesystem::path path = context.cwd / name;
    std::error_code problem;
    if (std::filesystem::is_regular_file(path, problem)) return path;
    return fail(ErrorKind::usage, fmt::format("the kernel {} does not exist", path.string()));
}

// CC may hold words: "gcc-13 -flto".
std::vector<std::string> compiler(const Context& context) {
    const auto named = context.env.get("CC");
    const auto words = named ? text::shell_split(*named) : std::nullopt;
    return words && !words->empty() ? *words : std::vector<std::string>{"cc"};
}

Result<std::optional<oracle::KernelFault>> compile(const std::filesystem::path& source,
                                                   const std::filesystem::path& folder, const Context& context) {
    std::error_code problem;
    std::filesystem::create_directory(folder / "gdn", problem);
    GDNCTL_TRY(atomic_replace(folder / "gdn" / "gdn_kernel.h", k_kernel_header));
    ProcessSpec spec;
    spec.argv = compiler(context);
    for (const char* word : {"-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC", "-pthread", "-I"}) {
        spec.argv.emplace_back(word);
    }
    for (const auto& word :
         {folder.string(), source.string(), std::string("-o"), (folder / "kernel.so").string(), std::string("-lm")}) {
        spec.argv.push_back(word);
    }
    spec.cwd = context.cwd;
    spec.merge_stderr = true;
    spec.wall_limit = k_compile_limit;
    spec.stop = context.stop;
    auto result = context.process.run(spec);
    if (!result) {
        Error error = std::move(result).error();
        error.hint = "install a C compiler (Debian: apt-get install gcc), or name one in the variable CC";
        return tl::unexpected(std::move(error).within("compiling " + source.string()));
    }
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result->ok()) return std::nullopt;
    return oracle::KernelFault{
        oracle::KernelFaultKind::build_failed,
        fmt::format("{} does not compile: {} {}", source.string(), spec.argv.front(), describe_end(*result, spec)),
        std::string(text::trim(result->out))};
}

}  // namespace

Result<Library> Library::open(const std::string& spelling, const Context& context) {
    Library library;
    GDNCTL_TRY_ASSIGN(const auto file, existing_file(std::string_view(spelling).substr(4), context));
    if (spelling.starts_with("lib:")) {
        library.m_path = file;
        return library;
    }
    GDNCTL_TRY_ASSIGN(library.m_folder, Folder::make(context));
    library.m_path = library.m_folder.path() / "kernel.so";
    GDNCTL_TRY_ASSIGN(library.m_fault, compile(file, library.m_folder.path(), context));
    return library;
}

}  // namespace gdnctl::commands::oracle_kernel
