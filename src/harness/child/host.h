// The process in which a kernel under test runs.
#pragma once

#include <string>

#include "core/result.h"

namespace gdnctl::harness {

struct HostOptions {
    std::string mode;  // "lib", "linear-ce", "solution" or "program"
    std::string
        folder;  // lib, solution: ask, answer, memory; program: inputs.safetensors, outputs.safetensors, network
    std::string kernel;  // lib: path of the shared object; solution: FUNCTION:PATH; program: shell words
};

// lib, solution: serves calls until the parent closes the connection. program: execs it, so it returns only on failure.
Result<ExitCode> host_kernel(const HostOptions& options);

}  // namespace gdnctl::harness
