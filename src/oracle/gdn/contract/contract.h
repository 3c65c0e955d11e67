// What a Gated DeltaNet implementation means by its tensors. The same bytes give different results under different
// contracts, so every verdict states its contract field by field, with each field's origin.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/judge/verdict.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

enum class HeadMap { equal, interleaved, tiled };      // key head of value head h: h | h / r | h % Hk, r = Hv / Hk
enum class TokenLayout { tokens_first, heads_first };  // [B,T,H,D] | [B,H,T,D]
enum class StateLayout { key_value, value_key };       // [N,Hv,dk,dv] | [N,Hv,dv,dk]
enum class GateKind { log, alpha, raw };               // g | exp(g) | a with A_log and dt_bias
enum class BetaKind { prob, logit, twice_logit };      // beta | sigmoid(b) | 2 sigmoid(b)
enum class L2Norm { off, rsqrt, inverse_sqrt };        // the last two differ by rounding only
enum class NormRounding { none, input };               // whether normalised q, k are rounded to their input dtype
enum class OutDType { f32, query, bf16, f16 };         // the precision of an output stored as F32 or F64
enum class Matmul {
    f32,
    bf16x3,
    tf32,
    f16,
    bf16
};  // what the device rounds each operand of a product to; sums are
    // f32
enum class SumDType {
    f32,
    given
};  // precision of sums of gates: f32 | the dtype in which they were
    // given
enum class StateDType {
    f32,
    bf16,
    bf16_token
};  // the state between chunks | bf16 after each chunk | bf16 after each
    // token
enum class EmptySequence { passthrough, zeros };  // final state of a sequence without tokens: S0 | 0

// Exponents are clamped before exp: each gate to at most `limit`, or the sums of gates inside a chunk (c_i, c_i - c_j,
// c_last - c_i) to +-limit.
struct ExpClip {
    double limit = 0;
    bool of_gates = false;

    double operator()(double x) const { return !of_gates && x < -limit ? -limit : x > limit ? limit : x; }
    bool cuts(double x) const { return x >= limit || (!of_gates && x <= -limit); }
};

struct GdnContract {
    HeadMap head_map = HeadMap::equal;
    StateLayout state_layout = StateLayout::key_value;
    GateKind g_kind = GateKind::log;
    BetaKind beta_kind = BetaKind::prob;
    L2Norm l2norm = L2Norm::rsqrt;
    double eps = 1e-6;
    std::optional<double> scale;  // nullopt: dk^-1/2
    NormRounding rounding = NormRounding::none;
    OutDType out_dtype = OutDType::f32;
    Matmul matmul = Matmul::f32;
    bool matmul_of_inputs = false;  // until the inputs are read, which determine `matmul`
    SumDType gate_sum = SumDType::f32;
    StateDType state_dtype = StateDType::f32;
    bool state_of_inputs = false;  // like matmul_of_inputs
    EmptySequence empty = EmptySequence::passthrough;
    std::optional<ExpClip> exp_clip;
    TokenLayout layout = TokenLayout::tokens_first;  // of q, k, v, gates, beta, out, and their gradients
    int chunk = 64;  // the device's chunk length, for the budget of chunked forms and for localising errors
};

struct ResolvedContract {
    std::string name;
    GdnContract value;
    std::vector<ContractField> fields;  // all fields in a fixed order

    // "head_map=equal state_layout=B,H,K,V ..." on one line.
    std::string text() const;
    std::map<std::string, std::string> as_metadata() const;
};

std::vector<std::string> contract_names();
std::vector<std::string> contract_field_names();
// The words that the field accepts, without numbers; empty: it accepts only numbers, or there is no such field.
std::vector<std::string> contract_field_values(std::string_view field);

// Applies the named contract, then the string metadata of the inputs file, then `sets` ("field=value"). Ignores
// metadata keys that are not fields. bad_input: a metadata `op` other than gdn, or a metadata value that its field does
// not know. Unknown contracts, fields and values in `name` and `sets` are usage errors.
Result<ResolvedContract> resolve_contract(std::string_view name, const std::map<std::string, std::string>& metadata,
                                          std::span<const std::string> sets);

// Changes one field of a resolved contract, for example by a `scale` tensor in the inputs file.
Status set_field(ResolvedContract& contract, std::string_view field, std::string_view value, std::string_view origin);

}  // namespace gdnctl::oracle
