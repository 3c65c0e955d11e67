// The layer around the operator: compared with other programs and with differences, in pieces, and its verdicts.
#include <algorithm>
#include <cmath>
#include <functional>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/backward32.h"
#include "oracle/gdn/layer_inputs/layer_parts.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/layer_fixtures.h"
#include "unit/oracle/mutants/backward_mutants.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;
using gdnctl::ErrorKind;

namespace {

double silu_of(double x) { return x / (1 + std::exp(-x)); }

// A second program for the same mathematics: one token of one value head after another, from the definition.
struct Naive {
    std::vector<double> out, state;
};

Naive naive(const GdnLayer& p, double eps, bool gate_first) {
    const auto [B, T, Hk, Hv, dk, dv] = p.dims;
    Naive r;
    r.out.resize(p.z.size());
    const auto channel = [&](std::int64_t b, std::int64_t t, std::int64_t c) {
        double sum = p.conv_bias.empty() ? 0 : p.conv_bias[static_cast<std::size_t>(c)];
        for (std::int64_t back = 0; back < p.taps; ++back) {
            const std::int64_t s = t - back;
            const double w = p.conv_weight[static_cast<std::size_t>(c * p.taps + p.taps - 1 - back)];
            if (s >= 0) {
                sum += w * p.x[static_cast<std::size_t>((b * T + s) * p.channels() + c)];
            } else if (!p.conv_state.empty()) {
                sum += w * p.conv_state[static_cast<std::size_t>((b * p.channels() + c + 1) * p.taps + s)];
            }
        }
        return silu_of(sum);
    };
    for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t h = 0; h < Hv; ++h) {
            const auto size = static_cast<std::size_t>(dk * dv);
            std::vector<double> S(size, 0);
            if (!p.initial_state.empty()) {
                std::copy_n(p.initial_state.begin() + (b * Hv + h) * dk * dv, size, S.begin());
            }
            const std::int64_t kh = h / (Hv / Hk);
            for (std::int64_t t = 0; t < T; ++t) {
                std::vector<double> q;
                std::vector<double> k;
                double qq = 1e-6;
                double kk = 1e-6;
                for (std::int64_t i = 0; i < dk; ++i) {
                    q.push_back(channel(b, t, kh * dk + i));
                    k.push_back(channel(b, t, Hk * dk + kh * dk + i));
                    qq += q.back() * q.back();
                    kk += k.back() * k.back();
                }
                const auto at = static_cast<std::size_t>((b * T + t) * Hv + h);
                const auto head = static_cast<std::size_t>(h);
                const double alpha =
                    std::exp(-std::exp(p.A_log[head]) * std::log1p(std::exp(p.a[at] + p.dt_bias[head])));
                const double beta = 1 / (1 + std::exp(-p.b[at]));
                std::vector<double> o;
                double squares = 0;
                for (std::int64_t j = 0; j < dv; ++j) {
                    double seen = 0;
                    for (std::int64_t i = 0; i < dk; ++i) {
                        double& s = S[static_cast<std::size_t>(i * dv + j)];
                        s *= alpha;
                        seen += s * k[static_cast<std::size_t>(i)] / std::sqrt(kk);
                    }
                    const double v = channel(b, t, 2 * Hk * dk + h * dv + j);
                    double read = 0;
                    for (std::int64_t i = 0; i < dk; ++i) {
                        double& s = S[static_cast<std::size_t>(i * dv + j)];
                        s += k[static_cast<std::size_t>(i)] / std::sqrt(kk) * beta * (v - seen);
                        read += s * q[static_cast<std::size_t>(i)] / std::sqrt(qq);
                    }
                    read /= std::sqrt(static_cast<double>(dk));
                    if (gate_first)
                        read *= silu_of(p.z[at * static_cast<std::size_t>(dv) + static_cast<std::size_t>(j)]);
                    squares += read * read;
                    o.push_back(read);
                }
                for (std::size_t j = 0; j < o.size(); ++j) {
                    const std::size_t to = at * o.size() + j;
                    const double normed = o[j] / std::sqrt(squares / static_cast<double>(dv) + eps) * p.norm_weight[j];
                    r.out[to] = gate_first ? normed : normed * silu_of(p.z[to]);
                }
            }
            r.state.insert(r.state.end(), S.begin(), S.end());
        }
    }
    return r;
}

