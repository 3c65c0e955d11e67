// The oracle's own test: a part of the mutants and of the honest variants here, all of them in `oracle selftest`, which
// tests/conformance/selftest.sh runs.
#include <doctest/doctest.h>

#include "gdnctl/oracle/gdn_selftest.h"
#include "oracle/selftest/backward_mutants.h"
#include "oracle/selftest/mutants.h"

using namespace gdnctl::oracle;

TEST_CASE("selftest: there are at least 60 mutants, and 60 of backward passes") {
    CHECK(all_mutants().size() >= 60);
    CHECK(all_backward_mutants().size() >= 60);
    CHECK(unexpected_mutants().size() >= 30);
}

TEST_CASE("selftest: mutants are caught and localised, honest variants pass") {
    const SelftestReport report = run_selftest({2, 18, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    CHECK(report.unexpected.mutants >= 4);
    CHECK(report.unexpected.caught == report.unexpected.mutants);
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
    report.unexpected = {20, 20, 0, 19, 0, 0};
    CHECK(report.passed());  // their stages are not counted
    for (std::size_t SelftestTotals::* field : {&SelftestTotals::caught, &SelftestTotals::right_place}) {
        SelftestReport worse = report;
        --(worse.unexpected.*field);
        CHECK_FALSE(worse.passed());
    }
    for (SelftestTotals SelftestReport::* pass : {&SelftestReport::totals, &SelftestReport::backward}) {
        for (std::size_t SelftestTotals::* field :
             {&SelftestTotals::caught, &SelftestTotals::right_stage, &SelftestTotals::right_place}) {
            SelftestReport worse = report;
            --((worse.*pass).*field);
            CHECK_FALSE(worse.passed());
        }
        SelftestReport alarmed = report;
        (alarmed.*pass).false_alarms = 1;
        CHECK_FALSE(alarmed.passed());
    }
}

TEST_CASE("selftest: it stops when asked to") {
    const SelftestReport report = run_selftest({1, 1, [] { return true; }});
    CHECK(report.totals.mutants == 0);
    CHECK(report.totals.variants == 0);
    CHECK(report.backward.mutants == 0);
}
