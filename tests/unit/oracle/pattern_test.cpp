// What is said where no known mistake fits: a fault, and the text that names its pattern.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Index = std::size_t;

GdnReference made(GdnCase c) {
    c.name = "pattern";
    c.seed = 23;
    c.state_scale = 0.2;
    c.contract.emplace_back("head_map=interleaved");
    return reference_for(make_inputs(c));
}

// Chunks of 8 tokens, the last one incomplete.
const GdnReference& short_chunks() {
    static const GdnReference k_reference = [] {
        GdnCase c;
        c.dims = {1, 28, 1, 2, 8, 16};
        c.contract = {"chunk=8"};
        return made(c);
    }();
    return k_reference;
}

// Too few columns of v for a chunk's errors to be told by the product that they are made of.
const GdnReference& narrow(std::int64_t tokens) {
    static std::map<std::int64_t, GdnReference> known;
    if (!known.contains(tokens)) {
        GdnCase c;
        c.dims = {1, tokens, 1, 2, 8, 4};
        c.contract = {"chunk=8"};
        known.emplace(tokens, made(c));
    }
    return known.at(tokens);
}

struct Pattern {
    std::string_view text, stage;
    std::function<void(GdnOutputs&, const GdnReference&)> spoil;
};

// One value of out: of token t, head h, column j.
double& out_at(GdnOutputs& x, const GdnReference& r, Index t, Index h, Index j) {
    return x.out[(t * static_cast<Index>(r.problem.dims.Hv) + h) * static_cast<Index>(r.problem.dims.dv) + j];
}

// Every value of out of tokens from `first` to `end`, in all heads.
template <class Change>
void each_out(GdnOutputs& x, const GdnReference& r, Index first, Index end, const Change& change) {
    for (Index t = first; t < end; ++t) {
        for (Index h = 0; h < static_cast<Index>(r.problem.dims.Hv); ++h) {
            for (Index j = 0; j < static_cast<Index>(r.problem.dims.dv); ++j) change(out_at(x, r, t, h, j), t, h, j);
        }
    }
}

// Noise of size 1 that has no structure.
double rough(Index t, Index h, Index j) {
    const auto n = static_cast<double>(t * 131 + h * 31 + j * 7);
    return std::sin(12.9898 * n + 0.7 * n * n);
}

void expect_text(const GdnReference& r, const Pattern& p) {
    GdnOutputs x = r.truth;
    p.spoil(x, r);
    const GdnReport report = judged(r, outputs_of(r, x));
    CAPTURE(p.text);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == p.stage);
    REQUIRE(report.hints.size() == 1);
    CAPTURE(report.hints.front().text);
    CHECK(report.hints.front().text.find(p.text) != std::string::npos);
}

// Adds noise to out of tokens from `first` to `end` (of head 1, or of all), and to the state if asked for.
Pattern noisy(std::string_view text, std::string_view stage, Index first, Index end, bool state,
              bool all_heads = true) {
    return {text, stage, [=](GdnOutputs& x, const GdnReference& r) {
                each_out(x, r, first, end, [=](double& o, Index t, Index h, Index j) {
                    if (all_heads || h == 1) o += 0.3 * rough(t, h, j);
                });
                const Index begin = all_heads ? 0 : x.final_state.size() / 2;
                for (Index i = begin; state && i < x.final_state.size(); ++i) x.final_state[i] += 0.3 * rough(i, 0, 0);
            }};
}

// Part of each state, by row and column.
template <class Where>
Pattern state_part(std::string_view text, std::string_view stage, const Where& where) {
    return {text, stage, [where](GdnOutputs& x, const GdnReference& r) {
                const auto width = static_cast<Index>(r.problem.dims.dv);
                const auto height = static_cast<Index>(r.problem.dims.dk);
                for (Index i = 0; i < x.final_state.size(); ++i) {
                    if (where(i / width % height, i % width)) x.final_state[i] += 0.3 * rough(i, 0, 0);
                }
            }};
}

Pattern all_out(std::string_view text, std::string_view stage,
                const std::function<double(double, Index, Index, Index)>& f, Index first = 0, Index end = 28) {
    return {text, stage, [=](GdnOutputs& x, const GdnReference& r) {
                each_out(x, r, first, end, [&](double& o, Index t, Index h, Index j) { o = f(o, t, h, j); });
            }};
}

}  // namespace

TEST_CASE("pattern: few places, columns and rows") {
    const std::vector<Pattern> all = {
        {"2 elements alone are wrong", "tile",
         [](GdnOutputs& x, const GdnReference& r) {
             out_at(x, r, 5, 1, 3) += 1;
             out_at(x, r, 21, 1, 9) += 1;
         }},
        {"one token alone is wrong, and nothing that comes from it", "tile",
         [](GdnOutputs& x, const GdnReference& r) {
             for (Index j = 0; j < 16; ++j) out_at(x, r, 21, 1, j) += rough(21, 1, j);
         }},
        all_out(
            "out is exactly 0 in 10 rows (first in value head 0, tokens 10 to 14): consistent with rows that were "
            "never "
            "written",
            "tile", [](double, Index, Index, Index) { return 0.0; }, 10, 15),
        all_out(
            "out is exactly 0 in 8 rows (first in value head 0, tokens 24 to 27)", "padding",
            [](double, Index, Index, Index) { return 0.0; }, 24),
        all_out("4 of 16 columns of v are wrong, the others right", "tile",
                [](double o, Index t, Index h, Index j) { return j < 4 ? o + 0.3 * rough(t, h, j) : o; }),
        state_part("4 of 16 columns of final_state are wrong, the others right", "tile",
                   [](Index, Index column) { return column < 4; }),
        state_part("3 of 8 rows of final_state are wrong, the others right", "tile",
                   [](Index row, Index) { return row < 3; }),
        state_part("out is right and the final state is not: consistent with a mistake in its last update", "carry",
                   [](Index, Index) { return true; }),
    };
    for (const Pattern& p : all) expect_text(short_chunks(), p);
}

