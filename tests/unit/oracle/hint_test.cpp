// Every automatic hint, proven by injecting exactly that fault on small (G1) and real sizes. The faulty results come
// from a token-by-token recurrence of this file, which knows nothing of the chunked form that hints are acted out in.
#include <cmath>
#include <functional>
#include <numeric>

#include "oracle/kernels/prepare.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Quirks {
    bool decay_after_write = false;
    bool read_old_state = false;
    bool undecayed_residual = false;
    bool exclusive_sums = false;
    bool sums_never_restart = false;
    bool bf16_state_per_chunk = false;
    bool strict_mask = false;
    bool no_handover = false;
};

// The recurrence with quirks, of one problem that has no packed sequences.
GdnOutputs quirky_recurrence(const GdnProblem& p, const GdnContract& c, const Quirks& quirks,
                             const std::function<void(Prepared<double>&)>& change = {}) {
    Prepared<double> in = prepare<double>(p, c, 1);
    if (change) change(in);
    const auto T = static_cast<std::size_t>(p.dims.T);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    const auto C = static_cast<std::size_t>(c.chunk);
    GdnOutputs result{std::vector<double>(p.v.size()), in.state, 0};
    for (std::size_t b = 0; b < static_cast<std::size_t>(p.dims.B); ++b) {
        for (std::size_t h = 0; h < Hv; ++h) {
            double* S = result.final_state.data() + (b * Hv + h) * dk * dv;
            double before = 0;  // gates of earlier chunks
            double inside = 0;
            for (std::size_t t = 0; t < T; ++t) {
                const std::size_t row = b * T + t;
                const double* q = in.q.data() + (row * Hk + in.key_head[h]) * dk;
                const double* k = in.k.data() + (row * Hk + in.key_head[h]) * dk;
                const double* v = in.v.data() + (row * Hv + h) * dv;
                double* out = result.out.data() + (row * Hv + h) * dv;
                double g = in.g[row * Hv + h];
                const double own = g;
                if (t % C == 0) {
                    before += inside;
                    inside = 0;
                    if (quirks.sums_never_restart) g += before;
                    if (quirks.bf16_state_per_chunk && t > 0) {
                        for (std::size_t i = 0; i < dk * dv; ++i) S[i] = rounded_to(S[i], DType::bf16);
                    }
                    if (quirks.no_handover && t > 0) std::fill_n(S, dk * dv, 0.0);
                }
                inside += own;
                if (quirks.exclusive_sums) g = t % C == 0 ? 0 : in.g[(row - 1) * Hv + h];
                const double alpha = std::exp(g);
                for (std::size_t j = 0; j < dv; ++j) {
                    double kS = 0;
                    double old = 0;
                    for (std::size_t x = 0; x < dk; ++x) {
                        kS += k[x] * S[x * dv + j];
                        old += q[x] * S[x * dv + j];
                    }
                    const bool undecayed = quirks.undecayed_residual || quirks.decay_after_write;
                    const double d = in.beta[row * Hv + h] * (v[j] - (undecayed ? 1 : alpha) * kS);
                    double read = 0;
                    for (std::size_t x = 0; x < dk; ++x) {
                        double& s = S[x * dv + j];
                        s = quirks.decay_after_write ? alpha * (s + k[x] * d) : alpha * s + k[x] * d;
                        read += q[x] * s;
                    }
                    out[j] = in.scale * (quirks.read_old_state ? old : quirks.strict_mask ? alpha * old : read);
                }
            }
            if (quirks.bf16_state_per_chunk) {
                for (std::size_t i = 0; i < dk * dv; ++i) S[i] = rounded_to(S[i], DType::bf16);
            }
        }
    }
    return result;
}

GdnReference small() { return reference_for(make_inputs(*find_gdn_case("g1"))); }

GdnCase real_case() {
    GdnCase c;
    c.name = "real";
    c.dims = {1, 200, 2, 4, 64, 64};
    c.seed = 11;
    c.state_scale = 0.3;
    c.contract = {"head_map=interleaved"};
    return c;
}

GdnReference real() { return reference_for(make_inputs(real_case())); }

bool names(const GdnReport& report, std::string_view text) {
    return std::any_of(report.hints.begin(), report.hints.end(),
                       [&](const Hint& h) { return h.text.find(text) != std::string::npos; });
}

std::string all_hints(const GdnReport& report) {
    return std::accumulate(report.hints.begin(), report.hints.end(), std::string(),
                           [](std::string text, const Hint& h) { return text + h.stage + ": " + h.text + "\n"; });
}

