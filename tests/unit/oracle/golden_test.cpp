// Goldens whose values come from outside this program, and laws that hold for every input.
#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "unit/oracle/gdn_fixtures.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/loaded_case.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

namespace {

struct HandGolden {
    bool with_state;
    std::vector<double> out, state;
};

const HandGolden k_hand[] = {
    {true, {2, 1, 1, 1.12, -.42, .41, 2.2, -3.825, -.65}, {1.12, -.42, .41, .04, 2.985, 1.47}},
    {false, {2, 0, 1, 1.12, -.3, .41, 2.2, -3.5, -.65}, {1.12, -.3, .41, .04, 2.9, 1.47}},
};

// Equal to 12 significant digits of `expected` as printed.
bool digits12(double value, double expected) { return std::fabs(value - expected) <= 1e-11 * std::fabs(expected); }

}  // namespace

TEST_CASE("T-hand: three tokens by hand, every kernel, with and without initial state") {
    for (const HandGolden& golden : k_hand) {
        const GdnProblem p = hand_problem(golden.with_state);
        const GdnContract c = hand_contract();
        const GdnOutputs truth = run_recurrent64(p, c, 1);
        CHECK(max_difference(truth.out, golden.out) < 1e-14);
        CHECK(max_difference(truth.final_state, golden.state) < 1e-14);
        CHECK(max_difference(run_recurrent32(p, c, 1).out, golden.out) < 1e-6);
        for (const int chunk : {1, 2, 3, 64}) {
            const GdnOutputs chunked = run_chunk32(p, c, {chunk, GateSum::fp64_with_resets, Matmul::f32}, 1);
            CHECK(max_difference(chunked.out, golden.out) < 1e-6);
            CHECK(max_difference(chunked.final_state, golden.state) < 1e-6);
        }
    }
}

TEST_CASE("G1: out and final state to 12 digits") {
    const GdnOutputs r = run_recurrent64(g1_problem(), g1_contract(), 1);
    CHECK(digits12(sum_of(r.out), 3.0488844259));
    CHECK(digits12(sum_of_squares(r.out), 2.13291728273));
    CHECK(digits12(max_abs(r.out), .139214553807));
    CHECK(digits12(sum_of(r.final_state), -1.12127587481));
    CHECK(digits12(sum_of_squares(r.final_state), 22.0994715176));
    CHECK(digits12(max_abs(r.final_state), .499223609498));
    const auto at = [&](std::size_t t, std::size_t h, std::size_t j) { return r.out[(t * 4 + h) * 8 + j]; };
    CHECK(digits12(at(0, 0, 0), -.0291175312759));
    CHECK(digits12(at(0, 0, 1), -.0631120810373));
    CHECK(digits12(at(63, 3, 0), .0699654094728));
    CHECK(digits12(at(63, 3, 1), -.0112154386868));
    CHECK(digits12(at(64, 0, 0), .0103736984791));
    CHECK(digits12(at(64, 0, 1), .0155075582948));
    CHECK(digits12(at(69, 3, 0), -.00137000798106));
    CHECK(digits12(at(69, 3, 1), -.0310923030675));
}

TEST_CASE("G1 with tiled heads") {
    GdnContract c = g1_contract();
    c.head_map = HeadMap::tiled;
    const GdnOutputs r = run_recurrent64(g1_problem(), c, 1);
    CHECK(digits12(sum_of(r.out), 3.06388614273));
    CHECK(digits12(sum_of_squares(r.out), 2.13634504773));
    CHECK(digits12(sum_of(r.final_state), -.842085349578));
}

TEST_CASE("G1 without l2norm grows to 4e14") {
    GdnContract c = g1_contract();
    c.l2norm = L2Norm::off;
    const GdnOutputs r = run_recurrent64(g1_problem(), c, 1);
    CHECK(max_abs(r.out) == doctest::Approx(3.66e14).epsilon(0.002));
    CHECK(max_abs(r.final_state) == doctest::Approx(3.94e14).epsilon(0.002));
    CHECK(r.max_abs_state >= max_abs(r.final_state));
}

