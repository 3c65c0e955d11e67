// The crossed cases. Kernels fail where two or three conditions meet: a head of 128 and strong gates, or a packed
// sequence and several value heads per key head. The cases have three parts:
//   1. the default contract, with each triple of conditions;
//   2. each pair of conditions and fields that change what a kernel computes;
//   3. each pair with a field that only says how exact a kernel has to be. These cases allow larger errors, so they
//      do not count for the first two parts.
#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/judge/covering.h"

namespace gdnctl::oracle {

namespace {

using Kind = CaseFactor::Kind;

// By index in case_factors().
enum Condition : std::size_t { head_size, remainder, full_chunks, batch, head_ratio, packed, gates, state, dtype };
constexpr std::size_t k_head_map = 9;

struct NamedExclusion {
    std::string_view factor, value, other_factor, other_value;
};

constexpr NamedExclusion k_exclusions[] = {
    {"remainder", "0", "full_chunks", "0"},  // no tokens: covered by the case no_tokens
    {"packed", "yes", "batch", "2"},         // packed sequences share one batch row
    {"head_map", "equal", "head_ratio", "2"}, {"head_map", "equal", "head_ratio", "3"},
    {"empty", "zeros", "packed", "no"},  // only a packed sequence can be empty
    {"empty", "zeros", "batch", "2"},
};

std::size_t factor_named(std::string_view name) {
    const auto& all = case_factors();
    const auto found = std::find_if(all.begin(), all.end(), [&](const CaseFactor& f) { return f.name == name; });
    return static_cast<std::size_t>(found - all.begin());
}

Level level_named(std::string_view factor, std::string_view value) {
    const std::size_t f = factor_named(factor);
    const auto& values = case_factors()[f].values;
    return {f, static_cast<std::size_t>(std::find(values.begin(), values.end(), value) - values.begin())};
}

std::vector<std::size_t> factors_of(std::initializer_list<Kind> kinds) {
    std::vector<std::size_t> found;
    for (std::size_t f = 0; f < case_factors().size(); ++f) {
        if (std::find(kinds.begin(), kinds.end(), case_factors()[f].kind) != kinds.end()) found.push_back(f);
    }
    return found;
}

std::vector<Row> crossed_rows() {
    std::vector<std::size_t> counts;
    for (const CaseFactor& f : case_factors()) counts.push_back(f.values.size());
    std::vector<Exclusion> exclusions;
    for (const NamedExclusion& e : k_exclusions) {
        exclusions.push_back({level_named(e.factor, e.value), level_named(e.other_factor, e.other_value)});
    }
    Covering covering(std::move(counts), exclusions);
    const auto conditions = factors_of({Kind::condition});
    covering.want_triples(conditions);
    // Fields of the default contract; several value heads per key head need another head_map.
    covering.add_rows(conditions, [](Row& row) { row[k_head_map] = row[head_ratio] == 0 ? 0 : 1; });
    for (const auto& factors :
         {factors_of({Kind::condition, Kind::field}), factors_of({Kind::condition, Kind::field, Kind::precision})}) {
        covering.want_pairs(factors);
        covering.add_rows(factors, [](Row&) {});
    }
    return covering.rows();
}

GdnDims dims_of(const Row& row, std::size_t index, std::int64_t chunk) {
    // At least 12 rows for any power of two as a kernel's chunk length: three blocks of four rows.
    constexpr std::array<std::int64_t, 3> k_many = {15, 29, 47};
    const std::int64_t many = chunk < 64 ? 13 : k_many[index % k_many.size()];
    const std::int64_t rest = row[remainder] == 3 ? many : static_cast<std::int64_t>(row[remainder]);
    GdnDims d;
    d.B = static_cast<std::int64_t>(row[batch]) + 1;
    d.T = static_cast<std::int64_t>(row[full_chunks]) * chunk + rest;
    d.Hk = 2;
    d.Hv = d.Hk * static_cast<std::int64_t>(row[head_ratio] + 1);
    const bool wide = index % 2 == 0;
    d.dk = row[head_size] == 3 ? (wide ? 128 : 64) : std::int64_t{64} << row[head_size];
    d.dv = row[head_size] == 3 ? 192 - d.dk : d.dk;
    return d;
}

// A sequence of `length` tokens that does not start at a chunk boundary, between shorter ones, one of which is empty.
// If there are enough tokens, the total has the same remainder.
std::vector<std::int64_t> packed_offsets(std::int64_t length, std::int64_t chunk) {
    const std::int64_t before = length > chunk ? 5 : std::min<std::int64_t>(length, 5);
    const std::int64_t after = length >= chunk ? chunk - before : 1;
    return {0, before, before, before + length, before + length + after};
}

std::string about(const Row& row, const GdnCase& c, std::int64_t chunk, std::size_t fields) {
    const std::int64_t length = c.cu_seqlens.empty() ? c.dims.T : c.cu_seqlens[3] - c.cu_seqlens[2];
    constexpr std::array k_gates = {"weak gates", "strong gates", "resets"};
    std::string text = row[full_chunks] == 0 ? fmt::format("{} of {}", length, chunk)
                                             : fmt::format("{}x{}+{}", row[full_chunks], chunk, length % chunk);
    text += fmt::format(", {}", k_gates[row[gates]]);
    if (row[packed] == 1) text += ", packed";
    if (row[state] == 1) text += ", S0";
    if (row[dtype] != 0) text += fmt::format(", {}", case_factors()[dtype].values[row[dtype]]);
    if (fields > 0) text += fmt::format(", {} field{}", fields, fields == 1 ? "" : "s");
    return text;
}

GdnCase case_of(const Row& row, std::size_t index) {
    constexpr std::array k_gates = {GateRecipe::soft, GateRecipe::strong, GateRecipe::resets};
    constexpr std::array k_dtypes = {DType::f32, DType::bf16, DType::f16};
    GdnCase c;
    c.name = fmt::format("crossed_{:03}", index + 1);
    c.set = "crossed";
    c.seed = 1000 + index;
    c.gate = k_gates[row[gates]];
    c.dtype = k_dtypes[row[dtype]];
    c.state_scale = row[state] == 1 ? 0.3 : 0;
    std::int64_t chunk = 64;
    for (const std::size_t f : factors_of({Kind::field, Kind::precision})) {
        if (row[f] == 0) continue;
        const CaseFactor& factor = case_factors()[f];
        c.contract.push_back(fmt::format("{}={}", factor.name, factor.values[row[f]]));
        if (factor.name == "chunk") chunk = row[f] == 1 ? 16 : 32;
        // Without l2norm, the state only stays bounded for keys of length 1.
        if (c.contract.back() == "l2norm=off") c.keys = KeyRecipe::unit;
    }
    c.dims = dims_of(row, index, chunk);
    if (row[packed] == 1) {
        c.cu_seqlens = packed_offsets(c.dims.T, chunk);
        c.dims.T = c.cu_seqlens.back();
    }
    const bool by_ratio = row[head_ratio] > 0 && row[k_head_map] == 1;
    c.about = about(row, c, chunk, c.contract.size() - (by_ratio ? 1 : 0));
    return c;
}

std::string gates_of(const GdnCase& c) {
    if (c.set == "golden") return "formula";
    switch (c.gate) {
        case GateRecipe::soft: return "weak";
        case GateRecipe::both_signs: return "both signs";
        case GateRecipe::constant: return fmt::format("{}", c.gate_value);
        case GateRecipe::strong: return "strong";
        case GateRecipe::sparse: return "sparse";
        case GateRecipe::tails: return "tails";
        case GateRecipe::once: return "once";
        case GateRecipe::resets: return "resets";
        case GateRecipe::raw: return "raw";
        case GateRecipe::raw_extreme: return "raw, extreme";
    }
    return "";
}

// As spelled by the conditions and the contract's fields.
std::string dtype_of(const GdnCase& c) {
    switch (c.dtype) {
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
        default: return std::string(name_of(c.dtype));
    }
}

std::int64_t longest_sequence(const GdnCase& c) {
    if (c.cu_seqlens.empty()) return c.dims.T;
    std::int64_t longest = 0;
    for (std::size_t n = 1; n < c.cu_seqlens.size(); ++n) {
        longest = std::max(longest, c.cu_seqlens[n] - c.cu_seqlens[n - 1]);
    }
    return longest;
}

}  // namespace

const std::vector<CaseFactor>& case_factors() {
    static const std::vector<CaseFactor> k_factors = {
        {"head_size", Kind::condition, {"64", "128", "256", "unequal"}},
        {"remainder", Kind::condition, {"0", "1", "2", "many"}},
        {"full_chunks", Kind::condition, {"0", "1", "2+"}},
        {"batch", Kind::condition, {"1", "2"}},
        {"head_ratio", Kind::condition, {"1", "2", "3"}},
        {"packed", Kind::condition, {"no", "yes"}},
        {"gates", Kind::condition, {"weak", "strong", "resets"}},
        {"initial_state", Kind::condition, {"no", "yes"}},
        {"dtype", Kind::condition, {"f32", "bf16", "f16"}},
        {"head_map", Kind::field, {"equal", "interleaved", "tiled"}},
        {"state_layout", Kind::field, {"B,H,K,V", "B,H,V,K"}},
        {"g_kind", Kind::field, {"log", "alpha", "raw"}},
        {"beta_kind", Kind::field, {"prob", "logit", "2*logit"}},
        {"l2norm", Kind::field, {"rsqrt(sum+eps)", "off", "1/sqrt(sum+eps)"}},
        {"eps", Kind::field, {"1e-06", "0.01"}},
        {"scale", Kind::field, {"dk^-0.5", "1"}},
        {"rounding", Kind::field, {"none", "input"}},
        {"empty", Kind::field, {"passthrough", "zeros"}},
        {"exp_clip", Kind::field, {"none", "80", "+50"}},
        {"chunk", Kind::field, {"64", "16", "32"}},
        {"out_dtype", Kind::precision, {"f32", "query", "bf16", "f16"}},
        {"matmul", Kind::precision, {"f32", "bf16x3", "tf32", "f16", "bf16", "input"}},
        {"gate_sum", Kind::precision, {"f32", "g"}},
        {"state_dtype", Kind::precision, {"f32", "bf16", "bf16-token"}},
    };
    return k_factors;
}

const std::vector<GdnCase>& crossed_cases() {
    static const std::vector<GdnCase> k_cases = [] {
        std::vector<GdnCase> cases;
        for (const Row& row : crossed_rows()) cases.push_back(case_of(row, cases.size()));
        return cases;
    }();
    return k_cases;
}

bool may_meet(const CaseValue& a, const CaseValue& b) {
    if (a.factor == b.factor) return a.value == b.value;
    return std::none_of(std::begin(k_exclusions), std::end(k_exclusions), [&](const NamedExclusion& e) {
        const CaseValue one{std::string(e.factor), std::string(e.value)};
        const CaseValue other{std::string(e.other_factor), std::string(e.other_value)};
        return (a == one && b == other) || (a == other && b == one);
    });
}

std::vector<CaseValue> case_values(const GdnCase& c) {
    std::map<std::string, std::string> settings;
    for (const std::string& setting : c.contract) {
        const auto equals = setting.find('=');
        settings[setting.substr(0, equals)] = setting.substr(equals + 1);
    }
    const auto contract = resolve_contract("marin", settings, {});
    if (!contract) return {};
    const std::int64_t length = longest_sequence(c);
    const std::int64_t chunk = contract->value.chunk;
    const std::int64_t rest = length % chunk;
    const GdnDims& d = c.dims;
    const bool has_state = c.set == "golden" ? c.name != "t_hand_no_state" : c.state_scale != 0;
    std::vector<CaseValue> values = {
        {"head_size", d.dk == d.dv ? fmt::format("{}", d.dk) : "unequal"},
        {"remainder", rest > 2 ? "many" : fmt::format("{}", rest)},
        {"full_chunks", length >= 2 * chunk ? "2+" : fmt::format("{}", length / chunk)},
        {"batch", fmt::format("{}", d.B)},
        {"head_ratio", fmt::format("{}", d.Hv / d.Hk)},
        {"packed", c.cu_seqlens.empty() ? "no" : "yes"},
        {"gates", gates_of(c)},
        {"initial_state", has_state ? "yes" : "no"},
        {"dtype", dtype_of(c)},
    };
    for (const ContractField& field : contract->fields) values.push_back({field.name, field.value});
    return values;
}

}  // namespace gdnctl::oracle