void check_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
    REQUIRE(got.size() == want.size());
    double largest = 0;
    for (const double x : want) largest = std::max(largest, std::fabs(x));
    for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        REQUIRE(std::fabs(got[i] - want[i]) <= tolerance * largest);
    }
}

std::vector<double> cotangent(std::size_t count, double phase) {
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(std::cos(0.7 * static_cast<double>(i) + phase));
    return values;
}

LayerCotangents cotangents_of(const GdnLayer& p) {
    const GdnDims& d = p.dims;
    return {cotangent(p.z.size(), 0), cotangent(static_cast<std::size_t>(d.B * p.channels() * p.taps), 1),
            cotangent(static_cast<std::size_t>(d.B * d.Hv * d.dk * d.dv), 2)};
}

double loss_of(const GdnLayer& p, const LayerContract& c, const LayerCotangents& cotangents) {
    const LayerOutputs r = run_layer64(p, c, 1);
    double loss = 0;
    for (std::size_t i = 0; i < r.out.size(); ++i) loss += r.out[i] * cotangents.d_out[i];
    for (std::size_t i = 0; i < r.final_state.size(); ++i) loss += r.final_state[i] * cotangents.d_final_state[i];
    for (std::size_t i = 0; i < r.final_conv_state.size(); ++i) {
        loss += r.final_conv_state[i] * cotangents.d_final_conv_state[i];
    }
    return loss;
}

// Every element of every input against a difference of L, exact to fourth order in h.
void check_differences(GdnLayer p, const LayerContract& c) {
    const LayerCotangents cotangents = cotangents_of(p);
    const LayerGradients got = run_layer_adjoint64(p, c, cotangents, 1);
    const auto check = [&](const char* name, std::vector<double> GdnLayer::* input,
                           const std::vector<double>& gradient) {
        CAPTURE(std::string(name));
        REQUIRE(gradient.size() == (p.*input).size());
        double largest = 1;
        for (const double x : gradient) largest = std::max(largest, std::fabs(x));
        for (std::size_t i = 0; i < gradient.size(); ++i) {
            CAPTURE(i);
            double& x = (p.*input)[i];
            const double kept = x;
            constexpr double h = 1e-4;
            const auto at = [&](double moved) {
                x = kept + moved;
                return loss_of(p, c, cotangents);
            };
            const double difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
            x = kept;
            REQUIRE(std::fabs(difference - gradient[i]) <= 1e-9 * largest);
        }
    };
    check("x", &GdnLayer::x, got.x);
    check("z", &GdnLayer::z, got.z);
    check("a", &GdnLayer::a, got.a);
    check("b", &GdnLayer::b, got.b);
    check("conv_weight", &GdnLayer::conv_weight, got.conv_weight);
    check("conv_bias", &GdnLayer::conv_bias, got.conv_bias);
    check("A_log", &GdnLayer::A_log, got.A_log);
    check("dt_bias", &GdnLayer::dt_bias, got.dt_bias);
    check("norm_weight", &GdnLayer::norm_weight, got.norm_weight);
    check("conv_state", &GdnLayer::conv_state, got.conv_state);
    check("initial_state", &GdnLayer::initial_state, got.initial_state);
}

}  // namespace

TEST_CASE("the layer agrees with another program, with and without states") {
    for (const char* gate : {"gate=after-norm", "gate=before-norm"}) {
        const auto c = contract_of("hf", {gate});
        GdnLayer p = layer_of(inputs_file(c), c);
        for (int states = 0; states < 2; ++states) {
            const Naive want = naive(p, 1e-6, std::string_view(gate) == "gate=before-norm");
            const LayerOutputs got = run_layer64(p, c, 2);
            check_close(got.out, want.out, 1e-12);
            check_close(got.final_state, want.state, 1e-12);
            p.conv_state.clear();
            p.initial_state.clear();
            p.conv_bias.clear();
        }
    }
}

