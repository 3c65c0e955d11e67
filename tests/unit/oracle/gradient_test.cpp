// Verdicts on gradients: recorded ones are OK, known mistakes are WRONG at their stage; edges, and cotangents.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/backward32.h"
#include "unit/oracle/gdn_fixtures.h"
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

// Gradients where the truth is not finite, where most of it cancels, and mistakes at the l2norm and outside sequences.

namespace {

// Inputs with cotangents, and a dump of a forward pass and of gradients.
struct EdgeDump {
    TensorFile inputs, dump;

    GdnReport judged() const {
        GdnReference r = reference_for(inputs);
        const auto added = add_backward(r, inputs, dump, 2);
        REQUIRE_MESSAGE(added, (added ? std::string() : added.error().message));
        return gdnctl::oracle::testing::judged(r, dump);
    }
    void change(std::string_view name, const std::function<void(std::vector<double>&)>& how) {
        for (TensorFile* file : {&inputs, &dump}) {
            for (NamedTensor& t : file->tensors) {
                if (t.name != name) continue;
                std::vector<double> values = to_f64(t.tensor);
                how(values);
                t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
            }
        }
    }
    std::vector<double> values(std::string_view name) const {
        const Tensor* tensor = inputs.find(name);
        REQUIRE(tensor != nullptr);
        return to_f64(*tensor);
    }
};

EdgeDump edge_dump(TensorFile inputs, bool exact) {
    EdgeDump d{std::move(inputs), {}};
    const GdnReference r = reference_for(d.inputs);
    const GdnContract& c = r.contract.value;
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    for (NamedTensor& t : cotangents_file(r.problem, c, cotangents).tensors) d.inputs.tensors.push_back(t);
    d.dump = outputs_of(r, exact ? r.truth : run_chunk32(r.problem, c, {}, 2));
    const auto g = exact ? run_adjoint64(r.problem, c, cotangents, 2) : run_backward32(r.problem, c, cotangents, 2);
    for (NamedTensor& t : gradients_file(r.problem, c, g, DType::f32, DType::f32).tensors) d.dump.tensors.push_back(t);
    return d;
}

EdgeDump edge_dump(const GdnDims& dims, std::vector<std::int64_t> cu_seqlens = {}) {
    GdnCase c;
    c.dims = dims;
    c.cu_seqlens = std::move(cu_seqlens);
    c.contract = {"head_map=interleaved"};
    return edge_dump(make_inputs(c), true);
}

constexpr double k_not_a_number = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("gradient edge: where the exact gradients are not finite no gradient is OK") {
    for (const double bad : {k_not_a_number, static_cast<double>(INFINITY)}) {
        EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
        d.change("d_out", [&](std::vector<double>& x) { x[100] = bad; });
        for (const char* name : {"dq", "dk", "dv", "dg", "dbeta", "d_initial_state"}) {
            d.change(name, [](std::vector<double>& x) { std::fill(x.begin(), x.end(), 12345); });
        }
        const GdnReport report = d.judged();
        CHECK(report.verdict == Verdict::unstable_input);
        CHECK(report.reason.find("are not finite") != std::string::npos);
    }
}

TEST_CASE("gradient edge: NaN is where it is, and no sum with weights of NaN") {
    EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
    d.change("dq", [](std::vector<double>& x) { x[(10 * 2 + 1) * 16 + 3] = k_not_a_number; });
    const GdnReport report = d.judged();
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "dq");
    REQUIRE(report.place);
    CHECK(report.place->first_token == 10);
    for (const char* name : {"dk", "dv", "dg", "dbeta"}) {
        d.change(name, [](std::vector<double>& x) { std::fill(x.begin(), x.end(), k_not_a_number); });
    }
    const GdnReport all = d.judged();
    CHECK(all.stage == "bwd_shared");
    REQUIRE(all.hints.size() == 1);
    CHECK(all.hints.front().text.find("no known mistake") != std::string::npos);
}

TEST_CASE("gradient edge: honest fp32 gradients where the l2norm takes nearly all away are OK") {
    for (const std::int64_t dk : {1, 16}) {
        GdnCase c;
        c.dims = {1, 10, 1, 1, dk, 4};
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            c.seed = seed;
            TensorFile inputs = make_inputs(c);
            for (NamedTensor& t : inputs.tensors) {
                if (dk == 1 || (t.name != "q" && t.name != "k")) continue;
                std::vector<double> axis(t.tensor.count(), 0);
                for (std::size_t i = 0; i < axis.size(); i += static_cast<std::size_t>(dk)) axis[i] = 1;
                t.tensor = from_f64(axis, t.tensor.shape, t.tensor.dtype);
            }
            const EdgeDump d = edge_dump(std::move(inputs), false);
            INFO("dk " << dk << " seed " << seed);
            CHECK(d.judged().verdict == Verdict::ok);
        }
    }
}

TEST_CASE("gradient edge: the l2norm's factor missing, or too often, is the l2norm's gradient") {
    const std::pair<double, const char*> mistakes[] = {
        {-1, "lacks the l2norm's factor"}, {1, "twice"}, {2, "three times"}};
    for (const auto& [power, words] : mistakes) {
        for (const char* name : {"dq", "dk"}) {
            EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8});
            const std::vector<double> x = d.values(name + 1);
            d.change(name, [&, p = power](std::vector<double>& gradient) {
                for (std::size_t at = 0; at < x.size(); at += 16) {
                    double squares = 1e-6;
                    for (std::size_t i = at; i < at + 16; ++i) squares += x[i] * x[i];
                    for (std::size_t i = at; i < at + 16; ++i) gradient[i] *= std::pow(squares, -p / 2);
                }
            });
            const GdnReport report = d.judged();
            INFO(name << ' ' << words);
            CHECK(report.stage == "l2norm_grad");
            REQUIRE_FALSE(report.hints.empty());
            CHECK(report.hints.front().text.find(words) != std::string::npos);
        }
    }
}

TEST_CASE("gradient edge: rows outside every sequence, and gradients without a place, have a stage") {
    EdgeDump d = edge_dump({1, 20, 2, 4, 16, 8}, {0, 9, 15});
    CHECK(d.judged().verdict == Verdict::ok);
    d.change("dv", [](std::vector<double>& x) { x[17 * 4 * 8] = 7; });
    const GdnReport outside = d.judged();
    CHECK(outside.verdict == Verdict::wrong);
    CHECK(outside.stage == "padding");
    CHECK(outside.hints.front().text == "rows outside every sequence are written in dv");

    EdgeDump gates = edge_dump(make_inputs(*find_gdn_case("raw_gates")), true);
    gates.change("d_A_log", [](std::vector<double>& x) { x[0] = -2 * x[0] - 1; });
    const GdnReport report = gates.judged();
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "dg");
}

// Our own gradients, written as a dump, are OK in every form; what is changed in one of them is WRONG.

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

// Where out is narrower than d_out, a backward pass may read d_out as given or rounded to out's dtype: both are honest.

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
