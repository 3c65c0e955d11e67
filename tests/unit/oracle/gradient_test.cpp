// Verdicts on gradients: recorded ones are OK, each known mistake is WRONG at its stage.
#include <array>
#include <cmath>
#include <numeric>

#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnReference with_gradients(const TensorFile& inputs, const TensorFile& dump) {
    GdnReference r = reference_for(inputs);
    const auto added = add_backward(r, inputs, dump, 2);
    REQUIRE_MESSAGE(added, (added ? std::string() : added.error().message));
    return r;
}

TensorFile inputs_of(const std::string& name) { return load_safetensors(vectors() / (name + ".inputs.safetensors")); }
TensorFile dump_of(const std::string& name) {
    return load_safetensors(vectors() / (name + ".levanter_chunk.outputs.safetensors"));
}

// Replaces the values of one tensor.
void change(TensorFile& dump, std::string_view name, const std::function<void(std::vector<double>&)>& edit) {
    for (NamedTensor& t : dump.tensors) {
        if (t.name != name) continue;
        std::vector<double> values = to_f64(t.tensor);
        edit(values);
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
}

std::string hints_of(const GdnReport& report) {
    return std::accumulate(report.hints.begin(), report.hints.end(), std::string(),
                           [](std::string text, const Hint& h) { return text + h.stage + ": " + h.text + "\n"; });
}

void expect_fault(const TensorFile& inputs, const TensorFile& dump, std::string_view stage, std::string_view text) {
    const GdnReport report = judged(with_gradients(inputs, dump), dump);
    const std::string hints = hints_of(report);
    CAPTURE(hints);
    CAPTURE(report.reason);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.backward_fault);
    CHECK(report.stage == stage);
    CHECK(hints.find(text) != std::string::npos);
    CHECK(report.place);
}

}  // namespace

TEST_CASE("gradients: every recorded gradient of levanter and transformers is OK") {
    double worst = 0;
    for (const std::string& name : recorded_names()) {
        const TensorFile inputs = inputs_of(name);
        for (const auto& path : recorded_outputs(name)) {
            CAPTURE(path.filename().string());
            const TensorFile dump = load_safetensors(path);
            const GdnReport report = judged(with_gradients(inputs, dump), dump);
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
            CHECK(report.tensors.size() >= 7);
            for (const TensorReport& t : report.tensors) {
                if (t.canonical[0] == 'd') worst = std::max(worst, t.error_over_budget);
                if (t.error_over_budget > 2.5)
                    MESSAGE(path.filename().string(), " ", t.canonical, " ", t.error_over_budget);
            }
        }
    }
    MESSAGE("largest error / budget of a recorded gradient: ", worst);
}

TEST_CASE("gradients: a cotangent is rounded as the output was") {
    const TensorFile inputs = inputs_of("gdn_bf16");
    const TensorFile hf = load_safetensors(vectors() / "gdn_bf16.hf_chunk.outputs.safetensors");
    CHECK(cotangent_rounded(with_gradients(inputs, hf)));
    CHECK_FALSE(cotangent_rounded(with_gradients(inputs, dump_of("gdn_bf16"))));
}

TEST_CASE("gradients: without a cotangent none is judged, and that is said") {
    TensorFile inputs = inputs_of("gdn_base");
    std::erase_if(inputs.tensors, [](const NamedTensor& t) { return t.name.starts_with("d_"); });
    const TensorFile dump = dump_of("gdn_base");
    const GdnReport report = judged(with_gradients(inputs, dump), dump);
    CHECK(report.verdict == Verdict::ok);
    CHECK(report.tensors.size() == 2);
    REQUIRE(report.not_compared.size() == 6);
    CHECK(report.not_compared[0].reason == "neither file contains d_out or d_final_state");
}

TEST_CASE("gradients: a cotangent of a wrong shape is refused") {
    TensorFile inputs = inputs_of("gdn_base");
    for (NamedTensor& t : inputs.tensors) {
        if (t.name == "d_out") t.tensor.shape = {2, 57, 24};
    }
    GdnReference r = reference_for(inputs);
    const auto added = add_backward(r, inputs, dump_of("gdn_base"), 1);
    REQUIRE_FALSE(added);
    CHECK(added.error().message == "tensor 'd_out': expected [2,57,3,8] float32, got [2,57,24] float32");
}

TEST_CASE("gradient fault: the reverse sum is missing in dg") {
    for (const std::string name : {"gdn_base", "gdn_d64"}) {
        const TensorFile inputs = inputs_of(name);
        TensorFile dump = dump_of(name);
        const auto heads = static_cast<std::size_t>(dump.find("dg")->shape[2]);
        const auto tokens = static_cast<std::size_t>(dump.find("dg")->shape[1]);
        const auto chunk = static_cast<std::size_t>(reference_for(inputs).contract.value.chunk);
        change(dump, "dg", [&](std::vector<double>& dg) {
            for (std::size_t i = 0; i + heads < dg.size(); ++i) {
                const std::size_t t = i / heads % tokens;
                if (t % chunk != chunk - 1 && t + 1 < tokens) dg[i] -= dg[i + heads];
            }
        });
        expect_fault(inputs, dump, "dg", "the reverse sum over the chunk is missing in dg");
    }
}

