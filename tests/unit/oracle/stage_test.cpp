// Faults that no hint simulates: the stage is found from the class of changes that makes the dump right, or from the
// pattern of the errors.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "oracle/tensor/random.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/mutants/forward_mutants.h"
#include "unit/oracle/mutants/mutant_set.h"
#include "unit/oracle/mutants/tapped_kernel.h"
#include "unit/oracle/sited_kernel.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Row = std::size_t;

const GdnReference& small_heads() {
    static const GdnReference k_reference = mutant_reference(mutant_case(false, {1, 80, 2, 4, 16, 16}), 2);
    return k_reference;
}

// The report on a kernel that makes this mistake in every chunk, or in chunk 1 of head 1 alone.
GdnReport report_on(const ChunkEdit& chunk, bool everywhere) {
    Mutant m;
    m.fault.chunk = chunk;
    const MutantScope scope = everywhere ? MutantScope{} : MutantScope{{1}, 1};
    return judged(small_heads(), outputs_of(small_heads(), run_mutant(small_heads(), &m, scope, 2)));
}

GdnReport report_on(const GdnOutputs& wrong) { return judged(small_heads(), outputs_of(small_heads(), wrong)); }

void expect_stage(const ChunkEdit& chunk, std::string_view stage, std::string_view text, bool everywhere = false) {
    const GdnReport report = report_on(chunk, everywhere);
    REQUIRE_FALSE(report.hints.empty());
    CAPTURE(everywhere);
    CAPTURE(report.hints.front().text);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == stage);
    CHECK(report.hints.front().text.find(text) != std::string::npos);
}

void use_sums(ChunkParts& c, const std::vector<double>& sum) {
    for (Row i = 0; i < c.rows; ++i) {
        for (Row j = 0; j <= i; ++j) {
            const double gamma = std::exp(sum[i] - sum[j]);
            if (j < i) c.M[i * c.rows + j] = c.beta(i) * c.key_gram[i * c.rows + j] * gamma;
            c.P[i * c.rows + j] = c.scale() * c.query_gram[i * c.rows + j] * gamma;
        }
        c.forget[i] = c.beta(i) * std::exp(sum[i]);
        c.read[i] = c.scale() * std::exp(sum[i]);
        c.insert[i] = std::exp(sum[c.rows - 1] - sum[i]);
    }
    c.keep = std::exp(sum[c.rows - 1]);
}

}  // namespace

TEST_CASE("stage: a factor by token is found in one chunk of one head") {
    const auto odd = [](Row i) { return i % 3 == 1 ? 1.07 : 1.0; };
    expect_stage(
        [](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) {
                c.write[i] *= c.beta(i);
                c.forget[i] *= c.beta(i);
            }
        },
        "wu", "right-hand side has an extra factor");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.write[i] *= odd(i);
        },
        "wu", "V in the right-hand side");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.read[i] *= odd(i);
        },
        "output", "Q S has an extra factor");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.insert[i] *= odd(i);
        },
        "carry", "writes has an extra factor");
}

TEST_CASE("stage: sums of gates that are wrong in any way are the gate's") {
    expect_stage(
        [](ChunkParts& c) {
            std::vector<double> sum = c.sum;
            for (double& x : sum) x = rounded_to(x, DType::f16);
            use_sums(c, sum);
        },
        "gate", "sums of gates");
    expect_stage(
        [](ChunkParts& c) {
            std::vector<double> sum = c.sum;
            for (Row i = 5; i < sum.size(); ++i) sum[i] += 0.3;
            use_sums(c, sum);
        },
        "gate", "sums of gates");
}

TEST_CASE("stage: a mistake in the inputs of one chunk alone is acted out there") {
    const GdnReport report = report_on(
        [](ChunkParts& c) {
            std::vector<double> sum = c.sum;
            for (double& x : sum) x = -x;
            use_sums(c, sum);
        },
        false);
    CHECK(report.stage == "gate");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("g has the wrong sign in chunk 1 alone") != std::string::npos);
}

TEST_CASE("stage: entries of M and P that are wrong by distance or by block") {
    const auto matrix = [](std::vector<double> ChunkParts::* entries, auto factor) {
        return [entries, factor](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) {
                for (Row j = 0; j <= i; ++j) (c.*entries)[i * c.rows + j] *= factor(i, j, c.rows);
            }
        };
    };
    const auto by_distance = [](Row i, Row j, Row) { return 1 + 0.3 * std::sin(static_cast<double>(i - j)); };
    expect_stage(matrix(&ChunkParts::M, by_distance), "solve", "distance of two tokens");
    expect_stage(matrix(&ChunkParts::P, by_distance), "intra", "distance of two tokens");
}