TEST_CASE("pattern: where the error begins") {
    const std::string_view solve =
        "the first 5 tokens of a chunk are right: consistent with a mistake in the inverse or the mask";
    const std::string_view carry =
        "chunk 1 is wrong from its first token, those before are right: consistent with a wrong state handed to it";
    const GdnReference& r = narrow(28);
    expect_text(r, noisy("the incomplete last chunk alone is wrong", "padding", 24, 28, false));
    expect_text(r, noisy("the final state is right and out is not: consistent with a mistake in what is read", "intra",
                         0, 28, false));
    expect_text(r, noisy(solve, "solve", 13, 28, true));
    expect_text(short_chunks(), noisy(solve, "solve", 13, 28, true));
    expect_text(r, noisy(carry, "carry", 8, 28, true));
    expect_text(short_chunks(), noisy(carry, "carry", 8, 28, true));
    expect_text(narrow(80),
                noisy("chunk 8 is wrong from its first token, those before are right: consistent with a "
                      "wrong state handed to it; chunk 8 is the first of a segment of 8 chunks: its checkpoint, or the "
                      "padding of segments",
                      "carry", 64, 80, true));
    expect_text(r, noisy("one head alone is wrong", "tile", 0, 28, true, false));
    expect_text(r, noisy("no known mistake explains it", "solve", 0, 28, true));
}

TEST_CASE("pattern: errors of the same size everywhere, and values that are mapped or moved at the end") {
    const auto of_size = [](std::string_view text, double size) {
        return all_out(text, "rounding",
                       [size](double o, Index t, Index h, Index j) { return o * (1 + 1.4 * size * rough(t, h, j)); });
    };
    const std::vector<Pattern> all = {
        of_size(
            "about 0.003 in every row: consistent with operands of products in bf16, or a state kept in bf16 (2^-9)",
            3e-3),
        of_size("about 0.0002 in every row: consistent with operands in tf32 or fp16 (2^-11): declare it with --set "
                "matmul=tf32",
                2e-4),
        of_size(
            "about 2e-05 in every row: consistent with three bf16 passes (2^-16): declare it with --set matmul=bf16x3",
            2e-5),
        all_out("each value of out depends on the right one alone: consistent with values that are clipped, flushed or "
                "mapped",
                "output", [](double o, Index, Index, Index) { return std::tanh(5 * o); }),
        {"matches if out is right and at other tokens: token 1 holds that of 0", "layout",
         [](GdnOutputs& x, const GdnReference&) { std::copy_backward(x.out.begin(), x.out.end() - 32, x.out.end()); }},
        {"matches if out is right and in other heads: token 14 holds that of head 0", "head_map",
         [](GdnOutputs& x, const GdnReference&) {
             for (auto row = x.out.begin() + 14 * 32; row != x.out.end(); row += 32) std::copy_n(row, 16, row + 16);
         }},
    };
    for (const Pattern& p : all) expect_text(short_chunks(), p);
}

TEST_CASE("pattern: what is not finite is told by the gates") {
    const Pattern nothing = {"", "", [](GdnOutputs& x, const GdnReference&) {
                                 std::fill(x.out.begin() + 9 * 32, x.out.end(),
                                           std::numeric_limits<double>::quiet_NaN());
                             }};
    const auto expect = [&](double gate, std::string_view stage, std::string_view text) {
        GdnProblem p = short_chunks().problem;
        if (gate != 0) std::fill(p.gate.begin() + 16, p.gate.begin() + 32, gate);  // of the second chunk
        expect_text(make_reference(p, short_chunks().contract, 1), {text, stage, nothing.spoil});
    };
    expect(
        0, "solve",
        "values are not finite on ordinary gates: consistent with an inverse that explodes (doubling), or with memory "
        "that is read before it is written");
    expect(-20, "decay",
           "values are not finite where the gates of a chunk sum to -160: consistent with exp(c_i) exp(-c_j), which "
           "overflows fp32, for exp(c_i - c_j)");
    expect(-HUGE_VAL, "gate", "values are not finite where g = -inf: consistent with differences of sums, -inf - -inf");
}

TEST_CASE("pattern: a few values that are not finite beside a right final state were never written") {
    const auto nan = std::numeric_limits<double>::quiet_NaN();
    expect_text(short_chunks(),
                {"1 of ", "tile", [nan](GdnOutputs& x, const GdnReference&) { x.out[10 * 32 + 3] = nan; }});
    expect_text(short_chunks(),
                {"the last 2 rows of out are not finite and the final state is right", "padding",
                 [nan](GdnOutputs& x, const GdnReference&) { std::fill(x.out.end() - 2 * 32, x.out.end(), nan); }});
}

TEST_CASE("pattern: NaN in rows outside every sequence was left there") {
    GdnCase c;
    c.dims = {1, 28, 1, 2, 8, 4};
    c.cu_seqlens = {0, 10, 20};
    const GdnReference r = made(c);
    GdnOutputs left = r.truth;
    std::fill(left.out.begin() + 20 * 8, left.out.end(), std::numeric_limits<double>::quiet_NaN());
    CHECK(judged(r, outputs_of(r, left)).verdict == Verdict::ok);
}

TEST_CASE("pattern: rows outside every sequence") {
    GdnCase c;
    c.dims = {1, 28, 1, 2, 8, 4};
    c.cu_seqlens = {0, 10, 20};
    expect_text(made(c), {"rows outside every sequence are written", "padding",
                          [](GdnOutputs& x, const GdnReference&) { x.out.back() = 1; }});
}
