// What a profile's text is worth, on recorded text.
#include "loop/evolve/evaluate.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "core/json.h"
#include "loop/evolve/state.h"

namespace gdnctl::loop::evolve {

namespace {

Target target_of(const char* from) {
    Target target;
    target.metric = TargetMetric{"t/ms", "ms", true, from};
    target.floor = "json:/floor";
    return target;
}

constexpr const char* k_with_nonce =
    "starting\n{\"nonce\": \"aa\", \"ms\": 10, \"floor\": 2}\n{\"ms\": 1}\n{\"nonce\": \"bb\", \"ms\": 2}\n";

}  // namespace

TEST_CASE("profile result: the object with this launch's nonce counts, whatever is printed behind it") {
    const ProfileResult result = read_profile(k_with_nonce, target_of("json:/ms"), "aa");
    CHECK(result.nonce);
    CHECK(result.value == 10);
    CHECK(result.floor == 2);
    // Of another launch: nobody's. The one without any is what a target that prints none has.
    const ProfileResult other = read_profile(k_with_nonce, target_of("json:/ms"), "cc");
    CHECK_FALSE(other.nonce);
    CHECK(other.value == 1);
    CHECK_FALSE(read_profile("{\"nonce\": \"bb\", \"ms\": 2}\n", target_of("json:/ms"), "cc").value);
    CHECK_FALSE(read_profile("nothing\n", target_of("json:/ms"), "cc").value);
}

TEST_CASE("profile result: several shapes are one number, the geometric mean") {
    const ProfileResult list = read_profile("{\"ms\": [1, 1, 1, 1, 100]}\n", target_of("json:/ms"), "");
    REQUIRE(list.value);
    CHECK(std::abs(*list.value - 2.5119) < 1e-4);
    CHECK(list.shapes.size() == 5);
    const ProfileResult named = read_profile("{\"ms\": {\"a\": 4, \"b\": 9}}\n", target_of("json:/ms"), "");
    CHECK(std::abs(*named.value - 6) < 1e-9);
    CHECK(named.shapes.at("b") == 9);
    CHECK_FALSE(read_profile("{\"ms\": {\"a\": 4, \"b\": 0}}\n", target_of("json:/ms"), "").value);
    Comparison pairs;
    pairs.d = {.02, .021, .019};
    pairs.shapes = {{"a", {.08, .081, .079}}, {"b", {-.04, -.041, -.039}}};
    CHECK(slower_shape(pairs, .01) == "b");
    CHECK(slower_shape(pairs, .05).empty());
}

TEST_CASE("profile result: faster than is physically possible, and somebody else's kernel") {
    Target target = target_of("json:/ms");
    const ProfileResult result = read_profile("{\"ms\": 1.5, \"floor\": 2}\n", target, "");
    ProfileChecks checks = check_profile(result, *result.value, target);
    CHECK(checks.impossible);
    CHECK(checks.floor == "fail");
    CHECK(check_profile(result, 2.5, target).floor == "pass");
    CHECK(check_profile(read_profile("{\"ms\": 1}\n", target, ""), 1, target).floor == "skip");
    // Recorded from a profile whose HLO calls the reference.
    target.kernel_op = "gdn_chunk_fwd";
    const char* reference =
        "%fusion.3 = f32[4,128] fusion(...), metadata={op_name=\"jit(step)/while/dot_general\"}\n{\"ms\": 9}\n";
    const char* own =
        "%custom-call.7 = f32[4,128] custom-call(...), metadata={op_name=\"jit(step)/gdn_chunk_fwd\"}\n{\"ms\": 9}\n";
    checks = check_profile(read_profile(reference, target, ""), 9, target);
    CHECK(checks.kernel_op == "fail");
    CHECK_FALSE(checks.impossible);
    CHECK(check_profile(read_profile(own, target, ""), 9, target).kernel_op == "pass");
}

TEST_CASE("anticheat: hints name a file and a word, and an evaluator says that it obeyed") {
    const auto hints = cheat_hints({{"kernel.c", "int x = clock_gettime(0, 0);"}, {"other.c", "int y;"}});
    REQUIRE(hints.size() == 1);
    CHECK(hints.front() == "kernel.c: clock_gettime");
    CHECK(says_unseen("a\n  shapes: unseen\nb\n"));
    CHECK(says_unseen("{\n  \"shapes\": \"unseen\"\n}\n"));
    CHECK_FALSE(says_unseen("shapes: seen\n"));
}

TEST_CASE("anticheat: what is impossible is quarantined for good") {
    State state;
    std::size_t line = 0;
    const auto add = [&](Json record) {
        record["ts"] = "2026-01-01T00:00:00Z";
        REQUIRE(state.apply(record, "journal", ++line));
    };
    add({{"type", "run_start"}, {"run", "r"}, {"base", "b0"}, {"config", {{"lineages", 1}}}});
    add({{"type", "eval_stage"},
         {"attempt", 0},
         {"stage", "noise"},
         {"verdict", "pass"},
         {"device", "d"},
         {"metrics", {{"sd", .001}, {"pairs", 3}, {"nonce", true}}}});
    CHECK(state.prints_nonce);
    CHECK(state.device == "d");
    add({{"type", "attempt_start"}, {"attempt", 1}, {"operator", "explore"}});
    add({{"type", "proposal"}, {"attempt", 1}, {"class", "ok"}});
    add({{"type", "snapshot"}, {"attempt", 1}, {"commit", "c1"}, {"mutable_key", "k1"}});
    add({{"type", "eval_stage"},
         {"attempt", 1},
         {"stage", "bench"},
         {"verdict", "fail"},
         {"reason", "too fast"},
         {"impossible", true}});
    const Decision decision = decide(state);
    CHECK(decision.verdict == Verdict::quarantined);
    CHECK(decision.last);
    add({{"type", "verdict"}, {"attempt", 1}, {"verdict", "quarantined"}, {"final", true}});
    CHECK(next(state, false).kind == StepKind::begin_attempt);
    CHECK(state.best == 0);
    // Another device: its noise comes first.
    add({{"type", "config_change"}, {"device", {{"old", "d"}}}});
    CHECK(next(state, false).kind == StepKind::measure_noise);
}

// What the noise of a pair hides, and what is said about it.

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