TEST_CASE("G1: fp32 kernels are within 1e-6 of the golden") {
    const GdnOutputs truth = run_recurrent64(g1_problem(), g1_contract(), 1);
    for (const int chunk : {1, 7, 16, 32, 64, 128}) {
        for (const GateSum how : {GateSum::fp64_with_resets, GateSum::fp32}) {
            const GdnOutputs r = run_chunk32(g1_problem(), g1_contract(), {chunk, how, Matmul::f32}, 1);
            CHECK(max_difference(r.out, truth.out) < 1e-6);
            CHECK(max_difference(r.final_state, truth.final_state) < 2e-6);
        }
    }
    CHECK(max_difference(run_recurrent32(g1_problem(), g1_contract(), 1).out, truth.out) < 1e-6);
}

TEST_CASE("threads: results are bit-equal for every thread count") {
    const GdnProblem p = g1_problem();
    const GdnContract c = g1_contract();
    const GdnOutputs truth = run_recurrent64(p, c, 1);
    const GdnOutputs chunked = run_chunk32(p, c, {16, GateSum::fp64_with_resets, Matmul::f32}, 1);
    const GdnOutputs single = run_recurrent32(p, c, 1);
    for (const int threads : {2, 3, 4, 16}) {
        CHECK(run_recurrent64(p, c, threads).out == truth.out);
        CHECK(run_recurrent64(p, c, threads).final_state == truth.final_state);
        CHECK(run_recurrent32(p, c, threads).out == single.out);
        const GdnOutputs again = run_chunk32(p, c, {16, GateSum::fp64_with_resets, Matmul::f32}, threads);
        CHECK(again.out == chunked.out);
        CHECK(again.final_state == chunked.final_state);
    }
}

// Laws that results obey whatever their values: closed forms, invariances, and what known test suites check.

namespace {

GdnOutputs chunked(const LoadedCase& x, int chunk) {
    return run_chunk32(x.problem, x.contract, {chunk, GateSum::fp64_with_resets, Matmul::f32}, 2);
}

// Tokens [begin, end) of a problem with a batch of 1.
GdnProblem part(const GdnProblem& p, std::int64_t begin, std::int64_t end) {
    GdnProblem r = p;
    r.dims.T = end - begin;
    r.sequences = {{0, end - begin}};
    const auto cut = [&](std::vector<double>& values) {
        const auto row = static_cast<std::ptrdiff_t>(values.size()) / p.dims.T;
        values = {values.begin() + begin * row, values.begin() + end * row};
    };
    for (auto* values : {&r.q, &r.k, &r.v, &r.gate, &r.beta}) cut(*values);
    return r;
}

double rel_rms(const std::vector<double>& x, const std::vector<double>& y) {
    double error = 0;
    for (std::size_t i = 0; i < x.size(); ++i) error += (x[i] - y[i]) * (x[i] - y[i]);
    return std::sqrt(error / sum_of_squares(y));
}

}  // namespace

TEST_CASE("closed form (a): identical unit keys") {
    LoadedCase x = load_case("keys_identical");
    x.contract.l2norm = L2Norm::off;
    // The keys of the file are rounded to fp32; the law is about exact ones.
    for (std::size_t i = 0; i < x.problem.k.size(); ++i) x.problem.k[i] = i % 64 == 0 ? 1 : 0;
    const GdnOutputs r = run_recurrent64(x.problem, x.contract, 1);
    std::vector<double> u(64, 0);
    for (std::size_t t = 0; t < 200; ++t) {
        const double beta = x.problem.beta[t];
        double largest = 0;
        for (std::size_t j = 0; j < 64; ++j) {
            u[j] = std::exp(x.problem.gate[t]) * (1 - beta) * u[j] + beta * x.problem.v[t * 64 + j];
            largest = std::max(largest, std::fabs(r.out[t * 64 + j] - x.problem.q[t * 64] * u[j] / 8));
        }
        CHECK(largest < 1e-13);
    }
    for (std::size_t j = 0; j < 64; ++j) CHECK(r.final_state[j] == doctest::Approx(u[j]));
    CHECK(r.final_state[64] == 0);
}

