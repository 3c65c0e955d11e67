#include "harness/child/library.h"

#include <chrono>
#include <random>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

constexpr std::chrono::seconds k_compile_limit{300};

}  // namespace

Result<std::optional<oracle::KernelFault>> compile(std::string_view what, const std::vector<std::string>& words,
                                                   const std::filesystem::path& cwd, const Context& context) {
    ProcessSpec spec;
    spec.argv = c_compiler(context.env);
    for (const char* word : {"-O3", "-march=native", "-std=gnu11", "-pthread"}) spec.argv.emplace_back(word);
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.cwd = cwd;
    spec.merge_stderr = true;
    spec.wall_limit = k_compile_limit;
    spec.stop = context.stop;
    auto result = context.process.run(spec);
    if (!result) {
        Error error = std::move(result).error();
        error.hint = "install a C compiler (Debian: apt-get install gcc), or set CC to one";
        return tl::unexpected(std::move(error).within(fmt::format("compiling {}", what)));
    }
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result->ok()) return std::nullopt;
    return oracle::KernelFault{
        oracle::KernelFaultKind::build_failed,
        fmt::format("{} does not compile: {} {}", what, spec.argv.front(), describe_end(*result, spec)),
        std::string(text::trim(result->out))};
}

std::uint64_t secret_seed() {
    std::random_device device;
    return (static_cast<std::uint64_t>(device()) << 32U) | device();
}

bool is_library(std::string_view spelling) { return spelling.starts_with("lib:") || spelling.starts_with("src:"); }

ExitCode exit_code_of(oracle::KernelFaultKind kind) {
    switch (kind) {
        case oracle::KernelFaultKind::timed_out: return ExitCode::timeout;
        case oracle::KernelFaultKind::wrong_shape:
        case oracle::KernelFaultKind::no_entry_point:
        case oracle::KernelFaultKind::build_failed: return ExitCode::bad_input;
        default: return ExitCode::check_failed;
    }
}

Json fault_json(const std::optional<oracle::KernelFault>& fault) {
    if (!fault) return nullptr;
    return {{"kind", oracle::name_of(fault->kind)}, {"text", fault->text}, {"output", fault->output}};
}

std::string quoted_output(const oracle::KernelFault& fault) {
    std::string quoted;
    if (fault.output.empty()) return quoted;
    for (const auto line : text::split(fault.output, '\n')) {
        quoted += fmt::format("       | {}\n", text::visible_line(line));
    }
    return quoted;
}

// Turning the spelling of a library kernel into a shared object.

// gdn/gdn_kernel.h as text: a kernel compiles wherever this binary is, installed or not.
extern const std::string_view k_kernel_header, k_linear_ce_header;  // kernel_header.cpp.in

namespace {

Result<std::filesystem::path> existing_file(std::string_view name, const Context& context) {
    const std::filesystem::path path = context.cwd / name;
    std::error_code problem;
    if (std::filesystem::is_regular_file(path, problem)) return path;
    return fail(
        ErrorKind::usage,
        fmt::format("the kernel {} {}", path.string(),
                    std::filesystem::exists(path, problem) ? "is not a file" : "does not exist"),
        "paths are relative to the working directory: src:FILE.c for a C source, lib:FILE.so for a shared library");
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
