// The named cases, including steps for kernels that decode.
#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/cases/cases.h"

namespace gdnctl::oracle {

namespace {

GdnCase step(std::string name, std::string about, GdnDims dims) {
    GdnCase c;
    c.name = std::move(name);
    c.set = "decode";
    c.decode = true;
    c.about = std::move(about);
    c.dims = dims;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    return c;
}

std::vector<GdnCase> make_decode_cases() {
    std::vector<GdnCase> all;
    for (std::int64_t tokens = 1; tokens <= 8; ++tokens) {
        all.push_back(
            step(fmt::format("decode_t{}", tokens), fmt::format("{} tokens", tokens), {3, tokens, 2, 4, 16, 8}));
    }
    all.push_back(step("decode_d128", "one token, d = 128", {2, 1, 4, 8, 128, 128}));
    all.push_back(step("decode_odd", "dk = 3, dv = 7", {2, 2, 1, 3, 3, 7}));
    all.push_back(step("decode_tiled", "tiled heads", {2, 4, 2, 6, 16, 16}));
    all.back().contract = {"head_map=tiled"};
    all.push_back(step("decode_no_norm", "unit keys, no l2norm", {2, 5, 2, 4, 32, 16}));
    all.back().contract.emplace_back("l2norm=off");
    all.back().keys = KeyRecipe::unit;
    all.push_back(step("decode_bf16", "bf16 inputs", {2, 3, 2, 4, 32, 32}));
    all.back().dtype = DType::bf16;
    all.push_back(step("decode_forget", "gates of -200: nothing is left", {2, 3, 2, 4, 16, 16}));
    all.back().gate = GateRecipe::constant;
    all.back().gate_value = -200;
    all.push_back(step("decode_packed", "steps of 1, 0, 3 and 8 tokens in one array", {1, 12, 2, 4, 16, 8}));
    all.back().cu_seqlens = {0, 1, 1, 4, 12};
    return all;
}

}  // namespace

const std::vector<GdnCase>& decode_cases() {
    static const std::vector<GdnCase> k_cases = make_decode_cases();
    return k_cases;
}

// The named cases. Each row has what is special about it; the rest is GdnCase's default.

namespace {

constexpr double k_infinity = std::numeric_limits<double>::infinity();

using Cases = std::vector<GdnCase>;
using Settings = std::vector<std::string>;

// Shapes and inputs of Marin's own kernel tests, where half of the gates are positive.
void add_marin_tests(Cases& cases) {
    const auto add = [&](std::string name, std::string about, GdnDims dims, int chunk) -> GdnCase& {
        GdnCase c;
        c.name = std::move(name);
        c.set = "marin-tests";
        c.about = std::move(about);
        c.dims = dims;
        c.seed = 100 + cases.size();
        c.gate = GateRecipe::both_signs;
        c.contract = {fmt::format("chunk={}", chunk)};
        return cases.emplace_back(std::move(c));
    };
    GdnCase& beta0 = add("marin_beta0", "beta = 0: nothing is ever written", {2, 17, 3, 3, 8, 8}, 64);
    beta0.beta = BetaRecipe::constant;
    GdnCase& fit = add("marin_perfect_fit", "alpha = beta = 1: the state recalls the last v", {1, 11, 2, 2, 8, 8}, 64);
    fit.gate = GateRecipe::constant;
    fit.beta = BetaRecipe::constant;
    fit.beta_value = 1;
    for (const int chunk : {1, 2, 7, 16, 32, 64}) {
        add(fmt::format("marin_57_C{}", chunk), "chunked equals recurrent", {2, 57, 3, 3, 8, 8}, chunk);
    }
    add("marin_61_C32", "length that the chunk does not divide", {2, 61, 4, 4, 8, 16}, 32);
    add("marin_47_state", "initial state", {1, 47, 3, 3, 8, 8}, 16).state_scale = 0.1;
    GdnCase& unnormalised = add("marin_29_C1_no_l2norm", "chunk 1, keys normalised outside", {2, 29, 2, 2, 8, 8}, 1);
    unnormalised.keys = KeyRecipe::unit;
    unnormalised.contract.emplace_back("l2norm=off");
    GdnCase& extreme = add("marin_extreme_gates", "g in U(-8,-2), beta 1e-4 or 1-1e-6", {1, 37, 2, 2, 16, 8}, 64);
    extreme.gate = GateRecipe::strong;
    extreme.beta = BetaRecipe::extremes;
    add("marin_7_C4", "short, odd length", {1, 7, 1, 1, 4, 4}, 4);
    add("marin_17", "recurrent form against transformers", {1, 17, 2, 2, 8, 8}, 64);
    add("marin_64_C32", "chunked form against transformers", {2, 64, 4, 4, 8, 16}, 32);
    add("marin_16_C8", "backward test's forward", {1, 16, 2, 2, 8, 8}, 8).state_scale = 0.1;
    for (const int length : {1, 2, 3, 5, 7}) {
        add(fmt::format("marin_short_{}", length), "shorter than one chunk", {2, length, 2, 2, 8, 8}, 64);
    }
}

// Inputs that are numerically hard: repeated keys, strong decay, extreme scales.
void add_numerics(Cases& cases) {
    const auto add = [&](std::string name, std::string about, KeyRecipe keys) -> GdnCase& {
        GdnCase c;
        c.name = std::move(name);
        c.set = "numerics";
        c.about = std::move(about);
        c.dims = {1, 200, 1, 1, 64, 64};
        c.seed = 200 + cases.size();
        c.keys = keys;
        return cases.emplace_back(std::move(c));
    };
    const auto fixed_beta = [](GdnCase& c, double beta, double gate) {
        c.beta = BetaRecipe::constant;
        c.beta_value = beta;
        c.gate = GateRecipe::constant;
        c.gate_value = gate;
    };
    const auto gate = [](GdnCase& c, GateRecipe recipe, double value) {
        c.gate = recipe;
        c.gate_value = value;
    };
    add("random_normed", "random unit keys", KeyRecipe::unit);
    add("random_bf16", "random unit keys stored in bf16", KeyRecipe::unit).dtype = DType::bf16;
    GdnCase& cos65 = add("keys_cos65", "pairwise cosine .65, beta .9, g -.05", KeyRecipe::correlated);
    cos65.key_mix = 0.75;
    fixed_beta(cos65, 0.9, -0.05);
    GdnCase& cos91 = add("keys_cos91", "pairwise cosine .91, beta .9, g -.01", KeyRecipe::correlated);
    cos91.key_mix = 0.32;
    fixed_beta(cos91, 0.9, -0.01);
    fixed_beta(add("keys_identical", "identical keys, beta 1-1e-6, g -1e-3", KeyRecipe::identical), 1 - 1e-6, -1e-3);
    fixed_beta(add("keys_identical_beta1", "identical keys, beta 1, g 0", KeyRecipe::identical), 1, 0);
    fixed_beta(add("keys_identical_beta2", "identical keys, beta 2, g 0: ill-conditioned", KeyRecipe::identical), 2, 0);
    gate(add("gates_strong", "g in U(-8,-2)", KeyRecipe::unit), GateRecipe::strong, 0);
    gate(add("gates_minus_30", "g = -30 throughout", KeyRecipe::unit), GateRecipe::constant, -30);
    gate(add("gates_sparse_200", "g = -200 at every 50th token", KeyRecipe::unit), GateRecipe::sparse, -200);
    for (const auto& [name, value] : {std::pair{"gate_1e4", -1e4}, {"gate_1e30", -1e30}, {"gate_inf", -k_infinity}}) {
        GdnCase& c = add(name, "one very negative g, initial state of size 100", KeyRecipe::unit);
        gate(c, GateRecipe::once, value);
        c.state_scale = 100;
    }
    add("keys_tiny", "k of length 1e-4 before l2norm", KeyRecipe::tiny);
    add("values_1e18", "v of size 1e18", KeyRecipe::unit).value_scale = 1e18;
    GdnCase& tiny_values = add("values_denormal", "v of size 1e-39: fp32 denormals", KeyRecipe::unit);
    tiny_values.value_scale = 1e-39;
}

// Shapes and values at the limits of what is allowed.
void add_edges(Cases& cases) {
    const auto add = [&](std::string name, std::string about, GdnDims dims, Settings contract = {}) -> GdnCase& {
        GdnCase c;
        c.name = std::move(name);
        c.set = "edges";
        c.about = std::move(about);
        c.dims = dims;
        c.seed = 300 + cases.size();
        c.state_scale = 0.1;
        c.contract = std::move(contract);
        return cases.emplace_back(std::move(c));
    };
    add("zero_qk", "all q and k are zero", {1, 20, 2, 2, 8, 8}, {"chunk=16"}).keys = KeyRecipe::zero;
    for (const int length : {1, 15, 16, 17, 33}) {
        add(fmt::format("tail_{}_C16", length), "length around the chunk's", {1, length, 2, 2, 8, 8}, {"chunk=16"});
    }
    add("odd_dims", "dk 3, dv 7, chunk 1", {2, 13, 1, 2, 3, 7}, {"chunk=1", "head_map=interleaved"});
    add("d128", "real head dimensions", {1, 130, 1, 2, 128, 128}, {"head_map=interleaved"});
    for (const std::int64_t ratio : {2, 4}) {
        add(fmt::format("gva_{}", ratio), "several value heads per key head", {1, 45, 2, 2 * ratio, 16, 8},
            {"head_map=interleaved", "chunk=16"});
    }
    add("gva_tiled", "key head h % Hk", {1, 45, 2, 4, 16, 8}, {"head_map=tiled"});
    add("state_value_key", "state stored as [B,H,V,K]", {1, 30, 2, 2, 16, 8}, {"state_layout=B,H,V,K"});
    add("scale_1", "scale given as 1", {1, 30, 2, 2, 16, 8}, {"scale=1"});
    GdnCase& positive = add("gates_positive", "every g positive", {1, 40, 2, 2, 8, 8});
    positive.gate = GateRecipe::constant;
    positive.gate_value = 0.05;
    GdnCase& negative_zero = add("gates_minus_zero", "g = -0", {1, 40, 2, 2, 8, 8});
    negative_zero.gate = GateRecipe::constant;
    negative_zero.gate_value = -0.0;
    add("raw_gates", "a, b, A_log, dt_bias", {1, 47, 2, 4, 8, 8},
        {"head_map=interleaved", "g_kind=raw", "beta_kind=logit"})
        .gate = GateRecipe::raw;
    add("raw_gates_2logit", "beta = 2 sigmoid(b)", {1, 47, 2, 2, 8, 8}, {"g_kind=raw", "beta_kind=2*logit"}).gate =
        GateRecipe::raw;
    add("raw_gates_extreme", "a = +-100, softplus' threshold, overflow", {1, 48, 2, 2, 8, 8},
        {"g_kind=raw", "beta_kind=logit"})
        .gate = GateRecipe::raw_extreme;
    add("beta_corners", "beta 0, 1 or 2", {1, 60, 2, 2, 16, 16}).beta = BetaRecipe::corners;
    GdnCase& packed = add("varlen", "packed sequences of 16, 32, 8 and 64 tokens", {1, 120, 2, 2, 16, 8});
    packed.cu_seqlens = {0, 16, 48, 56, 120};
    for (const char* policy : {"passthrough", "zeros"}) {
        GdnCase& empty = add(fmt::format("varlen_empty_{}", policy), "empty sequences first, in the middle and last",
                             {1, 40, 2, 2, 16, 8}, {fmt::format("empty={}", policy)});
        empty.cu_seqlens = {0, 0, 16, 16, 40, 40};
    }
    GdnCase& padding = add("varlen_nan_padding", "NaN in the rows after the last sequence", {1, 40, 2, 2, 16, 8});
    padding.cu_seqlens = {0, 16, 33};
    padding.nan_padding = true;
    add("no_tokens", "T = 0: the final state is the initial one", {1, 0, 2, 2, 8, 8});
    GdnCase& long_run = add("long_no_decay", "32768 tokens with alpha = 1: drift", {1, 32768, 1, 1, 16, 16});
    long_run.gate = GateRecipe::constant;
    GdnCase& unstable =
        add("unnormalised_keys", "beta |k|^2 > 2, no l2norm: explodes", {1, 200, 1, 1, 16, 8}, {"l2norm=off"});
    unstable.expected = Verdict::unstable_input;
}

void add_goldens(Cases& cases) {
    const auto add = [&](std::string name, std::string about, GdnDims dims, Settings contract) -> GdnCase& {
        GdnCase c;
        c.name = std::move(name);
        c.set = "golden";
        c.about = std::move(about);
        c.dims = dims;
        c.seed = 0;
        c.dtype = DType::f64;
        c.contract = std::move(contract);
        return cases.emplace_back(std::move(c));
    };
    const Settings hand = {"g_kind=alpha", "l2norm=off", "scale=1"};
    add("t_hand", "three tokens worked out by hand", {1, 3, 1, 1, 2, 3}, hand);
    add("t_hand_no_state", "the same from an empty state", {1, 3, 1, 1, 2, 3}, hand);
    const GdnDims g1 = {1, 70, 2, 4, 16, 8};
    add("g1", "trigonometric inputs, raw gates", g1, {"head_map=interleaved", "g_kind=raw", "beta_kind=logit"});
    add("g1_tiled", "the same with tiled heads", g1, {"head_map=tiled", "g_kind=raw", "beta_kind=logit"});
    add("g1_no_l2norm", "without l2norm: grows to 4e14", g1,
        {"head_map=interleaved", "g_kind=raw", "beta_kind=logit", "l2norm=off"})
        .expected = Verdict::unstable_input;
}

// Cases added later, with seeds of their own, so that those of the others do not change.
void add_later(Cases& cases) {
    const auto add = [&](std::string name, const char* set, std::string about, GdnDims dims) -> GdnCase& {
        GdnCase c;
        c.name = std::move(name);
        c.set = set;
        c.about = std::move(about);
        c.dims = dims;
        c.seed = 500 + cases.size();
        return cases.emplace_back(std::move(c));
    };
    GdnCase& odd = add("marin_61_C32_narrow", "marin-tests", "chunked form against transformers, odd length",
                       {2, 61, 3, 3, 8, 16});
    odd.gate = GateRecipe::both_signs;
    odd.contract = {"chunk=32"};
    GdnCase& tails =
        add("gates_tails", "numerics", "g in U(-103,-87): its exp is a denormal of fp32, or 0", {1, 200, 1, 1, 64, 64});
    tails.keys = KeyRecipe::unit;
    tails.gate = GateRecipe::tails;
    tails.state_scale = 100;
    GdnCase& state = add("state_bf16", "numerics", "initial state stored in bf16", {1, 200, 1, 1, 64, 64});
    state.keys = KeyRecipe::unit;
    state.state_scale = 1;
    state.state_dtype = DType::bf16;
    GdnCase& none = add("no_sequences", "edges", "N = 0: tokens, but none in a sequence", {1, 20, 2, 2, 8, 8});
    none.cu_seqlens = {0};
}

Cases make_cases() {
    Cases cases;
    add_goldens(cases);
    add_marin_tests(cases);
    add_numerics(cases);
    add_edges(cases);
    add_later(cases);
    const auto rank = [](const GdnCase& c) {
        constexpr std::array k_sets = {"golden", "marin-tests", "numerics", "edges"};
        return std::find(k_sets.begin(), k_sets.end(), c.set) - k_sets.begin();
    };
    std::stable_sort(cases.begin(), cases.end(), [&](const GdnCase& a, const GdnCase& b) { return rank(a) < rank(b); });
    return cases;
}

}  // namespace

const std::vector<GdnCase>& gdn_cases() {
    static const Cases k_cases = make_cases();
    return k_cases;
}

const std::vector<GdnCase>& slow_cases() {
    static const Cases k_cases = [] {
        GdnCase c;
        c.name = "long_65537";
        c.set = "slow";
        c.about = "1024 chunks of 64 and one token";
        c.dims = {1, 65537, 1, 1, 64, 64};
        c.seed = 600;
        c.state_scale = 0.1;
        return Cases{c};
    }();
    return k_cases;
}

std::vector<GdnCase> all_cases() {
    Cases all;
    for (const auto* cases : {&gdn_cases(), &crossed_cases(), &slow_cases(), &decode_cases()}) {
        all.insert(all.end(), cases->begin(), cases->end());
    }
    return all;
}

const GdnCase* find_gdn_case(std::string_view name) {
    const auto spelt = [](std::string_view text) {
        std::string plain = text::to_lower(text);
        std::replace(plain.begin(), plain.end(), '-', '_');
        return plain;
    };
    const auto plain = spelt(name);
    for (const auto* cases : {&gdn_cases(), &crossed_cases(), &slow_cases(), &decode_cases(), &device_cases()}) {
        for (const GdnCase& c : *cases) {
            if (spelt(c.name) == plain) return &c;
        }
    }
    return nullptr;
}

std::vector<std::string> gdn_case_names() {
    std::vector<std::string> names;
    for (const GdnCase& c : all_cases()) names.push_back(c.name);
    for (const GdnCase& c : device_cases()) names.push_back(c.name);
    return names;
}

}  // namespace gdnctl::oracle
