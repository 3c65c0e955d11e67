// Correct results must be OK: recorded ones of real implementations, our own kernels on every case, sums in any order,
// underflow and extreme values.
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "oracle/gdn/compare/budget.h"
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("honest: every recorded output of levanter and transformers is OK") {
    std::size_t files = 0;
    for (const std::string& name : recorded_names()) {
        const GdnReference r = reference_for(load_safetensors(vectors() / (name + ".inputs.safetensors")));
        for (const auto& path : recorded_outputs(name)) {
            CAPTURE(path.filename().string());
            const GdnReport report = judged(r, load_safetensors(path));
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
            REQUIRE(report.tensors.size() == 2);
            CHECK(report.unknown.empty());
            ++files;
        }
    }
    CHECK(files == 74);
}

TEST_CASE("honest: our kernels are judged as expected on every generated case") {
    for (const GdnCase& c : gdn_cases()) {
        CAPTURE(c.name);
        const GdnReference r = reference_for(make_inputs(c));
        CAPTURE(r.unstable_reason);
        for (const std::string& kernel : builtin_kernel_names()) {
            CAPTURE(kernel);
            const auto under_test = find_builtin_kernel("builtin:" + kernel);
            REQUIRE(under_test);
            const auto run = run_pass(**under_test, KernelPass::forward, make_inputs(c), r.contract, 2);
            REQUIRE(run);
            const GdnReport report = judged(r, run->outputs);
            CAPTURE(report.reason);
            CHECK(report.verdict == c.expected);
        }
    }
}

// Correct kernels whose decays are off: by exp() itself, by fp32 sums of gates, or by chunks longer than the default.

namespace {

GdnReport judged_without_hints(const GdnReference& r, const GdnOutputs& x) {
    return judged(r, outputs_of(r, x), {.hints = false});
}

// The exact result for other log gates.
GdnOutputs with_log_gates(const GdnReference& r, std::vector<double> gates) {
    GdnProblem p = r.problem;
    p.gate = std::move(gates);
    GdnContract log = r.contract.value;
    log.g_kind = GateKind::log;
    return run_recurrent64(p, log, 2);
}

// As if every decay were off by so many ulps, always to the same side.
GdnOutputs with_decays_off(const GdnReference& r, double ulps) {
    std::vector<double> gates = log_gates(r.problem, r.contract.value);
    for (double& g : gates) g += g == 0 ? 0 : ulps * 0x1p-24 / std::exp(g);
    return with_log_gates(r, std::move(gates));
}

GdnOutputs with_fp32_sums(const GdnReference& r, SumOrder order) {
    std::vector<double> gates = log_gates(r.problem, r.contract.value);
    const auto heads = static_cast<std::size_t>(r.problem.dims.Hv);
    for (const GdnSequence& s : r.problem.sequences) {
        for (std::size_t h = 0; h < heads; ++h) {
            for (std::int64_t first = s.begin; first < s.end; first += 64) {
                std::vector<double> chunk;
                const auto last = std::min<std::int64_t>(s.end, first + 64);
                for (auto t = first; t < last; ++t) chunk.push_back(gates[static_cast<std::size_t>(t) * heads + h]);
                sum_gates_in(DType::f32, order, chunk);
                for (auto t = first; t < last; ++t) {
                    gates[static_cast<std::size_t>(t) * heads + h] = chunk[static_cast<std::size_t>(t - first)];
                }
            }
        }
    }
    return with_log_gates(r, std::move(gates));
}

GdnReference reference_of_case(const char* name, const std::vector<std::string>& sets = {}) {
    const GdnCase* c = find_gdn_case(name);
    REQUIRE(c != nullptr);
    return reference_for(make_inputs(*c), "marin", sets);
}

}  // namespace

