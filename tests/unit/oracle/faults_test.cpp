// Faults planted into honest results: each must be WRONG, and the place must be right.
#include <cmath>
#include <limits>

#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnCase square_case(DType dtype = DType::f32) {
    GdnCase c;
    c.name = "square";
    c.dims = {2, 70, 2, 4, 16, 16};
    c.seed = 7;
    c.dtype = dtype;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    return c;
}

GdnCase wide_case() {
    GdnCase c = square_case();
    c.dims = {1, 130, 1, 2, 64, 64};
    return c;
}

GdnOutputs honest(const GdnReference& r) {
    return run_chunk32(r.problem, r.contract.value, {16, GateSum::fp64_with_resets, Matmul::f32}, 2);
}

// Without the search for hints, which has its own tests and takes longer than all else.
Verdict verdict_on(const GdnReference& r, const TensorFile& dump, CompareOptions options = {}) {
    options.hints = false;
    return judged(r, dump, options).verdict;
}

Verdict with_contract(const GdnReference& r, const GdnContract& wrong) {
    return verdict_on(r, outputs_of(r, run_recurrent64(r.problem, wrong, 2)));
}

}  // namespace

TEST_CASE("fault: transposed state") {
    for (const GdnCase& c : {square_case(), wide_case()}) {
        const GdnReference r = reference_for(make_inputs(c));
        GdnOutputs x = honest(r);
        x.final_state = to_layout(x.final_state, r.problem.dims, StateLayout::value_key);
        const GdnReport report = judged(r, outputs_of(r, x));
        CHECK(report.verdict == Verdict::wrong);
        REQUIRE(report.worst);
        CHECK(report.worst->tensor == "final_state");
        CHECK(report.tensors[0].verdict == Verdict::ok);
    }
}

TEST_CASE("fault: wrong head map, missing scale, scale twice, l2norm off, S0 ignored, gate sign") {
    for (const GdnCase& c : {square_case(), square_case(DType::bf16)}) {
        const GdnReference r = reference_for(make_inputs(c));
        GdnContract tiled = r.contract.value;
        tiled.head_map = HeadMap::tiled;
        CHECK(with_contract(r, tiled) == Verdict::wrong);
        GdnContract unscaled = r.contract.value;
        unscaled.scale = 1;
        CHECK(with_contract(r, unscaled) == Verdict::wrong);
        GdnContract twice = r.contract.value;
        twice.scale = 1.0 / static_cast<double>(r.problem.dims.dk);
        CHECK(with_contract(r, twice) == Verdict::wrong);
        GdnContract raw_keys = r.contract.value;
        raw_keys.l2norm = L2Norm::off;
        CHECK(with_contract(r, raw_keys) == Verdict::wrong);
        GdnContract logit = r.contract.value;
        logit.beta_kind = BetaKind::logit;
        CHECK(with_contract(r, logit) == Verdict::wrong);
        GdnProblem no_state = r.problem;
        no_state.initial_state.clear();
        CHECK(verdict_on(r, outputs_of(r, run_recurrent64(no_state, r.contract.value, 2))) == Verdict::wrong);
        GdnProblem flipped = r.problem;
        for (double& g : flipped.gate) g = -g;
        CHECK(verdict_on(r, outputs_of(r, run_recurrent64(flipped, r.contract.value, 2))) == Verdict::wrong);
    }
}

TEST_CASE("fault: one wrong element is found at its index") {
    for (const DType out : {DType::f32, DType::bf16}) {
        const GdnReference r = reference_for(make_inputs(square_case()));
        GdnOutputs x = honest(r);
        const std::size_t element = ((70 + 33) * 4UL + 2) * 16 + 5;  // b=1, t=33, h=2, v=5
        x.out[element] += 0.3;
        const GdnReport report = judged(r, outputs_of(r, x, out));
        CHECK(report.verdict == Verdict::wrong);
        REQUIRE(report.worst);
        CHECK(report.worst->tensor == "out");
        CHECK(report.worst->axes == "b,t,h,v");
        CHECK(report.worst->index == std::vector<std::int64_t>{1, 33, 2, 5});
        CHECK(report.worst->want == r.truth.out[element]);
    }
}

