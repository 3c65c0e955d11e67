// Results that fp32 cannot hold: honest kernels give 0 there, and that must neither be held against them nor hide what
// is wrong elsewhere.
#include <cmath>
#include <functional>

#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnCase fading_case(std::int64_t tokens) {
    GdnCase c;
    c.name = "fading";
    c.dims = {1, tokens, 2, 2, 16, 16};
    c.seed = 5;
    c.state_scale = 0.3;
    return c;
}

using Changed = std::function<double(std::size_t token, double given)>;

void change_tensor(TensorFile& file, std::string_view name, const Changed& at) {
    for (NamedTensor& t : file.tensors) {
        if (t.name != name) continue;
        std::vector<double> values = to_f64(t.tensor);
        const std::size_t width = values.size() / static_cast<std::size_t>(t.tensor.shape[1]);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = at(i / width, values[i]);
        t.tensor = from_f64(values, t.tensor.shape, DType::f32);
    }
}

TensorFile padded_tail() {
    TensorFile inputs = make_inputs(fading_case(64));
    for (const char* name : {"q", "k", "v", "beta"}) {
        change_tensor(inputs, name, [](std::size_t t, double x) { return t < 20 ? x : 0; });
    }
    change_tensor(inputs, "g", [](std::size_t t, double x) { return t < 20 ? x : -3; });
    return inputs;
}

TensorFile forgetting_inputs(std::int64_t tokens, double gate, const char* zeroed) {
    TensorFile inputs = make_inputs(fading_case(tokens));
    change_tensor(inputs, zeroed, [](std::size_t, double) { return 0; });
    change_tensor(inputs, "g", [gate](std::size_t, double) { return gate; });
    return inputs;
}

GdnOutputs with_scaled_out(const GdnReference& r, double factor) {
    GdnOutputs outputs = r.truth;
    for (double& x : outputs.out) x *= factor;
    return outputs;
}

}  // namespace

TEST_CASE("verdict: a state that fades below fp32's range leaves the inputs stable") {
    for (const TensorFile& inputs : {padded_tail(), forgetting_inputs(40, -3, "beta"), forgetting_inputs(120, -2, "v"),
                                     forgetting_inputs(60, -88.0 / 60, "beta")}) {
        const GdnReference r = reference_for(inputs);
        CHECK(r.unstable_reason.empty());
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
        CHECK(judged(r, outputs_of(r, with_scaled_out(r, 2))).verdict == Verdict::wrong);
        CHECK(judged(r, outputs_of(r, with_scaled_out(r, 0))).verdict == Verdict::wrong);
        GdnOutputs flushed = r.truth;
        for (double& x : flushed.final_state) x = std::fabs(x) < 1.2e-38 ? 0 : x;
        CHECK(judged(r, outputs_of(r, flushed)).verdict == Verdict::ok);
        flushed.final_state[3] = 1e-30;
        CHECK(judged(r, outputs_of(r, flushed)).verdict == Verdict::wrong);
    }
}

TEST_CASE("verdict: where all results fade away, zeros are right and anything else is wrong") {
    const GdnReference r = reference_for(forgetting_inputs(1, -200, "beta"));
    GdnOutputs zeros = with_scaled_out(r, 0);
    std::fill(zeros.final_state.begin(), zeros.final_state.end(), 0.0);
    CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
    CHECK(judged(r, outputs_of(r, zeros)).verdict == Verdict::ok);
    zeros.out[5] = 0.1;
    CHECK(judged(r, outputs_of(r, zeros)).verdict == Verdict::wrong);
}

TEST_CASE("verdict: what is lost of a decay counts in the size of what decays") {
    TensorFile inputs = forgetting_inputs(1, -95, "beta");
    change_tensor(inputs, "v", [](std::size_t, double) { return 0; });
    for (NamedTensor& t : inputs.tensors) {
        if (t.name != "initial_state") continue;
        std::vector<double> values = to_f64(t.tensor);
        for (double& x : values) x *= 1e20;
        t.tensor = from_f64(values, t.tensor.shape, DType::f32);
    }
    const GdnReference r = reference_for(inputs);
    GdnOutputs flushed = with_scaled_out(r, 0);
    std::fill(flushed.final_state.begin(), flushed.final_state.end(), 0.0);
    CHECK(judged(r, outputs_of(r, flushed)).verdict == Verdict::ok);
    CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
}

TEST_CASE("verdict: a final state that nobody can compute does not hide a wrong out") {
    GdnReference r = reference_for(make_inputs(fading_case(64)));
    r.final_state.relative = 0.5;
    r.final_state.local.clear();  // and where it is measured element by element, no element of it either
    r.ill_conditioned = true;
    r.unstable_reason = "a correct kernel is off by 50 % on these inputs";
    CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::unstable_input);
    const GdnReport report = judged(r, outputs_of(r, with_scaled_out(r, 2)));
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.reason.find("out is") == 0);
    GdnOutputs state = r.truth;
    for (double& x : state.final_state) x *= 2;
    CHECK(judged(r, outputs_of(r, state)).verdict == Verdict::unstable_input);
}