TEST_CASE("honest: decays that are all off by one ulp add up over tokens with equal gates") {
    for (const double g : {-0.001, -0.01, -0.1}) {
        CAPTURE(g);
        GdnCase c;
        c.name = "equal gates";
        c.dims = {1, 700, 1, 2, 32, 32};
        c.state_scale = 0.3;
        c.contract = {"head_map=interleaved"};
        TensorFile inputs = make_inputs(c);
        for (NamedTensor& t : inputs.tensors) {
            if (t.name == "g")
                t.tensor = from_f64(std::vector<double>(t.tensor.count(), g), t.tensor.shape, DType::f32);
        }
        const GdnReference r = reference_for(inputs);
        CHECK(judged_without_hints(r, with_decays_off(r, 1)).verdict == Verdict::ok);
        CHECK(judged_without_hints(r, with_decays_off(r, -1)).verdict == Verdict::ok);
        CHECK(judged_without_hints(r, with_decays_off(r, 64)).verdict == Verdict::wrong);
    }
    const GdnReference r = reference_of_case("keys_cos91");
    CHECK(judged_without_hints(r, with_decays_off(r, 1)).verdict == Verdict::ok);
    CHECK(judged_without_hints(r, with_decays_off(r, 64)).verdict == Verdict::wrong);
}

TEST_CASE("honest: where gates differ, or are 0, decays are not allowed to be off together") {
    GdnCase c;
    c.name = "other gates";
    c.dims = {1, 2000, 1, 1, 32, 32};
    c.state_scale = 0.3;
    const GdnReference differ = reference_for(make_inputs(c));
    CHECK(judged_without_hints(differ, with_decays_off(differ, 32)).verdict == Verdict::wrong);
    TensorFile inputs = make_inputs(c);
    for (NamedTensor& t : inputs.tensors) {
        if (t.name == "g") t.tensor = from_f64(std::vector<double>(t.tensor.count(), 0.0), t.tensor.shape, DType::f32);
    }
    const GdnReference none = reference_for(inputs);
    std::vector<double> gates(none.problem.gate.size(), -0x1p-20);
    CHECK(judged_without_hints(none, with_log_gates(none, std::move(gates))).verdict == Verdict::wrong);
}

TEST_CASE("honest: fp32 sums of gates lose what follows a closed gate, in every order of summation") {
    for (const char* name : {"crossed_003", "crossed_008", "crossed_030", "crossed_060", "gates_sparse_200"}) {
        CAPTURE(name);
        const GdnReference r = reference_of_case(name);
        for (const SumOrder order : {SumOrder::one_by_one, SumOrder::blocks_of_16, SumOrder::pairs}) {
            const GdnReport report = judged_without_hints(r, with_fp32_sums(r, order));
            CAPTURE(report.reason);
            CHECK(report.verdict == Verdict::ok);
        }
        GdnOutputs off = r.truth;
        for (double& x : off.out) x *= 1.01;
        for (double& x : off.final_state) x *= 1.01;
        CHECK(judged_without_hints(r, off).verdict == Verdict::wrong);
    }
}

TEST_CASE("honest: chunks longer than the default are found, and a declared chunk length is taken as it is") {
    std::size_t found = 0;
    for (const char* name : {"gates_tails", "d128", "crossed_077"}) {
        CAPTURE(name);
        const GdnCase& c = *find_gdn_case(name);
        const TensorFile inputs = make_inputs(c);
        const GdnReference r = reference_for(inputs);
        const GdnReference declared = reference_for(inputs, "marin", {"chunk=64"});
        GdnOutputs x = run_chunk32(r.problem, r.contract.value, {128, GateSum::fp32, r.contract.value.matmul}, 2);
        const TensorFile dump = outputs_of(r, x);
        const GdnReport first = judged_without_hints(r, x);
        if (first.verdict == Verdict::ok) continue;
        ++found;
        const auto longer = judge_with_longer_chunks(r, first, inputs, dump, 2);
        REQUIRE(longer);
        CHECK(longer->chunk == 128);
        CHECK(longer->report.verdict == Verdict::ok);
        CHECK(longer->report.reason.starts_with("judged with the error budget of chunks of 128 tokens"));
        CHECK_FALSE(judge_with_longer_chunks(declared, judged(declared, dump), inputs, dump, 2));
        for (double& s : x.final_state) s *= 1.01;
        const GdnReport off = judged_without_hints(r, x);
        CHECK(off.verdict == Verdict::wrong);
        CHECK_FALSE(judge_with_longer_chunks(r, off, inputs, outputs_of(r, x), 2));
    }
    CHECK(found > 0);
}

// Results that fp32 cannot hold: honest kernels give 0 there, and that must neither be held against them nor hide what
// is wrong elsewhere.

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

// Inputs from everywhere in fp32's range: the truth is never WRONG, and one extreme value excuses no other element.

