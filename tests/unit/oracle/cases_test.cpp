// The crossed cases and the declared ones: each condition meets the others, and a fault that shows only there is found.
#include "oracle/gdn/cases/cases.h"

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

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
