// What a declared contract makes of the cases.
#include <algorithm>

#include <doctest/doctest.h>

#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/under_test/kernel_under_test.h"

using namespace gdnctl;
using namespace gdnctl::oracle;

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
