// Values of the linear cross-entropy that come from outside this program, and what must hold of its two kernels.
#include "oracle/linear_ce/judge/cases.h"

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "oracle/linear_ce/judge/problem.h"
#include "oracle/linear_ce/judge/truth.h"
#include "unit/oracle/mutants/linear_ce_mutants.h"

namespace gdnctl::oracle::linear_ce {

namespace {

Problem problem_of(const TensorFile& inputs) {
    auto contract = resolve(inputs.metadata, {});
    REQUIRE(contract);
    auto problem = read_problem(inputs, std::move(*contract));
    REQUIRE(problem);
    return std::move(*problem);
}

Problem problem_of(std::string_view name) {
    const Case* c = find_case(name);
    REQUIRE(c != nullptr);
    return problem_of(make_inputs(*c));
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
    return largest;
}

// [columns, H] as it is printed: [H, columns].
std::vector<double> turned(const std::vector<double>& gw, std::size_t hidden) {
    std::vector<double> to;
    for (std::size_t h = 0; h < hidden; ++h) {
        for (std::size_t v = 0; v < gw.size() / hidden; ++v) to.push_back(gw[v * hidden + h]);
    }
    return to;
}

std::pair<std::vector<double>, std::vector<double>> gradients_of(const Problem& p, const std::vector<double>& lse,
                                                                 const Run& run) {
    std::pair<std::vector<double>, std::vector<double>> both{p.x.count(), p.w.count()};
    const std::vector<double> d_lse = p.lse_cotangents(lse);
    gradients<double>(p.operands(), {lse.data(), p.d_loss.data(), d_lse.data()}, {both.first.data(), nullptr},
                      {both.second.data(), nullptr}, {}, run);
    return both;
}

// sum gx x.
double first_invariant(const Problem& p, const std::vector<double>& gx) {
    const std::vector<double> x = to_f64(p.x);
    return std::inner_product(gx.begin(), gx.end(), x.begin(), 0.0);
}

constexpr double k_printed = 2e-9;

}  // namespace

TEST_CASE("linear-ce: golden A, no cap and no penalty") {
    const Problem p = problem_of("golden_a");
    const RowTruth t = truth_of_rows(p, all_of(3), true, {});
    CHECK(difference(t.loss, {1.352690720, 1.567203392, 0.867691573}) < k_printed);
    CHECK(difference(t.lse, {1.790190720, 1.942203392, 1.680191573}) < k_printed);
    CHECK(t.argmax == std::vector<std::int64_t>{2, 1, 2});
    CHECK(std::fabs(reduced_of(p, t.loss, t.lse) - 1.262528562) < k_printed);
    CHECK(difference(t.gx, {0.256547756, 0.212707470, 0.212707470, -0.091604436, 0.206557768, 0.075119078, 0.075119078,
                            -0.104536311, 0.042695335, -0.342231135, -0.342231135, 0.189509062}) < k_printed);
    CHECK(std::fabs(first_invariant(p, t.gx) - -0.157719467) < k_printed);
    const std::vector<double> gw = turned(truth_of_columns(p, all_of(5), t.lse, {}), 4);
    CHECK(difference(gw,
                     {0.198710789,  -0.023481731, -0.228014210, 0.093023505, -0.040238352, -0.149812724, -0.015646047,
                      -0.025675197, 0.019066333,  0.172067634,  0.041579450, 0.062521954,  0.097336942,  0.000853600,
                      -0.202291946, 0.125572139,  -0.015575373, 0.106022924, -0.101001936, -0.115017754}) < k_printed);
}

TEST_CASE("linear-ce: golden B, cap, penalty and a row without weight") {
    const Problem p = problem_of("golden_b");
    const RowTruth t = truth_of_rows(p, all_of(3), true, {});
    CHECK(difference(t.loss, {1.358883204, 1.562972368, 0.921748137}) < k_printed);
    CHECK(difference(t.lse, {1.784385339, 1.930350361, 1.663120939}) < k_printed);
    CHECK(std::fabs(reduced_of(p, t.loss, t.lse) - 1.648524730) < k_printed);
    CHECK(difference(t.gx, {0.108516665, 0.157556030, 0.257261844, -0.052570560, 0, 0, 0, 0, 0.180090930, -0.595267385,
                            -0.452778659, 0.157346733}) < k_printed);
    CHECK(std::fabs(first_invariant(p, t.gx) - 0.005111762) < k_printed);
    const std::vector<double> gw = turned(truth_of_columns(p, all_of(5), t.lse, {}), 4);
    CHECK(difference(gw,
                     {0.158971383,  -0.032745582, -0.239229514, 0.236503798,  -0.059325717, -0.075664775, 0.052146535,
                      0.031949070,  0.092652722,  0.069866625,  -0.010105382, -0.010105382, 0.042512424,  -0.083440640,
                      -0.010105382, 0.055454010,  -0.072357300, 0.053075778,  -0.259534002, -0.090077390}) < k_printed);
}

TEST_CASE("linear-ce: goldens C and D, the scalar") {
    for (const auto& [name, mean] : {std::pair{"golden_c", 1.619415973}, {"golden_d", 1.926284890}}) {
        const Problem p = problem_of(name);
        const RowTruth t = truth_of_rows(p, all_of(3), false, {});
        CHECK(std::fabs(reduced_of(p, t.loss, t.lse) - mean) < k_printed);
    }
}

TEST_CASE("linear-ce: identity goldens and their ties") {
    const RowTruth whole = truth_of_rows(problem_of("identity_136"), all_of(128), false, {});
    for (std::size_t r = 0; r < 128; ++r) {
        CHECK(std::fabs(whole.lse[r] - 5.093542901668456) < 1e-13);
        CHECK(whole.argmax[r] == static_cast<std::int64_t>((16 + 17 * 8 - r) % 17));
    }
    const RowTruth tail = truth_of_rows(problem_of("identity_130"), {0, 1, 16}, false, {});
    CHECK(difference(tail.lse, {5.015689818177966, 5.022874817494609, 5.025158351260564}) < 1e-13);
}

TEST_CASE("linear-ce: delta of the pseudocode's counterexample") {
    const std::vector<float> x = {4, -3, 2.5F, 3.5F};
    const std::vector<float> w = {2, -1, 0.5F, 3, -2, 3, -3, 1.5F};
    const std::vector<std::int64_t> labels = {0, 2};
    const std::vector<double> d_loss = {1, 0.75};
    const std::vector<double> d_lse = {0.4, -0.2};
    const Operands o{2, 2, 4, x.data(), w.data(), Layout::hv, labels.data(), 0.7};
    std::vector<double> lse(2);
    forward<double>(o, {nullptr, lse.data(), nullptr, nullptr}, {});
    CHECK(std::fabs(lse[0] - 1.877607359531) < 1e-11);
    CHECK(std::fabs(lse[1] - 1.614020782312) < 1e-11);
    // gw with x = I is delta: here x is invertible, so delta = x^-T gw.
    std::vector<double> gw(8);
    gradients<double>(o, {lse.data(), d_loss.data(), d_lse.data()}, {}, {gw.data(), nullptr}, {}, {});
    const double det = 4 * 3.5 + 3 * 2.5;
    for (std::size_t v = 0; v < 4; ++v) {
        const double first = (3.5 * gw[v] - 2.5 * gw[4 + v]) / det;
        const double second = (3 * gw[v] + 4 * gw[4 + v]) / det;
        CHECK(std::fabs(first) < 1e-6);
        CHECK(std::fabs(second - (v == 0 ? 7.159984e-4 : 0)) < 1e-6);
    }
}

TEST_CASE("linear-ce: streaming in any block is exact") {
    for (const char* name : {"unit_normal", "small_logits_blocks", "cap_penalty_weights", "layout_vh"}) {
        const Problem p = problem_of(name);
        const Operands o = p.operands();
        std::vector<double> want(p.batch);
        std::vector<double> got(p.batch);
        for (std::size_t b = 0; b < p.batch; ++b) {
            std::vector<double> s = logits_of(p, b, 0, p.vocab);
            double sum = 0;
            for (const double z : s)
                sum += std::exp(p.c().soft_cap > 0 ? p.c().soft_cap * std::tanh(z / p.c().soft_cap) : z);
            want[b] = std::log(sum);
        }
        const auto whole = gradients_of(p, want, {1, Isa::scalar, {}, 0});
        for (const std::size_t block : {std::size_t{1}, std::size_t{7}, std::size_t{64}, p.vocab, p.vocab + 1}) {
            const Run run{1, best_isa(), {}, block};
            forward<double>(o, {nullptr, got.data(), nullptr, nullptr}, run);
            CHECK(difference(got, want) < 1e-12);
            const auto streamed = gradients_of(p, want, run);
            CHECK(difference(streamed.first, whole.first) < 1e-12);
            CHECK(difference(streamed.second, whole.second) < 1e-12);
        }
    }
}

TEST_CASE("linear-ce: the same bits for any number of threads") {
    for (const char* name : {"unit_normal", "many_rows", "deep", "bf16_cap_penalty_weights", "layout_vh"}) {
        const Problem p = problem_of(name);
        for (const Isa isa : available_isas()) {
            const TensorFile one = kernel_outputs(p, {1, isa, {}, 0});
            for (const int threads : {2, 5}) {
                const TensorFile many = kernel_outputs(p, {threads, isa, {}, 0});
                for (const NamedTensor& entry : one.tensors) CHECK(many.find(entry.name)->bytes == entry.tensor.bytes);
            }
        }
    }
}

TEST_CASE("linear-ce: logits that are kept between the passes change no bit") {
    for (const char* name : {"unit_normal", "many_rows", "deep", "one_dimension", "odd_sizes", "bf16", "layout_vh",
                             "bf16_cap_penalty_weights", "cap_penalty_weights"}) {
        const Problem p = problem_of(name);
        const Operands o = p.operands();
        for (const Isa isa : available_isas()) {
            const Run run{2, isa, {}, 0};
            const TensorFile kept = kernel_outputs(p, run);
            std::vector<float> lse(p.batch);
            forward<float>(o, {nullptr, lse.data(), nullptr, nullptr}, run);
            const std::vector<double> d_lse = p.lse_cotangents({lse.begin(), lse.end()});
            std::vector<std::uint8_t> gx(p.x.bytes.size());
            std::vector<std::uint8_t> gw(p.w.bytes.size());
            const auto gradient = [&](std::vector<std::uint8_t>& bytes) {
                return p.x.dtype == DType::bf16 ? Gradient<float>{nullptr, reinterpret_cast<Bf16*>(bytes.data())}
                                                : Gradient<float>{reinterpret_cast<float*>(bytes.data()), nullptr};
            };
            gradients<float>(o, {lse.data(), p.d_loss.data(), d_lse.data()}, gradient(gx), gradient(gw), {}, run);
            CHECK_MESSAGE(kept.find("gx")->bytes == gx, name);
            CHECK_MESSAGE(kept.find("gw")->bytes == gw, name);
        }
    }
}

TEST_CASE("linear-ce: bf16 rounds to nearest even and keeps NaN") {
    const std::pair<std::uint32_t, std::uint16_t> table[] = {
        {0x3F808000, 0x3F80}, {0x3F818000, 0x3F82}, {0x3F808001, 0x3F81}, {0x3F807FFF, 0x3F80}, {0x7F7FFFFF, 0x7F80},
        {0x00008000, 0x0000}, {0x00018000, 0x0002}, {0x3DCCCCCD, 0x3DCD}, {0xC2F6E979, 0xC2F7}};
    for (const auto& [bits, want] : table) {
        float x = 0;
        std::memcpy(&x, &bits, sizeof x);
        CHECK(static_cast<std::uint16_t>(narrowed(x)) == want);
    }
    for (const std::uint32_t bits : {0x7F800001U, 0x7FFFFFFFU}) {
        float x = 0;
        std::memcpy(&x, &bits, sizeof x);
        CHECK(std::isnan(widened(narrowed(x))));
    }
}

}  // namespace gdnctl::oracle::linear_ce

