// A kernel that the oracle judges: named by the same spelling everywhere, and called through one interface. Kernels in
// this process are found here; those in a child process (lib:, src:, cmd:) are opened by the commands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/judge/kernel_fault.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

class KernelUnderTest {
public:
    virtual ~KernelUnderTest() = default;
    virtual std::string name() const = 0;  // as spelled: "src:kernel.c"
    // Runs the forward on the tensors of an inputs file (names of docs/reference/contracts.md): `out` and
    // `final_state`. A program may also return gradients. `threads` is passed to the kernel.
    virtual Result<KernelRun> run(const TensorFile& inputs, const ResolvedContract& contract, int threads) = 0;
    // The passes that it supports. A kernel that cannot be queried has a forward and a decode, which report the
    // problem.
    virtual Result<std::vector<KernelPass>> passes() { return std::vector{KernelPass::forward}; }
    // Any pass. A backward reads `d_out` and `d_final_state` from the file and returns gradients.
    virtual Result<KernelRun> run_pass(KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                                       int threads);
    // Whether to repeat a call: false for our own kernels, and where each call is a new process.
    virtual bool worth_repeating() const = 0;
    // How network access was blocked: "namespace", "seccomp", "none"; empty: it runs in this process.
    virtual std::string network() const { return {}; }
};

// The result of a kernel on one set of inputs.
struct KernelVerdict {
    GdnReport report;
    std::optional<KernelFault> fault;
    bool bit_equal = true;  // repeated calls gave the same bits
};

// Runs the kernel and judges the result. A foreign kernel is called three times: with the inputs; on one thread, with
// the inputs in a disguise under which the exact result follows from the first one (signs of head dimensions changed);
// and with the inputs again.
Result<KernelVerdict> judge_kernel(KernelUnderTest& kernel, const TensorFile& inputs, const GdnReference& reference,
                                   int threads, std::uint64_t seed, KernelPass pass = KernelPass::forward);

// Judges the result of one run. A shape or dtype that cannot be compared is the kernel's fault. `inputs` has the
// cotangents of gradients.
KernelVerdict judge_run(const KernelRun& run, const TensorFile& inputs, const GdnReference& reference, int threads,
                        KernelPass pass);
bool has_gradients(const TensorFile& file);

// `inputs` with random cotangents, rounded to the dtype of `out` as in automatic differentiation.
TensorFile with_cotangents(const TensorFile& inputs, const GdnReference& reference, std::uint64_t seed);

std::vector<std::string> builtin_kernel_names();  // "chunk", "fused", "recurrent32", "recurrent64"

// `builtin:NAME`. Usage errors: another kind, or an unknown name.
Result<std::unique_ptr<KernelUnderTest>> find_builtin_kernel(std::string_view spelling);

}  // namespace gdnctl::oracle
