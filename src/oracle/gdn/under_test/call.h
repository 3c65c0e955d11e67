// One call of a kernel under test as plain arrays, with the meaning of gdn/gdn_kernel.h: log decay, beta as a factor,
// the state as [N,Hv,dk,dv]. Everything else in a contract (raw gates, logits, layouts, clipping) is converted here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/judge/kernel.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// What a kernel is asked to compute. Decoding is a forward of a few tokens, from state to state.
enum class KernelPass { forward, backward, decode, decode_in_place };

std::string_view name_of(KernelPass pass);  // "decode in place"

// The pass as Asked has it, and the bit of bf16 among the dtypes that a kernel takes: those of gdn/gdn_kernel.h.
constexpr std::size_t entry_of(KernelPass pass) {
    return pass == KernelPass::forward ? 1 : pass == KernelPass::backward ? 2 : 3;
}
inline constexpr std::uint32_t k_bf16_taken = 1U << 2U;

namespace gdn_call_numbers {  // of Call::integers and Call::reals
enum Integer : std::size_t {
    k_batch,
    k_tokens,
    k_key_heads,
    k_value_heads,
    k_key_dim,
    k_value_dim,
    k_sequences,
    k_head_map,
    k_l2norm,
    k_steps,
    k_step_seed,
};
enum Real : std::size_t { k_l2norm_eps, k_scale };
}  // namespace gdn_call_numbers

struct KernelCall {
    KernelPass pass = KernelPass::forward;
    GdnDims dims;
    std::int64_t sequences = 0;
    std::vector<std::int64_t> cu_seqlens;  // empty: none
    bool tiled = false;
    std::optional<double> l2norm_eps;
    double scale = 1;
    Tensor q, k, v, g, beta;
    std::optional<Tensor> initial_state;
    std::optional<Tensor> d_out, d_final_state;  // backward only
    DType out_dtype = DType::f32;
    std::vector<GdnSequence> token_ranges;  // rows of [B*T] for which `out` must be written
    // For timing a decode in place: the kernel is called this many times, each time with one token of every row of the
    // batch. Arrays are then [steps, B, ...], in an order given by `step_seed`. 0: one call.
    std::int64_t steps = 0;
    std::uint64_t step_seed = 0;
};

// `narrow`: q, k, v and out in bf16 if the inputs are, for kernels that support it; else everything is fp32.
KernelCall make_call(const GdnProblem& problem, const GdnContract& contract, bool narrow);
// The same for another pass; `cotangents` are those of the file, for a backward.
KernelCall make_call(const GdnProblem& problem, const GdnContract& contract, bool narrow, KernelPass pass,
                     const GdnCotangents& cotangents);

// The arrays and numbers of a call, as a loaded kernel gets them.
Call arrays_of(KernelCall call, int threads);

// The results in the form that the contract has in files. `out` is [B,T,Hv,dv], `final_state` [N,Hv,dk,dv].
TensorFile call_outputs(const GdnProblem& problem, const GdnContract& contract, const Tensor& out,
                        const Tensor& final_state);

// The gradients written by a backward (dq, dk, dv, dg, dbeta and, if requested, d_initial_state), converted to
// gradients of the contract's inputs.
TensorFile call_gradients(const GdnProblem& problem, const GdnContract& contract, const TensorFile& written);

// Signs for each dimension of each head. q, k and the rows of the state are multiplied by one set, v and the state's
// columns by the other. `out` then changes by the signs of v only, and the final state like the initial one. Every
// product keeps its magnitude, so a correct kernel returns the same bits except for those signs.
class Disguise {
public:
    Disguise() = default;  // changes nothing
    Disguise(const GdnDims& dims, HeadMap map, std::uint64_t seed);

    // Tensors whose last axes are [heads, width].
    void keys(Tensor& tensor) const { flip(tensor, m_keys); }
    void values(Tensor& tensor) const { flip(tensor, m_values); }
    // [N,Hv,dk,dv], or [N,Hv,dv,dk] for the layout value_key.
    void state(Tensor& tensor, StateLayout layout) const;

private:
    static void flip(Tensor& tensor, const std::vector<bool>& negative);

    GdnDims m_dims;
    std::vector<bool> m_keys;      // [Hk * dk]
    std::vector<bool> m_values;    // [Hv * dv]
    std::vector<bool> m_by_value;  // [Hv * dk]: for each value head, the signs of its key head
};

// Applies to q, k, v, initial_state and cotangents of an inputs file, or to out, final_state and gradients of an
// outputs file.
void apply(const Disguise& disguise, TensorFile& file, StateLayout layout);

}  // namespace gdnctl::oracle