// The crossed cases: what has to meet meets.
using namespace gdnctl::oracle;
using namespace gdnctl::oracle::linear_ce;

namespace {

using Of = std::function<std::size_t(const Case&)>;

const std::vector<Of>& conditions() {
    static const std::vector<Of> k_all = {
        [](const Case& c) { return static_cast<std::size_t>(c.layout == Layout::vh); },
        [](const Case& c) { return static_cast<std::size_t>(c.soft_cap > 0); },
        [](const Case& c) { return static_cast<std::size_t>(c.logsumexp_weight > 0); },
        [](const Case& c) { return static_cast<std::size_t>(c.weights != Weights::none); },
        [](const Case& c) { return static_cast<std::size_t>(c.ignores_rows); },
        [](const Case& c) { return static_cast<std::size_t>(c.reduction); },
        [](const Case& c) { return static_cast<std::size_t>(c.d_loss) + 2 * static_cast<std::size_t>(c.d_lse); },
        [](const Case& c) { return static_cast<std::size_t>(c.dtype == DType::bf16); },
        [](const Case& c) { return c.vocab; },
    };
    return k_all;
}

}  // namespace

TEST_CASE("linear-ce crossed: every triple of conditions is in some case") {
    const std::vector<Case> cases = crossed_sets();
    CHECK(cases.size() < 100);
    const auto& all = conditions();
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = i + 1; j < all.size(); ++j) {
            for (std::size_t k = j + 1; k < all.size(); ++k) {
                std::set<std::array<std::size_t, 3>> met;
                std::set<std::size_t> a, b, c;
                for (const Case& one : cases) {
                    met.insert({all[i](one), all[j](one), all[k](one)});
                    a.insert(all[i](one));
                    b.insert(all[j](one));
                    c.insert(all[k](one));
                }
                CHECK(met.size() == a.size() * b.size() * c.size());
            }
        }
    }
}

TEST_CASE("linear-ce crossed: cases hold what they say") {
    bool skipped_rows_have_d_lse = false;
    for (const Case& c : crossed_sets()) {
        CAPTURE(c.name);
        const TensorFile file = make_inputs(c);
        CHECK((file.find("d_loss") != nullptr) == c.d_loss);
        CHECK((file.find("d_lse") != nullptr) == c.d_lse);
        CHECK(file.metadata.contains("ignore_index") == c.ignores_rows);
        const auto contract = resolve(file.metadata, {});
        REQUIRE(contract);
        const auto problem = read_problem(file, *contract);
        REQUIRE(problem);
        CHECK((problem->ignored_count > 0) == c.ignores_rows);
        for (std::size_t i = 0; i < problem->batch; ++i) {
            if (problem->ignored[i]) CHECK(problem->d_loss[i] == 0);
            skipped_rows_have_d_lse |= c.d_lse && problem->d_loss[i] == 0 && (*problem->d_lse)[i] != 0;
        }
    }
    CHECK(skipped_rows_have_d_lse);
    CHECK(find_case("large_vocabulary")->vocab > 65536);
}
