// Generated Gated DeltaNet inputs: named cases and free shapes. The same seed gives the same bytes on every machine:
// integer random numbers, normals as sums of 12 uniforms, and nothing from libm (except in the trigonometric golden
// cases).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

enum class KeyRecipe {
    normal,      // N(0,1)
    unit,        // N(0,1), normalised to length 1
    correlated,  // k_0 + mix * k_t, normalised
    identical,   // k_0 for all tokens, normalised
    zero,        // q and k all zero
    tiny,        // normalised to length 1e-4
};

enum class GateRecipe {
    soft,         // g = -0.1 |N|
    both_signs,   // g = -0.1 N
    constant,     // g = gate_value
    strong,       // g in U(-8, -2)
    sparse,       // soft, with gate_value at every 50th token
    tails,        // soft, with U(-103, -87) at every 8th token
    once,         // soft, with gate_value at token T/2
    resets,       // soft, with -200 at every 32nd token
    raw,          // a, b ~ N(0,1), A_log in U(-3, 2.75), dt_bias = 1
    raw_extreme,  // a cycles through 0, +-100, 19.9, 20, 20.1; A_log up to 88, whose gates overflow fp32
};

enum class BetaRecipe {
    uniform,   // U(0, 1)
    constant,  // beta_value
    extremes,  // 1e-4 or 1 - 1e-6
    corners,   // 0, 1 or 2
};

struct GdnCase {
    std::string name;
    std::string set;    // "marin-tests", "numerics", "edges", "golden", "crossed", "slow", "decode",
                        // "device"
    std::string about;  // what is special about it, one line
    GdnDims dims;
    std::uint64_t seed = 1;
    DType dtype = DType::f32;  // of q, k, v and, except for raw gates, g and beta
    KeyRecipe keys = KeyRecipe::normal;
    double key_mix = 0;
    GateRecipe gate = GateRecipe::soft;
    double gate_value = 0;
    BetaRecipe beta = BetaRecipe::uniform;
    double beta_value = 0;
    double value_scale = 1;
    double state_scale = 0;   // S0 = state_scale * N(0,1); 0: no initial state,
    bool zero_state = false;  // or one of zeros
    bool gradients = true;    // that kernels are asked for them, too
    bool decode = false;      // a step for kernels that decode
    DType state_dtype = DType::f32;
    std::vector<std::int64_t> cu_seqlens;  // empty: one sequence per batch row
    bool nan_padding = false;              // NaN in all tokens after the last one of cu_seqlens
    std::vector<std::string> contract;     // "field=value" where the case differs from `marin`
    Verdict expected = Verdict::ok;        // for a correct kernel
};

const std::vector<GdnCase>& gdn_cases();
// A covering array over the factors below: some case contains each allowed pair of their values and, under the default
// contract, each triple of conditions.
const std::vector<GdnCase>& crossed_cases();
// Cases that take seconds: `oracle verify --slow`.
const std::vector<GdnCase>& slow_cases();
// Steps of 1 to 8 tokens, for kernels that decode.
const std::vector<GdnCase>& decode_cases();
// Few shapes with inputs of every kind, for kernels that are compiled for each shape; in the order of the run.
const std::vector<GdnCase>& device_cases();
// "B1_T64_Hk2_Hv2_dk64_dv64_state": cases with the same need one compilation.
std::string signature_of(const GdnCase& c);
// All of the lists above but device_cases(), concatenated.
std::vector<GdnCase> all_cases();
// Searches all lists, device_cases() too; ignores case and treats '-' as '_'. nullptr: no such case.
const GdnCase* find_gdn_case(std::string_view name);
std::vector<std::string> gdn_case_names();

// The dimensions of the crossed cases: conditions, and fields of the contract.
struct CaseFactor {
    enum class Kind {
        condition,
        field,
        precision,  // a field that only says how exact a kernel has to be
    };
    std::string_view name;
    Kind kind;
    std::vector<std::string_view> values;  // a field's default comes first
};
const std::vector<CaseFactor>& case_factors();

struct CaseValue {
    std::string factor, value;
    bool operator==(const CaseValue&) const = default;
};
// False for two values that exclude each other, for example an empty remainder and no full chunk.
bool may_meet(const CaseValue& a, const CaseValue& b);
// The value of each factor, derived from the case itself; lengths are those of its longest sequence. Cases of other
// sets may have values that no factor lists.
std::vector<CaseValue> case_values(const GdnCase& c);

// q, k, v, g (or a, A_log, dt_bias), beta (or b), initial_state and cu_seqlens, as specified by the case and its
// contract fields. The metadata has op, case, seed and those fields.
TensorFile make_inputs(const GdnCase& c);

// `d_out` and `d_final_state` of the case; no tensor if it accepts any.
TensorFile make_cotangents(const GdnCase& c);

// Changes the storage of q, k and v, and with it that of the outputs (out_dtype=query); gates, beta and states stay.
// False, without a change: a value is too large for the dtype.
bool store_as(TensorFile& inputs, DType dtype);

// What a kernel is declared to compute, and what that makes of the cases.

struct Declared {
    std::optional<std::string> contract;  // the name that was given
    std::vector<std::string> sets;        // "field=value"
    std::vector<ContractField> fields;    // of the named contract all but chunk, and those of `sets`

    const ContractField* find(std::string_view field) const;
};

// Usage errors: an unknown contract, field or value.
Result<Declared> read_declared(std::optional<std::string> contract, std::vector<std::string> sets);

// Changes the case to what is declared. Fields of precision apply to every case. All others are fixed: a case that
// needs another value is left as it is, and the value that it needs is returned ("head_map=tiled"); else nothing is.
std::optional<std::string> declare(GdnCase& c, const Declared& declared);

}  // namespace gdnctl::oracle