namespace {

constexpr std::array k_values = {0.0,   1e-45, 1e-38, 1e-30,  1e-25, 1e-19, 1e-10,  1.0,  2.0,  19.0, 50.0, 88.0,  90.0,
                                 104.0, 200.0, 1e3,   19999., 1e5,   1e10,  1.9e19, 1e20, 1e30, 1e37, 1e38, 3.4e38};

struct Kind {
    const char* about;
    std::vector<std::string> contract;
    GateRecipe gate = GateRecipe::soft;
};

const std::array k_kinds = {
    Kind{"gates as log decay", {}},
    Kind{"raw gates and logits", {"g_kind=raw", "beta_kind=logit"}, GateRecipe::raw},
    Kind{"no eps", {"eps=0"}},
    Kind{"no l2norm", {"l2norm=off"}},
};

TensorFile inputs_for(const Kind& kind, std::int64_t tokens) {
    GdnCase c;
    c.name = "extremes";
    c.dims = {1, tokens, 2, 2, 8, 8};
    c.seed = 3;
    c.contract = kind.contract;
    c.gate = kind.gate;
    c.state_scale = 0.1;
    if (kind.contract == std::vector<std::string>{"l2norm=off"}) c.keys = KeyRecipe::unit;
    return make_inputs(c);
}

using Reals = std::vector<double>;

void edit(TensorFile& file, std::string_view name, const std::function<void(Reals&)>& change) {
    for (NamedTensor& t : file.tensors) {
        if (t.name != name) continue;
        Reals values = to_f64(t.tensor);
        change(values);
        t.tensor = from_f64(values, t.tensor.shape, t.tensor.dtype);
    }
}

GdnReport judged_truth(const TensorFile& inputs) {
    GdnReference r = reference_for(inputs);
    TensorFile dump = outputs_of(r, r.truth);
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    TensorFile all = inputs;
    for (NamedTensor& t : cotangents_file(r.problem, r.contract.value, cotangents).tensors) all.tensors.push_back(t);
    const GdnGradients gradients = run_adjoint64(r.problem, r.contract.value, cotangents, 1);
    for (NamedTensor& t : gradients_file(r.problem, r.contract.value, gradients, DType::f32, DType::f32).tensors)
        dump.tensors.push_back(t);
    REQUIRE(add_backward(r, all, dump, 1));
    return judged(r, dump, {.hints = false});
}

GdnReport judged_off(const GdnReference& r, const std::function<double(std::size_t, double)>& of_out, double of_state) {
    GdnOutputs x = r.truth;
    for (std::size_t i = 0; i < x.out.size(); ++i) x.out[i] = of_out(i, x.out[i]);
    for (double& s : x.final_state) s *= of_state;
    return judged(r, outputs_of(r, x), {.hints = false});
}

bool is_fp32(double x) { return std::fabs(x) <= static_cast<double>(std::numeric_limits<float>::max()); }

// What nobody can be judged by.
bool usable(const GdnReference& r) {
    return r.unstable_reason.empty() && std::all_of(r.truth.out.begin(), r.truth.out.end(), is_fp32) &&
           std::all_of(r.truth.final_state.begin(), r.truth.final_state.end(), is_fp32);
}

}  // namespace

TEST_CASE("extremes: the truth given back is OK or UNSTABLE_INPUT, whatever one input element is") {
    std::size_t ok = 0;
    for (const Kind& kind : k_kinds) {
        const TensorFile base = inputs_for(kind, 12);
        for (const NamedTensor& tensor : base.tensors) {
            const std::size_t count = to_f64(tensor.tensor).size();
            for (const double size : k_values) {
                for (const double value : {size, -size}) {
                    for (const bool all : {false, true}) {
                        TensorFile inputs = base;
                        edit(inputs, tensor.name, [&](Reals& x) {
                            if (!all) x[count / 2] = value;
                            for (std::size_t i = 0; all && i < count; ++i) x[i] = value;
                        });
                        CAPTURE(kind.about);
                        CAPTURE(tensor.name);
                        CAPTURE(value);
                        CAPTURE(all);
                        const GdnReport report = judged_truth(inputs);
                        CAPTURE(report.reason);
                        const bool right = report.verdict == Verdict::ok || report.verdict == Verdict::unstable_input;
                        CHECK(right);
                        ok += report.verdict == Verdict::ok ? 1 : 0;
                    }
                }
            }
        }
    }
    CHECK(ok > 1000);
}