TEST_CASE("stage: columns of out that are exchanged") {
    GdnOutputs wrong = small_heads().truth;
    for (auto row = wrong.out.begin(); row != wrong.out.end(); row += 16) std::rotate(row, row + 8, row + 16);
    const GdnReport report = report_on(wrong);
    CHECK(report.stage == "layout");
    CHECK(std::find(report.stages.begin(), report.stages.end(), "output") != report.stages.end());
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("halves exchanged") != std::string::npos);
}

TEST_CASE("stage: values of out of other tokens, and values that are clipped") {
    GdnOutputs late = small_heads().truth;
    const auto row = static_cast<std::ptrdiff_t>(4 * 16);
    std::copy_backward(late.out.begin(), late.out.end() - row, late.out.end());
    GdnReport report = report_on(late);
    CHECK(report.stage == "layout");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("at other tokens: token 1 holds that of 0") != std::string::npos);
    GdnOutputs clipped = small_heads().truth;
    double largest = 0;
    for (const double x : clipped.out) largest = std::max(largest, std::fabs(x));
    for (double& x : clipped.out) x = std::clamp(x, -largest / 4, largest / 4);
    report = report_on(clipped);
    CHECK(report.stage == "output");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("depends on the right one alone") != std::string::npos);
}

TEST_CASE("stage: M, P and Gamma that are wrong in no order are told apart") {
    const auto noise = [](Row i, Row j) { return 1 + 0.1 * std::sin(static_cast<double>(7 * i * i + 13 * j * j + i)); };
    const auto spoil = [noise](ChunkParts& c, bool m, bool p) {
        for (Row i = 0; i < c.rows; ++i) {
            for (Row j = 0; j <= i; ++j) {
                if (m) c.M[i * c.rows + j] *= noise(i, j);
                if (p) c.P[i * c.rows + j] *= noise(i, j);
            }
        }
    };
    for (const bool everywhere : {true, false}) {
        const std::string_view text = "sums of the rows of U";
        expect_stage([spoil](ChunkParts& c) { spoil(c, true, false); }, "solve", text, everywhere);
        expect_stage([spoil](ChunkParts& c) { spoil(c, false, true); }, "intra", text, everywhere);
        expect_stage([spoil](ChunkParts& c) { spoil(c, true, true); }, "decay", text, everywhere);
    }
}

TEST_CASE("stage: what is left where every other stage is excluded") {
    const auto noise = [](std::vector<double>& x, Row, Row) {
        for (Row i = 0; i < x.size(); ++i) x[i] *= 1 + 0.3 * std::sin(static_cast<double>(11 * i * i + i));
    };
    const std::pair<Tap, std::string_view> steps[] = {{Tap::Uu, "wu"}, {Tap::QS, "output"}};
    for (const auto& [tap, stage] : steps) {
        const GdnReport report = report_on(run_tapped(small_heads(), tap, noise, {}, 2));
        CHECK(report.stage == stage);
    }
    const GdnReport report = report_on(run_tapped(small_heads(), Tap::state, noise, {{1}, 0}, 2));
    CHECK(report.stage == "carry");
}

TEST_CASE("stage: one input of another head, and one that is a token late") {
    GdnProblem p = small_heads().problem;
    const std::vector<double> v = p.v;
    for (Row at = 0; at < v.size(); ++at) p.v[at] = v[at / 64 * 64 + (at + 16) % 64];
    GdnReport report = report_on(run_recurrent64(p, small_heads().contract.value, 2));
    CHECK(report.stage == "head_map");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("v alone is that of value head") != std::string::npos);
    p = small_heads().problem;
    constexpr std::ptrdiff_t token = 32;  // two key heads
    std::copy_backward(p.q.begin(), p.q.end() - token, p.q.end());
    std::fill_n(p.q.begin(), token, 0.0);
    report = report_on(run_recurrent64(p, small_heads().contract.value, 2));
    CHECK(report.stage == "layout");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("q is that of the token before") != std::string::npos);
}

// What is said of a fault that no known mistake explains and some class of changes does: one fault for each class.

