#include "oracle/gdn/under_test/metamorphic.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "oracle/gdn/under_test/checker.h"

namespace gdnctl::oracle {

namespace {

// Correct fp32 kernels stay below a tenth of it on these inputs.
constexpr double k_tolerance = 2e-5;

// How much more kernels of the declared precision are off by.
double widening_of(const GdnContract& c) {
    double factor = 1;
    switch (c.matmul) {
        case Matmul::f32: break;
        case Matmul::bf16x3: factor = 30; break;
        case Matmul::tf32:
        case Matmul::f16: factor = 1000; break;
        case Matmul::bf16: factor = 8000; break;
    }
    return c.state_dtype == StateDType::f32 ? factor : std::max(factor, 8000.0);
}

struct RelationRow {
    const char* name;
    const char* about;
    Status (Checker::*check)();
};

constexpr RelationRow k_relations[] = {
    {"causality", "later tokens do not change earlier outputs (bit for bit)", &Checker::causality},
    {"prefixes", "the first tokens alone give the same results", &Checker::prefixes},
    {"continuation", "two calls that pass on the state equal one call", &Checker::continuation},
    {"linearity", "the result is linear in v and the initial state", &Checker::linearity},
    {"batch_order", "batch rows are independent", &Checker::batch_order},
    {"head_order", "heads are independent", &Checker::head_order},
    {"signs", "flipped signs of dimensions cancel or reappear", &Checker::signs},
    {"chunk_length", "the chunk length does not matter", &Checker::chunk_length},
    {"packed", "packed sequences give the same results as separate ones", &Checker::packed},
    {"padding", "NaN after the last sequence changes nothing", &Checker::padding},
    {"beta_zero", "beta = 0: the initial state only decays", &Checker::beta_zero},
    {"perfect_fit", "alpha = beta = 1: the state recalls the last v", &Checker::perfect_fit},
    {"identical_keys", "one key, beta = 1: out is s (q.k) v", &Checker::identical_keys},
    {"orthonormal_keys", "orthonormal keys: the state's rows are decayed values", &Checker::orthonormal_keys},
    {"gradient", "gradients agree with finite differences of the forward", &Checker::gradient},
};

// Small heads, and those crossed cases in which a pair of head size, heads and gates occurs for the first time.
std::vector<GdnCase> make_settings() {
    GdnCase small;
    small.dims = {2, 0, 2, 4, 16, 8};
    std::vector<GdnCase> settings = {small};
    std::set<std::string> met;
    for (const GdnCase& c : crossed_cases()) {
        const GdnDims& d = c.dims;
        const std::string size = fmt::format("{}x{}", d.dk, d.dv);
        const auto gate = static_cast<int>(c.gate);
        const auto before = met.size();
        met.insert(
            {fmt::format("{}/{}", size, d.Hv), fmt::format("{} {}", size, gate), fmt::format("{}:{}", d.Hv, gate)});
        if (met.size() > before) settings.push_back(c);
    }
    return settings;
}

// Each relation is checked on the first setting and on some others, such that each of these is used by three relations:
// all on all would take minutes.
bool has_setting(std::size_t relation, std::size_t setting) { return setting == 0 || setting % 5 == relation % 5; }

Result<RelationResult> check_row(const RelationRow& row, Kernel& kernel, int threads, std::uint64_t seed,
                                 const Declared& declared) {
    static const std::vector<GdnCase> k_settings = make_settings();
    GDNCTL_TRY_ASSIGN(const auto contract, resolve_contract(declared.contract.value_or("marin"), {}, declared.sets));
    const double widening = widening_of(contract.value);
    RelationResult worst;
    for (std::size_t i = 0; i < k_settings.size(); ++i) {
        if (!has_setting(static_cast<std::size_t>(&row - k_relations), i)) continue;
        Checker checker(kernel, threads, seed, k_settings[i], declared, widening);
        checker.result.tolerance = k_tolerance * widening;
        GDNCTL_TRY((checker.*row.check)());
        RelationResult& result = checker.result;
        if (i > 0 && !result.worst.empty()) result.worst += fmt::format(" (shape and gates of {})", k_settings[i].name);
        if (i == 0 || !result.held() || result.error > worst.error) worst = std::move(result);
        if (!worst.held() || !worst.applies) break;
    }
    return worst;
}

}  // namespace

const std::vector<Relation>& relations() {
    static const std::vector<Relation> k_all = [] {
        std::vector<Relation> all;
        for (const RelationRow& row : k_relations) all.push_back({row.name, row.about});
        return all;
    }();
    return k_all;
}

Status check_relations_apply(const Declared& declared) {
    GDNCTL_TRY_ASSIGN(const auto asked, resolve_contract("marin", {{"head_map", "interleaved"}}, {}));
    constexpr std::array<std::string_view, 6> k_free = {"matmul", "gate_sum", "state_dtype",
                                                        "chunk",  "l2norm",   "out_dtype"};
    for (const ContractField& field : declared.fields) {
        const bool other = std::none_of(asked.fields.begin(), asked.fields.end(), [&](const ContractField& f) {
            return f.name == field.name && f.value == field.value;
        });
        if (!other || std::find(k_free.begin(), k_free.end(), field.name) != k_free.end()) continue;
        return fail(ErrorKind::usage,
                    fmt::format("--metamorphic cannot be combined with {}={}", field.name, field.value),
                    "its relations are about " + asked.text());
    }
    return {};
}

Result<RelationResult> check_relation(const std::string& name, Kernel& kernel, int threads, std::uint64_t seed,
                                      const Declared& declared) {
    for (const RelationRow& row : k_relations) {
        if (name == row.name) return check_row(row, kernel, threads, seed, declared);
    }
    return fail(ErrorKind::usage, fmt::format("unknown relation '{}'", name));
}

}  // namespace gdnctl::oracle
