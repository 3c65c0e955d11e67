// What all kernels under test share: libraries by their spelling, and how faults look.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/exit_code.h"
#include "core/json.h"
#include "harness/child/folder.h"
#include "harness/child/process.h"
#include "oracle/judge/kernel_fault.h"
#include "platform/context.h"

namespace gdnctl::harness {

// An unpredictable seed.
std::uint64_t secret_seed();

// How faults look: the exit code, the object {kind, text, output} or null, and what was printed, line by line.
ExitCode exit_code_of(oracle::KernelFaultKind kind);
Json fault_json(const std::optional<oracle::KernelFault>& fault);
std::string quoted_output(const oracle::KernelFault& fault);

// A C file, which is compiled into a separate folder; or a shared object.
class Library {
public:
    // `spelling` is lib:PATH or src:FILE.c.
    static Result<Library> open(const std::string& spelling, const Context& context);

    const std::filesystem::path& path() const { return m_path; }
    // What the compiler said, if it refused.
    const std::optional<oracle::KernelFault>& build_fault() const { return m_fault; }

private:
    std::filesystem::path m_path;
    Folder m_folder;
    std::optional<oracle::KernelFault> m_fault;
};

// Whether the kernel runs as a loaded library (lib:, src:).
bool is_library(std::string_view spelling);

}  // namespace gdnctl::harness
