// The machine's C compiler, for kernels and solutions under test.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "harness/child/process.h"
#include "oracle/judge/kernel.h"
#include "platform/context.h"

namespace gdnctl::harness {

// Runs $CC (else cc) with the flags that all of them are compiled with, and `words`. `what` is compiled, in messages.
// What the compiler refuses is a fault; that there is no compiler is an error.
Result<std::optional<oracle::KernelFault>> compile(std::string_view what, const std::vector<std::string>& words,
                                                   const std::filesystem::path& cwd, const Context& context);

// What all kernels under test share: libraries by their spelling, and how faults look.

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