TEST_CASE("extremes: one per cent off in every element is WRONG, whatever one input element is") {
    std::size_t judgeable = 0;
    for (const std::int64_t tokens : {12, 150}) {
        for (const Kind& kind : k_kinds) {
            const TensorFile base = inputs_for(kind, tokens);
            for (const NamedTensor& tensor : base.tensors) {
                const std::size_t count = to_f64(tensor.tensor).size();
                for (const double size : k_values) {
                    for (const double value : {size, -size}) {
                        for (const std::size_t at : {std::size_t{0}, count / 2}) {
                            TensorFile inputs = base;
                            edit(inputs, tensor.name, [&](Reals& x) { x[at] = value; });
                            CAPTURE(tokens);
                            CAPTURE(kind.about);
                            CAPTURE(tensor.name);
                            CAPTURE(value);
                            CAPTURE(at);
                            const GdnReference r = reference_for(inputs);
                            CAPTURE(r.unstable_reason);
                            const GdnReport report =
                                judged_off(r, [](std::size_t, double y) { return 1.01 * y; }, 1.01);
                            CAPTURE(report.reason);
                            CHECK(report.verdict == Verdict::wrong);
                            judgeable += usable(r) ? 1 : 0;
                        }
                    }
                }
            }
        }
    }
    CHECK(judgeable > 2000);
}

TEST_CASE("extremes: what an extreme value cannot reach is judged as if it were not there") {
    // One per cent off in the other head; the tokens before; the other columns.
    const auto expect_wrong = [](const TensorFile& inputs,
                                 const std::function<bool(std::size_t, std::size_t, std::size_t)>& off) {
        const GdnReference r = reference_for(inputs);
        CAPTURE(r.unstable_reason);
        const GdnReport report =
            judged_off(r, [&](std::size_t i, double y) { return off(i / 16, i / 8 % 2, i % 8) ? 1.01 * y : y; }, 1);
        CHECK(report.verdict == Verdict::wrong);
        CHECK(judged(r, outputs_of(r, r.truth), {.hints = false}).verdict != Verdict::wrong);
    };
    using Index = std::size_t;
    for (const double value : {1e10, 1e20, 1e30, 1e38, -1e4, -1e30, 100.0}) {
        CAPTURE(value);
        for (const char* name : {"q", "k", "v", "g", "beta"}) {
            CAPTURE(name);
            TensorFile inputs = inputs_for(k_kinds[0], 90);
            const Index width = std::string_view(name).size() == 1 && name[0] != 'g' ? 8 : 1;
            edit(inputs, name, [&](Reals& x) { x[(60 * 2 + 1) * width] = value; });
            expect_wrong(inputs, [](Index, Index h, Index) { return h == 0; });
            expect_wrong(inputs, [](Index t, Index h, Index) { return h == 1 && t < 60; });
            if (name[0] == 'v') expect_wrong(inputs, [](Index, Index h, Index j) { return h == 1 && j == 5; });
        }
        TensorFile inputs = inputs_for(k_kinds[0], 90);
        edit(inputs, "initial_state", [&](Reals& x) { x[64] = value; });
        expect_wrong(inputs, [](Index, Index h, Index) { return h == 0; });
        expect_wrong(inputs, [](Index, Index h, Index j) { return h == 1 && j == 5; });
    }
}

TEST_CASE("extremes: a state that the first gate wipes, and one that only fp32 wipes, excuse nothing else") {
    for (const double gate : {-HUGE_VAL, -1e30, -1e4, -800.0, -200.0, -95.0}) {
        CAPTURE(gate);
        TensorFile inputs = inputs_for(k_kinds[0], 12);
        edit(inputs, "g", [&](Reals& x) { x[0] = x[1] = gate; });
        edit(inputs, "initial_state", [](Reals& x) {
            for (std::size_t i = 0; i < x.size(); i += 8) x[i] = i % 3 == 0 ? 3e38 : -3e38;
        });
        const GdnReference r = reference_for(inputs);
        CHECK(r.unstable_reason.empty());
        CHECK(judged(r, outputs_of(r, r.truth)).verdict == Verdict::ok);
        const auto off = [](std::size_t i, double y) { return i % 8 == 0 ? y : 1.01 * y; };
        CHECK(judged_off(r, off, 1).verdict == Verdict::wrong);
        CHECK(judged_off(r, [](std::size_t, double y) { return y; }, 1.01).verdict == Verdict::wrong);
        if (gate > -100) {
            // Kernels flush what is left of it at the first token, in its column.
            GdnOutputs flushed = r.truth;
            GdnProblem wiped = r.problem;
            std::fill(wiped.initial_state.begin(), wiped.initial_state.end(), 0.0);
            flushed = run_recurrent64(wiped, r.contract.value, 1);
            CHECK(judged(r, outputs_of(r, flushed)).verdict == Verdict::ok);
        } else {
            CHECK(judged_off(r, [](std::size_t, double y) { return 1.01 * y; }, 1).verdict == Verdict::wrong);
        }
    }
}