TEST_CASE("gradient fault: GVA average, factors, signs, transposition, ignored cotangents") {
    const TensorFile inputs = inputs_of("gdn_gva");
    const TensorFile honest = dump_of("gdn_gva");
    const auto scaled = [&](std::string_view name, double factor) {
        TensorFile dump = honest;
        change(dump, name, [&](std::vector<double>& x) {
            for (double& value : x) value *= factor;
        });
        return dump;
    };
    expect_fault(inputs, scaled("dk", 1.0 / 3), "gva_grad", "dk is averaged over the 3 value heads");
    expect_fault(inputs, scaled("dbeta", -1), "dbeta", "dbeta has the wrong sign");
    expect_fault(inputs, scaled("dv", 3), "dv", "dv is 3 times the truth");
    expect_fault(inputs, scaled("dq", 2.5), "dq", "dq is 2.5 times the truth");
    expect_fault(inputs, scaled("d_initial_state", 0), "dS0", "d_initial_state is 0");
}

TEST_CASE("gradient fault: what only a second pass can tell") {
    for (const std::string name : {"gdn_gva", "gdn_d64"}) {
        const TensorFile inputs = inputs_of(name);
        GdnReference r = reference_for(inputs);
        GdnCotangents cotangents;
        cotangents.d_out = to_f64(*inputs.find("d_out"));
        cotangents.d_final_state = to_f64(*inputs.find("d_final_state"));
        const auto dump_with = [&](const GdnGradients& g) {
            TensorFile dump = dump_of(name);
            change(dump, "dq", [&](auto& x) { x = g.dq; });
            change(dump, "dk", [&](auto& x) { x = g.dk; });
            change(dump, "dv", [&](auto& x) { x = g.dv; });
            change(dump, "dg", [&](auto& x) { x = g.dg; });
            change(dump, "dbeta", [&](auto& x) { x = g.dbeta; });
            change(dump, "d_initial_state", [&](auto& x) { x = g.d_initial_state; });
            return dump;
        };
        GdnCotangents no_state = cotangents;
        no_state.d_final_state.clear();
        expect_fault(inputs, dump_with(run_adjoint64(r.problem, r.contract.value, no_state, 2)), "bwd_shared",
                     "the gradient of the final state is ignored");
        GdnProblem zero = r.problem;
        zero.initial_state.clear();
        expect_fault(inputs, dump_with(run_adjoint64(zero, r.contract.value, cotangents, 2)), "bwd_shared",
                     "the forward pass is recomputed without the initial state");
        GdnContract off = r.contract.value;
        off.l2norm = L2Norm::off;
        GdnProblem normalised = r.problem;
        const auto width = static_cast<std::size_t>(r.problem.dims.dk);
        for (auto* x : {&normalised.q, &normalised.k}) {
            for (std::size_t at = 0; at < x->size(); at += width) {
                double squares = 1e-6;
                for (std::size_t i = 0; i < width; ++i) squares += (*x)[at + i] * (*x)[at + i];
                for (std::size_t i = 0; i < width; ++i) (*x)[at + i] /= std::sqrt(squares);
            }
        }
        expect_fault(inputs, dump_with(run_adjoint64(normalised, off, cotangents, 2)), "l2norm_grad",
                     "the l2norm's gradient is missing");
    }
}