namespace {

using Index = std::size_t;
using Numbers = std::vector<double>;
using Corruption = decltype(SitedFault::change);

const GdnReference& chunks_of_16() {
    static const GdnReference k_reference = [] {
        GdnCase c;
        c.name = "classes";
        c.seed = 29;
        c.dims = {1, 34, 1, 1, 16, 16};
        c.state_scale = 0.3;
        c.contract = {"chunk=16"};
        return reference_for(make_inputs(c));
    }();
    return k_reference;
}

struct Said {
    std::string_view stage, text;
    std::vector<Site> sites;
    Corruption change;
    int chunk = -1;
};

const Numbers& sums_of_first_chunk() {
    static const Numbers k_sums = [] {
        Numbers sums(chunks_of_16().problem.gate.begin(), chunks_of_16().problem.gate.begin() + 16);
        std::partial_sum(sums.begin(), sums.end(), sums.begin());
        return sums;
    }();
    return k_sums;
}

double bump(Index i) { return i % 3 == 1 ? 1.07 : i % 4 == 2 ? 0.95 : 1.0; }

// Rows, or columns, each times a factor of its own.
void some_rows(Numbers& x, Index, Index width) {
    for (Index i = 0; i < x.size(); ++i) x[i] *= bump(i / width);
}
void some_columns(Numbers& x, Index, Index width) {
    for (Index i = 0; i < x.size(); ++i) x[i] *= bump(i % width);
}
void some_sums(Numbers& x, Index rows, Index) {
    for (Index i = 0; i < rows; ++i) x[i] += bump(i) - 1;
}
template <class Factor>
Corruption entries(const Factor& factor) {
    return [factor](Numbers& x, Index rows, Index) {
        for (Index i = 0; i < rows; ++i) {
            for (Index j = 0; j < rows; ++j) x[i * rows + j] *= factor(i, j);
        }
    };
}

void expect_said(const std::vector<Said>& all) {
    const GdnReference& r = chunks_of_16();
    for (const Said& said : all) {
        CAPTURE(said.text);
        const SitedFault fault{said.sites, said.change, said.chunk};
        const GdnReport report = judged(r, outputs_of(r, SitedKernel(r.problem, r.contract.value, fault).run()));
        std::string hints;
        for (const Hint& h : report.hints) hints += h.text + "\n";
        CAPTURE(hints);
        CHECK(report.verdict == Verdict::wrong);
        CHECK(report.stage == said.stage);
        CHECK(hints.find(said.text) != std::string::npos);
    }
}

std::vector<Said> factors() {
    using S = Site;
    const std::vector<S> all_sums = {S::sums_solve, S::sums_intra, S::sums_start, S::sums_write};
    const std::vector<S> all_k = {S::k_state, S::k_solve, S::k_intra, S::k_write};
    const std::vector<S> all_q = {S::q_state, S::q_intra};
    std::vector<S> both = all_k;
    both.insert(both.end(), all_q.begin(), all_q.end());
    const auto by_distance =
        entries([](Index i, Index j) { return 1 + 0.3 * std::sin(static_cast<double>(i) - static_cast<double>(j)); });
    const auto by_block = entries([](Index i, Index j) { return i >= 8 && j < 4 ? 0.7 : 1.0; });
    const auto by_decay = entries([](Index i, Index j) {
        const double x = sums_of_first_chunk()[i] - sums_of_first_chunk()[j];
        return (1 + x + x * x / 2) / std::exp(x);
    });
    return {
        {"wu", "V in the right-hand side has an extra factor in some tokens", {S::write}, some_rows},
        {"wu", "K S in the right-hand side has an extra factor in some tokens", {S::forget}, some_rows},
        {"wu", "the right-hand side has an extra factor in some tokens", {S::rhs}, some_rows},
        {"beta", "beta has an extra factor in some tokens", {S::beta}, some_rows},
        {"output", "Q S has an extra factor in some tokens", {S::read}, some_rows},
        {"l2norm", "q (or out) has an extra factor in some tokens", all_q, some_rows},
        {"l2norm", "k has an extra factor in some tokens", all_k, some_rows},
        {"l2norm", "q and k each have extra factors in some tokens", both, some_rows},
        {"wu", "U has an extra factor in some tokens after the solve", {S::U}, some_rows},
        {"gate", "the sums of gates are others in some tokens", all_sums, some_sums},
        {"gate",
         "the sums of gates are others in some tokens, but not where the chunk writes",
         {S::sums_solve, S::sums_intra, S::sums_start},
         some_sums},
        {"gate", "the decay from the chunk's start is another in some tokens", {S::sums_start}, some_sums},
        {"decay", "Gamma is built from other sums of gates in some tokens", {S::sums_solve, S::sums_intra}, some_sums},
        {"decay", "Gamma of M is built from other sums of gates in some tokens", {S::sums_solve}, some_sums},
        {"decay", "Gamma of P is built from other sums of gates in some tokens", {S::sums_intra}, some_sums},
        {"solve", "M has a factor that depends on the distance of two tokens", {S::M}, by_distance},
        {"intra", "P has a factor that depends on the distance of two tokens", {S::P}, by_distance},
        {"decay", "M and P have a factor that depends on the distance of two tokens", {S::M, S::P}, by_distance},
        {"solve", "M has a factor in some of its blocks", {S::M}, by_block},
        {"intra", "P has a factor in some of its blocks", {S::P}, by_block},
        {"decay", "M and P have a factor in some of its blocks", {S::M, S::P}, by_block},
        {"solve", "M has a factor that depends on the decay between two tokens", {S::M}, by_decay, 0},
        {"intra", "P has a factor that depends on the decay between two tokens", {S::P}, by_decay, 0},
        {"decay", "M and P have a factor that depends on the decay between two tokens", {S::M, S::P}, by_decay, 0},
        {"solve", "rows of M have an extra factor each", {S::M}, some_rows},
        {"solve", "columns of M have an extra factor each", {S::M}, some_columns},
        {"intra", "rows of P have an extra factor each", {S::P}, some_rows},
        {"intra", "columns of P have an extra factor each", {S::P}, some_columns},
        {"layout", "dimensions of k have an extra factor each", all_k, some_columns},
        {"l2norm", "dimensions of q and k have an extra factor each", both, some_columns},
        {"layout", "dimensions of q have an extra factor each", all_q, some_columns},
        {"output", "dimensions of q have an extra factor each in Q S", {S::q_state}, some_columns},
        {"intra", "dimensions of q have an extra factor each in P", {S::q_intra}, some_columns},
        {"wu", "dimensions of k have an extra factor each in K S", {S::k_state}, some_columns},
        {"carry", "rows of the state have an extra factor each where the chunk reads it", {S::state_read}, some_rows},
        {"carry", "what the chunk writes has an extra factor in some tokens", {S::insert}, some_rows},
        {"carry", "dimensions of k have an extra factor each in what the chunk writes", {S::k_write}, some_columns},
        {"carry", "rows of the state that is kept have an extra factor each", {S::kept}, some_rows},
    };
}

Corruption columns(const std::function<Index(Index j, Index width)>& from) {
    return [from](Numbers& x, Index, Index width) {
        const Numbers old = x;
        for (Index i = 0; i < x.size(); ++i) x[i] = old[i - i % width + from(i % width, width)];
    };
}
Corruption tokens(const std::function<Index(Index i, Index rows)>& from) {  // beyond the rows: 0
    return [from](Numbers& x, Index rows, Index width) {
        const Numbers old = x;
        for (Index i = 0; i < x.size(); ++i) {
            const Index row = from(i / width, rows);
            x[i] = row < rows ? old[row * width + i % width] : 0;
        }
    };
}
Corruption rounded(DType dtype) {
    return [dtype](Numbers& x, Index, Index) {
        for (double& value : x) value = rounded_to(value, dtype);
    };
}

std::vector<Said> moves() {
    using S = Site;
    const auto halves = columns([](Index j, Index w) { return (j + w / 2) % w; });
    const auto neighbours = columns([](Index j, Index) { return j ^ 1U; });
    const auto reverse = columns([](Index j, Index w) { return w - 1 - j; });
    const auto place_on = columns([](Index j, Index w) { return (j + w - 1) % w; });
    const auto place_back = columns([](Index j, Index w) { return (j + 1) % w; });
    const auto apart = columns([](Index j, Index w) { return j < w / 2 ? 2 * j : 2 * (j - w / 2) + 1; });
    const auto in_turn = columns([](Index j, Index w) { return j % 2 == 0 ? j / 2 : w / 2 + j / 2; });
    const auto before = tokens([](Index i, Index n) { return i == 0 ? n : i - 1; });
    const auto next = tokens([](Index i, Index) { return i + 1; });
    const auto pairs = tokens([](Index i, Index) { return i ^ 1U; });
    const auto last_first = tokens([](Index i, Index n) { return n - 1 - i; });
    const auto half_chunks = tokens([](Index i, Index n) { return (i + n / 2) % n; });
    return {
        {"layout", "q has its halves exchanged", {S::q_state, S::q_intra}, halves},
        {"layout",
         "k has neighbouring dimensions exchanged",
         {S::k_state, S::k_solve, S::k_intra, S::k_write},
         neighbours},
        {"output", "q in Q S has its dimensions in reverse order", {S::q_state}, reverse},
        {"intra", "q in P has its dimensions one place on", {S::q_intra}, place_on},
        {"wu", "k in K S has its dimensions one place back", {S::k_state}, place_back},
        {"solve", "k in M has the tokens of each pair exchanged", {S::k_solve}, pairs},
        {"intra", "k in P has its tokens in reverse order", {S::k_intra}, last_first},
        {"carry", "k in what is written to the state has the halves of the chunk exchanged", {S::k_write}, half_chunks},
        {"rounding", "M is rounded to bfloat16", {S::M}, rounded(DType::bf16)},
        {"rounding", "P is rounded to float16", {S::P}, rounded(DType::f16)},
        {"wu", "v has even and odd dimensions apart instead of in turn", {S::v}, apart},
        {"wu", "K S has dimensions in turn that should be apart", {S::KS}, in_turn},
        {"output", "Q S has its halves exchanged", {S::QS}, halves},
        {"wu", "the right-hand side is that of the next token", {S::rhs}, next},
        {"solve", "U is that of the token before", {S::U}, before},
        {"intra", "U in P U has its dimensions in reverse order", {S::U_read}, reverse},
        {"rounding", "U in what is written to the state is rounded to bfloat16", {S::U_write}, rounded(DType::bf16)},
        {"intra", "P U has neighbouring dimensions exchanged", {S::PU}, neighbours},
        {"layout", "out has its dimensions one place back", {S::out}, place_back},
        {"carry", "the state that the chunk reads has its dimensions one place on", {S::state_read}, place_on},
        {"carry", "the state after the chunk has its dimensions in reverse order", {S::state}, reverse},
    };
}

// A lower triangle without order: token i also holds something of every token before.
void mixed(Numbers& x, Index rows, Index width) {
    const Numbers old = x;
    for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < i; ++j) {
            const double part = 0.1 * std::sin(static_cast<double>(7 * i * i + 13 * j * j + i));
            for (Index c = 0; c < width; ++c) x[i * width + c] += part * old[j * width + c];
        }
    }
}
void rough_values(Numbers& x, Index, Index) {
    for (Index i = 0; i < x.size(); ++i) x[i] *= 1 + 0.3 * std::sin(static_cast<double>(11 * i * i + i));
}
Corruption rough_entries() {
    return entries(
        [](Index i, Index j) { return 1 + 0.1 * std::sin(static_cast<double>(7 * i * i + 13 * j * j + i)); });
}
Corruption times(double factor) {
    return [factor](Numbers& x, Index, Index) {
        for (double& value : x) value *= factor;
    };
}

