// What `oracle bench gdn` times: our own kernels without conversions, a user's kernel with new inputs in every run, and
// the results that either must give.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/forward32.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

enum class Pass { forward, backward, decode };
std::string_view name_of(Pass pass);

class FreshInputs {
public:
    virtual ~FreshInputs() = default;

    // Replaces all values by others of the same kind, independent of the previous ones.
    virtual Status draw(std::uint64_t seed) = 0;
    // In the form of a kernel's call (decays as logarithms, states as [N,Hv,dk,dv]), with cotangents.
    virtual const TensorFile& file() const = 0;
    virtual TensorFile with_cotangents() const = 0;
    // How far outputs (of a backward: gradients) are from those of our fp32 kernels. Up to 1, two correct fp32 results
    // may differ; beyond that, only the truth can decide. Infinity: something is missing or not finite.
    virtual double distance(const TensorFile& outputs, Pass pass, int threads) = 0;
    // Truth and budget; slow.
    virtual Result<GdnReference> reference(int threads) const = 0;
};

// Inputs, kernels on plain arrays, and operation counts for benchmarks of the Gated DeltaNet kernels.

// Nominal floating-point operations of one forward pass, independent of the algorithm: 6 dk dv + 4 C dk / r + 3 C dv
// per token and value head with C = 32. This is the chunked form with K K^T and Q K^T shared by the r value heads of a
// key head.
double nominal_forward_flop(const GdnDims& dims);
// The same for one backward pass: 14 dk dv + 10 C dk + 8 C dv.
double nominal_backward_flop(const GdnDims& dims);
// The same for decoding all tokens one by one: 7 dk dv, as in the recurrence.
double nominal_decode_flop(const GdnDims& dims);
// Bytes that decoding all tokens one by one must move: each state is read and written once per token.
double nominal_decode_bytes(const GdnDims& dims);

// Operations that every known algorithm needs, for `tokens` tokens in total. Per token and value head, the state is
// read twice and written once: 6 dk dv (without an initial state, at least the write: 2 dk dv). The backward does this
// for both the state and its gradient: 12 dk dv.
double least_flop(const GdnDims& dims, std::int64_t tokens, Pass pass, bool initial_state);

// Runs fp32 multiply-adds in registers on `threads` threads, `steps` steps each; returns the number of operations.
double run_multiply_adds(std::size_t steps, int threads, Isa isa);

// Multiplies all values by -1 on this thread, to measure reading and writing that many bytes.
void negate_values(std::span<float> values, Isa isa);

// One set of inputs in the form of the kernels and of the oracle. Keys and queries have length 1 and there is no
// l2norm, unless `sets` ("field=value") say otherwise; g = -0.1 |N|, beta in U(0,1), with an initial state; no
// denormals.
class BenchInputs : public FreshInputs {
public:
    // With bf16 storage, q, k, v, out, d_out, dq, dk and dv are bf16. Errors: as read_problem.
    static Result<BenchInputs> make(const GdnDims& dims, std::uint64_t seed, Storage storage = Storage::f32,
                                    const std::vector<std::string>& sets = {});

    // Uniform values instead of normal ones, also for cotangents if there are any.
    Status draw(std::uint64_t seed) override;
    double distance(const TensorFile& outputs, Pass pass, int threads) override;

    // Multiplies an array as large as all states by -1, once per token in a row of the batch: the minimum for decoding
    // them.
    void scale_states(int threads, Isa isa);

    // Arrays of this object; outputs() reads `out` and `final_state`.
    Forward32 forward() const;
    // The same for a backward pass. The first call runs the forward that saves for it.
    Backward32 backward(int threads, Isa isa);
    // All tokens of every row of the batch, one by one, on final_state.
    void decode(int threads, Isa isa);

    // The same as named tensors, plus the cotangents of the backward passes.
    const TensorFile& file() const override;
    TensorFile with_cotangents() const override;

    void poison_outputs();  // fills them, and the gradients, with NaN
    std::uint64_t checksum() const { return m_checksum; }
    std::uint64_t outputs_checksum() const;
    std::uint64_t gradients_checksum() const;

    // Truth and budget; slow.
    Result<GdnReference> reference(int threads) const override;
    TensorFile outputs(const GdnReference& reference) const;
    // The largest RMS error of a gradient, relative to the exact one, in units of k_gradient_budget; dg is judged
    // together with dbeta. Slow.
    Result<double> gradient_error(int threads) const;

private:
    struct Arrays;
    std::shared_ptr<Arrays> m_arrays;
    std::uint64_t m_checksum = 0;
};

// The error of correct fp32 arithmetic on these inputs in any gradient, and that of rounding one to bf16.
inline constexpr double k_gradient_budget = 1e-6;
inline constexpr double k_bf16_gradient_budget = 2e-3;

// A kernel that can be timed without conversions: "builtin:fused".
struct TimedKernel {
    std::string name;
    Pass pass = Pass::forward;
    void (*run)(BenchInputs& inputs, int threads, Isa isa) = nullptr;
};

std::vector<std::string> timed_kernel_names();
// Any other spelling is a usage error.
Result<TimedKernel> find_timed_kernel(std::string_view spelling);

// Order statistics of one subject's rounds.
struct Spread {
    double min = 0, median = 0, max = 0;
};
// `values` must not be empty.
Spread spread_of(std::vector<double> values);

}  // namespace gdnctl::oracle
