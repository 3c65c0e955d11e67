// Our own gradients, written as a dump, are OK in every form; what is changed in one of them is WRONG.
#include <fmt/format.h>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

// Inputs of a case with cotangents, and its results as a dump. The reference is the forward's, of the same inputs.
struct Dumped {
    TensorFile inputs, dump;
    std::optional<GdnReference> reference = {};
};

Dumped dump_case(const GdnCase& c, bool exact, const std::vector<std::string>& sets = {}) {
    Dumped d{make_inputs(c), {}};
    const GdnReference& r = d.reference.emplace(reference_for(d.inputs, "marin", sets));
    const GdnContract& contract = r.contract.value;
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    for (NamedTensor& t : cotangents_file(r.problem, contract, cotangents).tensors) d.inputs.tensors.push_back(t);
    d.dump = outputs_of(r, exact ? r.truth : run_chunk32(r.problem, contract, {}, 2));
    const GdnGradients gradients =
        exact ? run_adjoint64(r.problem, contract, cotangents, 2) : run_backward32(r.problem, contract, cotangents, 2);
    for (NamedTensor& t : gradients_file(r.problem, contract, gradients, DType::f32, DType::f32).tensors)
        d.dump.tensors.push_back(t);
    return d;
}

Dumped dump_case(std::string_view name, bool exact, const std::vector<std::string>& sets = {}) {
    const GdnCase* c = find_gdn_case(name);
    REQUIRE(c != nullptr);
    return dump_case(*c, exact, sets);
}

GdnReport judged_gradients(const Dumped& d, const std::vector<std::string>& sets = {}) {
    GdnReference r = d.reference ? *d.reference : reference_for(d.inputs, "marin", sets);
    const auto added = add_backward(r, d.inputs, d.dump, 2);
    REQUIRE_MESSAGE(added, (added ? std::string() : added.error().message));
    return gdnctl::oracle::testing::judged(r, d.dump);
}

void scale_values(TensorFile& dump, std::string_view name, double factor) {
    bool found = false;
    for (NamedTensor& t : dump.tensors) {
        if (t.name != name) continue;
        found = true;
        std::vector<double> values = to_f64(t.tensor);
        for (double& x : values) x *= factor;
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
    REQUIRE(found);
}

}  // namespace

TEST_CASE("own gradients: of raw gates and of alpha, to themselves, are OK") {
    for (const char* name : {"raw_gates", "raw_gates_2logit", "raw_gates_extreme", "g1", "g1_tiled", "t_hand"}) {
        for (const bool exact : {true, false}) {
            CAPTURE(name);
            CAPTURE(exact);
            const GdnReport report = judged_gradients(dump_case(name, exact));
            CHECK(report.verdict == Verdict::ok);
            CAPTURE(report.reason);
            CHECK(report.not_compared.empty());
        }
    }
}

TEST_CASE("own gradients: of every case, exact and chunked, are OK to themselves") {
    for (const GdnCase& c : gdn_cases()) {
        if (c.expected != Verdict::ok || c.dims.B * c.dims.T * c.dims.Hv * c.dims.dk * c.dims.dv > 1 << 20) continue;
        for (const bool exact : {true, false}) {
            CAPTURE(c.name);
            CAPTURE(exact);
            const GdnReport report = judged_gradients(dump_case(c, exact));
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
        }
    }
}

TEST_CASE("own gradients: one per cent off in a gradient of a gate as given is WRONG") {
    const auto expect_wrong = [](std::string_view name, std::string_view tensor, double factor) {
        CAPTURE(name);
        CAPTURE(tensor);
        CAPTURE(factor);
        Dumped d = dump_case(name, false);
        scale_values(d.dump, tensor, factor);
        const GdnReport report = judged_gradients(d);
        CHECK(report.verdict == Verdict::wrong);
        if (tensor == "d_a") CHECK(report.stage == "dg");  // sums over tokens have no place to look at
    };
    for (const char* name : {"raw_gates", "raw_gates_2logit", "g1"}) {
        for (const char* tensor : {"d_a", "d_A_log", "d_dt_bias"}) {
            for (const double factor : {1.01, 2.0, 0.0}) expect_wrong(name, tensor, factor);
        }
    }
    expect_wrong("t_hand", "d_alpha", 1.01);
}

