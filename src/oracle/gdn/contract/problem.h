// One Gated DeltaNet call as numbers: checked shapes, values as fp64 (exact for every input dtype).
//
// Axes: B batch, T tokens, Hk key heads (q and k), Hv value heads, N sequences. Without cu_seqlens N = B and each batch
// row is one sequence, which `lengths` or `offsets` may shorten. With cu_seqlens, B = 1 and sequence n has the tokens
// cu[n]..cu[n+1]. Arrays are row-major in the order given.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

struct GdnDims {
    std::int64_t B = 0, T = 0, Hk = 0, Hv = 0, dk = 0, dv = 0;
};

struct GdnSequence {
    std::int64_t begin = 0, end = 0;  // rows of the flattened [B*T] token axis
};

struct GdnProblem {
    GdnDims dims;
    std::vector<GdnSequence> sequences;
    std::vector<double> q, k;                        // [B*T, Hk, dk]
    std::vector<double> v;                           // [B*T, Hv, dv]
    std::vector<double> gate;                        // [B*T, Hv]: g, alpha or a, by contract
    std::vector<double> beta;                        // [B*T, Hv]: beta or b
    std::vector<double> A_log, dt_bias;              // [Hv], only for raw gates
    std::vector<double> initial_state;               // [N, Hv, dk, dv] whatever the contract's layout; empty: zeros
    DType qk_dtype = DType::f32;                     // dtype that q and k were stored in
    DType gate_dtype = DType::f32;                   // dtype that gates were stored in
    bool in_bf16 = false;                            // q, k and v were all stored in bf16
    TokenLayout layout = TokenLayout::tokens_first;  // in files
    bool packed = false;                             // the token axis has no batch axis, as in [T,H,d]
    bool has_cu_seqlens = false;
    // Tokens of each value head of each sequence, [N, Hv], if they differ; else empty, and all have the sequence's
    // length. Tokens after them are already masked: their q, k, v, beta and decay are 0.
    std::vector<std::int64_t> head_lengths = {};
    // Value heads of one key head have different lengths, so q and k are repeated for each value head, with its own
    // zeros after its end. Hk is then Hv, whatever the tensors have.
    bool repeated_keys = false;

    // Whether a row inside a sequence is beyond the end of this value head.
    bool masks(std::size_t sequence, std::size_t head, std::int64_t row) const {
        const std::size_t sequence_head = sequence * static_cast<std::size_t>(dims.Hv) + head;
        return !head_lengths.empty() && row - sequences[sequence].begin >= head_lengths[sequence_head];
    }

    std::int64_t rows() const { return dims.B * dims.T; }
};

// The results of a forward pass, as fp64 whatever the precision of the computation.
struct GdnOutputs {
    std::vector<double> out;          // [B*T, Hv, dv]
    std::vector<double> final_state;  // [N, Hv, dk, dv]
    double max_abs_state = 0;         // over all tokens; fp64 recurrence only
};

enum class GdnRole { input, output, gradient, cotangent, unknown };

// The meaning of a tensor's name ("query" and "q" are both q). Unknown names keep their spelling.
struct GdnName {
    std::string_view canonical;
    GdnRole role = GdnRole::unknown;
};
GdnName canonical_name(std::string_view name);

// The same in a file of results. `db` is the gradient of the contract's beta input (a logit, or beta itself). `state`
// is the final state unless the file names one or also contains the inputs.
GdnName name_in_dump(const TensorFile& dump, std::string_view name, const GdnContract& contract);
// The gradient that an unknown name probably means ("grad_q": "dq"), else empty.
std::string_view gradient_that_resembles(std::string_view name);

// The tensor whose name means `canonical`; nullptr: none; bad_input: two names with this meaning.
Result<const Tensor*> find_gdn_tensor(const TensorFile& file, std::string_view canonical,
                                      GdnName (*meaning)(std::string_view) = canonical_name);

// Uses name_in_dump.
Result<const NamedTensor*> find_in_dump(const TensorFile& dump, std::string_view canonical,
                                        const GdnContract& contract);

// Reads and checks the inputs. A `scale` tensor in the file acts like metadata on `contract`, unless --set gave a
// scale. Errors: bad_input, a missing tensor, or "tensor 'k': expected [2,57,3,8] float32, got [...]".
Result<GdnProblem> read_problem(const TensorFile& file, ResolvedContract& contract);

// The key head that value head `h` uses.
std::int64_t key_head_of(std::int64_t h, const GdnDims& dims, HeadMap map);

// Shapes of tensors in files: of those with tokens, where `rest` begins with the heads; and of the outputs.
Shape token_shape(const GdnProblem& problem, std::initializer_list<std::int64_t> rest);
Shape out_shape(const GdnProblem& problem);
// Values with tokens, from the order in files to that of a problem, and back.
std::vector<double> from_file_order(const GdnProblem& problem, std::vector<double> values, std::int64_t heads);
std::vector<double> in_file_order(const GdnProblem& problem, const std::vector<double>& values, std::int64_t heads);
// Reorders values of [batches, tokens, heads, width] as [batches, heads, tokens, width]. With tokens and heads
// exchanged, it is the inverse.
std::vector<double> heads_first(const std::vector<double>& values, std::size_t batches, std::size_t tokens,
                                std::size_t heads, std::size_t width);
// Stores tensors of [B,T,H,D] as [B,H,T,D].
void store_heads_first(TensorFile& file);

// Shapes of states in files; and swaps the final state's axes between [..,dk,dv] and the contract's layout.
Shape state_shape(const GdnProblem& problem, StateLayout layout);
std::vector<double> to_layout(const std::vector<double>& state, const GdnDims& dims, StateLayout layout);

// The dtype of `out`, or the one it stands for if stored wider. fp64 inputs are judged as fp32.
DType out_dtype_of(const GdnContract& contract, const GdnProblem& problem);

// `out` and `final_state` as tensors in the contract's layout.
TensorFile outputs_file(const GdnProblem& problem, const GdnContract& contract, const GdnOutputs& outputs, DType out,
                        DType final_state);

enum class Passes { forward, with_gradients };

// Upper bound on the bytes of the fp64 copies, the references and their scratch. Checks dims for overflow.
std::optional<std::size_t> memory_estimate(const GdnDims& dims, std::int64_t sequences,
                                           Passes passes = Passes::forward);

}  // namespace gdnctl::oracle