TEST_CASE("extremes: where fp32 arithmetic on the way overflows, the truth given back is OK") {
    const auto expect_ok = [](const TensorFile& inputs) {
        const GdnReference r = reference_for(inputs);
        const GdnReport report = judged(r, outputs_of(r, r.truth));
        CAPTURE(report.reason);
        CHECK(report.verdict == Verdict::ok);
        CHECK(judged_truth(inputs).verdict != Verdict::wrong);  // gradients can be beyond fp32's range
        CHECK(judged_off(r, [](std::size_t, double y) { return 1.01 * y; }, 1.01).verdict == Verdict::wrong);
    };
    const auto all = [](double value) { return [value](Reals& x) { std::fill(x.begin(), x.end(), value); }; };

    TensorFile gates = inputs_for(k_kinds[1], 12);  // exp(A_log) is infinite, and softplus 0
    edit(gates, "A_log", all(100));
    edit(gates, "a", all(-200));
    edit(gates, "dt_bias", all(0));
    expect_ok(gates);
    const GdnReference r = reference_for(gates);
    const GdnOutputs chunk = run_chunk32(r.problem, r.contract.value, {}, 1);
    CHECK(judged(r, outputs_of(r, chunk)).verdict == Verdict::ok);

    TensorFile writes = inputs_for(k_kinds[0], 11);  // beta v is
    edit(writes, "k", all(1));
    edit(writes, "v", all(2.5e38));
    edit(writes, "g", all(0));
    edit(writes, "beta", all(2));
    edit(writes, "initial_state", all(0));
    expect_ok(writes);

    TensorFile lengths = inputs_for(k_kinds[2], 12);  // |k|^2 is 0
    edit(lengths, "k", [](Reals& x) {
        for (std::size_t i = 40; i < 48; ++i) x[i] *= 1e-25;
    });
    expect_ok(lengths);
}

namespace {

// One key head for one or two value heads, with cotangents in the file.
TensorFile pulled_inputs(std::int64_t tokens, std::int64_t heads) {
    GdnCase c;
    c.name = "pulled";
    c.dims = {1, tokens, 1, heads, 16, 16};
    c.seed = 5;
    c.contract = {"head_map=interleaved"};
    c.state_scale = 1;
    TensorFile inputs = make_inputs(c);
    const GdnReference r = reference_for(inputs);
    for (NamedTensor& t : cotangents_file(r.problem, r.contract.value, random_cotangents(r.problem, 7)).tensors)
        inputs.tensors.push_back(t);
    return inputs;
}

// Each gradient by itself, all its elements times `factor`, is WRONG; as they are, all are OK.
void expect_each_gradient_judged(const TensorFile& inputs, double factor) {
    const GdnReference forward = reference_for(inputs);
    const auto cotangents = read_cotangents(inputs, forward.problem, forward.contract.value);
    REQUIRE(cotangents);
    REQUIRE(*cotangents);
    const GdnGradients gradients = run_adjoint64(forward.problem, forward.contract.value, **cotangents, 1);
    const auto verdict_of = [&](std::string_view name) {
        GdnReference r = forward;
        TensorFile dump = outputs_of(r, r.truth);
        for (NamedTensor& t : gradients_file(r.problem, r.contract.value, gradients, DType::f64, DType::f64).tensors)
            dump.tensors.push_back(t);
        edit(dump, name, [&](Reals& x) {
            for (double& value : x) value *= factor;
        });
        REQUIRE(add_backward(r, inputs, dump, 1));
        return judged(r, dump, {.hints = false}).verdict;
    };
    CHECK(verdict_of("") == Verdict::ok);
    for (const std::string name : {"dq", "dk", "dv", "dg", "dbeta"}) {
        CAPTURE(name);
        CHECK(verdict_of(name) == Verdict::wrong);
    }
}

}  // namespace

