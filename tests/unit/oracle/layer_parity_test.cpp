// The layer tests of levanter, with their shapes and tolerances, asked of ours: against what transformers' layer gave
// (tests/fixtures/oracle/layer, made by tests/conformance/oracle/transformers_layer.py), and of the fp32 kernels inside
// the layer, whose chunks must not matter.
#include <algorithm>
#include <cmath>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/layer_inputs/layer_parts.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/layer_fixtures.h"
#include "unit/oracle/mutants/backward_mutants.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Tolerance {
    double rtol = 0, atol = 0;
};

// NumPy's rule, by element.
void check_allclose(const std::vector<double>& got, const std::vector<double>& want, Tolerance t,
                    const std::string& what) {
    CAPTURE(what);
    REQUIRE(got.size() == want.size());
    REQUIRE(!want.empty());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double off = std::fabs(got[i] - want[i]) / (t.atol + t.rtol * std::fabs(want[i]));
        worst = std::isnan(off) ? HUGE_VAL : std::max(worst, off);
    }
    CHECK(worst <= 1);
}

TensorFile recorded(const std::string& name) { return load_safetensors(vectors() / "layer" / (name + ".safetensors")); }

std::vector<double> values_of(const TensorFile& file, std::string_view name) {
    const Tensor* tensor = file.find(name);
    REQUIRE_MESSAGE(tensor != nullptr, std::string(name));
    return to_f64(*tensor);
}

struct Recorded {
    LayerContract contract;
    GdnLayer layer;
    TensorFile inputs, theirs;
};

Recorded recorded_layer(const std::string& name) {
    Recorded r;
    r.inputs = recorded(name + ".inputs");
    r.theirs = recorded(name + ".outputs");
    auto contract = resolve_layer_contract("hf", r.inputs.metadata, {});
    REQUIRE(contract);
    r.contract = *contract;
    r.layer = layer_of(r.inputs, r.contract);
    return r;
}

void check_results(const LayerOutputs& ours, const TensorFile& theirs, Tolerance t) {
    check_allclose(ours.out, values_of(theirs, "out"), t, "out");
    check_allclose(ours.final_conv_state, values_of(theirs, "final_conv_state"), t, "final_conv_state");
    check_allclose(ours.final_state, values_of(theirs, "final_state"), t, "final_state");
}

// The layer of the chunk tests: 37 tokens.
struct Sized {
    LayerContract contract = contract_of("hf");
    GdnLayer layer = layer_of(inputs_file(contract, DType::f32, {2, 37, 2, 4, 8, 8}), contract);
};

LayerOutputs with_chunks(const Sized& s, int chunk) {
    return run_layer(s.layer, s.contract,
                     [chunk](const GdnProblem& p, const GdnContract& c) { return run_chunk32(p, c, {chunk}, 1); }, {});
}

void check_same(const LayerOutputs& x, const LayerOutputs& y, Tolerance t) {
    check_allclose(x.out, y.out, t, "out");
    check_allclose(x.core_out, y.core_out, t, "core_out");
    check_allclose(x.final_state, y.final_state, t, "final_state");
}

void check_same(const LayerGradients& x, const LayerGradients& y, Tolerance t) {
    const std::pair<const char*, std::vector<double> LayerGradients::*> all[] = {
        {"x", &LayerGradients::x},
        {"z", &LayerGradients::z},
        {"a", &LayerGradients::a},
        {"b", &LayerGradients::b},
        {"conv_weight", &LayerGradients::conv_weight},
        {"A_log", &LayerGradients::A_log},
        {"dt_bias", &LayerGradients::dt_bias},
        {"norm_weight", &LayerGradients::norm_weight},
        {"conv_state", &LayerGradients::conv_state},
        {"initial_state", &LayerGradients::initial_state},
    };
    for (const auto& [name, gradient] : all) check_allclose(x.*gradient, y.*gradient, t, name);
}

LayerGradients gradients_by(const Sized& s, const LayerOperatorAdjoint& op) {
    return run_layer_adjoint(s.layer, s.contract, random_layer_cotangents(s.layer, 3), op, {}, 1);
}

