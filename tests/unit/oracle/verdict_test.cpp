// Verdicts that are not about a wrong kernel, the figures beside them, and planted faults.
#include <cmath>
#include <limits>

#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/mutants/forward_mutants.h"

using namespace gdnctl;
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

TensorFile base_inputs() { return load_safetensors(vectors() / "gdn_base.inputs.safetensors"); }
TensorFile base_outputs() { return load_safetensors(vectors() / "gdn_base.levanter_chunk.outputs.safetensors"); }

TensorFile only(TensorFile file, std::string_view name) {
    std::erase_if(file.tensors, [&](const NamedTensor& t) { return t.name != name; });
    return file;
}

}  // namespace

TEST_CASE("verdict: G1 without l2norm is UNSTABLE_INPUT") {
    const GdnCase* c = find_gdn_case("g1_no_l2norm");
    REQUIRE(c != nullptr);
    const GdnReference r = reference_for(make_inputs(*c));
    const GdnReport report = judged(r, outputs_of(r, r.truth));
    CHECK(report.verdict == Verdict::unstable_input);
    CHECK(report.reason.find("the state grows") != std::string::npos);
}

TEST_CASE("verdict: NaN in the inputs is UNSTABLE_INPUT, whatever the dump says") {
    TensorFile inputs = base_inputs();
    std::vector<double> v = to_f64(*inputs.find("v"));
    v[5] = std::nan("");
    for (NamedTensor& t : inputs.tensors) {
        if (t.name == "v") t.tensor = from_f64(v, t.tensor.shape, DType::f32);
    }
    const GdnReference r = reference_for(inputs);
    CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::unstable_input);
    CHECK(judged(r, base_outputs()).verdict == Verdict::unstable_input);
}

TEST_CASE("verdict: a truth beyond the output dtype's range cannot be judged, and hides no other fault") {
    TensorFile inputs = base_inputs();
    for (NamedTensor& t : inputs.tensors) {
        if (t.name != "v") continue;
        std::vector<double> v = to_f64(t.tensor);
        v[5] = 3e6;  // its outputs pass 65504, the largest float16
        t.tensor = from_f64(v, t.tensor.shape, DType::f32);
    }
    const GdnReference r = reference_for(inputs);
    REQUIRE(r.unstable_reason.empty());
    const GdnReport honest = judged(r, outputs_of(r, r.truth, DType::f16));
    CHECK(honest.verdict == Verdict::unstable_input);
    CHECK(honest.reason.find("do not fit float16") != std::string::npos);
    CHECK(judged(r, outputs_of(r, r.truth, DType::f32)).verdict == Verdict::ok);

    GdnOutputs garbage = r.truth;
    for (double& x : garbage.out) x = 65504;
    CHECK(judged(r, outputs_of(r, garbage, DType::f16)).verdict != Verdict::ok);
    garbage.out[0] = std::nan("");
    CHECK(judged(r, outputs_of(r, garbage, DType::f16)).verdict == Verdict::wrong);
}

TEST_CASE("verdict: an empty dump, or one without a comparable tensor, is NO_DATA") {
    const GdnReference r = reference_for(base_inputs());
    CHECK(judged(r, {}).verdict == Verdict::no_data);
    CHECK(judged(r, {}).reason == "the dump is empty");
    const GdnReport gradients = judged(r, only(base_outputs(), "dq"));
    CHECK(gradients.verdict == Verdict::no_data);
    CHECK_FALSE(gradients.worst);
}

TEST_CASE("verdict: what was not compared is listed, gradients and unknown names included") {
    const GdnReference r = reference_for(base_inputs());
    TensorFile dump = only(base_outputs(), "out");
    dump.tensors.push_back({"dq", base_outputs().tensors[0].tensor});
    dump.tensors.push_back({"logits", base_outputs().tensors[0].tensor});
    const GdnReport report = judged(r, dump);
    CHECK(report.verdict == Verdict::ok);
    CHECK(report.unknown == std::vector<std::string>{"logits"});
    REQUIRE(report.not_compared.size() == 7);
    CHECK(report.not_compared[0].tensor == "final_state");
    CHECK(report.not_compared[0].reason == "not in the dump");
    CHECK(report.not_compared[1].tensor == "dq");
    CHECK(report.not_compared[1].reason == "neither file contains d_out or d_final_state");
    CHECK(report.not_compared[2].reason == "not in the dump");
}

