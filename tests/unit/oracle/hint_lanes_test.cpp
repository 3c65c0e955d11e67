// Hints and places where some heads or sequences alone are wrong.
#include <functional>

#include "oracle/gdn/contract/gradients.h"
#include "oracle/gdn/kernels/adjoint.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

GdnReference sized_lanes(GdnDims dims, const std::vector<std::int64_t>& lengths = {}, double state = 0.3) {
    GdnCase c;
    c.name = "lanes";
    c.dims = dims;
    c.seed = 61;
    c.state_scale = state;
    c.contract = {"head_map=interleaved"};
    for (const std::int64_t n : lengths) {
        if (c.cu_seqlens.empty()) c.cu_seqlens = {0};
        c.cu_seqlens.push_back(c.cu_seqlens.back() + n);
    }
    return reference_for(make_inputs(c));
}

std::string hint_lines(const GdnReport& report) {
    std::string text;
    for (const Hint& h : report.hints) text += h.text + "\n";
    return text;
}

// The wrong dump must be named so, at that stage.
void expect_named(const GdnReference& r, const GdnOutputs& wrong, std::string_view stage, std::string_view text) {
    const GdnReport report = judged(r, outputs_of(r, wrong));
    const std::string hints = hint_lines(report);
    CAPTURE(hints);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == stage);
    CHECK(hints.find(text) != std::string::npos);
}

std::size_t size_of_state(const GdnReference& r) {
    return static_cast<std::size_t>(r.problem.dims.dk * r.problem.dims.dv);
}

// An element of out (row: token) or of final_state.
struct Site {
    std::int64_t sequence, head, row, column;
};

// The results if the initial state of lane i were that of lane from[i].
GdnOutputs with_states_of(const GdnReference& r, const std::vector<std::size_t>& from) {
    GdnProblem p = r.problem;
    const std::size_t size = size_of_state(r);
    for (std::size_t lane = 0; lane < from.size(); ++lane) {
        std::copy_n(r.problem.initial_state.begin() + static_cast<std::ptrdiff_t>(from[lane] * size), size,
                    p.initial_state.begin() + static_cast<std::ptrdiff_t>(lane * size));
    }
    return run_recurrent64(p, r.contract.value, 2);
}

}  // namespace

TEST_CASE("hint: packed sequences whose state is never reset") {
    for (const std::vector<std::int64_t>& lengths :
         std::vector<std::vector<std::int64_t>>{{16, 32, 8}, {16, 32, 8, 64}, {100, 100, 100}}) {
        for (const double state : {0.0, 0.3}) {
            std::int64_t total = 0;
            for (const std::int64_t n : lengths) total += n;
            const GdnReference r = sized_lanes({1, total, 2, 4, 16, 8}, lengths, state);
            GdnProblem p = r.problem;
            GdnOutputs leaked = r.truth;
            const std::size_t row = size_of_state(r) * 4;
            p.initial_state.resize(row * lengths.size(), 0);
            for (std::size_t n = 0; n < lengths.size(); ++n) {
                leaked = run_recurrent64(p, r.contract.value, 2);
                if (n + 1 == lengths.size()) break;
                std::copy_n(leaked.final_state.begin() + static_cast<std::ptrdiff_t>(n * row), row,
                            p.initial_state.begin() + static_cast<std::ptrdiff_t>((n + 1) * row));
            }
            const GdnReport report = judged(r, outputs_of(r, leaked));
            const std::string hints = hint_lines(report);
            CAPTURE(hints);
            CHECK(report.stage == "carry");
            const bool named = hints.find("the state is carried through the whole pack") != std::string::npos ||
                               hints.find("starts from the final state of the one before") != std::string::npos;
            CHECK(named);
        }
    }
}

