// Faults that no hint acts out: the stage is found from the class of changes that makes the dump right.
#include <algorithm>
#include <cmath>

#include "unit/oracle/judging.h"
#include "unit/oracle/mutants/forward_mutants.h"
#include "unit/oracle/mutants/mutant_set.h"
#include "unit/oracle/mutants/tapped_kernel.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

using Row = std::size_t;

const GdnReference& small_lanes() {
    static const GdnReference k_reference = mutant_reference(mutant_case(false, {1, 80, 2, 4, 16, 16}), 2);
    return k_reference;
}

// The report on a kernel that makes this mistake in every chunk, or in chunk 1 of head 1 alone.
GdnReport report_on(const ChunkEdit& chunk, bool everywhere) {
    Mutant m;
    m.fault.chunk = chunk;
    const MutantScope scope = everywhere ? MutantScope{} : MutantScope{{1}, 1};
    return judged(small_lanes(), outputs_of(small_lanes(), run_mutant(small_lanes(), &m, scope, 2)));
}

GdnReport report_on(const GdnOutputs& wrong) { return judged(small_lanes(), outputs_of(small_lanes(), wrong)); }

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

// Of the same everywhere, in shorter chunks: stage_text_test.cpp.
TEST_CASE("stage: a factor by token is found in one chunk of one head") {
    const auto odd = [](Row i) { return i % 3 == 1 ? 1.07 : 1.0; };
    expect_stage(
        [](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) {
                c.write[i] *= c.beta(i);
                c.forget[i] *= c.beta(i);
            }
        },
        "wu", "right-hand side has a factor");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.write[i] *= odd(i);
        },
        "wu", "V in the right-hand side");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.read[i] *= odd(i);
        },
        "output", "Q S has a factor");
    expect_stage(
        [&](ChunkParts& c) {
            for (Row i = 0; i < c.rows; ++i) c.insert[i] *= odd(i);
        },
        "carry", "writes has a factor");
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
    GdnOutputs wrong = small_lanes().truth;
    for (auto row = wrong.out.begin(); row != wrong.out.end(); row += 16) std::rotate(row, row + 8, row + 16);
    const GdnReport report = report_on(wrong);
    CHECK(report.stage == "layout");
    CHECK(std::find(report.stages.begin(), report.stages.end(), "output") != report.stages.end());
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("halves exchanged") != std::string::npos);
}

TEST_CASE("stage: values of out of other tokens, and values that are clipped") {
    GdnOutputs late = small_lanes().truth;
    const auto row = static_cast<std::ptrdiff_t>(4 * 16);
    std::copy_backward(late.out.begin(), late.out.end() - row, late.out.end());
    GdnReport report = report_on(late);
    CHECK(report.stage == "layout");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("at other tokens: token 1 holds that of 0") != std::string::npos);
    GdnOutputs clipped = small_lanes().truth;
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
        const GdnReport report = report_on(run_tapped(small_lanes(), tap, noise, {}, 2));
        CHECK(report.stage == stage);
    }
    const GdnReport report = report_on(run_tapped(small_lanes(), Tap::state, noise, {{1}, 0}, 2));
    CHECK(report.stage == "carry");
}

TEST_CASE("stage: one input of another head, and one that is a token late") {
    GdnProblem p = small_lanes().problem;
    const std::vector<double> v = p.v;
    for (Row at = 0; at < v.size(); ++at) p.v[at] = v[at / 64 * 64 + (at + 16) % 64];
    GdnReport report = report_on(run_recurrent64(p, small_lanes().contract.value, 2));
    CHECK(report.stage == "head_map");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("v alone is that of value head") != std::string::npos);
    p = small_lanes().problem;
    constexpr std::ptrdiff_t token = 32;  // two key heads
    std::copy_backward(p.q.begin(), p.q.end() - token, p.q.end());
    std::fill_n(p.q.begin(), token, 0.0);
    report = report_on(run_recurrent64(p, small_lanes().contract.value, 2));
    CHECK(report.stage == "layout");
    REQUIRE_FALSE(report.hints.empty());
    CHECK(report.hints.front().text.find("q is that of the token before") != std::string::npos);
}
