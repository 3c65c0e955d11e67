// The crossed cases and the declared ones: each condition meets the others, and a fault that shows only there is found.
#include "oracle/gdn/cases/cases.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/text.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "unit/oracle/changed_kernel.h"
#include "unit/oracle/judging.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using FactorKind = CaseFactor::Kind;

std::vector<CaseValue> values_of(const std::vector<FactorKind>& kinds) {
    std::vector<CaseValue> all;
    for (const CaseFactor& f : case_factors()) {
        if (std::find(kinds.begin(), kinds.end(), f.kind) == kinds.end()) continue;
        for (const std::string_view value : f.values) all.push_back({std::string(f.name), std::string(value)});
    }
    return all;
}

bool excluded(const CaseValue& a, const CaseValue& b) { return a.factor == b.factor || !may_meet(a, b); }

bool has(const std::vector<CaseValue>& values, const CaseValue& wanted) {
    return std::find(values.begin(), values.end(), wanted) != values.end();
}

bool has_default_fields(const GdnCase& c) {
    return c.contract.empty() || c.contract == std::vector<std::string>{"head_map=interleaved"};
}

// No field excuses errors beyond those of fp32.
bool is_exact(const std::vector<CaseValue>& values) {
    return std::all_of(case_factors().begin(), case_factors().end(), [&](const CaseFactor& f) {
        return f.kind != FactorKind::precision || has(values, {std::string(f.name), std::string(f.values.front())});
    });
}

struct Met {
    const GdnCase* test_case;
    std::vector<CaseValue> values;
};

std::vector<Met> met_by(bool (*wanted)(const GdnCase&)) {
    std::vector<Met> all;
    for (const GdnCase& c : crossed_cases()) {
        if (wanted(c)) all.push_back({&c, case_values(c)});
    }
    return all;
}

std::size_t size_of(const GdnCase& c) {
    return static_cast<std::size_t>(c.dims.B * c.dims.T * c.dims.Hv * c.dims.dk * c.dims.dv);
}

// The smallest case in which both meet, without fields that excuse errors where there is such a case.
const Met* smallest(const std::vector<Met>& all, const CaseValue& a, const CaseValue& b) {
    const Met* found = nullptr;
    const auto rank = [](const Met& m) { return std::pair(!is_exact(m.values), size_of(*m.test_case)); };
    for (const Met& m : all) {
        if (has(m.values, a) && has(m.values, b) && (found == nullptr || rank(m) < rank(*found))) found = &m;
    }
    return found;
}

// A kernel of ours whose `out` is too large where two values meet, and nowhere else.
ChangedKernel planted(const CaseValue& a, const CaseValue& b, double factor) {
    return {"builtin:fused", {}, [=](const GdnInputs& of, KernelRun& run) {
                const auto values = case_values(*find_gdn_case(of.tensors().metadata.at("case")));
                if (!has(values, a) || !has(values, b)) return;
                Tensor& out = run.outputs.tensors[0].tensor;
                std::vector<double> numbers = to_f64(out);
                for (double& x : numbers) x *= factor;
                out = from_f64(numbers, out.shape, out.dtype);
            }};
}

Verdict verdict_of(Kernel& kernel, const TensorFile& inputs, const GdnReference& reference) {
    const auto run = run_pass(kernel, KernelPass::forward, inputs, reference.contract, 2);
    REQUIRE(run);
    CompareOptions options;
    options.hints = false;
    return judged(reference, run->outputs, options).verdict;
}

}  // namespace

TEST_CASE("crossed: every pair of values that may meet does") {
    const auto all = met_by([](const GdnCase&) { return true; });
    const auto values = values_of({FactorKind::condition, FactorKind::field, FactorKind::precision});
    std::size_t pairs = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t j = i + 1; j < values.size(); ++j) {
            if (excluded(values[i], values[j])) continue;
            ++pairs;
            const std::string pair =
                values[i].factor + "=" + values[i].value + " and " + values[j].factor + "=" + values[j].value;
            CAPTURE(pair);
            const Met* m = smallest(all, values[i], values[j]);
            REQUIRE(m != nullptr);
            // Where no field of precision is asked for, none may excuse what is wrong.
            const auto of_precision = [](const CaseValue& v) {
                return std::any_of(case_factors().begin(), case_factors().end(), [&](const CaseFactor& f) {
                    return f.name == v.factor && f.kind == FactorKind::precision && v.value != f.values.front();
                });
            };
            if (!of_precision(values[i]) && !of_precision(values[j])) CHECK(is_exact(m->values));
        }
    }
    CHECK(pairs > 2000);
    MESSAGE(pairs, " pairs in ", all.size(), " cases");
}