// What a fault does to the outputs, and what must be said about it.
struct Fault {
    std::string stage, text;
    std::function<GdnOutputs(const GdnReference&)> outputs;
};

void check(const Fault& fault, const GdnReference& r) {
    const GdnReport report = judged(r, outputs_of(r, fault.outputs(r)));
    CAPTURE(fault.text);
    CAPTURE(all_hints(report));
    CHECK(report.verdict == Verdict::wrong);
    // The decay of G1 is so strong that a state that is lost and one that decays away can be alike: both are named.
    CHECK(std::find(report.stages.begin(), report.stages.end(), fault.stage) != report.stages.end());
    CHECK(names(report, fault.text));
    REQUIRE(report.place);
    // "Exactly that hint": others are named only where they fit as well as it does.
    CHECK(report.hints.size() <= 3);
}

Fault contract_fault(std::string stage, std::string text, std::function<void(GdnContract&)> change) {
    return {std::move(stage), std::move(text), [change](const GdnReference& r) {
                GdnContract wrong = r.contract.value;
                change(wrong);
                return quirky_recurrence(r.problem, wrong, {});
            }};
}

Fault quirk(std::string stage, std::string text, Quirks quirks) {
    return {std::move(stage), std::move(text),
            [quirks](const GdnReference& r) { return quirky_recurrence(r.problem, r.contract.value, quirks); }};
}

Fault prepared(std::string stage, std::string text, std::function<void(Prepared<double>&)> change) {
    return {std::move(stage), std::move(text),
            [change](const GdnReference& r) { return quirky_recurrence(r.problem, r.contract.value, {}, change); }};
}

std::vector<Fault> faults() {
    std::vector<Fault> all;
    all.push_back(
        {"head_map", "the value heads of out are permuted: they hold those of 1,2,3,0", [](const GdnReference& r) {
             GdnOutputs x = r.truth;
             const auto dv = static_cast<std::size_t>(r.problem.dims.dv);
             for (std::size_t i = 0; i < x.out.size(); i += 4 * dv) {
                 std::rotate(x.out.begin() + static_cast<std::ptrdiff_t>(i),
                             x.out.begin() + static_cast<std::ptrdiff_t>(i + dv),
                             x.out.begin() + static_cast<std::ptrdiff_t>(i + 4 * dv));
             }
             return x;
         }});
    all.push_back(
        contract_fault("head_map", "the head map is tiled", [](GdnContract& c) { c.head_map = HeadMap::tiled; }));
    all.push_back(contract_fault("scale", "the scale is missing", [](GdnContract& c) { c.scale = 1; }));
    all.push_back({"scale", "the scale is applied twice", [](const GdnReference& r) {
                       GdnContract twice = r.contract.value;
                       twice.scale = 1 / static_cast<double>(r.problem.dims.dk);
                       return quirky_recurrence(r.problem, twice, {});
                   }});
    all.push_back({"scale", "the scale is 1/dk instead of 1/sqrt(dk)", all.back().outputs});  // both are named
    all.push_back({"scale", "the scale is sqrt(dk)", [](const GdnReference& r) {
                       GdnContract up = r.contract.value;
                       up.scale = std::sqrt(static_cast<double>(r.problem.dims.dk));
                       return quirky_recurrence(r.problem, up, {});
                   }});
    all.push_back(prepared("beta", "the sigmoid is applied once more", [](auto& in) {
        for (double& b : in.beta) b = 1 / (1 + std::exp(-b));
    }));
    all.push_back(prepared("gate", "exp is applied twice", [](auto& in) {
        for (double& g : in.g) g = -std::exp(g);
    }));
    all.back() = prepared("gate", "g has the wrong sign", [](auto& in) {
        for (double& g : in.g) g = -g;
    });
    all.push_back(quirk("gate", "the sum of gates is exclusive", {.exclusive_sums = true}));
    all.push_back(quirk("gate", "does not restart at each chunk", {.sums_never_restart = true}));
    all.push_back(quirk("order", "the decay is applied after the write", {.decay_after_write = true}));
    all.push_back(quirk("order", "out is read from the old state", {.read_old_state = true}));
    all.push_back(quirk("order", "r is computed from the undecayed state", {.undecayed_residual = true}));
    all.push_back(prepared("carry", "the initial state is ignored",
                           [](auto& in) { std::fill(in.state.begin(), in.state.end(), 0.0); }));
    all.push_back(quirk("rounding", "the state is rounded to bf16 after each chunk", {.bf16_state_per_chunk = true}));
    all.push_back(quirk("carry", "the state is not carried from chunk to chunk", {.no_handover = true}));
    return all;
}

}  // namespace