TEST_CASE("verdict: aliases name the same tensors, two names for one are refused") {
    const GdnReference r = reference_for(base_inputs());
    TensorFile dump = base_outputs();
    for (NamedTensor& t : dump.tensors) {
        if (t.name == "out") t.name = "o";
        if (t.name == "final_state") t.name = "ht";
    }
    CHECK(judged(r, dump).verdict == Verdict::ok);
    dump.tensors.push_back({"output", dump.tensors[0].tensor});
    const auto twice = judge(r, dump, {});
    REQUIRE_FALSE(twice);
    CHECK(twice.error().kind == ErrorKind::bad_input);
}

TEST_CASE("verdict: a wrong shape or dtype says what was expected") {
    const GdnReference r = reference_for(base_inputs());
    TensorFile dump = only(base_outputs(), "out");
    dump.tensors[0].tensor.shape = {2, 57, 24};
    const auto shape = judge(r, dump, {});
    REQUIRE_FALSE(shape);
    CHECK(shape.error().kind == ErrorKind::bad_input);
    CHECK(shape.error().message == "tensor 'out': expected [2,57,3,8] float32, got [2,57,24] float32");
    dump.tensors[0].tensor = from_f64(std::vector<double>(2UL * 57 * 24), {2, 57, 3, 8}, DType::i32);
    CHECK(judge(r, dump, {}).error().message == "tensor 'out': expected [2,57,3,8] float32, got [2,57,3,8] int32");
}

TEST_CASE("verdict: rtol and atol replace the budget") {
    const GdnReference r = reference_for(base_inputs());
    const TensorFile dump = base_outputs();
    CHECK(judged(r, dump, {1e-4, 1e-4}).verdict == Verdict::ok);
    const GdnReport strict = judged(r, dump, {0.0, 1e-12});
    CHECK(strict.verdict == Verdict::wrong);
    CHECK(strict.reason.find("are outside rtol 0 and atol 1e-12") != std::string::npos);
    CHECK(strict.tensors[0].numpy_rule.count > 100);
}

TEST_CASE("verdict: the bands of error / budget") {
    const GdnReference r = reference_for(base_inputs());
    const auto shifted = [&](double times) {
        GdnOutputs x = r.truth;
        for (std::size_t i = 0; i < x.out.size(); ++i) {
            x.out[i] += times * r.out.groups[i / 8 % 3 + (i / (57UL * 3 * 8)) * 3].rms;
        }
        return judged(r, outputs_of(r, x, DType::f64)).verdict;
    };
    CHECK(shifted(3.9) == Verdict::ok);
    CHECK(shifted(4.2) == Verdict::suspect);
    CHECK(shifted(29) == Verdict::suspect);
    CHECK(shifted(31) == Verdict::wrong);
}

TEST_CASE("metrics: each figure on values worked out by hand") {
    // beta = 0 and alpha = 1: out = s q^T S0, so that the truth is known: q = (1,0), S0 = [[2],[0]], s = 1.
    TensorFile inputs;
    const auto add = [&](std::string name, std::vector<double> values, Shape shape) {
        inputs.tensors.push_back({std::move(name), from_f64(values, std::move(shape), DType::f32)});
    };
    add("q", {1, 0, 2, 0}, {1, 2, 1, 2});
    add("k", {1, 0, 1, 0}, {1, 2, 1, 2});
    add("v", {0, 0}, {1, 2, 1, 1});
    add("g", {0, 0}, {1, 2, 1});
    add("beta", {0, 0}, {1, 2, 1});
    add("initial_state", {2, 0}, {1, 1, 2, 1});
    const GdnReference r = reference_for(inputs, "hf", {"scale=1"});
    REQUIRE(r.truth.out == std::vector<double>{2, 4});
    GdnOutputs x = r.truth;
    x.out = {2.5, 4};
    const GdnReport report = judged(r, outputs_of(r, x));
    const TensorReport& t = report.tensors[0];
    CHECK(t.max_abs == 0.5);
    CHECK(t.max_rel == 0.25);
    CHECK(t.nmse == doctest::Approx(0.25 / 20));
    CHECK(t.rms_ratio == doctest::Approx(std::sqrt(0.25 / 20)));
    CHECK(t.cosine == doctest::Approx(21 / (std::sqrt(20.0) * std::sqrt(22.25))));
    CHECK(t.ulp.max == 2097152);  // 0.25 relative in a binade of 2^23 values
    CHECK(t.ulp.p50 == 0);
    CHECK(t.numpy_rule.count == 1);
    CHECK(t.numpy_rule.fraction == 0.5);
    CHECK(t.flashinfer_rule.count == 1);
    CHECK(t.worst.index == std::vector<std::int64_t>{0, 0, 0, 0});
    CHECK(t.worst.got == 2.5);
    CHECK(t.worst.want == 2);
}