// The chunked backward in fp32, with chunks of that length.
LayerOperatorAdjoint chunked_adjoint(std::size_t chunk) {
    return [chunk](const GdnProblem& p, const GdnContract& c, const GdnCotangents& cotangents) {
        GdnReference r;
        r.problem = p;
        r.contract.value = c;
        r.truth = run_recurrent64(p, c, 1);
        const GdnGradients none = run_adjoint64(p, c, cotangents, 1);
        REQUIRE(
            add_backward(r, cotangents_file(p, c, cotangents), gradients_file(p, c, none, DType::f32, DType::f32), 1));
        return run_backward_chunks(r, {}, {}, chunk, 1);
    };
}

// The first `tokens` tokens of a layer.
GdnLayer beginning(const GdnLayer& p, std::int64_t tokens) {
    GdnLayer part = p;
    part.dims.T = tokens;
    const auto cut = [&](std::vector<double>& x) {
        const std::int64_t width = static_cast<std::int64_t>(x.size()) / (p.dims.B * p.dims.T);
        std::vector<double> kept;
        for (std::int64_t b = 0; b < p.dims.B; ++b) {
            const auto row = x.begin() + b * p.dims.T * width;
            kept.insert(kept.end(), row, row + tokens * width);
        }
        x = std::move(kept);
    };
    for (auto* x : {&part.x, &part.z, &part.a, &part.b}) cut(*x);
    return part;
}

}  // namespace

TEST_CASE("layer: prefill and decode equal transformers' within 1e-4") {
    for (const char* name : {"prefill", "decode"}) {
        CAPTURE(name);
        const Recorded r = recorded_layer(name);
        check_results(run_layer64(r.layer, r.contract, 1), r.theirs, {1e-4, 1e-4});
        check_results(stream_layer64(r.layer, r.contract, 1, 1), r.theirs, {1e-4, 1e-4});
        auto report = judge_layer(r.layer, r.contract, r.inputs, r.theirs, 1);
        REQUIRE(report);
        CHECK(report->verdict == Verdict::ok);
    }
}

TEST_CASE("layer: gradients equal transformers' within 1e-4 and 1e-5") {
    const Recorded r = recorded_layer("backward");
    LayerCotangents cotangents;
    cotangents.d_out = values_of(r.inputs, "d_out");
    const auto ours =
        layer_gradients_file(r.layer, r.contract, run_layer_adjoint64(r.layer, r.contract, cotangents, 1));
    for (const char* name : {"d_qkvz", "d_ba", "d_conv_weight", "d_A_log", "d_dt_bias", "d_norm_weight"}) {
        check_allclose(values_of(ours, name), values_of(r.theirs, name), {1e-4, 1e-5}, name);
    }
    auto report = judge_layer(r.layer, r.contract, r.inputs, r.theirs, 1);
    REQUIRE(report);
    CHECK(report->verdict == Verdict::ok);
    CHECK(report->tensors.size() == 7);
}

TEST_CASE("layer: padding on the left, masked, equals transformers' within 1e-4, and none at all") {
    const Recorded r = recorded_layer("padded");
    const LayerOutputs ours = run_layer64(r.layer, r.contract, 1);
    check_results(ours, r.theirs, {1e-4, 1e-4});
    // Row 0 without its five masked tokens.
    GdnLayer alone = r.layer;
    alone.dims.B = 1;
    alone.dims.T = 7;
    const auto cut = [](std::vector<double>& x) {
        const auto width = static_cast<std::ptrdiff_t>(x.size() / 24);
        x = {x.begin() + 5 * width, x.begin() + 12 * width};
    };
    for (auto* x : {&alone.x, &alone.z, &alone.a, &alone.b}) cut(*x);
    std::vector<double> padded(ours.out.begin() + 5 * 2 * 8, ours.out.begin() + 12 * 2 * 8);
    check_allclose(run_layer64(alone, r.contract, 1).out, padded, {1e-5, 1e-5}, "out without padding");
}