TEST_CASE("hint: each known mistake is named on G1 and on real sizes") {
    const GdnReference g1 = small();
    const GdnReference wide = real();
    for (const Fault& fault : faults()) {
        if (g1.problem.dims.T > g1.contract.value.chunk) check(fault, g1);
        check(fault, wide);
    }
}

TEST_CASE("hint: a transposed state, where dk = dv and where not") {
    for (const GdnReference& r : {small(), real()}) {
        GdnOutputs x = r.truth;
        x.final_state = to_layout(x.final_state, r.problem.dims, StateLayout::value_key);
        const GdnReport report = judged(r, outputs_of(r, x));
        CHECK(report.stage == "layout");
        CHECK(names(report, "the state is transposed"));
        REQUIRE(report.place);
        CHECK(report.place->tensor == "final_state");
    }
}

TEST_CASE("hint: an initial state that is read transposed") {
    const GdnReference r = real();
    GdnProblem wrong = r.problem;
    GdnDims d = r.problem.dims;
    wrong.initial_state = to_layout(wrong.initial_state, d, StateLayout::value_key);
    const GdnReport report = judged(r, outputs_of(r, quirky_recurrence(wrong, r.contract.value, {})));
    CHECK(report.stage == "layout");
    CHECK(names(report, "the initial state is read transposed"));
}

TEST_CASE("hint: beta as given and gates as given, raw contracts") {
    const GdnReference r = small();
    GdnContract prob = r.contract.value;
    prob.beta_kind = BetaKind::prob;
    const GdnReport raw_beta = judged(r, outputs_of(r, quirky_recurrence(r.problem, prob, {})));
    CHECK(raw_beta.stage == "beta");
    CHECK(names(raw_beta, "beta is used as given, without the sigmoid"));
    GdnProblem no_bias = r.problem;
    for (double& x : no_bias.dt_bias) x = 0;
    const GdnReport bias = judged(r, outputs_of(r, quirky_recurrence(no_bias, r.contract.value, {})));
    CHECK(bias.stage == "gate");
    CHECK(names(bias, "dt_bias is not added"));
}

TEST_CASE("hint: g taken for alpha, alpha taken for g, exp twice") {
    GdnCase c = real_case();
    c.gate = GateRecipe::constant;
    c.gate_value = -0.1;  // alpha is .9, which as g grows, so keep it short
    c.dims.T = 12;
    c.contract.emplace_back("g_kind=alpha");
    const GdnReference alpha = reference_for(make_inputs(c));
    GdnContract log = alpha.contract.value;
    log.g_kind = GateKind::log;
    const GdnReport as_log = judged(alpha, outputs_of(alpha, quirky_recurrence(alpha.problem, log, {})));
    CHECK(as_log.stage == "gate");
    CHECK(names(as_log, "alpha is taken for g"));

    c.contract = {"head_map=interleaved"};
    c.gate_value = 0.4;
    const GdnReference logs = reference_for(make_inputs(c));
    GdnContract as_alpha = logs.contract.value;
    as_alpha.g_kind = GateKind::alpha;
    const GdnReport no_exp = judged(logs, outputs_of(logs, quirky_recurrence(logs.problem, as_alpha, {})));
    CHECK(names(no_exp, "g is taken for alpha"));
    const GdnReport twice =
        judged(logs, outputs_of(logs, quirky_recurrence(logs.problem, logs.contract.value, {}, [](auto& in) {
                                    for (double& g : in.g) g = std::exp(g);
                                })));
    CHECK(names(twice, "exp is applied twice to g"));
}

