// What the oracle found wrong, from the log of a test job.
#include <doctest/doctest.h>

#include "validation_world.h"

namespace gdnctl::loop {

namespace {

const char* const k_wrong =
    "[gdnctl] judging src:kernel.c on the generated cases\n"
    "case   g1_no_l2norm                          UNSTABLE_INPUT as expected\n"
    "case   marin_beta0                           OK             0 x budget\n"
    "case   t_hand                                WRONG          6.3e+06 x budget\n"
    "       out is off by 6.25e+06 times its error budget\n"
    "       worst: out[b=0,t=2,h=0,v=1] got -0.780000031, want -3.825\n"
    "       where: value head 0 of 1; chunk 0\n"
    "              (of 64 tokens)\n"
    "       first wrong token: out[b=0,t=0,h=0], chunk 0\n"
    "       stage: order; also possible: intra\n"
    "       hint: matches if out is read from the decayed old state\n"
    "case   t_long                                NON_FINITE\n"
    "       stage: decay\n"
    "verdict: WRONG: 2 of 4 cases\n";

}  // namespace

TEST_CASE("gate oracle: stage, head and chunk of the first item that is wrong, and how many others there are") {
    const Evidence evidence = evidence_of(k_wrong);
    CHECK(evidence.oracle.item == "case t_hand");
    CHECK(evidence.oracle.verdict == "WRONG");
    CHECK(evidence.oracle.stage == "order; also possible: intra");
    CHECK(evidence.oracle.where == "value head 0 of 1; chunk 0 (of 64 tokens)");
    CHECK(evidence.oracle.token == "out[b=0,t=0,h=0], chunk 0");
    CHECK(evidence.oracle.sign() == "case t_hand: WRONG, stage order");
    CHECK(evidence.oracle.text() ==
          "case t_hand: WRONG, stage order, value head 0 of 1; chunk 0 (of 64 tokens), and 1 other");
    CHECK_FALSE(evidence_of("case   a   OK  0 x budget\nverdict: OK\n").oracle.found());
    CHECK_FALSE(evidence_of("").oracle.found());
    CHECK(evidence_of("case   a   CRASHED\nother\n       stage: not its own\n").oracle.sign() == "case a: CRASHED");
}

TEST_CASE("gate oracle: a job that ends by it says it, in words and in facts") {
    const JobEnd end = end_of(JobKind::tests, 1, report_of("FAILED", "user"), k_wrong);
    REQUIRE(end.failure);
    CHECK(end.failure->outcome == Outcome::test_fail);
    CHECK(end.failure->sign == "case t_hand: WRONG, stage order");
    CHECK(end.summary ==
          "validation tests on c: verdict WRONG; case t_hand: WRONG, stage order, value head 0 of 1; chunk 0 (of 64 "
          "tokens), and 1 other (job job-1)");
    // What pytest names comes first.
    const JobEnd pytest = end_of(JobKind::tests, 1, report_of("FAILED", "user"),
                                 "FAILED tests/t.py::test_x - AssertionError\n1 failed, 3 passed in 1.00s\n");
    CHECK(pytest.failure->sign == "tests/t.py::test_x");
}

}  // namespace gdnctl::loop