TEST_CASE("layer: masked tokens at the end change nothing before them, within 1e-5") {
    const Sized s;
    GdnLayer masked = s.layer;
    const std::int64_t kept = 30;
    for (auto* x : {&masked.x, &masked.z, &masked.a, &masked.b}) {
        const std::int64_t width = static_cast<std::int64_t>(x->size()) / (2 * 37);
        for (std::int64_t b = 0; b < 2; ++b) {
            const auto row = x->begin() + b * 37 * width;
            std::fill(row + kept * width, row + 37 * width, 0.0);
        }
    }
    const auto short_run = run_layer64(beginning(s.layer, kept), s.contract, 1);
    for (const LayerOutputs& whole : {run_layer64(masked, s.contract, 1), run_layer64(s.layer, s.contract, 1)}) {
        for (std::ptrdiff_t b = 0; b < 2; ++b) {
            const std::ptrdiff_t width = 4 * 8;
            const auto row = whole.out.begin() + b * 37 * width;
            const auto want = short_run.out.begin() + b * kept * width;
            check_allclose({row, row + kept * width}, {want, want + kept * width}, {1e-5, 1e-5}, "out");
        }
    }
}

TEST_CASE("layer: streaming equals prefill within 1e-5, in fp32 too") {
    const Sized s;
    const LayerOutputs whole = run_layer64(s.layer, s.contract, 1);
    for (const std::int64_t tokens : {1, 5}) {
        check_same(stream_layer64(s.layer, s.contract, tokens, 1), whole, {1e-5, 1e-5});
    }
    check_same(run_layer(s.layer, s.contract,
                         [](const GdnProblem& p, const GdnContract& c) { return run_recurrent32(p, c, 1); }, {}),
               whole, {1e-5, 1e-5});
}

TEST_CASE("layer: chunks of 8 and 16, and of 16 and 32, give the same at 37 tokens") {
    const Sized s;
    for (const auto& [a, b] : {std::pair{8, 16}, std::pair{16, 32}}) {
        CAPTURE(a);
        check_same(with_chunks(s, a), with_chunks(s, b), {1e-5, 1e-5});
        check_same(gradients_by(s, chunked_adjoint(static_cast<std::size_t>(a))),
                   gradients_by(s, chunked_adjoint(static_cast<std::size_t>(b))), {3e-5, 3e-6});
    }
}

TEST_CASE("layer: each kernel as its core gives the whole layer, forward within 1e-5, gradients within 2e-5") {
    const Sized s;
    const LayerOutputs whole = run_layer64(s.layer, s.contract, 1);
    const LayerGradients gradients = run_layer_adjoint64(s.layer, s.contract, random_layer_cotangents(s.layer, 3), 1);
    for (const Isa isa : {Isa::scalar, best_isa()}) {
        const LayerOperator kernels[] = {
            [isa](const GdnProblem& p, const GdnContract& c) { return run_fused32(p, c, 1, isa); },
            [isa](const GdnProblem& p, const GdnContract& c) { return run_recurrent32(p, c, 1, isa); },
            [isa](const GdnProblem& p, const GdnContract& c) { return run_chunk32(p, c, {64}, 1, isa); }};
        for (const auto& kernel : kernels) check_same(run_layer(s.layer, s.contract, kernel, {}), whole, {1e-5, 1e-5});
        const LayerOperatorAdjoint backward = [isa](const GdnProblem& p, const GdnContract& c, const GdnCotangents& d) {
            return run_backward32(p, c, d, 1, isa);
        };
        check_same(gradients_by(s, backward), gradients, {2e-5, 2e-5});
    }
}

TEST_CASE("layer: the convolution, its update and its gradients equal transformers'") {
    const Recorded r = recorded_layer("conv");
    const TensorFile& theirs = r.theirs;
    const GdnLayer& p = r.layer;
    check_allclose(p.x, values_of(theirs, "x"), {0, 1e-30}, "x");
    const LayerOutputs ours = run_layer64(p, r.contract, 1);
    check_allclose(ours.conv_out, values_of(theirs, "y"), {1e-5, 1e-5}, "conv_out");
    const LayerOutputs steps = stream_layer64(p, r.contract, 1, 1);
    check_allclose(steps.conv_out, values_of(theirs, "steps"), {1e-5, 1e-5}, "conv_out, token by token");
    check_allclose(steps.final_conv_state, values_of(theirs, "final_conv_state"), {1e-5, 1e-5}, "final_conv_state");
    LayerGradients gradients;
    through_convolution(p, values_of(theirs, "d_y"), {}, gradients);
    check_allclose(gradients.x, values_of(theirs, "dx"), {1e-5, 1e-6}, "dx");
    check_allclose(gradients.conv_weight, values_of(theirs, "d_weight"), {1e-5, 1e-6}, "d_weight");
}