TEST_CASE("metrics: FlashInfer's rule does not pass where the reference is not finite") {
    TensorFile inputs = base_inputs();
    for (NamedTensor& t : inputs.tensors) {
        if (t.name != "initial_state") continue;
        std::vector<double> state = to_f64(t.tensor);
        state[0] = std::nan("");
        t.tensor = from_f64(state, t.tensor.shape, DType::f32);
    }
    const GdnReport report = judged(reference_for(inputs), base_outputs());
    CHECK(report.verdict == Verdict::unstable_input);
    CHECK(report.tensors[0].nonfinite_want > 0);
    CHECK(report.tensors[0].flashinfer_rule.count >= report.tensors[0].nonfinite_want);
}

TEST_CASE("condition: growth factor and the norm of the inverse") {
    // One token of |k|^2 = 4 with beta = 1 grows by |1 - 4| = 3, two by 9; a decay of 1/2 each takes that back.
    GdnProblem p;
    p.dims = {1, 2, 1, 1, 1, 1};
    p.sequences = {{0, 2}};
    p.q = {1, 1};
    p.k = {2, 2};
    p.v = {1, 1};
    p.gate = {0, 0};
    p.beta = {1, 1};
    const auto of = [](const GdnProblem& problem) {
        auto contract = resolve_contract("marin", {}, std::vector<std::string>{"l2norm=off"});
        REQUIRE(contract);
        return condition_of(make_reference(problem, *contract, 1), 1);
    };
    CHECK(of(p).growth_factor == doctest::Approx(9));
    CHECK(of(p).inverse_norm == doctest::Approx(5));  // M = [[0,0],[4,0]]
    p.gate = {0, std::log(0.5)};
    CHECK(of(p).growth_factor == doctest::Approx(4.5));
    CHECK(of(p).inverse_norm == doctest::Approx(3));
    p.k = {0.5, 0.5};
    CHECK(of(p).growth_factor == doctest::Approx(1));
    p.gate = {0, -HUGE_VAL};
    CHECK(of(p).inverse_norm == doctest::Approx(1));
    // One unit key throughout, beta = 1, no decay: the inverse is I with -1 below the diagonal, however long the chunk.
    p.dims.T = 40;
    p.sequences = {{0, 40}};
    p.q = p.k = p.v = p.beta = std::vector<double>(40, 1);
    p.gate = std::vector<double>(40, 0);
    CHECK(of(p).inverse_norm == doctest::Approx(2));
}

