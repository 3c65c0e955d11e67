// Draws, operators, lineages and rank weights: the golden tables of the design, and what follows from them.
#include "loop/evolve/selection.h"

#include <cmath>

#include <doctest/doctest.h>

#include "loop/evolve/run.h"
#include "loop/measure/pairs.h"
#include "loop/perf/gates.h"

namespace gdnctl::loop::evolve {

namespace {

Member base() {
    Member m;
    m.verdict = Verdict::kept;
    return m;
}

Member attempt(int number, Verdict verdict, double gain, int lineage, std::vector<int> parents = {0}) {
    Member m;
    m.number = number;
    m.verdict = verdict;
    m.gain = gain;
    m.lineage = lineage;
    m.parents = std::move(parents);
    return m;
}

}  // namespace

TEST_CASE("evolve selection: draws are those of the golden table") {
    CHECK(draw(0, 0, "operator", 0) == 0.8203597057801175);
    CHECK(draw(0, 1, "parent", 1) == 0.44592729775520656);
    CHECK(draw(42, 7, "lineage", 0) == 0.8840998578557792);
    CHECK(draw(18446744073709551615ULL, 1'000'000, "model", 3) == 0.7754299972781595);
    CHECK(unit_of(0xd20317fb48233174ULL) == 0.8203597057801175);
    CHECK(unit_of(~0ULL) < 1.0);
}

TEST_CASE("evolve selection: parents are weighted by rank and children") {
    const auto weights = parent_weights(std::vector{2, 0, 0});
    REQUIRE(weights.size() == 3);
    CHECK(weights[0] == doctest::Approx(0.285714).epsilon(1e-5));
    CHECK(weights[1] == doctest::Approx(0.428571).epsilon(1e-5));
    CHECK(weights[2] == doctest::Approx(0.285714).epsilon(1e-5));
    CHECK(index_at(weights, 0.0) == 0);
    CHECK(index_at(weights, 0.2857) == 0);
    CHECK(index_at(weights, 0.2858) == 1);
    CHECK(index_at(weights, 0.7143) == 2);
    CHECK(index_at(weights, std::nextafter(1.0, 0.0)) == 2);
}

TEST_CASE("evolve selection: ranks base, kept and tied by gain, then by diff") {
    std::vector<Member> all = {base(), attempt(1, Verdict::kept, 0.02, 0), attempt(2, Verdict::tie, 0.02, 1),
                               attempt(3, Verdict::rejected, 0.5, 1), attempt(4, Verdict::tie, 0.0, 2)};
    all[1].lines = 9;
    all[2].lines = 3;
    CHECK(ranked(all) == std::vector{2, 1, 0, 4});
    CHECK(best_of(all) == 1);  // a tie never moves it
    CHECK(best_of(std::vector{base(), attempt(1, Verdict::tie, 0.01, 0)}) == 0);
}

TEST_CASE("evolve selection: counts children whatever their verdict but infra and abandoned") {
    const std::vector<Member> all = {base(), attempt(1, Verdict::noop, 0, 0), attempt(2, Verdict::infra, 0, 0),
                                     attempt(3, Verdict::abandoned, 0, 0), attempt(4, Verdict::invalid, 0, 0)};
    CHECK(children_counts(all)[0] == 2);
}

TEST_CASE("evolve selection: picks are a function of seed and attempt") {
    const std::vector<Member> all = {base(), attempt(1, Verdict::kept, 0.02, 1), attempt(2, Verdict::tie, 0.01, 2)};
    SelectionRules rules;
    for (int number = 1; number < 400; ++number) {
        rules.seed = static_cast<std::uint64_t>(number) * 7;
        const Pick once = pick(all, number, rules), again = pick(all, number, rules);
        CHECK(once.draws == again.draws);
        CHECK(once.parents == again.parents);
        REQUIRE(!once.parents.empty());
        CHECK(once.draws.front().name == "operator");
        CHECK(once.draws.front().u == draw(rules.seed, number, "operator", 0));
        CHECK(once.lineage == static_cast<int>(3 * draw(rules.seed, number, "lineage", 0)));
        if (once.lineage == 0) CHECK(once.parents.front() == 1);
        if (once.op == Operator::cross) {
            REQUIRE(once.parents.size() == 2);
            CHECK(once.parents[0] != once.parents[1]);
            CHECK(once.parents[1] != 0);
        }
        CHECK(once.op != Operator::repair);  // there is nothing broken
    }
}

TEST_CASE("evolve selection: operators follow the mix, and one without a parent explores") {
    const std::vector<Member> only_base = {base()};
    SelectionRules rules;
    int explored = 0;
    constexpr int k_trials = 2000;
    for (int number = 1; number <= k_trials; ++number) {
        const Pick one = pick(only_base, number, rules);
        CHECK(one.parents == std::vector{0});
        const bool has_base_to_work_on =
            one.op == Operator::explore || one.op == Operator::exploit || one.op == Operator::simplify;
        CHECK(has_base_to_work_on);
        if (one.op == Operator::explore) ++explored;
    }
    // explore .35 + repair .15 + cross .1 + ablate .05
    CHECK(explored / static_cast<double>(k_trials) == doctest::Approx(0.65).epsilon(0.05));
}

TEST_CASE("evolve selection: repairs what is broken, and never a no-op") {
    std::vector<Member> all = {base(), attempt(1, Verdict::noop, 0, 0), attempt(2, Verdict::invalid, 0, 1)};
    all[2].broken = true;
    SelectionRules rules;
    rules.mix = {0, 0, 1, 0, 0, 0};
    CHECK(pick(all, 3, rules).op == Operator::repair);
    CHECK(pick(all, 3, rules).parents == std::vector{2});
    all[2].broken = false;
    CHECK(pick(all, 3, rules).op == Operator::explore);
}

TEST_CASE("evolve selection: restarts a stagnating lineage from another one's best") {
    SelectionRules rules;
    rules.lineages = 1;
    std::vector<Member> all = {base()};
    for (int number = 1; number <= 8; ++number) all.push_back(attempt(number, Verdict::noop, 0, 0));
    CHECK(stagnant_for(all, 0) == 8);
    const Pick ninth = pick(all, 9, rules);
    CHECK(ninth.restart);
    CHECK(ninth.op == Operator::explore);
    CHECK(ninth.parents == std::vector{0});
    Member restarted = attempt(9, Verdict::rejected, 0, 0);
    restarted.restart = true;
    all.push_back(restarted);
    CHECK(stagnant_for(all, 0) == 0);
    CHECK_FALSE(pick(all, 10, rules).restart);
    all[8].verdict = Verdict::infra;
    all.pop_back();
    CHECK(stagnant_for(all, 0) == 7);  // infrastructure says nothing of a lineage
}

TEST_CASE("evolve selection: archive keeps the best of a place and technique") {
    std::vector<Member> all = {base(), attempt(1, Verdict::kept, 0.01, 0), attempt(2, Verdict::kept, 0.03, 1),
                               attempt(3, Verdict::tie, 0.02, 2)};
    all[1].technique = all[2].technique = "fuse";
    all[1].place = all[2].place = all[3].place = "kernel.c";
    all[3].technique = "tile";
    CHECK(archive(all) == std::vector{2, 3, 0});
    SelectionRules rules;
    rules.mix = {0, 1, 0, 0, 0, 0};
    const Pick one = pick(all, 4, rules);
    CHECK(one.parents == std::vector{2});
    CHECK(one.inspirations == std::vector{3});
}

TEST_CASE("evolve selection: operator mixes are checked") {
    const auto mix = parse_mix("explore=.5,cross=0.5");
    REQUIRE(mix);
    CHECK((*mix)[0] == 0.5);
    CHECK((*mix)[3] == 0.5);
    CHECK((*mix)[1] == 0.0);
    for (const char* wrong :
         {"", "explore", "explore=2", "explore=.5", "tune=1", "explore=x", "explore=-.5,cross=1.5"}) {
        CAPTURE(wrong);
        CHECK_FALSE(parse_mix(wrong));
    }
    CHECK(*parse_mix(to_text(k_default_mix)) == k_default_mix);
}

TEST_CASE("evolve selection: keeps, rejects and ties as the golden table of pairs says") {
    const PairRule rule;  // min_gain .005, nine pairs
    struct Row {
        std::vector<double> d;
        double mean, low, high;
        PairVerdict verdict;
    };
    const Row rows[] = {
        {{.030, .031, .032}, .031, .0269788, .0350212, PairVerdict::keep},
        {{.020, .030, .025}, .025, .0048938, .0451062, PairVerdict::next},
        {{.020, .030, .025, .028, .022}, .025, .0189188, .0310812, PairVerdict::keep},
        {{-.030, -.031, -.029}, -.030, -.0340212, -.0259788, PairVerdict::refuse},
        {{.10, 0, .02, .01, -.01}, .024, -.0407954, .0887954, PairVerdict::next},
        {{.004, .006, .005, .0055, .0045, .005, .0052, .0048, .005}, .005, .0045635, .0054365, PairVerdict::tie},
    };
    for (const Row& row : rows) {
        const PairLook look = judge_pairs(row.d, rule);
        CHECK(look.mean == doctest::Approx(row.mean).epsilon(1e-6));
        CHECK(std::abs(look.low - row.low) < 6e-8);
        CHECK(std::abs(look.high - row.high) < 6e-8);
        CHECK(look.verdict == row.verdict);
        // The climb with --perf-min-improvement-pct 0.5 decides the same.
        const PerfPolicy climb = default_policy();
        CHECK(judge_pairs(row.d, {.005, -climb.max_regression_pct / 100, climb.noise_share, 9}).verdict == row.verdict);
    }
}

// The climb is evolve with one lineage: the same pairs, the same verdict.

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

TEST_CASE(
    "evolve selection: climb and evolve keep the same from the same pairs, and part where the table of docs/evolve.md "
    "says") {
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