TEST_CASE("extremes: a state near the end of fp32's range that fades over many tokens excuses no final state") {
    for (const std::int64_t tokens : {70, 150}) {
        for (const double size : {1e20, 1e37, 1e38, 3e38}) {
            CAPTURE(tokens);
            CAPTURE(size);
            TensorFile inputs = inputs_for(k_kinds[0], tokens);
            edit(inputs, "initial_state", [&](Reals& x) { std::fill(x.begin(), x.end(), size); });
            edit(inputs, "g", [](Reals& x) { std::fill(x.begin(), x.end(), -9.0); });
            const GdnReference r = reference_for(inputs);
            CHECK(judged(r, outputs_of(r, r.truth), {.hints = false}).verdict == Verdict::ok);
            for (const double factor : {0.0, 1.01, 1e3, 1e30}) {
                CAPTURE(factor);
                GdnOutputs x = r.truth;
                for (double& s : x.final_state) s *= factor;
                CHECK(judged(r, outputs_of(r, x), {.hints = false}).verdict == Verdict::wrong);
            }
        }
    }
}

TEST_CASE("extremes: an initial state that a gate wipes excuses no gradient, of its head or of another") {
    for (const std::int64_t heads : {1, 2}) {
        for (const double gate : {-HUGE_VAL, -300.0, -200.0}) {
            CAPTURE(heads);
            CAPTURE(gate);
            TensorFile inputs = pulled_inputs(70, heads);
            edit(inputs, "initial_state", [](Reals& x) { x[35] = 1e38; });
            edit(inputs, "g", [&](Reals& x) { std::fill_n(x.begin(), heads, gate); });
            expect_each_gradient_judged(inputs, 1.01);
            expect_each_gradient_judged(inputs, 0);
        }
    }
}

TEST_CASE("extremes: cotangents that a gate wipes, and the last value, excuse no gradient") {
    for (const double size : {1e10, 1e20, 1e30}) {
        CAPTURE(size);
        TensorFile inputs = pulled_inputs(20, 1);
        edit(inputs, "v", [&](Reals& x) { x[19 * 16 + 1] = size; });
        expect_each_gradient_judged(inputs, 1.01);

        inputs = pulled_inputs(20, 1);
        edit(inputs, "d_final_state", [&](Reals& x) { std::fill(x.begin(), x.end(), size); });
        edit(inputs, "g", [](Reals& x) { x[19] = -200; });
        expect_each_gradient_judged(inputs, 1.01);
    }
}

TEST_CASE("extremes: a state that only decays may carry the error of every token's decay") {
    // As the recurrence in NumPy has it, whose exp() is off by up to 2 roundoffs, mostly to one side.
    GdnCase c;
    c.name = "decay";
    c.dims = {1, 130, 1, 32, 16, 16};
    c.seed = 5;
    c.contract = {"head_map=interleaved"};
    c.state_scale = 1;
    TensorFile inputs = make_inputs(c);
    for (const char* name : {"q", "k"}) edit(inputs, name, [](Reals& x) { std::fill(x.begin(), x.end(), 0.0); });
    const GdnReference r = reference_for(inputs);
    GdnOutputs x = r.truth;
    for (double& s : x.final_state) s *= 1 - 1.9e-6;
    CHECK(judged(r, outputs_of(r, x), {.hints = false}).verdict == Verdict::ok);
    for (double& s : x.final_state) s *= 1.0001;
    CHECK(judged(r, outputs_of(r, x), {.hints = false}).verdict == Verdict::wrong);
}

TEST_CASE("extremes: what fp32 sums lose at a gate near -1e4 excuses no gradient that is off by one per cent") {
    for (const double gate : {-1e4, -1.5e4}) {
        CAPTURE(gate);
        TensorFile inputs = pulled_inputs(300, 1);
        edit(inputs, "g", [&](Reals& x) { x[3] = gate; });
        expect_each_gradient_judged(inputs, 1.01);
    }
}