TEST_CASE("streaming the layer in pieces of any length gives the same bits as prefill") {
    const auto c = contract_of("marin");
    for (const GdnDims dims : {k_dims, GdnDims{1, 3, 1, 1, 2, 2}, GdnDims{1, 0, 1, 2, 2, 2}}) {
        const GdnLayer p = layer_of(inputs_file(c, DType::bf16, dims), c);
        const LayerOutputs whole = run_layer64(p, c, 1);
        for (const std::int64_t tokens : {1, 2, 3, 4, 7, 11, 100}) {
            CAPTURE(tokens);
            const LayerOutputs pieces = stream_layer64(p, c, tokens, 2);
            CHECK(pieces.out == whole.out);
            CHECK(pieces.conv_out == whole.conv_out);
            CHECK(pieces.final_state == whole.final_state);
            CHECK(pieces.final_conv_state == whole.final_conv_state);
        }
    }
}

TEST_CASE("the convolution state holds the last K inputs, oldest first") {
    const auto c = contract_of("hf");
    GdnLayer p = layer_of(inputs_file(c, DType::f32, {1, 2, 1, 1, 1, 1}), c);
    const auto state = run_layer64(p, c, 1).final_conv_state;
    for (std::size_t channel = 0; channel < 3; ++channel) {
        CHECK(state[channel * 4] == p.conv_state[channel * 4 + 2]);
        CHECK(state[channel * 4 + 1] == p.conv_state[channel * 4 + 3]);
        CHECK(state[channel * 4 + 2] == p.x[channel]);
        CHECK(state[channel * 4 + 3] == p.x[3 + channel]);
    }
    p.conv_state.clear();
    CHECK(run_layer64(p, c, 1).final_conv_state[1] == 0);
}

TEST_CASE("each gradient of the layer equals a difference of losses") {
    for (const char* gate : {"gate=after-norm", "gate=before-norm"}) {
        CAPTURE(gate);
        const auto c = contract_of("hf", {gate, "beta_kind=2*logit"});
        check_differences(layer_of(inputs_file(c, DType::f32, {2, 6, 1, 2, 3, 2}), c), c);
    }
    // Fewer tokens than taps.
    const auto c = contract_of("hf");
    check_differences(layer_of(inputs_file(c, DType::f32, {1, 2, 2, 2, 2, 3}), c), c);
}