TEST_CASE("closed form (b): orthonormal keys") {
    GdnCase c = *find_gdn_case("random_normed");
    c.dims.T = 64;
    LoadedCase x = load_case(c);
    x.contract.l2norm = L2Norm::off;
    for (std::size_t t = 0; t < 64; ++t) {
        for (std::size_t i = 0; i < 64; ++i) x.problem.k[t * 64 + i] = i == t ? 1 : 0;
    }
    const GdnOutputs r = run_recurrent64(x.problem, x.contract, 1);
    double decay = 0;  // c_t - c_m, from the end backwards
    for (std::size_t m = 64; m-- > 0;) {
        for (std::size_t j = 0; j < 64; ++j) {
            const double want = std::exp(decay) * x.problem.beta[m] * x.problem.v[m * 64 + j];
            CHECK(r.final_state[m * 64 + j] == doctest::Approx(want).epsilon(1e-12));
        }
        decay += x.problem.gate[m];
    }
}

TEST_CASE("closed form (c) and marin: with beta = 0 the state only decays, and out is 0 without one") {
    const LoadedCase plain = load_case("marin_beta0");
    CHECK(max_abs(run_recurrent64(plain.problem, plain.contract, 1).out) == 0);
    CHECK(max_abs(chunked(plain, 16).out) == 0);
    LoadedCase x = load_case("marin_47_state");
    for (double& b : x.problem.beta) b = 0;
    const GdnOutputs r = run_recurrent64(x.problem, x.contract, 1);
    for (std::size_t h = 0; h < 3; ++h) {
        double sum = 0;
        for (std::size_t t = 0; t < 47; ++t) sum += x.problem.gate[t * 3 + h];
        for (std::size_t i = 0; i < 64; ++i) {
            CHECK(r.final_state[h * 64 + i] == doctest::Approx(std::exp(sum) * x.problem.initial_state[h * 64 + i]));
        }
    }
}

TEST_CASE("marin: perfect fit, the state recalls v for the last key") {
    const LoadedCase x = load_case("marin_perfect_fit");
    const GdnOutputs r = run_recurrent64(x.problem, x.contract, 1);
    for (std::size_t h = 0; h < 2; ++h) {
        const double* k = x.problem.k.data() + (20 + h) * 8;  // token 10, two heads
        double squares = 1e-6;
        for (std::size_t i = 0; i < 8; ++i) squares += k[i] * k[i];
        for (std::size_t j = 0; j < 8; ++j) {
            double recalled = 0;
            for (std::size_t i = 0; i < 8; ++i)
                recalled += r.final_state[(h * 8 + i) * 8 + j] * k[i] / std::sqrt(squares);
            CHECK(recalled == doctest::Approx(x.problem.v[(20 + h) * 8 + j]).epsilon(1e-5));
        }
    }
}

TEST_CASE("marin: chunked equals recurrent for every chunk length, out and state") {
    for (const char* name : {"marin_57_C1", "marin_61_C32", "marin_47_state", "marin_29_C1_no_l2norm",
                             "marin_extreme_gates", "marin_7_C4", "marin_64_C32", "marin_short_1", "marin_short_7"}) {
        const LoadedCase x = load_case(name);
        const GdnOutputs truth = run_recurrent64(x.problem, x.contract, 1);
        for (const int chunk : {1, 2, 7, 16, 32, 64}) {
            CAPTURE(std::string(name));
            CAPTURE(chunk);
            CHECK(max_difference(chunked(x, chunk).out, truth.out) < 5e-6);
            CHECK(max_difference(chunked(x, chunk).final_state, truth.final_state) < 1e-5);
        }
    }
}

TEST_CASE("marin: continuation, 47 tokens in one pass and split at 21") {
    GdnCase c = *find_gdn_case("marin_47_state");
    const LoadedCase x = load_case(c);
    const GdnOutputs whole = run_recurrent64(x.problem, x.contract, 1);
    const GdnOutputs first = run_recurrent64(part(x.problem, 0, 21), x.contract, 1);
    GdnProblem rest = part(x.problem, 21, 47);
    rest.initial_state = first.final_state;
    const GdnOutputs second = run_recurrent64(rest, x.contract, 1);
    std::vector<double> out = first.out;
    out.insert(out.end(), second.out.begin(), second.out.end());
    CHECK(out == whole.out);
    CHECK(second.final_state == whole.final_state);
}

