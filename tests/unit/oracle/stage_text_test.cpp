// What is said of a fault that no known mistake explains and some class of changes does: one fault for each class.
#include <cmath>
#include <numeric>

#include "unit/oracle/judging.h"
#include "unit/oracle/sited_kernel.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Index = std::size_t;
using Numbers = std::vector<double>;
using Spoiling = decltype(SitedFault::change);

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
    Spoiling change;
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
Spoiling entries(const Factor& factor) {
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
        {"wu", "V in the right-hand side has a factor of its own in some tokens", {S::write}, some_rows},
        {"wu", "K S in the right-hand side has a factor of its own in some tokens", {S::forget}, some_rows},
        {"wu", "the right-hand side has a factor of its own in some tokens", {S::rhs}, some_rows},
        {"beta", "beta has a factor of its own in some tokens", {S::beta}, some_rows},
        {"output", "Q S has a factor of its own in some tokens", {S::read}, some_rows},
        {"l2norm", "q (or out) has a factor of its own in some tokens", all_q, some_rows},
        {"l2norm", "k has a factor of its own in some tokens", all_k, some_rows},
        {"l2norm", "q and k each have factors of their own in some tokens", both, some_rows},
        {"wu", "U has a factor of its own in some tokens, once it is solved for", {S::U}, some_rows},
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
        {"solve", "rows of M have a factor of their own", {S::M}, some_rows},
        {"solve", "columns of M have a factor of their own", {S::M}, some_columns},
        {"intra", "rows of P have a factor of their own", {S::P}, some_rows},
        {"intra", "columns of P have a factor of their own", {S::P}, some_columns},
        {"layout", "dimensions of k have a factor of their own", all_k, some_columns},
        {"l2norm", "dimensions of q and k have a factor of their own", both, some_columns},
        {"layout", "dimensions of q have a factor of their own", all_q, some_columns},
        {"output", "dimensions of q have a factor of their own in Q S", {S::q_state}, some_columns},
        {"intra", "dimensions of q have a factor of their own in P", {S::q_intra}, some_columns},
        {"wu", "dimensions of k have a factor of their own in K S", {S::k_state}, some_columns},
        {"carry", "rows of the state have a factor of their own where the chunk reads it", {S::state_read}, some_rows},
        {"carry", "what the chunk writes has a factor of its own in some tokens", {S::insert}, some_rows},
        {"carry", "dimensions of k have a factor of their own in what the chunk writes", {S::k_write}, some_columns},
        {"carry", "rows of the state that is kept have a factor of their own", {S::kept}, some_rows},
    };
}

Spoiling columns(const std::function<Index(Index j, Index width)>& from) {
    return [from](Numbers& x, Index, Index width) {
        const Numbers old = x;
        for (Index i = 0; i < x.size(); ++i) x[i] = old[i - i % width + from(i % width, width)];
    };
}
Spoiling tokens(const std::function<Index(Index i, Index rows)>& from) {  // beyond the rows: 0
    return [from](Numbers& x, Index rows, Index width) {
        const Numbers old = x;
        for (Index i = 0; i < x.size(); ++i) {
            const Index row = from(i / width, rows);
            x[i] = row < rows ? old[row * width + i % width] : 0;
        }
    };
}
Spoiling rounded(DType dtype) {
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
Spoiling rough_entries() {
    return entries(
        [](Index i, Index j) { return 1 + 0.1 * std::sin(static_cast<double>(7 * i * i + 13 * j * j + i)); });
}
Spoiling times(double factor) {
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
        {"output", "the final state is right, and the errors of out are no sums of rows of U", {S::QS}, rough_values},
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