TEST_CASE("projections apart, fused by key head, fused flat: one layer") {
    const auto grouped = contract_of("hf");
    const TensorFile fused = inputs_file(grouped);
    const GdnLayer p = layer_of(fused, grouped);
    const LayerOutputs want = run_layer64(p, grouped, 1);

    // [q|k|v|z] of the second key head begin at its width.
    const Tensor& qkvz = fused.tensors[0].tensor;
    const std::size_t group = 2 * 3 + 2 * 2 * 5;
    CHECK(element(qkvz, group) == p.x[3]);            // q of head 1
    CHECK(element(qkvz, group + 3) == p.x[6 + 3]);    // k of head 1
    CHECK(element(qkvz, group + 6) == p.x[12 + 10]);  // v of value head 2
    CHECK(element(qkvz, group + 16) == p.z[10]);      // z of value head 2
    CHECK(element(fused.tensors[1].tensor, 0) == p.b[0]);
    CHECK(element(fused.tensors[1].tensor, 2) == p.a[0]);
    CHECK(element(fused.tensors[1].tensor, 4) == p.b[2]);

    TensorFile by_head = fused;
    tensor_of(by_head, "qkvz").shape = {2, 11, 2, 26};
    tensor_of(by_head, "ba").shape = {2, 11, 2, 4};
    std::erase_if(by_head.tensors, [](const NamedTensor& t) { return t.name == "initial_state"; });
    CHECK(layer_of(by_head, grouped).x == p.x);

    TensorFile apart = fused;
    std::erase_if(apart.tensors, [](const NamedTensor& t) { return t.name == "qkvz" || t.name == "ba"; });
    std::vector<double> parts[3];
    for (std::size_t row = 0; row < 22; ++row) {
        const auto from = p.x.begin() + static_cast<std::ptrdiff_t>(row * 32);
        parts[0].insert(parts[0].end(), from, from + 6);
        parts[1].insert(parts[1].end(), from + 6, from + 12);
        parts[2].insert(parts[2].end(), from + 12, from + 32);
    }
    apart.tensors.push_back({"query", from_f64(parts[0], {2, 11, 2, 3}, DType::f64)});
    apart.tensors.push_back({"key", from_f64(parts[1], {2, 11, 2, 3}, DType::f64)});
    apart.tensors.push_back({"value", from_f64(parts[2], {2, 11, 4, 5}, DType::f64)});
    apart.tensors.push_back({"z", from_f64(p.z, {2, 11, 4, 5}, DType::f64)});
    apart.tensors.push_back({"a", from_f64(p.a, {2, 11, 4}, DType::f64)});
    apart.tensors.push_back({"b", from_f64(p.b, {2, 11, 4}, DType::f64)});
    const GdnLayer q = layer_of(apart, grouped);
    CHECK(run_layer64(q, grouped, 1).out == want.out);
    const auto gradients = layer_gradients_file(q, grouped, run_layer_adjoint64(q, grouped, cotangents_of(q), 1));
    CHECK(gradients.find("dz") != nullptr);
    CHECK(gradients.find("d_qkvz") == nullptr);

    const auto flat = contract_of("hf", {"split=flat"});
    const GdnLayer other = layer_of(fused, flat);
    CHECK(other.x[6] == element(qkvz, 6));  // K follows all of Q
    CHECK(run_layer64(other, flat, 1).out != want.out);
    // The gradient of qkvz is laid out as qkvz.
    const auto fused_gradient = layer_gradients_file(other, flat,
                                                     {.x = other.x,
                                                      .z = other.z,
                                                      .a = other.a,
                                                      .b = other.b,
                                                      .conv_weight = {},
                                                      .conv_bias = {},
                                                      .A_log = {},
                                                      .dt_bias = {},
                                                      .norm_weight = {},
                                                      .conv_state = {},
                                                      .initial_state = {}});
    CHECK(to_f64(*fused_gradient.find("d_qkvz")) == to_f64(qkvz));
    CHECK(to_f64(*fused_gradient.find("d_ba")) == to_f64(fused.tensors[1].tensor));
}

TEST_CASE("marin rounds g to the dtype of the projections, transformers does not") {
    const auto marin = contract_of("marin");
    const auto hf = contract_of("hf");
    const TensorFile file = inputs_file(marin, DType::bf16);
    const auto rounded = run_layer64(layer_of(file, marin), marin, 1).g;
    const auto kept = run_layer64(layer_of(file, hf), hf, 1).g;
    std::size_t differ = 0;
    for (std::size_t i = 0; i < kept.size(); ++i) {
        CHECK(rounded[i] == rounded_to(kept[i], DType::bf16));
        if (rounded[i] != kept[i]) ++differ;
    }
    CHECK(differ > 0);
    const TensorFile wide = inputs_file(marin);
    CHECK(rounded_to(run_layer64(layer_of(wide, marin), marin, 1).g[0], DType::f32) ==
          rounded_to(run_layer64(layer_of(wide, hf), hf, 1).g[0], DType::f32));
}

