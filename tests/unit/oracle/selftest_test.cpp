// The oracle's own test: a part of the mutants and of the honest variants here, all of them in `oracle selftest`.
#include <doctest/doctest.h>

#include "gdnctl/oracle/gdn_selftest.h"
#include "oracle/selftest/backward_mutants.h"
#include "oracle/selftest/mutants.h"

using namespace gdnctl::oracle;

TEST_CASE("selftest: there are at least 60 mutants, and 60 of backward passes") {
    CHECK(all_mutants().size() >= 60);
    CHECK(all_backward_mutants().size() >= 60);
}

TEST_CASE("selftest: mutants are caught and localised, honest variants pass") {
    const SelftestReport report = run_selftest({2, 9, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    for (const SelftestTotals* t : {&report.totals, &report.backward}) {
        CHECK(t->mutants >= 20);
        CHECK(t->variants >= 40);
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
    CHECK(report.passed());
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