TEST_CASE("crossed: every triple of conditions that may meet does under the default contract, 128 like 64") {
    const auto all = met_by(has_default_fields);
    const auto values = values_of({FactorKind::condition});
    std::map<std::string, std::size_t> of_size;
    std::size_t triples = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t j = i + 1; j < values.size(); ++j) {
            if (excluded(values[i], values[j])) continue;
            for (std::size_t k = j + 1; k < values.size(); ++k) {
                if (excluded(values[i], values[k]) || excluded(values[j], values[k])) continue;
                ++triples;
                if (values[i].factor == "head_size") ++of_size[values[i].value];
                const std::string triple = values[i].factor + "=" + values[i].value + ", " + values[j].factor + "=" +
                                           values[j].value + ", " + values[k].factor + "=" + values[k].value;
                CAPTURE(triple);
                CHECK(std::any_of(all.begin(), all.end(), [&](const Met& m) {
                    return has(m.values, values[i]) && has(m.values, values[j]) && has(m.values, values[k]);
                }));
            }
        }
    }
    CHECK(triples > 1500);
    MESSAGE(triples, " triples in ", all.size(), " cases");
    CHECK(of_size["128"] == of_size["64"]);
    const auto cases_of = [&](const char* size) {
        return std::count_if(all.begin(), all.end(), [&](const Met& m) { return has(m.values, {"head_size", size}); });
    };
    CHECK(cases_of("128") * 5 >= cases_of("64") * 4);
}

TEST_CASE("crossed: values are those of the inputs, and a remainder of many rows holds three blocks of four") {
    for (const GdnCase& c : crossed_cases()) {
        CAPTURE(c.name);
        const auto values = case_values(c);
        const TensorFile inputs = make_inputs(c);
        CHECK(has(values, {"packed", inputs.find("cu_seqlens") != nullptr ? "yes" : "no"}));
        CHECK(has(values, {"initial_state", inputs.find("initial_state") != nullptr ? "yes" : "no"}));
        CHECK(has(values, {"g_kind", inputs.find("A_log") != nullptr      ? "raw"
                                     : inputs.metadata.contains("g_kind") ? "alpha"
                                                                          : "log"}));
        CHECK(inputs.find("v")->shape == Shape{c.dims.B, c.dims.T, c.dims.Hv, c.dims.dv});
        CHECK(c.about.size() <= 54);
        if (!has(values, {"remainder", "many"}) || !c.cu_seqlens.empty()) continue;
        CHECK(c.dims.T % 16 >= 12);
    }
}

TEST_CASE("crossed: a fault at any one pair is refused, and the same kernel is right elsewhere") {
    const auto all = met_by([](const GdnCase&) { return true; });
    const auto values = values_of({FactorKind::condition, FactorKind::field, FactorKind::precision});
    // Many pairs have their smallest case in common: what the planted kernel returns there is the same for all.
    std::map<const Met*, std::pair<CaseValue, CaseValue>> chosen;
    for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t j = i + 1; j < values.size(); ++j) {
            if (!excluded(values[i], values[j]))
                chosen.try_emplace(smallest(all, values[i], values[j]), values[i], values[j]);
        }
    }
    for (const auto& [m, pair] : chosen) {
        CAPTURE(m->test_case->name);
        const TensorFile inputs = make_inputs(*m->test_case);
        const GdnReference reference = reference_for(inputs);
        ChangedKernel wrong = planted(pair.first, pair.second, is_exact(m->values) ? 1.01 : 1.5);
        CHECK(verdict_of(wrong, inputs, reference) == Verdict::wrong);
        ChangedKernel elsewhere = planted(pair.first, {pair.second.factor, "another"}, 1.5);
        CHECK(verdict_of(elsewhere, inputs, reference) == Verdict::ok);
    }
    MESSAGE(chosen.size(), " cases judged");
}

