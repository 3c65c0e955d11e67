// The cases for compiled kernels: few shapes, which accelerators compile, and on each of them inputs of every kind.
// Each pair of kinds of inputs, and each kind with each shape, is in some case.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/judge/covering.h"

namespace gdnctl::oracle {

namespace {

enum class Form { plain, without_state, packed, decode };

// What is compiled once.
struct Signature {
    GdnDims dims;
    Form form = Form::plain;
    bool gradients = false;
};

// By the work that they are, so that a wrong kernel is known soon.
constexpr std::array<Signature, 15> k_signatures = {{
    {{1, 1, 2, 2, 128, 128}},
    {{1, 64, 2, 2, 64, 64}, Form::plain, true},
    {{1, 65, 1, 4, 64, 64}, Form::without_state, true},
    {{2, 63, 2, 2, 64, 128}, Form::plain, true},
    {{4, 1, 2, 4, 128, 128}, Form::decode},
    {{2, 1, 2, 4, 128, 64}},
    {{1, 200, 1, 4, 128, 64}, Form::plain, true},
    {{2, 65, 2, 4, 128, 128}, Form::plain, true},
    {{1, 200, 2, 2, 64, 64}, Form::packed},
    {{2, 64, 1, 4, 64, 128}},
    {{1, 63, 1, 4, 256, 256}},
    {{1, 200, 2, 4, 128, 128}, Form::packed},
    {{2, 200, 1, 1, 256, 256}},
    {{1, 1024, 1, 1, 64, 64}, Form::plain, true},
    {{1, 1024, 1, 2, 128, 128}},
}};

struct Gates {
    std::string_view about;
    GateRecipe recipe;
    double value = 0;
};
constexpr std::array<Gates, 6> k_gates = {{{"weak gates", GateRecipe::soft},
                                           {"strong gates", GateRecipe::strong},
                                           {"closed gates", GateRecipe::sparse, -1e4},
                                           {"resets", GateRecipe::resets},
                                           {"gates at the end of fp32", GateRecipe::tails},
                                           {"no decay", GateRecipe::constant, 0}}};
struct Keys {
    std::string_view about;
    KeyRecipe recipe;
    double mix = 0;
};
constexpr std::array<Keys, 4> k_keys = {{{"", KeyRecipe::normal},
                                         {"correlated keys", KeyRecipe::correlated, 0.5},
                                         {"zero keys", KeyRecipe::zero},
                                         {"tiny keys", KeyRecipe::tiny}}};
struct Betas {
    std::string_view about;
    BetaRecipe recipe;
    double value = 0;
};
constexpr std::array<Betas, 4> k_betas = {{{"", BetaRecipe::uniform},
                                           {"beta near 0 and 1", BetaRecipe::extremes},
                                           {"beta 0, 1 or 2", BetaRecipe::corners},
                                           {"beta 1", BetaRecipe::constant, 1}}};
constexpr std::array<double, 3> k_states = {0, 0.3, 100};  // scale; 0: an array of zeros
constexpr std::array<double, 3> k_values = {1, 1e4, 1e-4};

enum Factor : std::size_t { by_signature, by_gate, by_key, by_beta, by_state, by_value, by_padding };

std::vector<Row> device_rows() {
    std::vector<Exclusion> exclusions;
    for (std::size_t s = 0; s < k_signatures.size(); ++s) {
        if (k_signatures[s].form == Form::without_state) {
            exclusions.push_back({Level{by_signature, s}, Level{by_state, 1}});
            exclusions.push_back({Level{by_signature, s}, Level{by_state, 2}});
        }
        if (k_signatures[s].form != Form::packed) exclusions.push_back({Level{by_signature, s}, Level{by_padding, 1}});
    }
    Covering covering(
        {k_signatures.size(), k_gates.size(), k_keys.size(), k_betas.size(), k_states.size(), k_values.size(), 2},
        exclusions);
    const std::array<std::size_t, 7> factors = {by_signature, by_gate, by_key, by_beta, by_state, by_value, by_padding};
    covering.want_pairs(factors);
    covering.add_rows(factors, [](Row&) {});
    return covering.rows();
}

GdnCase case_of(const Row& row) {
    const Signature& s = k_signatures[row[by_signature]];
    GdnCase c;
    c.set = "device";
    c.dims = s.dims;
    c.gate = k_gates[row[by_gate]].recipe;
    c.gate_value = k_gates[row[by_gate]].value;
    c.keys = k_keys[row[by_key]].recipe;
    c.key_mix = k_keys[row[by_key]].mix;
    c.beta = k_betas[row[by_beta]].recipe;
    c.beta_value = k_betas[row[by_beta]].value;
    c.state_scale = k_states[row[by_state]];
    c.zero_state = c.state_scale == 0 && s.form != Form::without_state;
    c.value_scale = k_values[row[by_value]];
    c.decode = s.form == Form::decode;
    c.gradients = s.gradients;
    if (s.form == Form::packed) {
        // A sequence of many chunks, a short one, one of a single chunk, and rows that belong to none.
        const std::int64_t T = s.dims.T;
        c.cu_seqlens = {0, T - 80, T - 75, T - 11};
        c.nan_padding = row[by_padding] == 1;
    }
    if (s.dims.Hv > s.dims.Hk) c.contract.emplace_back("head_map=interleaved");
    std::vector<std::string> said = {std::string(k_gates[row[by_gate]].about)};
    for (const std::string_view about : {k_keys[row[by_key]].about, k_betas[row[by_beta]].about}) {
        if (!about.empty()) said.emplace_back(about);
    }
    if (c.state_scale > 0) said.push_back(fmt::format("S0 x {}", c.state_scale));
    if (c.value_scale != 1) said.push_back(fmt::format("v x {:g}", c.value_scale));
    if (c.nan_padding) said.emplace_back("NaN in padding");
    c.about = fmt::format("{}", fmt::join(said, ", "));
    return c;
}

}  // namespace

std::string signature_of(const GdnCase& c) {
    const GdnDims& d = c.dims;
    const bool has_state = c.state_scale != 0 || c.zero_state;
    return fmt::format("B{}_T{}_Hk{}_Hv{}_dk{}_dv{}{}{}", d.B, d.T, d.Hk, d.Hv, d.dk, d.dv,
                       c.cu_seqlens.empty() ? "" : "_packed", has_state ? "_state" : "");
}

const std::vector<GdnCase>& device_cases() {
    static const std::vector<GdnCase> k_cases = [] {
        std::vector<Row> rows = device_rows();
        // One case of each signature early, with other gates from one to the next.
        std::array<std::size_t, k_signatures.size()> count{};
        std::vector<std::pair<std::array<std::size_t, 2>, GdnCase>> ranked;
        for (const Row& row : rows) {
            const std::size_t s = row[by_signature];
            ranked.push_back({{(count[s]++ + s) % k_gates.size(), s}, case_of(row)});
        }
        std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<GdnCase> cases;
        for (auto& [rank, c] : ranked) {
            c.name = fmt::format("device_{:03}", cases.size() + 1);
            c.seed = 2000 + cases.size();
            cases.push_back(std::move(c));
        }
        return cases;
    }();
    return k_cases;
}

}  // namespace gdnctl::oracle
