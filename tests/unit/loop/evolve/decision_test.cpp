// The climb is evolve with one lineage: the same pairs, the same verdict.
#include <cmath>

#include <doctest/doctest.h>

#include "loop/evolve/draw.h"
#include "loop/evolve/run.h"
#include "loop/measure/pairs.h"
#include "loop/perf/gates.h"

namespace gdnctl::loop::evolve {

namespace {

// A run of the climb with --perf-min-improvement-pct 0.5.
PairRule climb_rule() {
    PerfPolicy policy = default_policy();
    policy.min_improvement_pct = .5;
    return {policy.min_improvement_pct / 100.0, -policy.max_regression_pct / 100.0, policy.noise_share, 9};
}

PairLook verdict(const std::vector<double>& all, const PairRule& rule) {
    PairLook look;
    for (std::size_t n = 1; n <= all.size() && look.verdict == PairVerdict::next; ++n) {
        look = judge_pairs(std::span(all).first(n), rule);
    }
    return look;
}

}  // namespace

TEST_CASE("climb and evolve keep the same from the same pairs, and part where the table of docs/evolve.md says") {
    const PairRule evolve = pair_rule(GateChoices{}), climb = climb_rule();
    CHECK(evolve.min_gain == climb.min_gain);
    CHECK(evolve.cap == climb.cap);
    int kept = 0, refused = 0, ties = 0, apart = 0;
    for (int run = 0; run < 3000; ++run) {
        const double truth = .06 * draw(1, run, "truth", 0) - .03, noise = .01 * draw(1, run, "noise", 0);
        std::vector<double> d;
        for (int k = 0; k < 9; ++k) {
            double normal = -6;
            for (int i = 0; i < 12; ++i) normal += draw(1, run, "pair", 12 * k + i);
            d.push_back(truth + noise * normal);
        }
        const PairLook ours = verdict(d, evolve), theirs = verdict(d, climb);
        CAPTURE(run);
        if (ours == theirs) {
            kept += ours.verdict == PairVerdict::keep ? 1 : 0;
            refused += ours.verdict == PairVerdict::refuse ? 1 : 0;
            ties += ours.verdict == PairVerdict::tie ? 1 : 0;
            continue;
        }
        ++apart;
        // A kept gain that is not beyond 0.4 of a pair's deviation, or a loss of less than 1 %.
        const bool in_noise = ours.verdict == PairVerdict::keep && ours.low <= climb.noise_share * ours.deviation;
        const bool small_loss = ours.verdict == PairVerdict::refuse && ours.high >= std::log1p(climb.refuse_below);
        CHECK((in_noise || small_loss));
    }
    CHECK(kept > 500);
    CHECK(refused > 300);
    CHECK(ties > 50);
    CHECK(apart < 1000);
}

}  // namespace gdnctl::loop::evolve