TEST_CASE("own gradients: where the inverse of a chunk is large they are granted its cost twice") {
    Dumped d = dump_case("keys_identical_beta2", true);
    scale_values(d.dump, "dv", 1.001);
    const auto error = [&] {
        const GdnReport report = judged_gradients(d);
        for (const TensorReport& t : report.tensors) {
            if (t.name == "dv") return t.error_over_budget;
        }
        FAIL("dv was not judged");
        return 0.0;
    };
    const double granted = error();
    REQUIRE(d.reference->widening.size() == 1);
    CHECK(d.reference->widening[0] == doctest::Approx(127.0 / 32).epsilon(1e-3));
    d.reference->widening[0] = 1;
    CHECK(error() / granted == doctest::Approx(2 * 127.0 / 32).epsilon(1e-3));
}

TEST_CASE("own gradients: the golden's own cotangents give its known gradients") {
    const GdnCase* g1 = find_gdn_case("g1");
    REQUIRE(g1 != nullptr);
    const TensorFile cotangents = make_cotangents(*g1);
    CHECK(make_cotangents(*find_gdn_case("gva_2")).tensors.empty());
    const GdnReference r = reference_for(make_inputs(*g1));
    const auto given = read_cotangents(cotangents, r.problem, r.contract.value);
    REQUIRE(given);
    REQUIRE(*given);
    const GdnGradients g = run_adjoint64(r.problem, r.contract.value, **given, 1);
    CHECK(sum_of(g.dq) == doctest::Approx(.092056920127).epsilon(1e-9));
    CHECK(sum_of(g.dk) == doctest::Approx(-.0404356311807).epsilon(1e-9));
    CHECK(sum_of(g.d_gate) == doctest::Approx(.33892540311).epsilon(1e-9));
    CHECK(sum_of(g.dA_log) == doctest::Approx(.557705712923).epsilon(1e-9));
    CHECK(sum_of(g.d_initial_state) == doctest::Approx(-.0512156824976).epsilon(1e-9));
}

namespace {

// Every floating tensor typed as F32, its values as they are.
TensorFile typed_f32(TensorFile file) {
    for (NamedTensor& t : file.tensors) {
        if (is_floating(t.tensor.dtype)) t.tensor = from_f64(to_f64(t.tensor), t.tensor.shape, DType::f32);
    }
    return file;
}

void round_to(TensorFile& dump, std::string_view name, DType dtype) {
    for (NamedTensor& t : dump.tensors) {
        if (t.name != name) continue;
        std::vector<double> values = to_f64(t.tensor);
        for (double& x : values) x = rounded_to(x, dtype);
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
}

}  // namespace

TEST_CASE("own gradients: 16-bit gradients stored as F32 are judged in 16 bits") {
    for (const char* producer : {"levanter_chunk", "hf_chunk"}) {
        CAPTURE(producer);
        const Dumped d{
            load_safetensors(vectors() / "gdn_bf16.inputs.safetensors"),
            typed_f32(load_safetensors(vectors() / fmt::format("gdn_bf16.{}.outputs.safetensors", producer)))};
        const std::vector<std::string> declared = {"out_dtype=bf16"};
        const bool f32_out = std::string_view(producer).starts_with("levanter");
        // The inputs say what their gradients are, or out's declared dtype does; out itself must be declared.
        if (f32_out) CHECK(judged_gradients(d).verdict == Verdict::ok);
        CHECK(judged_gradients(d, declared).verdict == Verdict::ok);
        CHECK(judged_gradients({typed_f32(d.inputs), d.dump}, declared).verdict == Verdict::ok);
        CHECK(judged_gradients({typed_f32(d.inputs), d.dump}).verdict == Verdict::wrong);
    }
}

TEST_CASE("own gradients: undeclared bf16 rounding of one gradient is named as that") {
    for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "d_initial_state"}) {
        CAPTURE(name);
        Dumped d = dump_case("gva_2", false);
        round_to(d.dump, name, DType::bf16);
        const GdnReport report = judged_gradients(d);
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.stage == "rounding");
        REQUIRE_FALSE(report.hints.empty());
        CHECK(report.hints.front().text ==
              fmt::format("matches if {} is rounded to bfloat16 (declare it: --set out_dtype=bf16)", name));
    }
}
