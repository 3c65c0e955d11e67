// Where out is narrower than d_out, a backward pass may read d_out as given or rounded to out's dtype: both are honest.
#include <cmath>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Judged {
    GdnReport report;
    std::string cotangent;
    bool rounded = false;
};

// Inputs in bf16 with an out in bf16, and gradients of d_out times `factor`, rounded or not. `not_finite`: the tensor
// that holds a NaN.
Judged judge_gradients(bool rounded, double factor, DType out, std::string_view not_finite = "",
                       const std::string& contract = "marin") {
    GdnCase c;
    c.name = "cotangent";
    c.dims = {1, 70, 2, 2, 16, 16};
    c.seed = 9;
    c.dtype = DType::bf16;
    c.state_scale = 0.1;
    TensorFile inputs = make_inputs(c);
    GdnReference r = reference_for(inputs, contract, {"out_dtype=query", "l2norm=rsqrt(sum+eps)"});
    GdnCotangents cotangents = random_cotangents(r.problem, 4);
    for (NamedTensor& t : cotangents_file(r.problem, r.contract.value, cotangents).tensors) inputs.tensors.push_back(t);
    if (rounded) REQUIRE(round_cotangent(cotangents, DType::bf16));
    for (double& x : cotangents.d_out) x *= factor;
    const GdnGradients gradients = run_adjoint64(r.problem, r.contract.value, cotangents, 2);
    TensorFile dump = outputs_of(r, r.truth, out);
    for (NamedTensor& t : gradients_file(r.problem, r.contract.value, gradients, DType::bf16, DType::f32).tensors)
        dump.tensors.push_back(t);
    for (NamedTensor& t : dump.tensors) {
        if (t.name != not_finite) continue;
        std::vector<double> values = to_f64(t.tensor);
        values[37] = std::nan("");
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
    REQUIRE(add_backward(r, inputs, dump, 2));
    return {judged(r, dump), cotangent_used(r), cotangent_rounded(r)};
}

}  // namespace

TEST_CASE("cotangent: gradients of d_out as given, and of d_out rounded, are OK, and the verdict names which") {
    const Judged rounded = judge_gradients(true, 1, DType::bf16);
    CAPTURE(rounded.report.reason);
    CHECK(rounded.report.verdict == Verdict::ok);
    CHECK(rounded.rounded);
    CHECK(rounded.cotangent == "d_out rounded to bfloat16");
    const Judged given = judge_gradients(false, 1, DType::bf16);
    CAPTURE(given.report.reason);
    CHECK(given.report.verdict == Verdict::ok);
    CHECK_FALSE(given.rounded);
    CHECK(given.cotangent == "d_out as given");
}

TEST_CASE("cotangent: neither excuses gradients of another d_out") {
    for (const bool rounded : {false, true}) {
        CHECK(judge_gradients(rounded, 1.1, DType::bf16).report.verdict == Verdict::wrong);
    }
}

TEST_CASE("cotangent: where out is as wide as d_out there is no choice") {
    const Judged given = judge_gradients(false, 1, DType::f32);
    CHECK(given.report.verdict == Verdict::ok);
    CHECK(given.cotangent.empty());
    CHECK(judge_gradients(true, 1, DType::f32).report.verdict == Verdict::wrong);
}

TEST_CASE("cotangent: a gradient that is not finite leaves the choice to the others") {
    for (const bool rounded : {false, true}) {
        CAPTURE(rounded);
        const Judged one = judge_gradients(rounded, 1, DType::bf16, "dk");
        CHECK(one.report.verdict == Verdict::wrong);
        CHECK(one.rounded == rounded);
        for (const TensorReport& t : one.report.tensors) {
            CAPTURE(t.name);
            CHECK((t.verdict == Verdict::ok) == (t.canonical != "dk"));
        }
    }
}

TEST_CASE("cotangent: where both are OK, the verdict names the one that all gradients together agree with") {
    for (const bool rounded : {false, true}) {
        const Judged one = judge_gradients(rounded, 1, DType::bf16, "", "fla");
        CHECK(one.report.verdict == Verdict::ok);
        CHECK(one.rounded == rounded);
    }
}