TEST_CASE("layer inputs that cannot be used are refused with the tensor's name") {
    const auto c = contract_of("marin");
    const auto refused = [&](const std::function<void(TensorFile&)>& spoil, std::string_view word) {
        TensorFile file = inputs_file(c);
        spoil(file);
        const auto layer = read_layer(file, c);
        REQUIRE_FALSE(layer.has_value());
        CHECK(layer.error().kind == ErrorKind::bad_input);
        CAPTURE(layer.error().message);
        CHECK(layer.error().message.find(word) != std::string::npos);
    };
    for (const char* name : {"qkvz", "ba", "conv_weight", "A_log", "dt_bias", "norm_weight"}) {
        refused([&](TensorFile& f) { std::erase_if(f.tensors, [&](const NamedTensor& t) { return t.name == name; }); },
                name);
    }
    for (const char* name : {"ba", "dt_bias", "conv_bias", "initial_conv_state", "initial_state"}) {
        refused([&](TensorFile& f) { tensor_of(f, name) = from_f64(std::vector<double>{1}, {1}, DType::f32); }, name);
        refused(
            [&](TensorFile& f) {
                Tensor& t = tensor_of(f, name);
                t.dtype = DType::i32;
            },
            name);
    }
    refused([](TensorFile& f) { f.tensors.push_back({"cu_seqlens", from_i64(std::vector<std::int64_t>{0, 11}, {2})}); },
            "cu_seqlens");
    refused([](TensorFile& f) { f.tensors.push_back({"q", f.tensors[0].tensor}); }, "given twice");
    refused([](TensorFile& f) { f.tensors.push_back({"mixed_ba", f.tensors[1].tensor}); }, "both mean ba");
    refused(
        [](TensorFile& f) { std::erase_if(f.tensors, [](const NamedTensor& t) { return t.name == "initial_state"; }); },
        "number of key heads");
}

TEST_CASE("contracts of a layer: what they say, and what they refuse") {
    CHECK(layer_contract_names() == std::vector<std::string>{"marin", "marin-01d1", "marin-654e", "hf", "hf-old"});
    const auto c = contract_of("marin", {"norm_eps=1e-5", "split=flat", "key_heads=3", "eps=1e-7"});
    CHECK(c.norm_eps == 1e-5);
    CHECK(c.split == LayerSplit::flat);
    CHECK(*c.key_heads == 3);
    CHECK(c.resolved.value.eps == 1e-7);
    CHECK(c.resolved.value.head_map == HeadMap::interleaved);
    CHECK(c.g_rounded);
    CHECK_FALSE(contract_of("hf").g_rounded);
    for (const char* set : {"split=both", "norm_eps=-1", "gate=never", "g_dtype=f16", "key_heads=0", "g_kind=log",
                            "beta_kind=prob", "nonsense=1"}) {
        CAPTURE(set);
        const std::vector<std::string> sets = {set};
        const auto refused = resolve_layer_contract("marin", {}, sets);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind == ErrorKind::usage);
    }
    CHECK_FALSE(resolve_layer_contract("flashinfer", {}, {}).has_value());
    const auto other = resolve_layer_contract("marin", {{"op", "gdn"}}, {});
    REQUIRE_FALSE(other.has_value());
    CHECK(other.error().kind == ErrorKind::bad_input);
    const auto from_file = resolve_layer_contract("hf", {{"op", "gdn-layer"}, {"gate", "before-norm"}}, {});
    REQUIRE(from_file.has_value());
    CHECK(from_file->gate == LayerGate::before_norm);
    CHECK_FALSE(resolve_layer_contract("hf", {{"gate", "sideways"}}, {}).has_value());
}

// The layer tests of levanter, with their shapes and tolerances, asked of ours: against what transformers' layer gave
// (tests/fixtures/oracle/layer, made by tests/conformance/oracle/transformers_layer.py), and of the fp32 kernels inside
// the layer, whose chunks must not matter.

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

TensorFile recorded_file(const std::string& name) {
    return load_safetensors(vectors() / "layer" / (name + ".safetensors"));
}