TEST_CASE("hint: initial states of other heads and sequences") {
    const std::string_view text = "the initial state is that of another head or sequence";
    for (const std::int64_t tokens : {40, 200}) {
        const GdnReference heads = sized_lanes({1, tokens, 4, 4, 16, 16});
        expect_named(heads, with_states_of(heads, {1, 0, 2, 3}), "carry", text);
        expect_named(heads, with_states_of(heads, {1, 2, 3, 0}), "carry", text);
        expect_named(heads, with_states_of(heads, {0, 0, 0, 0}), "carry", text);
        expect_named(heads, with_states_of(heads, {0, 1, 2, 1}), "carry", "(value head 1)");
    }
    const GdnReference rows = sized_lanes({3, 40, 2, 2, 16, 16});
    expect_named(rows, with_states_of(rows, {2, 3, 4, 5, 0, 1}), "carry", text);
    expect_named(rows, with_states_of(rows, {0, 1, 4, 3, 4, 5}), "carry", "(sequence 2, value head 0)");
}

TEST_CASE("hint: a final state that is transposed in some lanes alone") {
    for (const std::int64_t dv : {16, 8}) {
        const GdnReference r = sized_lanes({2, 70, 2, 4, 16, dv});
        const std::size_t dk = 16;
        const auto width = static_cast<std::size_t>(dv);
        for (const std::vector<std::size_t>& lanes : std::vector<std::vector<std::size_t>>{{6}, {4, 5, 6, 7}}) {
            GdnOutputs wrong = r.truth;
            for (const std::size_t lane : lanes) {
                for (std::size_t i = 0; i < dk; ++i) {
                    for (std::size_t j = 0; j < width; ++j) {
                        wrong.final_state[lane * dk * width + j * dk + i] =
                            r.truth.final_state[lane * dk * width + i * width + j];
                    }
                }
            }
            expect_named(r, wrong, "layout",
                         lanes.size() == 1 ? "(sequence/head) 1/2 alone" : "1/0, 1/1, 1/2, 1/3 alone");
        }
    }
}

TEST_CASE("place: of a gradient that is wrong in one value head of a group, that head is named") {
    GdnReference r = sized_lanes({1, 100, 2, 8, 16, 16});
    TensorFile dump = outputs_of(r, r.truth);
    const GdnCotangents cotangents = random_cotangents(r.problem, 7);
    const TensorFile given = cotangents_file(r.problem, r.contract.value, cotangents);
    // Value head 6 without its decay, in the backward pass alone.
    GdnProblem undecayed = r.problem;
    for (std::size_t i = 6; i < undecayed.gate.size(); i += 8) undecayed.gate[i] = 0;
    const GdnGradients wrong = run_adjoint64(undecayed, r.contract.value, cotangents, 2);
    const GdnGradients right = run_adjoint64(r.problem, r.contract.value, cotangents, 2);
    const auto judged_with = [&](bool value_heads) {
        GdnGradients g = value_heads ? wrong : right;
        g.dq = wrong.dq;
        g.dk = wrong.dk;
        TensorFile all = dump;
        for (auto& t : gradients_file(r.problem, r.contract.value, g, DType::f32, DType::f32).tensors) {
            all.tensors.push_back(t);
        }
        GdnReference with = r;
        REQUIRE(add_backward(with, given, all, 2));
        return judged(with, all);
    };
    const GdnReport report = judged_with(true);
    REQUIRE(report.place);
    CHECK(report.backward_fault);
    CHECK(report.place->heads == std::vector<std::int64_t>{6});
    CHECK(report.place->first_head == 6);
    const bool of_key_head = report.place->tensor == "dq" || report.place->tensor == "dk";
    CHECK_FALSE(of_key_head);
    const GdnReport keys = judged_with(false);
    REQUIRE(keys.place);
    CHECK(keys.place->heads == std::vector<std::int64_t>{4, 5, 6, 7});
    CHECK(keys.place->first_head == 1);
}

TEST_CASE("hint: a tensor of zeros is called that") {
    const GdnReference r = sized_lanes({1, 100, 2, 4, 16, 16});
    GdnOutputs zeros = r.truth;
    std::fill(zeros.out.begin(), zeros.out.end(), 0.0);
    expect_named(r, zeros, "output", "out is exactly 0 throughout");
    zeros = r.truth;
    std::fill(zeros.final_state.begin(), zeros.final_state.end(), 0.0);
    expect_named(r, zeros, "carry", "final_state is exactly 0 throughout");
    std::fill(zeros.out.begin(), zeros.out.end(), 0.0);
    expect_named(r, zeros, "output", "out and final_state are exactly 0 throughout");
}

