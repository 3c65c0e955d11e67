// What a benchmark of the Gated DeltaNet kernels needs: inputs, kernels on plain arrays, and the work that counts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/bench/fresh_inputs.h"
#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/kernels/forward32.h"

namespace gdnctl::oracle {

// Floating-point operations of one forward pass, whatever an algorithm executes: 6 dk dv + 4 C dk / r + 3 C dv per
// token and value head with C = 32, the chunked form with K K^T and Q K^T shared by the r value heads of a key head.
double nominal_forward_flop(const GdnDims& dims);
// Likewise of one backward pass: 14 dk dv + 10 C dk + 8 C dv.
double nominal_backward_flop(const GdnDims& dims);
// Likewise of decoding all tokens one by one: 7 dk dv, which is what the recurrence does.
double nominal_decode_flop(const GdnDims& dims);
// Bytes that decoding all tokens one by one must move: every state read and written once a token.
double nominal_decode_bytes(const GdnDims& dims);

// Operations that no known algorithm does without, of `tokens` tokens in all: per token and value head the state is
// read twice and written into once, 6 dk dv (without an initial state at least the last, 2 dk dv), and backward both
// the state and its gradient, 12 dk dv.
double least_flop(const GdnDims& dims, std::int64_t tokens, Pass pass, bool initial_state);

// Runs fp32 multiply-adds in registers on `threads` threads, `steps` steps each; returns the operations done.
double run_multiply_adds(std::size_t steps, int threads, Isa isa);

// Multiplies all values by -1 on this thread: what reading and writing as many bytes takes.
void negate_values(std::span<float> values, Isa isa);

// One set of inputs as kernels take it and as the oracle judges it. Keys and queries have length 1 and no l2norm is
// done, g = -0.1 |N|, beta in U(0,1), an initial state; no denormals.
class BenchInputs : public FreshInputs {
public:
    // With bf16 storage q, k, v, out, d_out, dq, dk and dv are that. Errors: as read_problem.
    static Result<BenchInputs> make(const GdnDims& dims, std::uint64_t seed, Storage storage = Storage::f32);

    // Uniform values instead of normal ones, cotangents too where there are any.
    Status draw(std::uint64_t seed) override;
    double distance(const TensorFile& outputs, Pass pass, int threads) override;

    // Multiplies an array as large as all states by -1, as often as there are tokens in a row of the batch: the least
    // that decoding them can take.
    void scale_states(int threads, Isa isa);

    // Reads and writes an array as large as all inputs and outputs of a forward pass; returns the bytes moved.
    double move_memory(int threads, Isa isa);

    // Where the passes below add what their phases take; nullptr: nowhere.
    void set_phases(PhaseSums* phases);

    // Arrays of this object; `out` and `final_state` are those that outputs() reads.
    Forward32 forward() const;
    // The same for a backward pass. The first call runs the forward that saves for it.
    Backward32 backward(int threads, Isa isa);
    // All tokens of every row of the batch, one by one.
    void decode(int threads, Isa isa, bool deferred);

    // The same as tensors by name, and with the cotangents of the backward passes.
    const TensorFile& file() const override;
    TensorFile with_cotangents() const override;

    void poison_outputs();  // fills them, and the gradients, with NaN
    std::uint64_t checksum() const { return m_checksum; }
    std::uint64_t outputs_checksum() const;
    std::uint64_t gradients_checksum() const;

    // Truth and budget: takes a while.
    Result<GdnReference> reference(int threads) const override;
    TensorFile outputs(const GdnReference& reference) const;
    // The worst gradient's RMS error, relative to the exact one and in units of k_gradient_budget; dg is judged beside
    // dbeta. Takes a while.
    Result<double> gradient_error(int threads) const;

private:
    struct Arrays;
    std::shared_ptr<Arrays> m_arrays;
    std::uint64_t m_checksum = 0;
};

// What honest fp32 arithmetic is off by on these inputs, in any gradient, and what rounding one to bf16 is.
inline constexpr double k_gradient_budget = 1e-6;
inline constexpr double k_bf16_gradient_budget = 2e-3;

// A kernel that can be timed without conversions: "builtin:fused".
struct TimedKernel {
    std::string name;
    Pass pass = Pass::forward;
    void (*run)(BenchInputs& inputs, int threads, Isa isa) = nullptr;
};

std::vector<std::string> timed_kernel_names();
// Usage error for any other spelling.
Result<TimedKernel> find_timed_kernel(std::string_view spelling);

// Order statistics of one subject's rounds.
struct Spread {
    double min = 0, median = 0, max = 0;
};
// `values` must not be empty.
Spread spread_of(std::vector<double> values);

}  // namespace gdnctl::oracle