TEST_CASE("slow: 65,537 tokens are one case, of a set of its own") {
    REQUIRE(slow_cases().size() == 1);
    CHECK(slow_cases().front().dims.T == 65537);
    CHECK(find_gdn_case(slow_cases().front().name) == &slow_cases().front());
    const auto names = gdn_case_names();
    CHECK(names.size() ==
          gdn_cases().size() + crossed_cases().size() + 1 + decode_cases().size() + device_cases().size());
    CHECK(std::count(names.begin(), names.end(), "crossed_001") == 1);
}

// What a declared contract makes of the cases.
using namespace gdnctl;

namespace {

Declared declared_as(std::optional<std::string> contract, std::vector<std::string> sets) {
    auto declared = read_declared(std::move(contract), std::move(sets));
    REQUIRE(declared);
    return std::move(*declared);
}

struct Outcome {
    GdnCase changed;
    std::string needed;
};

Outcome outcome_of(std::string_view name, const Declared& declared) {
    Outcome outcome{*find_gdn_case(name), {}};
    if (const auto needed = declare(outcome.changed, declared)) outcome.needed = *needed;
    return outcome;
}

bool says(const GdnCase& c, std::string_view setting) {
    return std::find(c.contract.begin(), c.contract.end(), setting) != c.contract.end();
}

}  // namespace

TEST_CASE("declared: nothing changes nothing") {
    for (const GdnCase& c : all_cases()) {
        GdnCase copy = c;
        CHECK_FALSE(declare(copy, {}));
        CHECK(copy.contract == c.contract);
    }
}

TEST_CASE("declared: precision applies to every case") {
    const Declared declared = declared_as(std::nullopt, {"matmul=bf16", "gate_sum=g", "state_dtype=bf16", "chunk=32"});
    CHECK(declared.fields.size() == 4);
    for (const GdnCase& c : all_cases()) {
        GdnCase copy = c;
        CHECK_FALSE(declare(copy, declared));
        CHECK(says(copy, "matmul=bf16"));
        CHECK(std::count_if(copy.contract.begin(), copy.contract.end(),
                            [](const std::string& s) { return s.starts_with("matmul="); }) == 1);
    }
}

TEST_CASE("declared: a case that needs another value says which") {
    CHECK(outcome_of("gva_tiled", declared_as(std::nullopt, {"head_map=interleaved"})).needed == "head_map=tiled");
    CHECK(outcome_of("scale_1", declared_as(std::nullopt, {"scale=2"})).needed == "scale=1");
    CHECK(outcome_of("raw_gates", declared_as(std::nullopt, {"g_kind=log"})).needed == "g_kind=raw");
    CHECK(outcome_of("gates_minus_30", declared_as(std::nullopt, {"g_kind=raw"})).needed == "g_kind=log");
    CHECK(outcome_of("beta_corners", declared_as(std::nullopt, {"beta_kind=logit"})).needed == "beta_kind=prob");
    CHECK(outcome_of("g1", declared_as(std::nullopt, {"state_layout=V,K"})).needed == "state_layout=B,H,K,V");
    CHECK(outcome_of("varlen_empty_zeros", declared_as(std::nullopt, {"empty=passthrough"})).needed == "empty=zeros");
}

TEST_CASE("declared: values that mean the same for a case do not leave it out") {
    // As many key heads as value heads.
    CHECK(outcome_of("varlen", declared_as(std::nullopt, {"head_map=tiled"})).needed.empty());
    // No empty sequence; no l2norm.
    CHECK(outcome_of("gva_2", declared_as(std::nullopt, {"empty=zeros"})).needed.empty());
    CHECK(outcome_of("t_hand", declared_as(std::nullopt, {"eps=0.5"})).needed.empty());
}

TEST_CASE("declared: inputs are made for a value that the case leaves open") {
    const auto normless = outcome_of("gva_2", declared_as(std::nullopt, {"l2norm=off"}));
    CHECK(normless.needed.empty());
    CHECK(normless.changed.keys == KeyRecipe::unit);
    CHECK(find_gdn_case("gva_2")->keys == KeyRecipe::normal);
    const auto raw = outcome_of("gva_2", declared_as(std::nullopt, {"g_kind=raw", "beta_kind=logit"}));
    CHECK(raw.needed.empty());
    const TensorFile inputs = make_inputs(raw.changed);
    CHECK(inputs.find("A_log") != nullptr);
    CHECK(inputs.find("b") != nullptr);
    CHECK(inputs.find("g") == nullptr);
}

