// What a profile's text is worth, on recorded text.
#include "loop/evolve/anticheat.h"

#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "loop/evolve/profile_result.h"
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

}  // namespace gdnctl::loop::evolve
