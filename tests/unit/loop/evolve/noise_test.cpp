// What the noise of a pair hides, and what is said about it.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "loop/evolve/evaluate.h"

namespace gdnctl::loop::evolve {

TEST_CASE("evolve gives no hint about noise that nobody can follow") {
    const auto hint = [](double sd, double min_gain, double target, int pairs) {
        return noise_hint(judge_noise(sd, min_gain, target, pairs), min_gain, target, pairs);
    };
    CHECK(hint(.001, .005, .005, 9) == "--target-gain-pct 0.5 must exceed --perf-min-improvement-pct 0.5");
    CHECK(hint(.001, .02, .005, 9).find("pairs") == std::string::npos);
    CHECK(hint(.01, .005, .02, 3) == "5 pairs would be needed for --target-gain-pct 2: pass --perf-pairs 5");
    CHECK(hint(.05, .005, .02, 9).find("pairs would be needed for --target-gain-pct 2; make the profile") !=
          std::string::npos);
    CHECK(hint(5, .005, .02, 9).find("more than 1000 pairs would be needed") == 0);
}

TEST_CASE("evolve says which gain the noise hides") {
    const NoiseVerdict quiet = judge_noise(.003, .005, .02, 9);
    CHECK(quiet.fits);
    CHECK(quiet.detectable_pct == doctest::Approx(100 * std::expm1(std::log(1.005) + 2.306 * .001)).epsilon(1e-6));
    const NoiseVerdict loud = judge_noise(.03, .005, .02, 9);
    CHECK_FALSE(loud.fits);
    CHECK(loud.pairs_needed > 9);
    CHECK(judge_noise(.03, .005, .02, loud.pairs_needed > 1000 ? 9 : 9).pairs_needed == loud.pairs_needed);
    CHECK(judge_noise(1.0, .005, .0051, 9).pairs_needed == 0);
}

TEST_CASE("evolve keeps few candidates that change nothing, and the naive rule keeps many") {
    std::mt19937_64 random(20260310);
    std::normal_distribution<double> normal;
    constexpr int k_trials = 2000;
    const auto kept = [&](double sd, double min_gain) {
        int count = 0;
        for (int trial = 0; trial < k_trials; ++trial) {
            std::vector<double> d;
            PairLook look;
            PairRule rule;
            rule.min_gain = min_gain;
            while (look.verdict == PairVerdict::next) {
                d.push_back(sd * normal(random));
                look = judge_pairs(d, rule);
            }
            if (look.verdict == PairVerdict::keep) ++count;
        }
        return count / static_cast<double>(k_trials);
    };
    const double plain = kept(.01, 0);
    CHECK(plain > .03);
    CHECK(plain < .06);
    CHECK(kept(.01, .005) < .01);
    int naive = 0;
    for (int trial = 0; trial < k_trials; ++trial) {
        double sum = 0, squares = 0;
        for (int n = 1; n <= 9; ++n) {
            const double d = .01 * normal(random);
            sum += d;
            squares += d * d;
            const double t = n == 3 ? 2.920 : n == 5 ? 2.132 : n == 9 ? 1.860 : 0;
            const double mean = sum / n, s = std::sqrt((squares - n * mean * mean) / std::max(n - 1, 1));
            if (t > 0 && mean - t * s / std::sqrt(n) > 0) {
                ++naive;
                break;
            }
        }
    }
    CHECK(naive / static_cast<double>(k_trials) > .08);
}

}  // namespace gdnctl::loop::evolve
