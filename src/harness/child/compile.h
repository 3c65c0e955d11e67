// The machine's C compiler, for kernels and solutions under test.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/judge/kernel_fault.h"
#include "platform/context.h"

namespace gdnctl::harness {

// Runs $CC (else cc) with the flags that all of them are compiled with, and `words`. `what` is compiled, in messages.
// What the compiler refuses is a fault; that there is no compiler is an error.
Result<std::optional<oracle::KernelFault>> compile(std::string_view what, const std::vector<std::string>& words,
                                                   const std::filesystem::path& cwd, const Context& context);

}  // namespace gdnctl::harness