TEST_CASE("gradient fault: dq and dk go wrong in the sum over value heads, the l2norm, or before both") {
    const TensorFile inputs = inputs_of("gdn_gva");  // three value heads to a key head
    const GdnReference r = reference_for(inputs);
    GdnCotangents cotangents;
    cotangents.d_out = to_f64(*inputs.find("d_out"));
    cotangents.d_final_state = to_f64(*inputs.find("d_final_state"));
    const GdnGradients right = run_adjoint64(r.problem, r.contract.value, cotangents, 2);
    const GdnDims& d = r.problem.dims;
    const auto width = static_cast<std::size_t>(d.dk);
    const auto with_keys = [&](const std::vector<double>& dq, const std::vector<double>& dk) {
        TensorFile dump = dump_of("gdn_gva");
        change(dump, "dq", [&](auto& x) { x = dq; });
        change(dump, "dk", [&](auto& x) { x = dk; });
        return dump;
    };

    GdnCotangents last = cotangents;
    const auto is_last = [&](std::size_t h) {
        const auto heads = static_cast<std::int64_t>(h) % d.Hv;
        return heads + 1 == d.Hv ||
               key_head_of(heads + 1, d, r.contract.value.head_map) != key_head_of(heads, d, r.contract.value.head_map);
    };
    REQUIRE(r.contract.value.head_map == HeadMap::interleaved);
    const auto dv = static_cast<std::size_t>(d.dv);
    for (std::size_t i = 0; i < last.d_out.size(); ++i) {
        if (!is_last(i / dv)) last.d_out[i] = 0;
    }
    for (std::size_t i = 0; i < last.d_final_state.size(); ++i) {
        if (!is_last(i / (width * dv))) last.d_final_state[i] = 0;
    }
    const GdnGradients of_last = run_adjoint64(r.problem, r.contract.value, last, 2);
    std::vector<double> dk = right.dk;
    for (std::size_t i = 0; i < dk.size(); ++i) dk[i] -= 0.5 * of_last.dk[i];
    expect_fault(inputs, with_keys(right.dq, dk), "gva_grad", "with other weights than 1: 1, 1, 0.5 in key head 0");

    std::vector<double> dq = right.dq;  // along the vector, which the projection would have taken away
    for (std::size_t i = 0; i < dq.size(); ++i)
        dq[i] += 0.1 * std::sin(static_cast<double>(i - i % width)) * r.problem.q[i];
    expect_fault(inputs, with_keys(dq, right.dk), "l2norm_grad", "consistent with a wrong gradient of the l2norm");

    dq = right.dq;
    dk = right.dk;
    for (std::size_t i = 0; i < dq.size(); ++i) dq[i] += 0.05 * std::sin(3.0 * static_cast<double>(i));
    for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += 0.05 * std::sin(5.0 * static_cast<double>(i));
    expect_fault(inputs, with_keys(dq, dk), "bwd_shared", "dq, dk wrong and no other gradient");
    expect_fault(inputs, with_keys(dq, right.dk), "dq", "dq wrong and no other gradient");
}

TEST_CASE("gradient fault: one token, at its place, a wrong forward pass comes first") {
    const TensorFile inputs = inputs_of("gdn_d64");
    TensorFile dump = dump_of("gdn_d64");
    change(dump, "dv", [](std::vector<double>& x) { x[(100 * 2 + 1) * 64 + 5] += 1; });  // t=100, h=1 of 2
    const GdnReport report = judged(with_gradients(inputs, dump), dump);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "dv");
    REQUIRE(report.place);
    CHECK(report.place->tensor == "dv");
    CHECK(report.place->first_token == 100);
    CHECK(report.place->heads == std::vector<std::int64_t>{1});
    CHECK(report.place->chunks == std::vector<std::int64_t>{1});
    CHECK(report.worst->index == std::vector<std::int64_t>{0, 100, 1, 5});
    change(dump, "out", [](std::vector<double>& x) {
        for (double& value : x) value *= 2;
    });
    const GdnReport both = judged(with_gradients(inputs, dump), dump);
    CHECK_FALSE(both.backward_fault);
    CHECK(both.stage == "scale");
}

TEST_CASE("gradients: all of them off by one factor, and heads before tokens, are named") {
    const TensorFile inputs = inputs_of("gdn_base");
    for (const double factor : {2.0, -1.0, 1 / 2240.0, 0.0}) {
        CAPTURE(factor);
        TensorFile dump = dump_of("gdn_base");
        for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "d_initial_state"}) {
            change(dump, name, [&](std::vector<double>& x) {
                for (double& value : x) value *= factor;
            });
        }
        expect_fault(inputs, dump, "bwd_shared", factor == 0 ? "every gradient is 0" : "every gradient");
        const GdnReport report = judged(with_gradients(inputs, dump), dump);
        CHECK(hints_of(report).find("dq is") == std::string::npos);
    }
    // One of them alone keeps its own stage.
    TensorFile one = dump_of("gdn_base");
    change(one, "dv", [](std::vector<double>& x) {
        for (double& value : x) value *= 2;
    });
    expect_fault(inputs, one, "dv", "dv is 2 times the truth");

    for (const char* name : {"dq", "dk", "dv", "dg"}) {
        CAPTURE(name);
        TensorFile dump = dump_of("gdn_base");
        Shape shape;
        for (const NamedTensor& t : dump.tensors) {
            if (t.name == name) shape = t.tensor.shape;
        }
        REQUIRE(shape.size() >= 3);
        const auto [batches, tokens, heads] = std::array{
            static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]), static_cast<std::size_t>(shape[2])};
        const auto width = shape.size() > 3 ? static_cast<std::size_t>(shape[3]) : 1;
        change(dump, name, [&](std::vector<double>& x) {
            std::vector<double> moved;
            for (std::size_t b = 0; b < batches; ++b) {
                for (std::size_t h = 0; h < heads; ++h) {
                    for (std::size_t t = 0; t < tokens; ++t) {
                        for (std::size_t i = 0; i < width; ++i)
                            moved.push_back(x[((b * tokens + t) * heads + h) * width + i]);
                    }
                }
            }
            x = moved;
        });
        expect_fault(inputs, dump, "layout", std::string(name) + " is written as [B,H,T,D], heads before tokens");
    }
}
