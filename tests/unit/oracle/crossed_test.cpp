// The crossed cases: what has to meet meets, and a fault that shows only there is refused.
#include <algorithm>
#include <map>

#include "core/text.h"
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
    CHECK(names.size() == gdn_cases().size() + crossed_cases().size() + 1 + decode_cases().size());
    CHECK(std::count(names.begin(), names.end(), "crossed_001") == 1);
}
