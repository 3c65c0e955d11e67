// Hints where a fault explodes, has gates that no exp can give, or strikes at one boundary alone. The faulty results
// come from a token-by-token recurrence of this file.
#include <cmath>
#include <functional>
#include <numeric>

#include "oracle/gdn/kernels/prepare.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct Change {
    std::function<double(double)> decay = [](double g) { return std::exp(g); };  // of g as given
    std::function<bool(std::size_t)> lost = [](std::size_t) { return false; };   // the state, before that token
    std::function<double(double)> kept = [](double s) { return s; };             // of the state, after each token
};

GdnOutputs changed_recurrence(const GdnProblem& p, const GdnContract& c, const Change& change) {
    const Prepared<double> in = prepare<double>(p, c, 1);
    const auto T = static_cast<std::size_t>(p.dims.T);
    const auto Hv = static_cast<std::size_t>(p.dims.Hv);
    const auto Hk = static_cast<std::size_t>(p.dims.Hk);
    const auto dk = static_cast<std::size_t>(p.dims.dk);
    const auto dv = static_cast<std::size_t>(p.dims.dv);
    GdnOutputs result{std::vector<double>(p.v.size()), in.state, 0};
    for (std::size_t task = 0; task < static_cast<std::size_t>(p.dims.B) * Hv * T; ++task) {
        const std::size_t lane = task / T;
        const std::size_t t = task % T;
        const std::size_t h = lane % Hv;
        const std::size_t row = lane / Hv * T + t;
        double* S = result.final_state.data() + lane * dk * dv;
        if (change.lost(t)) std::fill_n(S, dk * dv, 0.0);
        const double* q = in.q.data() + (row * Hk + in.key_head[h]) * dk;
        const double* k = in.k.data() + (row * Hk + in.key_head[h]) * dk;
        const double alpha = change.decay(in.g[row * Hv + h]);
        for (std::size_t j = 0; j < dv; ++j) {
            double kS = 0;
            for (std::size_t x = 0; x < dk; ++x) kS += k[x] * S[x * dv + j];
            const double d = in.beta[row * Hv + h] * (in.v[(row * Hv + h) * dv + j] - alpha * kS);
            double read = 0;
            for (std::size_t x = 0; x < dk; ++x) {
                S[x * dv + j] = change.kept(alpha * S[x * dv + j] + k[x] * d);
                read += q[x] * S[x * dv + j];
            }
            result.out[(row * Hv + h) * dv + j] = in.scale * read;
        }
    }
    return result;
}

GdnReference real_size(std::int64_t tokens, const std::vector<std::string>& sets = {}) {
    GdnCase c;
    c.name = "real";
    c.dims = {1, tokens, 2, 4, 64, 64};
    c.seed = 17;
    c.state_scale = 0.1;
    c.contract = {"head_map=interleaved"};
    return reference_for(make_inputs(c), "marin", sets);
}

GdnReport expect_hint(const GdnReference& r, const GdnOutputs& wrong, std::string_view stage, std::string_view text) {
    const GdnReport report = judged(r, outputs_of(r, wrong));
    const std::string hints = std::accumulate(report.hints.begin(), report.hints.end(), std::string(),
                                              [](std::string all, const Hint& h) { return all + h.text + "\n"; });
    CAPTURE(hints);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == stage);
    CHECK(hints.find(text) != std::string::npos);
    CHECK(hints.find("transposed") == std::string::npos);
    CHECK(hints.find("rounded") == std::string::npos);
    return report;
}

}  // namespace

TEST_CASE("hint: a fault that explodes is named from the tokens before") {
    for (const std::int64_t tokens : {100, 130, 200}) {
        CAPTURE(tokens);
        const GdnReference r = real_size(tokens);
        GdnContract off = r.contract.value;
        off.l2norm = L2Norm::off;
        expect_hint(r, changed_recurrence(r.problem, off, {}), "l2norm", "q and k are not l2-normalised");
        expect_hint(
            r,
            changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return std::exp(std::exp(g)); }}),
            "gate", "exp is applied twice to g");
    }
}

TEST_CASE("hint: a dump that is not finite from its first token on shows a pattern at most") {
    const GdnReference r = real_size(130);
    GdnOutputs nothing = r.truth;
    std::fill(nothing.out.begin(), nothing.out.end(), NAN);
    std::fill(nothing.final_state.begin(), nothing.final_state.end(), NAN);
    expect_hint(r, nothing, "solve", "values are not finite on ordinary gates");
}

TEST_CASE("hint: a negative g that is taken for alpha") {
    for (const std::int64_t tokens : {40, 130}) {
        const GdnReference r = real_size(tokens);
        REQUIRE(*std::max_element(r.problem.gate.begin(), r.problem.gate.end()) <= 0);
        expect_hint(r, changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return g; }}), "gate",
                    "g is taken for alpha: its exp is never computed");
    }
}

TEST_CASE("hint: a state that is kept in bf16 from token to token") {
    GdnCase c;
    c.name = "long";
    c.dims = {1, 1000, 1, 1, 64, 64};
    c.seed = 5;
    c.gate = GateRecipe::constant;
    c.gate_value = -1e-4;
    const GdnReference r = reference_for(make_inputs(c));
    const auto kept =
        changed_recurrence(r.problem, r.contract.value, {.kept = [](double s) { return rounded_to(s, DType::bf16); }});
    expect_hint(r, kept, "rounding", "the state is kept in bf16 from token to token");
}

