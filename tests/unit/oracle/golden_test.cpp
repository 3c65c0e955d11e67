// T-hand and G1: the two goldens whose values come from outside this program.
#include <doctest/doctest.h>

#include "unit/oracle/gdn_fixtures.h"

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