TEST_CASE("declared: a named contract fixes all fields but chunk") {
    const Declared fla = declared_as("fla", {});
    CHECK(fla.find("chunk") == nullptr);
    CHECK(fla.find("l2norm")->value == "off");
    CHECK(fla.find("matmul")->value == "input");
    CHECK(declared_as("fla", {"chunk=32"}).find("chunk")->value == "32");
    CHECK(declared_as("fla", {"l2norm=on"}).find("l2norm")->value == "rsqrt(sum+eps)");
    CHECK(read_declared("flah", {}).error().kind == ErrorKind::usage);
    CHECK(read_declared(std::nullopt, {"matmul=x"}).error().kind == ErrorKind::usage);
}

TEST_CASE("canonical: the form of the inputs changes, and not what they mean") {
    for (const char* name : {"raw_gates", "raw_gates_2logit", "state_value_key", "t_hand", "g1", "crossed_090"}) {
        CAPTURE(name);
        const TensorFile inputs = make_inputs(*find_gdn_case(name));
        auto contract = resolve_contract("marin", inputs.metadata, {});
        REQUIRE(contract);
        const auto canonical = canonical_inputs(inputs, *contract, {});
        REQUIRE(canonical);
        auto after = resolve_contract("marin", canonical->metadata, {});
        REQUIRE(after);
        CHECK(after->value.g_kind == GateKind::log);
        CHECK(after->value.beta_kind == BetaKind::prob);
        CHECK(after->value.state_layout == StateLayout::key_value);
        const auto before = read_problem(inputs, *contract);
        const auto read = read_problem(*canonical, *after);
        REQUIRE(before);
        REQUIRE(read);
        CHECK(read->initial_state == before->initial_state);
        CHECK(read->q == before->q);
        CHECK(canonical->find("A_log") == nullptr);
        const auto kept = canonical_inputs(inputs, *contract, {true, true, true});
        REQUIRE(kept);
        CHECK(kept->metadata == inputs.metadata);
    }
}

// The cases for compiled kernels.
namespace {

struct DeviceLevel {
    const char *factor, *value;
    bool (*in)(const GdnCase&);
};

// Every kind of inputs that some device case has to have, by what the case says of itself.
constexpr DeviceLevel k_device_levels[] = {
    {"gates", "weak", [](const GdnCase& c) { return c.gate == GateRecipe::soft; }},
    {"gates", "strong", [](const GdnCase& c) { return c.gate == GateRecipe::strong; }},
    {"gates", "closed", [](const GdnCase& c) { return c.gate == GateRecipe::sparse && c.gate_value == -1e4; }},
    {"gates", "resets", [](const GdnCase& c) { return c.gate == GateRecipe::resets; }},
    {"gates", "at the end of fp32", [](const GdnCase& c) { return c.gate == GateRecipe::tails; }},
    {"gates", "none", [](const GdnCase& c) { return c.gate == GateRecipe::constant && c.gate_value == 0; }},
    {"keys", "normal", [](const GdnCase& c) { return c.keys == KeyRecipe::normal; }},
    {"keys", "correlated", [](const GdnCase& c) { return c.keys == KeyRecipe::correlated && c.key_mix == 0.5; }},
    {"keys", "zero", [](const GdnCase& c) { return c.keys == KeyRecipe::zero; }},
    {"keys", "tiny", [](const GdnCase& c) { return c.keys == KeyRecipe::tiny; }},
    {"beta", "uniform", [](const GdnCase& c) { return c.beta == BetaRecipe::uniform; }},
    {"beta", "near 0 and 1", [](const GdnCase& c) { return c.beta == BetaRecipe::extremes; }},
    {"beta", "0, 1 or 2", [](const GdnCase& c) { return c.beta == BetaRecipe::corners; }},
    {"beta", "1", [](const GdnCase& c) { return c.beta == BetaRecipe::constant && c.beta_value == 1; }},
    {"state", "none or zeros", [](const GdnCase& c) { return c.state_scale == 0; }},
    {"state", "small", [](const GdnCase& c) { return c.state_scale == 0.3; }},
    {"state", "large", [](const GdnCase& c) { return c.state_scale == 100; }},
    {"values", "normal", [](const GdnCase& c) { return c.value_scale == 1; }},
    {"values", "large", [](const GdnCase& c) { return c.value_scale == 1e4; }},
    {"values", "small", [](const GdnCase& c) { return c.value_scale == 1e-4; }},
    {"padding", "numbers", [](const GdnCase& c) { return !c.nan_padding; }},
    {"padding", "NaN", [](const GdnCase& c) { return c.nan_padding; }},
};

std::map<std::string, std::vector<const GdnCase*>> device_cases_by_signature() {
    std::map<std::string, std::vector<const GdnCase*>> all;
    for (const GdnCase& c : device_cases()) all[signature_of(c)].push_back(&c);
    return all;
}

template <class Predicate>
bool some_device_case(const Predicate& predicate) {
    return std::any_of(device_cases().begin(), device_cases().end(), predicate);
}

double largest(const std::vector<double>& values) {
    double most = 0;
    for (const double x : values) most = std::max(most, std::fabs(x));
    return most;
}

// Rows [first, last) of each batch row of a tensor [B, T, ...].
std::vector<double> tokens_of(const Tensor& t, std::int64_t first, std::int64_t last) {
    const std::vector<double> all = to_f64(t);
    const auto row = static_cast<std::int64_t>(all.size()) / (t.shape[0] * t.shape[1]);
    std::vector<double> some;
    for (std::int64_t b = 0; b < t.shape[0]; ++b) {
        const auto from = all.begin() + (b * t.shape[1] + first) * row;
        some.insert(some.end(), from, from + (last - first) * row);
    }
    return some;
}

}  // namespace