std::vector<Said> products_and_coefficients() {
    using S = Site;
    return {
        {"intra",
         "sums of the rows of U up to it, and the final state is right: consistent with a wrong P",
         {S::P},
         rough_entries()},
        {"solve",
         "sums of the rows of U up to it, and the state is wrong too: consistent with a wrong M",
         {S::M},
         rough_entries()},
        {"solve",
         "sums of the rows of U up to it, and U alone is wrong: consistent with a wrong M",
         {S::M},
         rough_entries(),
         0},
        {"decay",
         "sums of the rows of U up to it, and the state is wrong too: consistent with a wrong Gamma, or M",
         {S::M, S::P},
         rough_entries()},
        {"wu", "the errors of each token are sums of the rows of V up to it", {S::v}, mixed},
        {"wu", "the errors of each token are sums of the rows of K S up to it", {S::KS}, mixed},
        {"carry", "consistent with a wrong state handed to the chunk, and no more", {S::state}, rough_values, 0},
        {"wu", "consistent with a mistake in what the chunk writes, and no more", {S::U}, rough_values, 1},
        {"output", "the final state is right, and the errors of out are not sums of rows of U", {S::QS}, rough_values},
        {"wu", "consistent with a wrong k, v, or write, and not with a wrong M or P", {S::v}, rough_values},
        {"output", "out is 1.1 Q S + 1 (P below its diagonal) U + 1 (diagonal of P) U", {S::QS}, times(1.1)},
        {"intra", "out is 1 Q S + 1.1 (P below its diagonal) U + 1.1 (diagonal of P) U", {S::P}, times(1.1)},
        {"wu", "U is solved from 1.1 V - 1 K S", {S::v}, times(1.1)},
        {"wu", "U is solved from 1 V - 1.1 K S", {S::KS}, times(1.1)},
        {"carry", ", and the state is 1.1 times the truth", {S::state_read}, times(1.1), 1},
        {"solve", "M is 1.1 times what it should be", {S::M}, times(1.1), 1},
        {"carry", "what a chunk writes to the state is 1.1 times what it should be", {S::insert}, times(1.1), 0},
        {"carry", "the state's decay over a chunk is 1.1 times what it should be", {S::kept}, times(1.1), 0},
        {"beta", "beta is 0.9 times what it should be", {S::beta}, times(0.9), 1},
        {"wu", "out is 1 Q S + 1.1 (P below its diagonal) U + 1.1 (diagonal of P) U", {S::rhs}, times(1.1), 1},
        {"carry", "the state's decay over the chunk is another", {S::kept}, times(1.1), 2},
        {"carry", "final_state is 1.1 times the truth", {S::state}, times(1.1), 2},
    };
}

}  // namespace