TEST_CASE("causality: a changed token leaves earlier outputs bit-equal") {
    LoadedCase x = load_case("marin_47_state");
    const GdnOutputs before = run_recurrent64(x.problem, x.contract, 1);
    const GdnOutputs chunk_before = chunked(x, 16);
    for (std::size_t i = 0; i < 24; ++i) x.problem.k[720 + i] += 1;  // token 30
    const auto same_until_30 = [](const GdnOutputs& a, const GdnOutputs& b) {
        return std::equal(a.out.begin(), a.out.begin() + 720, b.out.begin());
    };
    CHECK(same_until_30(before, run_recurrent64(x.problem, x.contract, 1)));
    CHECK(same_until_30(chunk_before, chunked(x, 16)));
    CHECK(before.out != run_recurrent64(x.problem, x.contract, 1).out);
}

TEST_CASE("linearity in (v, S0)") {
    LoadedCase x = load_case("marin_47_state");
    const GdnOutputs one = run_recurrent64(x.problem, x.contract, 1);
    for (double& v : x.problem.v) v *= -3;
    for (double& s : x.problem.initial_state) s *= -3;
    const GdnOutputs scaled = run_recurrent64(x.problem, x.contract, 1);
    for (std::size_t i = 0; i < one.out.size(); ++i)
        REQUIRE(scaled.out[i] == doctest::Approx(-3 * one.out[i]).epsilon(1e-12));
}

TEST_CASE("varlen [16,32,8,64]: each sequence alone gives the same bits") {
    const LoadedCase x = load_case("varlen");
    for (const bool chunk_form : {false, true}) {
        const auto run = [&](const GdnProblem& p) {
            return chunk_form ? chunked({p, x.contract}, 16) : run_recurrent64(p, x.contract, 2);
        };
        const GdnOutputs packed = run(x.problem);
        std::vector<double> out;
        std::vector<double> states;
        const std::vector<double>& S0 = x.problem.initial_state;
        const std::ptrdiff_t size = static_cast<std::ptrdiff_t>(S0.size()) / 4;
        std::ptrdiff_t n = 0;
        for (const GdnSequence& s : x.problem.sequences) {
            GdnProblem own = part(x.problem, s.begin, s.end);
            own.initial_state = {S0.begin() + n * size, S0.begin() + (n + 1) * size};
            ++n;
            const GdnOutputs alone = run(own);
            out.insert(out.end(), alone.out.begin(), alone.out.end());
            states.insert(states.end(), alone.final_state.begin(), alone.final_state.end());
        }
        CHECK(out == packed.out);
        CHECK(states == packed.final_state);
    }
}

TEST_CASE("varlen with empty sequences under both policies") {
    const std::size_t size = 256;  // 2 heads of [16,8]
    for (const char* policy : {"passthrough", "zeros"}) {
        TensorFile inputs = make_inputs(*find_gdn_case(std::string("varlen_empty_") + policy));
        std::vector<double> state(5 * size);
        for (std::size_t i = 0; i < state.size(); ++i) state[i] = 0.001 * static_cast<double>(i);
        inputs.tensors.push_back({"h0", from_f64(state, {5, 2, 16, 8}, DType::f64)});
        std::erase_if(inputs.tensors, [](const NamedTensor& t) { return t.name == "initial_state"; });
        auto contract = resolve_contract("marin", inputs.metadata, {});
        const auto problem = read_problem(inputs, *contract);
        REQUIRE(problem);
        const GdnOutputs r = run_recurrent64(*problem, contract->value, 1);
        const GdnOutputs c = run_chunk32(*problem, contract->value, {}, 1);
        for (const std::size_t n : {0UL, 2UL, 4UL}) {
            for (std::size_t i = n * size; i < (n + 1) * size; ++i) {
                REQUIRE(r.final_state[i] == (policy == std::string("zeros") ? 0 : state[i]));
                REQUIRE(c.final_state[i] == static_cast<double>(static_cast<float>(r.final_state[i])));
            }
        }
    }
}

