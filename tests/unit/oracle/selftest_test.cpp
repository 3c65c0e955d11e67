// The oracle's own test: a part of the mutants and of the honest variants here, all of them in `oracle selftest`.
#include <doctest/doctest.h>

#include "gdnctl/oracle/gdn_selftest.h"
#include "oracle/selftest/mutants.h"

using namespace gdnctl::oracle;

TEST_CASE("selftest: there are at least 60 mutants") { CHECK(all_mutants().size() >= 60); }

TEST_CASE("selftest: mutants are caught and localised, honest variants pass") {
    const SelftestReport report = run_selftest({2, 9, {}});
    for (const SelftestFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    CHECK(report.totals.mutants >= 20);
    CHECK(report.totals.variants >= 50);
    CHECK(report.totals.caught == report.totals.mutants);
    CHECK(report.totals.false_alarms == 0);
}

TEST_CASE("selftest: each target counts") {
    SelftestReport report;
    CHECK_FALSE(report.passed());  // nothing was judged
    report.totals = {100, 100, 90, 95, 200, 0};
    CHECK(report.passed());
    for (std::size_t SelftestTotals::* field :
         {&SelftestTotals::caught, &SelftestTotals::right_stage, &SelftestTotals::right_place}) {
        SelftestReport worse = report;
        --(worse.totals.*field);
        CHECK_FALSE(worse.passed());
    }
    report.totals.false_alarms = 1;
    CHECK_FALSE(report.passed());
}

TEST_CASE("selftest: it stops when asked to") {
    const SelftestReport report = run_selftest({1, 1, [] { return true; }});
    CHECK(report.totals.mutants == 0);
    CHECK(report.totals.variants == 0);
}