std::vector<double> values_of(const TensorFile& file, std::string_view name) {
    const Tensor* tensor = file.find(name);
    REQUIRE_MESSAGE(tensor != nullptr, std::string(name));
    return to_f64(*tensor);
}

struct RecordedLayer {
    LayerContract contract;
    GdnLayer layer;
    TensorFile inputs, theirs;
};

RecordedLayer recorded_layer(const std::string& name) {
    RecordedLayer r;
    r.inputs = recorded_file(name + ".inputs");
    r.theirs = recorded_file(name + ".outputs");
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
        const RecordedLayer r = recorded_layer(name);
        check_results(run_layer64(r.layer, r.contract, 1), r.theirs, {1e-4, 1e-4});
        check_results(stream_layer64(r.layer, r.contract, 1, 1), r.theirs, {1e-4, 1e-4});
        auto report = judge_layer(r.layer, r.contract, r.inputs, r.theirs, 1);
        REQUIRE(report);
        CHECK(report->verdict == Verdict::ok);
    }
}

TEST_CASE("layer: gradients equal transformers' within 1e-4 and 1e-5") {
    const RecordedLayer r = recorded_layer("backward");
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
    const RecordedLayer r = recorded_layer("padded");
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
    const RecordedLayer r = recorded_layer("conv");
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

// Verdicts on the tensors of a layer.

namespace {

TensorFile honest(const GdnLayer& p, const LayerContract& c, DType dtype, bool gradients = false) {
    TensorFile file = layer_outputs_file(p, c, run_layer64(p, c, 1), true);
    if (gradients) {
        auto cotangents = random_layer_cotangents(p, 1);
        for (auto* values : {&cotangents.d_out, &cotangents.d_final_conv_state, &cotangents.d_final_state}) {
            for (double& x : *values) x = rounded_to(x, dtype);
        }
        for (auto& entry : layer_gradients_file(p, c, run_layer_adjoint64(p, c, cotangents, 1)).tensors) {
            file.tensors.push_back(entry);
        }
        for (auto& entry : layer_cotangents_file(p, c, cotangents).tensors) file.tensors.push_back(entry);
    }
    for (NamedTensor& entry : file.tensors) {
        entry.tensor = from_f64(to_f64(entry.tensor), entry.tensor.shape, dtype);
    }
    return file;
}

LayerReport judged_layer(const GdnLayer& p, const LayerContract& c, const TensorFile& dump) {
    auto report = judge_layer(p, c, {}, dump, 1);
    if (!report) FAIL(report.error().message);
    return *report;
}

}  // namespace

TEST_CASE("honest layers are OK in fp32 and in bf16, gradients too") {
    for (const char* name : {"marin", "hf"}) {
        const auto c = contract_of(name);
        for (const DType dtype : {DType::f32, DType::bf16}) {
            const GdnLayer p = layer_of(inputs_file(c, dtype, {2, 70, 2, 4, 16, 8}), c);
            const auto report = judged_layer(p, c, honest(p, c, dtype, true));
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
            CHECK(report.tensors.size() == 16);
            CHECK(report.stage.empty());
            CHECK(report.not_compared.empty());
        }
    }
}

TEST_CASE("a fault in one part of the layer is wrong there") {
    const auto c = contract_of("hf");
    const GdnLayer p = layer_of(inputs_file(c, DType::f32, {1, 40, 2, 4, 8, 8}), c);
    struct Fault {
        const char* stage;
        std::function<void(GdnLayer&, LayerContract&)> plant;
    };
    const Fault faults[] = {
        {"conv", [](GdnLayer& l, LayerContract&) { std::reverse(l.conv_weight.begin(), l.conv_weight.end()); }},
        {"conv", [](GdnLayer& l, LayerContract&) { l.conv_bias.clear(); }},
        {"conv", [](GdnLayer& l, LayerContract&) { l.conv_state.clear(); }},
        {"gate",
         [](GdnLayer& l, LayerContract&) {
             for (double& x : l.dt_bias) x = 0;
         }},
        {"gate", [](GdnLayer& l, LayerContract&) { std::swap(l.a, l.b); }},
        {"beta", [](GdnLayer&, LayerContract& k) { k.resolved.value.beta_kind = BetaKind::twice_logit; }},
        {"core", [](GdnLayer& l, LayerContract&) { l.initial_state.clear(); }},
        {"core", [](GdnLayer&, LayerContract& k) { k.resolved.value.l2norm = L2Norm::off; }},
        {"core", [](GdnLayer&, LayerContract& k) { k.resolved.value.scale = 1; }},
        {"core", [](GdnLayer&, LayerContract& k) { k.resolved.value.head_map = HeadMap::tiled; }},
        {"norm", [](GdnLayer&, LayerContract& k) { k.gate = LayerGate::before_norm; }},
        {"norm", [](GdnLayer&, LayerContract& k) { k.norm_eps = 1e-3; }},
        {"norm",
         [](GdnLayer& l, LayerContract&) {
             for (double& x : l.norm_weight) x = 1;
         }},
        {"norm",
         [](GdnLayer& l, LayerContract&) {
             for (double& x : l.z) x = -x;
         }},
    };
    for (const Fault& fault : faults) {
        CAPTURE(fault.stage);
        GdnLayer spoilt = p;
        LayerContract other = c;
        fault.plant(spoilt, other);
        const auto report = judged_layer(p, c, honest(spoilt, other, DType::f32));
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.stage == fault.stage);
    }
}