TEST_CASE("hint: l2norm missing, doubled, and eps outside of the root") {
    GdnCase c = real_case();
    c.dims.T = 100;
    c.keys = KeyRecipe::tiny;  // |k| = 1e-4, where eps = 1e-6 counts
    const GdnReference r = reference_for(make_inputs(c));
    GdnContract off = r.contract.value;
    off.l2norm = L2Norm::off;
    const GdnReport missing = judged(r, outputs_of(r, quirky_recurrence(r.problem, off, {})));
    CHECK(missing.stage == "l2norm");
    CHECK(names(missing, "q and k are not l2-normalised"));
    const auto renormalised = [&](bool outside) {
        return [&, outside](Prepared<double>& in) {
            for (auto* x : {&in.q, &in.k}) {
                const auto& given = x == &in.q ? r.problem.q : r.problem.k;
                if (outside) *x = given;
                for (std::size_t at = 0; at < x->size(); at += 64) {
                    double squares = 0;
                    for (std::size_t i = 0; i < 64; ++i) squares += (*x)[at + i] * (*x)[at + i];
                    const double divisor = outside ? std::sqrt(squares) + 1e-6 : std::sqrt(squares + 1e-6);
                    for (std::size_t i = 0; i < 64; ++i) (*x)[at + i] /= divisor;
                }
            }
        };
    };
    const GdnReport doubled =
        judged(r, outputs_of(r, quirky_recurrence(r.problem, r.contract.value, {}, renormalised(false))));
    CHECK(doubled.stage == "l2norm");
    CHECK(names(doubled, "l2-normalised twice"));
    const GdnReport outside =
        judged(r, outputs_of(r, quirky_recurrence(r.problem, r.contract.value, {}, renormalised(true))));
    CHECK(outside.stage == "l2norm");
    CHECK(names(outside, "eps is added outside of the root"));
}

TEST_CASE("hint: the policy for sequences without tokens") {
    const GdnReference r = reference_for(make_inputs(*find_gdn_case("varlen_empty_zeros")));
    GdnContract other = r.contract.value;
    other.empty = EmptySequence::passthrough;
    const GdnReport report = judged(r, outputs_of(r, run_recurrent64(r.problem, other, 1)));
    CHECK(report.stage == "carry");
    CHECK(names(report, "pass the initial state through (empty=passthrough)"));
    REQUIRE(report.place);
    CHECK(report.place->sequences == std::vector<std::int64_t>{0, 2, 4});
}

TEST_CASE("hint: undeclared bf16, of the output and of the operands") {
    const GdnReference r = real();
    GdnOutputs x = r.truth;
    for (double& o : x.out) o = rounded_to(o, DType::bf16);
    const GdnReport output = judged(r, outputs_of(r, x));
    CHECK(output.stage == "rounding");
    CHECK(names(output, "out is rounded to bfloat16 (declare it: --set out_dtype=bf16)"));
    const GdnReport passes = judged(
        r, outputs_of(r, run_chunk32(r.problem, r.contract.value, {64, GateSum::fp64_with_resets, Matmul::bf16}, 2)));
    CHECK(passes.verdict == Verdict::wrong);
    CHECK(passes.stage == "rounding");
    CHECK(names(passes, "bf16 operands"));
}

TEST_CASE("hint: a mask that hides the diagonal fits two descriptions, and both are named") {
    const GdnReference r = real();
    const GdnReport report =
        judged(r, outputs_of(r, quirky_recurrence(r.problem, r.contract.value, {.strict_mask = true})));
    CHECK(names(report, "P lacks its diagonal"));
    CHECK(names(report, "out is read from the decayed old state"));
    CHECK(report.stages == std::vector<std::string>{"order", "intra"});
}

TEST_CASE("place: one head from one chunk on") {
    const GdnReference r = real();
    GdnOutputs x = r.truth;
    for (std::size_t t = 150; t < 200; ++t) {
        for (std::size_t j = 0; j < 64; ++j) x.out[(t * 4 + 2) * 64 + j] *= 1.5;
    }
    const GdnReport report = judged(r, outputs_of(r, x));
    REQUIRE(report.place);
    CHECK(report.place->heads == std::vector<std::int64_t>{2});
    CHECK(report.place->chunks == std::vector<std::int64_t>{2, 3});
    CHECK(report.place->first_token == 150);
    CHECK(report.place->first_head == 2);
    CHECK(report.place->first_chunk == 2);
    REQUIRE(report.errors.size() == 4);
    CHECK(report.errors[2].chunks.size() == 4);
    CHECK(report.errors[2].chunks[1] < k_ok_band);
    CHECK(report.errors[2].chunks[3] > k_wrong_band);
}

TEST_CASE("place: an honest dump has none, and --no-hints looks for nothing") {
    const GdnReference r = small();
    const GdnReport honest = judged(r, outputs_of(r, r.truth));
    CHECK_FALSE(honest.place);
    CHECK(honest.stage.empty());
    CHECK(honest.hints.empty());
    GdnContract wrong = r.contract.value;
    wrong.scale = 1;
    CompareOptions quiet;
    quiet.hints = false;
    const GdnReport report = judged(r, outputs_of(r, run_recurrent64(r.problem, wrong, 1)), quiet);
    CHECK(report.place);
    CHECK(report.hints.empty());
}
