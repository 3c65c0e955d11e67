// The oracle's own test: a part of the mutants and of the honest variants here, all of them in `oracle selftest`, which
// tests/conformance/selftest.sh runs.
#include "oracle/gdn/selftest/selftest.h"

#include <cstdlib>

#include "oracle/gdn/selftest/backward_mutants.h"
#include "oracle/gdn/selftest/mutants.h"
#include "unit/oracle/judging.h"
#include "unit/oracle/tapped_kernel.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("selftest: there are at least 60 mutants, and 60 of backward passes") {
    CHECK(all_mutants().size() >= 60);
    CHECK(all_backward_mutants().size() >= 60);
    CHECK(unexpected_mutants().size() >= 30);
    CHECK(unexpected_backward_mutants().size() >= 60);
}

TEST_CASE("selftest: mutants are caught and localised, honest variants pass") {
    const SelftestReport report = run_selftest({2, 18, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    CHECK(report.unexpected.mutants >= 4);
    CHECK(report.unexpected.caught == report.unexpected.mutants);
    CHECK(report.backward_unexpected.mutants >= 8);
    CHECK(report.backward_unexpected.caught == report.backward_unexpected.mutants);
    CHECK(report.backward_unexpected.right_stage == report.backward_unexpected.mutants);
    MESSAGE("right stage of unexpected faults: ", report.unexpected.right_stage, " of ", report.unexpected.mutants);
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
    CHECK_FALSE(report.passed());  // no unexpected fault was planted into a backward pass
    report.backward_unexpected = report.unexpected;
    CHECK(report.passed());
    for (SelftestTotals SelftestReport::* pass : {&SelftestReport::totals, &SelftestReport::backward,
                                                  &SelftestReport::unexpected, &SelftestReport::backward_unexpected}) {
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

// Five of them, or all with GDNCTL_SLOW=1: then stages and places have their targets too.
TEST_CASE("selftest: steps of another kernel, spoilt in ways that the search was not made for") {
    const bool slow = std::getenv("GDNCTL_SLOW") != nullptr;
    CHECK(tapped_mutants().size() + later_tapped_mutants().size() >= 300);
    for (const auto& mutants : {tapped_mutants(), later_tapped_mutants()}) {
        const SelftestTotals t = judge_mutants(mutants, {2, slow ? 1U : 401U, {}}).totals;
        CHECK(t.mutants >= 2);
        CHECK(t.caught == t.mutants);
        MESSAGE("right stage: ", t.right_stage, " of ", t.mutants, ", right place: ", t.right_place);
        if (!slow) continue;
        CHECK(t.right_stage * 100 >= t.mutants * 90);
        CHECK(t.right_place * 100 >= t.mutants * 95);
    }
}

TEST_CASE("selftest: the other kernel is right as long as no step is spoilt") {
    const GdnReference r = selftest_reference(selftest_case(false, {2, 104, 2, 4, 16, 16}), 2);
    const GdnReport report = judged(r, outputs_of(r, run_tapped(r, Tap::M, {}, {}, 2)));
    CHECK(report.verdict == Verdict::ok);
    CHECK(worst_score(report) < 2);
}

TEST_CASE("selftest: it stops when asked to") {
    const SelftestReport report = run_selftest({1, 1, [] { return true; }});
    CHECK(report.totals.mutants == 0);
    CHECK(report.totals.variants == 0);
    CHECK(report.backward.mutants == 0);
}
