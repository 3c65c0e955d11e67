// Kernels of linear-ce under test by their spelling: builtin:fused, lib:PATH, src:FILE.c, cmd:COMMAND.
#pragma once

#include <memory>
#include <string>

#include "harness/child/process.h"
#include "oracle/linear_ce/judge/problem.h"
#include "platform/context.h"

namespace gdnctl::harness {

class LinearCeKernel {
public:
    virtual ~LinearCeKernel() = default;

    // Whether it has gradients; a program gives them along with the rest, if at all.
    virtual Result<bool> has_gradients() { return true; }
    // loss, lse and what else the kernel gives. `inputs` are those that `problem` was read from.
    virtual Result<oracle::KernelRun> run(const oracle::TensorFile& inputs, const oracle::linear_ce::Problem& problem,
                                          bool gradients, int threads) = 0;
    // Seconds of the last run's call, by our clock.
    virtual double seconds() const = 0;
    // Whether to ask the same thing again: not our own.
    virtual bool is_foreign() const { return true; }
    // What kept it from the network; empty: it runs in this process, or has not run.
    virtual std::string network() const { return {}; }
};

// `context` must outlive it. Usage errors: an unknown kind or name, a file that does not exist.
Result<std::unique_ptr<LinearCeKernel>> open_linear_ce_kernel(const std::string& spelling, const Limits& limits,
                                                              const Context& context);

}  // namespace gdnctl::harness