TEST_CASE("hint: what is exactly 0 of out and final_state is named, before any theory") {
    const auto clear = [](GdnOutputs& x, const GdnReference& r, const std::function<bool(Site)>& out,
                          const std::function<bool(Site)>& state) {
        const auto& d = r.problem.dims;
        for (std::size_t i = 0; i < x.out.size(); ++i) {
            const auto n = static_cast<std::int64_t>(i);
            const std::int64_t row = n / d.dv / d.Hv;
            if (out({row / d.T, n / d.dv % d.Hv, row % d.T, n % d.dv})) x.out[i] = 0;
        }
        for (std::size_t i = 0; i < x.final_state.size(); ++i) {
            const auto n = static_cast<std::int64_t>(i);
            const std::int64_t lane = n / d.dv / d.dk;
            if (state({lane / d.Hv, lane % d.Hv, n / d.dv % d.dk, n % d.dv})) x.final_state[i] = 0;
        }
    };
    struct Zeros {
        std::string_view text, stage;
        std::function<bool(Site)> out, state;
    };
    const auto never = [](Site) { return false; };
    const auto head_1 = [](Site l) { return l.head == 1; };
    const auto batch_1 = [](Site l) { return l.sequence == 1; };
    const GdnReference r = sized_lanes({2, 130, 2, 4, 16, 16});
    for (const Zeros& z : {
             Zeros{"out and final_state of value head 1 are exactly 0", "tile", head_1, head_1},
             {"out and final_state of batch row 1 are exactly 0", "tile", batch_1, batch_1},
             {"out of batch row 1 is exactly 0", "tile", batch_1, never},
             {"final_state of value head 1 is exactly 0", "carry", never, head_1},
             {"final_state is exactly 0 in 1 of 16 rows (row 15)", "tile", never, [](Site l) { return l.row == 15; }},
             {"out is exactly 0 in 8 of 16 columns of v (columns 8 to 15)", "tile",
              [](Site l) { return l.column >= 8; }, never},
             {"out is exactly 0 in 520 rows (first in sequence 0, value head 0, tokens t with t % 2 = 0)", "tile",
              [](Site l) { return l.row % 2 == 0; }, never},
             {"out is exactly 0 in 256 rows (first in sequence 0, value head 0, tokens t with t % 64 from 48 to 63)",
              "tile", [](Site l) { return l.row % 64 >= 48; }, never},
             {"tokens 3, 10 to 12, 77): consistent with rows that were never written", "tile",
              [](Site l) { return l.row == 3 || (l.row >= 10 && l.row <= 12) || l.row == 77; }, never},
         }) {
        CAPTURE(z.text);
        GdnOutputs x = r.truth;
        clear(x, r, z.out, z.state);
        expect_named(r, x, z.stage, z.text);
        CHECK(judged(r, outputs_of(r, x)).hints.front().text.find("exactly 0") != std::string::npos);
    }
}

TEST_CASE("hint: alpha in the place of g makes the inputs unstable, and is recognised") {
    for (const GateRecipe recipe : {GateRecipe::both_signs, GateRecipe::constant}) {
        GdnCase c;
        c.name = "alpha";
        c.dims = {1, 200, 2, 2, 16, 16};
        c.contract = {"g_kind=alpha"};
        c.gate = recipe;  // both_signs: some factors are above 1
        c.gate_value = -0.05;
        const TensorFile inputs = make_inputs(c);
        const GdnReference right = reference_for(inputs);
        const GdnReference wrong = reference_for(inputs, "marin", {"g_kind=log"});
        const GdnReport report = judged(wrong, outputs_of(wrong, right.truth));
        CHECK(report.verdict == Verdict::unstable_input);
        CHECK(hint_lines(report).find("matches if g is alpha") == 0);
        const std::string other = hint_lines(judged(wrong, outputs_of(wrong, wrong.truth)));
        if (recipe == GateRecipe::constant) CHECK(other.starts_with("every g lies within 0 and 1"));
    }
}
