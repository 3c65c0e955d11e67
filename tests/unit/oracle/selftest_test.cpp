// The oracle's own test: a part of the mutants and of the honest variants here, all of them in `oracle selftest`, which
// tests/conformance/selftest.sh runs.
#include "oracle/gdn/selftest/selftest.h"

#include "oracle/gdn/selftest/backward_mutants.h"
#include "oracle/gdn/selftest/backward_selftest.h"
#include "oracle/gdn/selftest/mutants.h"
#include "oracle/gdn/selftest/tapped_kernel.h"
#include "unit/oracle/judging.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("selftest: there are at least 60 mutants, and 60 of backward passes") {
    CHECK(all_mutants().size() >= 60);
    CHECK(all_backward_mutants().size() >= 60);
    CHECK(unexpected_mutants().size() >= 30);
    CHECK(unexpected_backward_mutants().size() >= 60);
    CHECK(tapped_mutants().size() + later_tapped_mutants().size() >= 300);
}

TEST_CASE("selftest: mutants are caught and localised, honest variants pass") {
    const SelftestReport report = run_selftest({2, 18, false, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    CHECK(report.unexpected.mutants >= 4);
    CHECK(report.unexpected.caught == report.unexpected.mutants);
    CHECK(report.spoilt.mutants + report.spoilt_later.mutants >= 4);
    CHECK(report.spoilt.caught == report.spoilt.mutants);
    CHECK(report.spoilt_later.caught == report.spoilt_later.mutants);
    CHECK(report.backward_unexpected.mutants >= 8);
    CHECK(report.backward_unexpected.caught == report.backward_unexpected.mutants);
    CHECK(report.backward_unexpected.right_stage == report.backward_unexpected.mutants);
    MESSAGE("right stage of unexpected faults: ",
            report.unexpected.right_stage + report.spoilt.right_stage + report.spoilt_later.right_stage, " of ",
            report.unexpected.mutants + report.spoilt.mutants + report.spoilt_later.mutants);
    for (const SelftestTotals* t : {&report.totals, &report.backward}) {
        CHECK(t->mutants >= 10);
        CHECK(t->variants >= 20);
        CHECK(t->caught == t->mutants);
        CHECK(t->false_alarms == 0);
    }
}

TEST_CASE("selftest: each target counts") {
    SelftestReport report;
    CHECK_FALSE(report.passed());  // nothing was judged
    report.totals = {100, 100, 90, 95, 200, 0};
    CHECK_FALSE(report.passed());  // no gradient was judged
    report.backward = report.totals;
    CHECK_FALSE(report.passed());  // no unexpected fault was planted
    report.unexpected = {20, 20, 18, 19, 0, 0};
    CHECK_FALSE(report.passed());  // no step of another kernel was spoilt
    report.spoilt = report.spoilt_later = report.unexpected;
    CHECK_FALSE(report.passed());  // no unexpected fault was planted into a backward pass
    report.backward_unexpected = report.unexpected;
    CHECK(report.passed());
    for (SelftestTotals SelftestReport::* pass :
         {&SelftestReport::totals, &SelftestReport::backward, &SelftestReport::unexpected, &SelftestReport::spoilt,
          &SelftestReport::spoilt_later, &SelftestReport::backward_unexpected}) {
        for (std::size_t SelftestTotals::* field :
             {&SelftestTotals::caught, &SelftestTotals::right_stage, &SelftestTotals::right_place}) {
            SelftestReport worse = report;
            --((worse.*pass).*field);
            CHECK_FALSE(worse.passed());
        }
    }
    for (SelftestTotals SelftestReport::* pass : {&SelftestReport::totals, &SelftestReport::backward}) {
        SelftestReport alarmed = report;
        (alarmed.*pass).false_alarms = 1;
        CHECK_FALSE(alarmed.passed());
    }
}

TEST_CASE("selftest: the other kernel is right as long as no step is spoilt") {
    const GdnReference r = selftest_reference(selftest_case(false, {2, 104, 2, 4, 16, 16}), 2);
    const GdnReport report = judged(r, outputs_of(r, run_tapped(r, Tap::M, {}, {}, 2)));
    CHECK(report.verdict == Verdict::ok);
    CHECK(worst_score(report) < 2);
}

TEST_CASE("selftest: it stops when asked to") {
    const SelftestReport report = run_selftest({1, 1, false, [] { return true; }});
    CHECK(report.totals.mutants == 0);
    CHECK(report.totals.variants == 0);
    CHECK(report.backward.mutants == 0);
}