TEST_CASE("stage: without a fault that kernel is right") {
    const GdnReference& r = chunks_of_16();
    const GdnReport report = judged(r, outputs_of(r, SitedKernel(r.problem, r.contract.value, {}).run()));
    CHECK(report.verdict == Verdict::ok);
}

TEST_CASE("stage: factors of tokens, dimensions, distances and blocks are told by what has them") {
    expect_said(factors());
}

TEST_CASE("stage: values that are moved or rounded are told by where") { expect_said(moves()); }

TEST_CASE("stage: errors are told by the product that they are made of, and factors by their size") {
    expect_said(products_and_coefficients());
}

// What is said where no known mistake fits: a fault, and the text that names its pattern.

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

// Another initial state than the given one, of any kind, is named as that.

namespace {

GdnReference case_with(GdnDims dims, double state, const std::vector<std::int64_t>& offsets = {}) {
    GdnCase c;
    c.name = "states";
    c.dims = dims;
    c.seed = 17;
    c.state_scale = state;
    c.cu_seqlens = offsets;
    c.contract = {"head_map=interleaved"};
    return reference_for(make_inputs(c));
}

GdnReport with_stale_state(const GdnReference& r, bool with_final_state) {
    GdnProblem p = r.problem;
    Random random(5, 1);
    p.initial_state.resize(r.truth.final_state.size());
    for (double& x : p.initial_state) x = 0.4 * random.normal();
    TensorFile dump = outputs_of(r, run_recurrent64(p, r.contract.value, 2));
    if (!with_final_state) dump.tensors.pop_back();
    return judged(r, dump);
}

void expect_initial_state(const GdnReport& report) {
    REQUIRE(report.hints.size() == 1);
    CAPTURE(report.hints.front().text);
    CHECK(report.verdict == Verdict::wrong);
    CHECK(report.stage == "carry");
    CHECK(report.hints.front().text.find("the initial state is not") != std::string::npos);
}

}  // namespace