TEST_CASE("a wrong gradient of the layer is wrong by itself") {
    const auto c = contract_of("marin");
    const GdnLayer p = layer_of(inputs_file(c, DType::f32, {2, 30, 2, 4, 8, 8}), c);
    const TensorFile right = honest(p, c, DType::f32, true);
    for (const char* name : {"d_qkvz", "d_ba", "d_conv_weight", "d_conv_bias", "d_A_log", "d_dt_bias", "d_norm_weight",
                             "d_initial_conv_state", "d_initial_state"}) {
        CAPTURE(name);
        TensorFile dump = right;
        Tensor& tensor = tensor_of(dump, name);
        auto values = to_f64(tensor);
        for (double& x : values) x *= 1.01;
        tensor = from_f64(values, tensor.shape, DType::f32);
        const auto report = judged_layer(p, c, dump);
        CHECK(report.verdict == Verdict::wrong);
        REQUIRE(report.worst.has_value());
        CHECK(report.worst->tensor == name);
        std::erase_if(dump.tensors,
                      [](const NamedTensor& t) { return t.name.find("d_final") == 0 || t.name == "d_out"; });
        const auto blind = judged_layer(p, c, dump);
        CHECK(blind.verdict == Verdict::ok);
        CHECK(blind.not_compared.size() >= 9);
    }
}

TEST_CASE("a layer's dump with nothing, with NaN, of another shape") {
    const auto c = contract_of("hf");
    const GdnLayer p = layer_of(inputs_file(c), c);
    CHECK(judged_layer(p, c, {}).verdict == Verdict::no_data);
    TensorFile dump = honest(p, c, DType::f32);
    dump.tensors.push_back({"nonsense", from_f64(std::vector<double>{1}, {1}, DType::f32)});
    CHECK(judged_layer(p, c, dump).unknown == std::vector<std::string>{"nonsense"});
    auto values = to_f64(tensor_of(dump, "out"));
    values[7] = std::nan("");
    tensor_of(dump, "out") = from_f64(values, {2, 11, 4, 5}, DType::f32);
    const auto report = judged_layer(p, c, dump);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.reason.find("not finite") != std::string::npos);
    tensor_of(dump, "out").shape = {11, 2, 4, 5};
    CHECK_FALSE(judge_layer(p, c, {}, dump, 1).has_value());
    GdnLayer broken = p;
    broken.x[0] = std::nan("");
    CHECK(judged_layer(broken, c, honest(p, c, DType::f32)).verdict == Verdict::unstable_input);
}