TEST_CASE("device: few shapes, of the sizes that accelerators like") {
    const auto all = device_cases_by_signature();
    std::map<std::string, int> of_kind;
    int with_gradients = 0;
    for (const auto& [signature, cases] : all) {
        CAPTURE(signature);
        const GdnCase& c = *cases.front();
        const bool packed = !c.cu_seqlens.empty();
        const bool state = c.zero_state || c.state_scale != 0;
        ++of_kind[c.decode ? "decode" : packed ? "packed" : state ? "forward" : "forward without a state"];
        if (c.gradients) ++with_gradients;
        CHECK(!(c.gradients && (c.decode || packed)));
        // One compilation does for all of them.
        for (const GdnCase* other : cases) {
            CHECK(other->set == "device");
            CHECK(other->decode == c.decode);
            CHECK(other->gradients == c.gradients);
            CHECK(other->cu_seqlens == c.cu_seqlens);
            CHECK(other->contract == c.contract);
            CHECK(other->dtype == DType::f32);
        }
        const std::pair<std::int64_t, std::int64_t> heads(c.dims.dk, c.dims.dv);
        const std::set<std::pair<std::int64_t, std::int64_t>> known = {
            {64, 64}, {128, 128}, {64, 128}, {128, 64}, {256, 256}};
        CHECK(known.contains(heads));
        CHECK(std::set<std::int64_t>{1, 63, 64, 65, 200, 1024}.contains(c.dims.T));
        CHECK(std::set<std::int64_t>{1, 2, 4}.contains(c.dims.Hv / c.dims.Hk));
        CHECK(c.dims.B <= (c.decode ? 4 : 2));
    }
    CHECK(of_kind ==
          std::map<std::string, int>{{"decode", 1}, {"forward", 11}, {"forward without a state", 1}, {"packed", 2}});
    CHECK(with_gradients <= 6);
    CHECK(device_cases().size() >= 60);
    CHECK(device_cases().size() <= 120);
    const auto of_gradients =
        std::count_if(device_cases().begin(), device_cases().end(), [](const GdnCase& c) { return c.gradients; });
    MESSAGE(all.size(), " shapes, ", device_cases().size(), " cases, ", of_gradients, " with gradients");
}