TEST_CASE("hint: a state that is lost, or S0 again, where a segment begins") {
    const GdnReference r = real_size(700);
    const auto lost = changed_recurrence(r.problem, r.contract.value, {.lost = [](std::size_t t) { return t == 512; }});
    expect_hint(r, lost, "carry", "chunk 8 is the first of a segment of 8 chunks");
    const auto sooner =
        changed_recurrence(r.problem, r.contract.value, {.lost = [](std::size_t t) { return t == 448; }});
    const GdnReport report = expect_hint(r, sooner, "carry", "the state is not carried");
    for (const Hint& hint : report.hints) CHECK(hint.text.find("segment") == std::string::npos);
}

TEST_CASE("hint: an out that is a multiple of the truth in some of the chunks") {
    const GdnReference r = real_size(200);
    GdnOutputs x = r.truth;
    const auto columns = r.truth.out.size() / 200;
    for (std::size_t i = 128 * columns; i < x.out.size(); ++i) x.out[i] *= 1.03;
    expect_hint(r, x, "scale", "out is 1.03 times the truth");
}

TEST_CASE("hint: a g that is taken for alpha where gates are raw, on G1") {
    const GdnReference r = reference_for(make_inputs(*find_gdn_case("g1")));
    REQUIRE(r.contract.value.g_kind == GateKind::raw);
    expect_hint(r, changed_recurrence(r.problem, r.contract.value, {.decay = [](double g) { return g; }}), "gate",
                "g is taken for alpha: its exp is never computed");
}

TEST_CASE("hint: a state that is lost at one boundary") {
    const GdnReference r = real_size(300);
    for (const std::size_t token : {64U, 128U, 256U}) {
        CAPTURE(token);
        const auto lost =
            changed_recurrence(r.problem, r.contract.value, {.lost = [token](std::size_t t) { return t == token; }});
        const GdnReport report =
            expect_hint(r, lost, "carry", "the state is not carried from chunk to chunk (0 again)");
        REQUIRE(report.place);
        CHECK(report.place->first_token == static_cast<std::int64_t>(token));
    }
}

TEST_CASE("hint: gates of the next token, in more chunks than are acted out") {
    const GdnReference r = real_size(400);
    GdnProblem moved = r.problem;
    const auto heads = static_cast<std::size_t>(moved.dims.Hv);
    std::copy(r.problem.gate.begin() + static_cast<std::ptrdiff_t>(heads), r.problem.gate.end(), moved.gate.begin());
    std::fill(moved.gate.end() - static_cast<std::ptrdiff_t>(heads), moved.gate.end(), 0.0);
    expect_hint(r, run_recurrent64(moved, r.contract.value, 2), "gate", "g is that of the next token");
}

namespace {

std::vector<double> exchanged(const std::vector<double>& x, std::int64_t tokens, std::int64_t heads,
                              std::int64_t width) {
    std::vector<double> moved;
    for (std::int64_t b = 0; b < static_cast<std::int64_t>(x.size()) / (tokens * heads * width); ++b) {
        for (std::int64_t h = 0; h < heads; ++h) {
            for (std::int64_t t = 0; t < tokens; ++t) {
                for (std::int64_t i = 0; i < width; ++i)
                    moved.push_back(x[static_cast<std::size_t>(((b * tokens + t) * heads + h) * width + i)]);
            }
        }
    }
    return moved;
}

}  // namespace

TEST_CASE("hint: bytes with heads before tokens, in out and in inputs") {
    GdnCase batched;
    batched.name = "batched";
    batched.dims = {2, 70, 2, 4, 16, 8};
    batched.seed = 5;
    batched.contract = {"head_map=interleaved"};
    for (const GdnReference& r : {reference_for(make_inputs(batched)), real_size(130)}) {
        const GdnProblem& p = r.problem;
        const GdnDims& d = p.dims;
        CAPTURE(d.B);
        GdnOutputs written = r.truth;
        written.out = exchanged(r.truth.out, d.T, d.Hv, d.dv);
        expect_hint(r, written, "layout", "out is written as [B,H,T,D], heads before tokens");
        // Read so: what the kernel takes for token t of head h lies where the bytes of another are.
        const auto read = [&](std::vector<double>& x, std::int64_t heads, std::int64_t width) {
            x = exchanged(x, heads, d.T, width);
        };
        GdnProblem all = p;
        read(all.q, d.Hk, d.dk);
        read(all.k, d.Hk, d.dk);
        GdnProblem keys = all;
        read(all.v, d.Hv, d.dv);
        read(all.gate, d.Hv, 1);
        read(all.beta, d.Hv, 1);
        GdnProblem values = p;
        read(values.v, d.Hv, d.dv);
        const GdnContract& c = r.contract.value;
        expect_hint(r, run_recurrent64(keys, c, 2), "layout", "q and k are read as [B,H,T,D], heads before tokens");
        expect_hint(r, run_recurrent64(values, c, 2), "layout", "v is read as [B,H,T,D], heads before tokens");
        GdnOutputs both = run_recurrent64(all, c, 2);
        expect_hint(r, both, "layout", "q, k, v, g and beta are read as [B,H,T,D]");
        both.out = exchanged(both.out, d.T, d.Hv, d.dv);
        expect_hint(r, both, "layout", "heads before tokens, and out is written so");
    }
}
