// Verdicts on the tensors of a layer.
#include <algorithm>
#include <cmath>
#include <functional>

#include "unit/oracle/layer_fixtures.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

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