TEST_CASE("fault: one slightly wrong element in a head much smaller than its neighbours") {
    TensorFile inputs = make_inputs(square_case());
    for (NamedTensor& entry : inputs.tensors) {
        if (entry.name != "v" && entry.name != "initial_state") continue;
        std::vector<double> values = to_f64(entry.tensor);
        const std::size_t per_head = entry.name == "v" ? 16 : 256;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (i / per_head % 4 == 3) values[i] *= 1e-4;
        }
        entry.tensor = from_f64(values, entry.tensor.shape, DType::f32);
    }
    const GdnReference r = reference_for(inputs);
    GdnOutputs x = honest(r);
    CHECK(verdict_on(r, outputs_of(r, x)) == Verdict::ok);
    const std::size_t element = (3 * 4UL + 3) * 16;
    x.out[element] += 1e-7;  // 1 % of that head, far below the other heads' rounding
    const GdnReport report = judged(r, outputs_of(r, x));
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.worst->index == std::vector<std::int64_t>{0, 3, 3, 0});
}

TEST_CASE("fault: NaN or infinity on the device where the truth is finite") {
    for (const double bad : {std::nan(""), HUGE_VAL}) {
        const GdnReference r = reference_for(make_inputs(square_case()));
        GdnOutputs x = honest(r);
        x.final_state[3 * 256 + 17] = bad;  // b=0, h=3, k=1, v=1
        const GdnReport report = judged(r, outputs_of(r, x));
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.reason == "1 values of final_state are not finite where the truth is");
        CHECK(report.worst->index == std::vector<std::int64_t>{0, 3, 1, 1});
        CHECK(report.tensors[1].nonfinite_got == 1);
        // No tolerance excuses it either.
        CHECK(verdict_on(r, outputs_of(r, x), {1e9, 1e9}) == Verdict::wrong);
    }
}

TEST_CASE("fault: an undeclared bf16 rounding or bf16 passes are WRONG, declared ones are OK") {
    for (const GdnCase& c : {square_case(), wide_case()}) {
        const GdnReference r = reference_for(make_inputs(c));
        GdnOutputs rounded = honest(r);
        for (double& x : rounded.out) x = rounded_to(x, DType::bf16);
        CHECK(verdict_on(r, outputs_of(r, rounded)) == Verdict::wrong);
        CHECK(verdict_on(r, outputs_of(r, rounded, DType::bf16)) == Verdict::ok);
        const GdnReference declared = reference_for(make_inputs(c), "marin", {"out_dtype=bf16"});
        CHECK(verdict_on(declared, outputs_of(r, rounded)) == Verdict::ok);

        const GdnOutputs passes =
            run_chunk32(r.problem, r.contract.value, {32, GateSum::fp64_with_resets, Matmul::bf16}, 2);
        CHECK(verdict_on(r, outputs_of(r, passes)) == Verdict::wrong);
        const GdnReference bf16 = reference_for(make_inputs(c), "marin", {"matmul=bf16"});
        CHECK(verdict_on(bf16, outputs_of(r, passes)) == Verdict::ok);
        const GdnOutputs three =
            run_chunk32(r.problem, r.contract.value, {32, GateSum::fp64_with_resets, Matmul::bf16x3}, 2);
        const GdnReference bf16x3 = reference_for(make_inputs(c), "marin", {"matmul=bf16x3"});
        CHECK(verdict_on(bf16x3, outputs_of(r, three)) == Verdict::ok);
        CHECK(verdict_on(bf16x3, outputs_of(r, passes)) == Verdict::wrong);
    }
}

TEST_CASE("fault: bf16 state between chunks") {
    const GdnReference r = reference_for(make_inputs(wide_case()));
    GdnOutputs x = honest(r);
    for (double& s : x.final_state) s = rounded_to(s, DType::bf16);
    CHECK(verdict_on(r, outputs_of(r, x)) == Verdict::wrong);
}

TEST_CASE("budget: ordinary inputs get a tight one, so that no defect of ours can hide in it") {
    for (const GdnCase& c : gdn_cases()) {
        if (c.expected != Verdict::ok || c.set == "numerics" || c.dtype == DType::bf16) continue;
        CAPTURE(c.name);
        const GdnReference r = reference_for(make_inputs(c));
        CHECK(r.out.relative < 2e-5);
        CHECK(r.final_state.relative < 2e-5);
    }
}
