// cmd: kernels: a program that reads an inputs file and writes an outputs file.
#pragma once

#include <memory>
#include <string>

#include "commands/oracle_kernel_process.h"
#include "gdnctl/oracle/kernel_under_test.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::oracle_kernel {

// `cmd:COMMAND`: run by the shell in the working directory as COMMAND INPUTS.safetensors OUTPUTS.safetensors.
Result<std::unique_ptr<oracle::KernelUnderTest>> open_program(const std::string& spelling, const Limits& limits,
                                                              const Context& context);

}  // namespace gdnctl::commands::oracle_kernel