TEST_CASE("garbage behind the last sequence has no effect, and its outputs stay 0") {
    const LoadedCase x = load_case("varlen_nan_padding");
    for (const GdnOutputs& r :
         {run_recurrent64(x.problem, x.contract, 1), run_recurrent32(x.problem, x.contract, 1), chunked(x, 16)}) {
        CHECK(std::isfinite(max_abs(r.final_state)));
        CHECK(std::isfinite(sum_of(r.out)));
        CHECK(max_abs({r.out.begin() + 528, r.out.end()}) == 0);
    }
}

TEST_CASE("T = 0 returns the initial state") {
    const LoadedCase x = load_case("no_tokens");
    CHECK(run_recurrent64(x.problem, x.contract, 2).final_state == x.problem.initial_state);
    CHECK(chunked(x, 64).out.empty());
}

TEST_CASE("numerics: the chunked kernel is within 2x of forward substitution's known errors") {
    struct Row {
        const char* name;
        double max_abs_error;
    };
    for (const Row& row :
         {Row{"random_normed", 7e-8}, Row{"keys_cos65", 1e-7}, Row{"keys_cos91", 1e-7}, Row{"keys_identical", 6e-8},
          Row{"keys_identical_beta1", 9e-8}, Row{"keys_identical_beta2", 1.8e-4}, Row{"gates_strong", 7e-8},
          Row{"gates_minus_30", 7e-8}, Row{"gates_sparse_200", 7e-8}, Row{"keys_tiny", 5e-9}}) {
        const LoadedCase x = load_case(row.name);
        const double error = max_difference(chunked(x, 64).out, run_recurrent64(x.problem, x.contract, 2).out);
        CAPTURE(std::string(row.name));
        CHECK(error <= 2 * row.max_abs_error);
    }
    const LoadedCase huge = load_case("values_1e18");
    CHECK(rel_rms(chunked(huge, 64).out, run_recurrent64(huge.problem, huge.contract, 2).out) <= 2 * 2.5e-7);
}

TEST_CASE("numerics: g of -1e4, -1e30 and -inf cost the chunked kernel at most twice the recurrence's error") {
    for (const char* name : {"gate_1e4", "gate_1e30", "gate_inf"}) {
        const LoadedCase x = load_case(name);
        const GdnOutputs truth = run_recurrent64(x.problem, x.contract, 2);
        const double recurrence = max_difference(run_recurrent32(x.problem, x.contract, 2).out, truth.out);
        CAPTURE(std::string(name));
        CHECK(recurrence > 0);
        CHECK(max_difference(chunked(x, 64).out, truth.out) <= 2 * recurrence);
    }
}

TEST_CASE("cases: the same seed gives the same bytes, another seed others") {
    // FNV-1a over all tensor bytes: fixed, so that a change of the generator is noticed on any machine.
    const auto digest = [](const TensorFile& file) {
        std::uint64_t h = 14695981039346656037ULL;
        for (const NamedTensor& t : file.tensors) {
            for (const std::uint8_t byte : t.tensor.bytes) h = (h ^ byte) * 1099511628211ULL;
        }
        return h;
    };
    GdnCase c = *find_gdn_case("gva_2");
    CHECK(digest(make_inputs(c)) == digest(make_inputs(c)));
    CHECK(digest(make_inputs(c)) == 731023262390125312ULL);
    c.seed += 1;
    CHECK(digest(make_inputs(c)) != digest(make_inputs(*find_gdn_case("gva_2"))));
}

TEST_CASE("cases: names are unique and the generated normals have mean 0 and variance 1") {
    std::vector<std::string> names;
    for (const GdnCase& c : gdn_cases()) names.push_back(c.name);
    std::sort(names.begin(), names.end());
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    GdnCase c;
    c.name = "normals";
    c.dims = {1, 1000, 1, 1, 8, 64};
    const std::vector<double> v = to_f64(*make_inputs(c).find("v"));
    CHECK(std::fabs(sum_of(v) / 64000) < 0.02);
    CHECK(std::fabs(sum_of_squares(v) / 64000 - 1) < 0.02);
}
