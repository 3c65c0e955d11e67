// A kernel that the oracle judges: named by one spelling everywhere, asked through one interface. What runs in this
// process is found here; what runs in a child (lib:, src:, cmd:) is opened by the commands.
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
    // `final_state`. A program may give gradients too. `threads` is what the kernel is told.
    virtual Result<KernelRun> run(const TensorFile& inputs, const ResolvedContract& contract, int threads) = 0;
    // The passes that it has. One that cannot be asked has a forward and a decode, which say what is wrong.
    virtual Result<std::vector<KernelPass>> passes() { return std::vector{KernelPass::forward}; }
    // Any pass. A backward takes `d_out` and `d_final_state` of the file and gives gradients.
    virtual Result<KernelRun> run_pass(KernelPass pass, const TensorFile& inputs, const ResolvedContract& contract,
                                       int threads);
    // Whether to ask the same thing again: not for kernels of our own, nor for ever where each call is a new process.
    virtual bool worth_repeating() const = 0;
    // What kept it from the network: "namespace", "seccomp", "none"; empty: it runs in this process.
    virtual std::string network() const { return {}; }
};

// The result of a kernel on one set of inputs.
struct KernelVerdict {
    GdnReport report;
    std::optional<KernelFault> fault;
    bool bit_equal = true;  // repeated calls gave the same bits
};

// Runs the kernel and judges what it returns. A foreign kernel is asked three times: with the inputs, with the inputs
// in a disguise under which the exact result is known from the first (signs of head dimensions changed), on one
// thread, and with the inputs again.
Result<KernelVerdict> judge_kernel(KernelUnderTest& kernel, const TensorFile& inputs, const GdnReference& reference,
                                   int threads, std::uint64_t seed, KernelPass pass = KernelPass::forward);

// Judges what one run returned; a shape or dtype that cannot be compared is the kernel's fault. `inputs` holds the
// cotangents of gradients.
KernelVerdict judge_run(const KernelRun& run, const TensorFile& inputs, const GdnReference& reference, int threads,
                        KernelPass pass);
bool has_gradients(const TensorFile& file);

// `inputs` with random cotangents, rounded to the dtype of `out` as automatic differentiation rounds them.
TensorFile with_cotangents(const TensorFile& inputs, const GdnReference& reference, std::uint64_t seed);

std::vector<std::string> builtin_kernel_names();  // "chunk", "fused", "recurrent32", "recurrent64"

// `builtin:NAME`. Usage errors: another kind, an unknown name.
Result<std::unique_ptr<KernelUnderTest>> find_builtin_kernel(std::string_view spelling);

}  // namespace gdnctl::oracle
