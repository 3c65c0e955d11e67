// Correct kernels whose decays are off: by exp() itself, by fp32 sums of gates, or by chunks longer than the default.
#include <cmath>

#include "oracle/gdn/compare/budget.h"
#include "oracle/gdn/compare/declare.h"
#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

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