namespace {

// One head without decay in chunks of C, in fp32, with (I + M)^-1 formed and multiplied by, as levanter does.
GdnOutputs with_explicit_inverse(const GdnReference& r, std::size_t C) {
    const Prepared<float> in = prepare<float>(r.problem, r.contract.value, 1);
    const auto dk = static_cast<std::size_t>(r.problem.dims.dk), dv = static_cast<std::size_t>(r.problem.dims.dv);
    const auto T = static_cast<std::size_t>(r.problem.dims.T);
    std::vector<float> S = in.state;
    GdnOutputs result;
    const auto dot = [](const float* a, const float* b, std::size_t count, std::size_t stride) {
        float sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i * stride];
        return sum;
    };
    for (std::size_t first = 0; first < T; first += C) {
        const std::size_t rows = std::min(C, T - first);
        const float *q = in.q.data() + first * dk, *k = in.k.data() + first * dk, *v = in.v.data() + first * dv;
        const float* beta = in.beta.data() + first;
        std::vector<float> inverse(rows * rows, 0), W(rows * dk, 0), U(rows * dv, 0);
        for (std::size_t i = 0; i < rows; ++i) {
            inverse[i * rows + i] = 1;
            for (std::size_t j = 0; j < i; ++j) {
                const float M = beta[i] * dot(k + i * dk, k + j * dk, dk, 1);
                for (std::size_t x = 0; x <= j; ++x) inverse[i * rows + x] -= M * inverse[j * rows + x];
            }
            for (std::size_t j = 0; j <= i; ++j) {
                const float factor = inverse[i * rows + j] * beta[j];
                for (std::size_t x = 0; x < dk; ++x) W[i * dk + x] += factor * k[j * dk + x];
                for (std::size_t x = 0; x < dv; ++x) U[i * dv + x] += factor * v[j * dv + x];
            }
        }
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t x = 0; x < dv; ++x) U[i * dv + x] -= dot(W.data() + i * dk, S.data() + x, dk, dv);
        }
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t x = 0; x < dv; ++x) {
                float o = dot(q + i * dk, S.data() + x, dk, dv);
                for (std::size_t j = 0; j <= i; ++j) o += dot(q + i * dk, k + j * dk, dk, 1) * U[j * dv + x];
                result.out.push_back(static_cast<double>(in.scale * o));
            }
        }
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t x = 0; x < dk; ++x) {
                for (std::size_t y = 0; y < dv; ++y) S[x * dv + y] += k[i * dk + x] * U[i * dv + y];
            }
        }
    }
    result.final_state.assign(S.begin(), S.end());
    return result;
}

}  // namespace

TEST_CASE("condition: a kernel that forms the inverse is right, also where that is large") {
    for (const std::string name : {"keys_identical_beta1", "keys_identical_beta2"}) {
        CAPTURE(name);
        const GdnReference r = reference_for(make_inputs(*find_gdn_case(name)));
        const GdnReport report = judged(r, outputs_of(r, with_explicit_inverse(r, 64)));
        CHECK(report.verdict == Verdict::ok);
        // Twice the chunk's length, less one.
        const double widening = name == "keys_identical_beta2" ? 127.0 / 32 : 1;
        REQUIRE(r.widening.size() == 1);
        CHECK(r.widening[0] == doctest::Approx(widening).epsilon(1e-3));
        // A fault stays one.
        GdnOutputs wrong = with_explicit_inverse(r, 64);
        for (double& x : wrong.out) x *= 1.01;
        CHECK(judged(r, outputs_of(r, wrong)).verdict == Verdict::wrong);
    }
}

TEST_CASE("contract: sglang-cpu's state, rounded to bf16 after each chunk, is within its budget") {
    GdnCase c;
    c.name = "sglang";
    c.dims = {1, 300, 2, 4, 64, 64};
    c.seed = 11;
    c.dtype = DType::bf16;
    c.keys = KeyRecipe::unit;
    c.state_scale = 0.1;
    const GdnReference r = reference_for(make_inputs(c), "sglang-cpu");
    Mutant rounded;
    rounded.fault.chunk = [](ChunkParts& parts) {
        parts.bf16_operands = true;
        parts.handover = Handover::bf16;
    };
    GdnOutputs x = run_mutant(r, &rounded, {}, 2);
    for (double& o : x.out) o = rounded_to(o, DType::bf16);
    const GdnReport report = judged(r, outputs_of(r, x, DType::bf16));
    CAPTURE(report.reason);
    CHECK(report.verdict == Verdict::ok);
    // Where nobody declares it, it is wrong.
    const GdnReference strict = reference_for(make_inputs(c), "hf");
    const GdnReport undeclared = judged(strict, outputs_of(strict, x, DType::bf16));
    CHECK(undeclared.verdict == Verdict::wrong);
}

// Faults planted into honest results: each must be WRONG, and the place must be right.

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
        // Raw gates sum up to some 700, of which fp32 loses 4e-5.
        CHECK(r.final_state.relative < (c.gate == GateRecipe::raw ? 1e-4 : 2e-5));
    }
}