TEST_CASE("hint: an arbitrary other initial state, within one chunk and over several") {
    expect_initial_state(with_stale_state(case_with({1, 20, 2, 2, 32, 32}, 0.3), true));
    expect_initial_state(with_stale_state(case_with({1, 150, 1, 2, 16, 24}, 0.3), true));
    expect_initial_state(with_stale_state(case_with({1, 60, 2, 2, 16, 16}, 0.3), false));
}

TEST_CASE("hint: a state that is not 0 although none was given") {
    const GdnReport report = with_stale_state(case_with({2, 30, 2, 2, 16, 16}, 0), true);
    expect_initial_state(report);
    CHECK(report.hints.front().text.find("is not 0") != std::string::npos);
}

TEST_CASE("hint: stale initial states of packed sequences, one of them empty") {
    expect_initial_state(with_stale_state(case_with({1, 70, 2, 4, 16, 8}, 0.3, {0, 20, 20, 70}), true));
}

TEST_CASE("hint: another value of the first token is no other initial state") {
    const GdnReference r = case_with({1, 40, 1, 1, 16, 16}, 0.3);
    GdnProblem p = r.problem;
    for (std::size_t j = 0; j < 16; ++j) p.v[j] += j % 2 == 0 ? 0.7 : -0.4;
    const GdnReport report = judged(r, outputs_of(r, run_recurrent64(p, r.contract.value, 1)));
    CHECK(report.verdict == Verdict::wrong);
    for (const Hint& h : report.hints) CHECK(h.text.find("the initial state is not") == std::string::npos);
}
