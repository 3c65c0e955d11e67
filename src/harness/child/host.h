// The process in which a kernel under test runs.
#pragma once

#include <string>

#include "core/result.h"
#include "platform/context.h"

namespace gdnctl::harness {

struct HostOptions {
    std::string mode;  // "lib", "linear-ce", "solution", "program", "python" or "python-offline"
    // lib, solution: ask, answer, memory; program: inputs.safetensors, outputs.safetensors, network; python:
    // kernel_host.py, ask, answer
    std::string folder;
    std::string kernel;   // lib: path of the shared object; solution: FUNCTION:PATH; program, python: shell words
    std::string tensors;  // python: another folder that is removed with the first if our parent dies
};

// lib, solution: serves calls until the parent closes the connection. program: execs it, so it returns only on failure.
// python: runs it to its end.
Result<ExitCode> host_kernel(const HostOptions& options, Context& context);

}  // namespace gdnctl::harness
