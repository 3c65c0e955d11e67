// What a kernel under test did, whatever its operator: its outputs, or what it did instead of computing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// What a kernel did instead of computing, gravest last.
enum class KernelFaultKind {
    unsupported,    // it says that it does not do this case
    refused,        // it returned another error code
    incomplete,     // outputs were left as they were found
    wrong_shape,    // outputs of another shape or dtype, or none (programs only)
    non_finite,     // NaN or infinity where the truth is finite
    unsteady,       // the same inputs gave another result in a later call
    cached,         // inputs that it has seen cost it less than fresh ones, where it is timed
    impossible,     // faster than the work can be done here
    out_of_bounds,  // touched memory beside its arrays, or wrote to its inputs
    crashed,
    memory_limit,
    timed_out,
    no_entry_point,  // not a kernel, or one without this entry point
    build_failed,
};

std::string_view name_of(KernelFaultKind kind);  // "OUT_OF_BOUNDS"

struct KernelFault {
    KernelFaultKind kind = KernelFaultKind::crashed;
    std::string text;       // one line: what happened, and where
    std::string output;     // what the kernel or the compiler printed at the end; may be empty
    bool at_start = false;  // before it could know what it was asked: it would do the same for all inputs
};

// Whether other cases are not worth a try after this fault.
bool ends_everything(const KernelFault& fault);

struct KernelRun {
    TensorFile outputs;                // what the pass gives, in the contract's layout; empty with a fault
    std::optional<KernelFault> fault;  // the kernel's doing; our own troubles are errors
};

}  // namespace gdnctl::oracle
