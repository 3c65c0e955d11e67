// Mutants of gdn: faults planted in kernels of our own must be found and located, and correct variants must pass. All
// of them with GDNCTL_SLOW=1, as tests/conformance/mutants.sh runs them; otherwise a part.
#include <cstdlib>

#include "unit/oracle/judging.h"
#include "unit/oracle/mutants/backward_mutants.h"
#include "unit/oracle/mutants/forward_mutants.h"
#include "unit/oracle/mutants/mutant_set.h"
#include "unit/oracle/mutants/tapped_kernel.h"

using namespace gdnctl::oracle;
using namespace gdnctl::oracle::testing;

TEST_CASE("mutants: there are at least 60 mutants, and 60 of backward passes") {
    CHECK(all_mutants().size() >= 60);
    CHECK(all_backward_mutants().size() >= 60);
    CHECK(unexpected_mutants().size() >= 30);
    CHECK(unexpected_backward_mutants().size() >= 60);
}

TEST_CASE("mutants: all are caught and located, and correct variants pass") {
    const bool slow = std::getenv("GDNCTL_SLOW") != nullptr;
    const MutantReport report = run_mutant_set({2, slow ? 1U : 18U, {}});
    for (const MutantFinding& f : report.findings)
        MESSAGE(f.kind, ": ", f.name, ": expected ", f.expected, ", got ", f.got);
    for (const auto& [what, t] : {std::pair{"forward", &report.totals},
                                  {"backward", &report.backward},
                                  {"forward, unexpected", &report.unexpected},
                                  {"backward, unexpected", &report.backward_unexpected}}) {
        MESSAGE(std::string(what), ": caught ", t->caught, ", right stage ", t->right_stage, ", right place ",
                t->right_place, " of ", t->mutants, "; false alarms ", t->false_alarms, " of ", t->variants);
        CHECK(t->mutants >= 4);
        CHECK(t->caught == t->mutants);
        CHECK(t->false_alarms == 0);
    }
    CHECK(report.totals.variants >= 20);
    CHECK(report.backward.variants >= 20);
    CHECK(report.backward_unexpected.right_stage == report.backward_unexpected.mutants);
    if (slow) CHECK(report.passed());
}

TEST_CASE("mutants: each target counts") {
    MutantReport report;
    CHECK_FALSE(report.passed());  // nothing was judged
    report.totals = {100, 100, 90, 95, 200, 0};
    CHECK_FALSE(report.passed());  // no gradient was judged
    report.backward = report.totals;
    CHECK_FALSE(report.passed());  // no unexpected fault was planted
    report.unexpected = {20, 20, 18, 19, 0, 0};
    CHECK_FALSE(report.passed());  // no unexpected fault was planted into a backward pass
    report.backward_unexpected = report.unexpected;
    CHECK(report.passed());
    for (MutantTotals MutantReport::* pass : {&MutantReport::totals, &MutantReport::backward, &MutantReport::unexpected,
                                              &MutantReport::backward_unexpected}) {
        for (std::size_t MutantTotals::* field :
             {&MutantTotals::caught, &MutantTotals::right_stage, &MutantTotals::right_place}) {
            MutantReport worse = report;
            --((worse.*pass).*field);
            CHECK_FALSE(worse.passed());
        }
    }
    for (MutantTotals MutantReport::* pass : {&MutantReport::totals, &MutantReport::backward}) {
        MutantReport alarmed = report;
        (alarmed.*pass).false_alarms = 1;
        CHECK_FALSE(alarmed.passed());
    }
}

TEST_CASE("mutants: steps of another kernel, spoilt in ways that the search was not made for") {
    const bool slow = std::getenv("GDNCTL_SLOW") != nullptr;
    CHECK(tapped_mutants().size() + later_tapped_mutants().size() >= 300);
    for (const auto& mutants : {tapped_mutants(), later_tapped_mutants()}) {
        const MutantTotals t = judge_mutants(mutants, {2, slow ? 1U : 401U, {}}).totals;
        CHECK(t.mutants >= 2);
        CHECK(t.caught == t.mutants);
        MESSAGE("right stage: ", t.right_stage, " of ", t.mutants, ", right place: ", t.right_place);
        if (!slow) continue;
        CHECK(t.right_stage * 100 >= t.mutants * 90);
        CHECK(t.right_place * 100 >= t.mutants * 95);
    }
}

TEST_CASE("mutants: the other kernel is right as long as no step is spoilt") {
    const GdnReference r = mutant_reference(mutant_case(false, {2, 104, 2, 4, 16, 16}), 2);
    const GdnReport report = judged(r, outputs_of(r, run_tapped(r, Tap::M, {}, {}, 2)));
    CHECK(report.verdict == Verdict::ok);
    CHECK(worst_score(report) < 2);
}

TEST_CASE("mutants: it stops when asked to") {
    const MutantReport report = run_mutant_set({1, 1, [] { return true; }});
    CHECK(report.totals.mutants == 0);
    CHECK(report.totals.variants == 0);
    CHECK(report.backward.mutants == 0);
}