TEST_CASE("device: every pair of kinds of inputs is in a case, and so is each kind on each shape") {
    std::size_t pairs = 0;
    for (const DeviceLevel& a : k_device_levels) {
        for (const DeviceLevel& b : k_device_levels) {
            if (std::string_view(a.factor) >= b.factor) continue;
            ++pairs;
            CAPTURE(a.value);
            CAPTURE(b.value);
            CHECK(some_device_case([&](const GdnCase& c) { return a.in(c) && b.in(c); }));
        }
    }
    CHECK(pairs == 197);
    for (const auto& [signature, cases] : device_cases_by_signature()) {
        CAPTURE(signature);
        const GdnCase& first = *cases.front();
        const bool stateless = first.state_scale == 0 && !first.zero_state;
        for (const DeviceLevel& level : k_device_levels) {
            const bool without_state = std::string_view(level.factor) == "state" && stateless;
            const bool no_padding = std::string_view(level.factor) == "padding" && first.cu_seqlens.empty();
            CAPTURE(level.value);
            const auto met = std::count_if(cases.begin(), cases.end(), [&](const GdnCase* c) { return level.in(*c); });
            if ((without_state && level.value != std::string_view("none or zeros")) ||
                (no_padding && level.value == std::string_view("NaN"))) {
                CHECK(met == 0);
            } else {
                CHECK(met > 0);
            }
        }
    }
}

TEST_CASE("device: each case is of exactly one kind in every respect") {
    for (const GdnCase& c : device_cases()) {
        CAPTURE(c.name);
        std::map<std::string_view, int> met;
        for (const DeviceLevel& level : k_device_levels) met[level.factor] += level.in(c) ? 1 : 0;
        CHECK(met.size() == 6);
        for (const auto& [factor, count] : met) CHECK(count == 1);
    }
}

TEST_CASE("device: inputs are what the case says, and closed gates are finite") {
    for (const GdnCase& c : device_cases()) {
        CAPTURE(c.name);
        const TensorFile inputs = make_inputs(c);
        const std::int64_t end = c.cu_seqlens.empty() ? c.dims.T : c.cu_seqlens.back();
        const auto of = [&](const char* name) { return tokens_of(*inputs.find(name), 0, end); };
        const std::vector<double> g = of("g"), beta = of("beta");
        CHECK(std::all_of(g.begin(), g.end(), [](double x) { return x >= -1e4 && x <= 0; }));
        const double strongest = largest(g);
        // One token in 50 is closed, and one in 32 a reset; of a single token, only the reset.
        if (c.gate == GateRecipe::sparse) CHECK((strongest == 1e4) == (c.dims.T > 1));
        if (c.gate == GateRecipe::resets) CHECK(strongest == 200);
        if (c.gate == GateRecipe::soft) CHECK(strongest < 1);
        if (c.gate == GateRecipe::constant) CHECK(strongest == 0);
        if (c.beta == BetaRecipe::corners) {
            CHECK(std::all_of(beta.begin(), beta.end(), [](double x) { return x == 0 || x == 1 || x == 2; }));
        }
        CHECK((largest(of("k")) == 0) == (c.keys == KeyRecipe::zero));
        CHECK(largest(of("v")) / c.value_scale > 1);
        CHECK(largest(of("v")) / c.value_scale < 10);
        const Tensor* state = inputs.find("initial_state");
        CHECK((state != nullptr) == (c.zero_state || c.state_scale != 0));
        if (state != nullptr) CHECK((largest(to_f64(*state)) == 0) == c.zero_state);
        if (c.cu_seqlens.empty()) continue;
        for (const char* name : {"q", "k", "v", "g", "beta"}) {
            const auto padding = tokens_of(*inputs.find(name), end, c.dims.T);
            REQUIRE(!padding.empty());
            CHECK(
                std::all_of(padding.begin(), padding.end(), [&](double x) { return std::isnan(x) == c.nan_padding; }));
        }
    }
}

TEST_CASE("device: one case of each shape comes early, and names and seeds are those of the order") {
    std::set<std::string> early;
    std::set<GateRecipe> gates;
    const std::size_t shapes = device_cases_by_signature().size();
    for (std::size_t i = 0; i < device_cases().size(); ++i) {
        const GdnCase& c = device_cases()[i];
        CHECK(c.name == fmt::format("device_{:03}", i + 1));
        CHECK(c.seed == 2000 + i);
        CHECK(find_gdn_case(c.name) == &c);
        if (i >= shapes) continue;
        early.insert(signature_of(c));
        gates.insert(c.gate);
    }
    CHECK(early.size() == shapes);
    CHECK(gates.size() == 6);
    // The first is small: a wrong kernel is known at once.
    const GdnCase& first = device_cases().front();
    CHECK(size_of(first) <= 100000);
}
