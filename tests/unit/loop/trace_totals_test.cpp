// Totals of traces that hold other numbers of steps and events say nothing of a candidate.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "loop/gates/validation_stages.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

// One step takes the same in each; what adds up over the trace does not.
JobEnd traced(int steps, int events, const std::string& more = {}) {
    const std::string log = fmt::format(
        "throughput/mfu=6.04\nthroughput/duration=0.167\n"
        R"({{"while_ms": 9.5, "trace": {{"steps": {}, "events": {}, "total_ms": {}, "while_total_ms": {}}}{}}})"
        "\n",
        steps, events, 167.0 * steps, 9.5 * steps, more);
    return end_of(JobKind::profile, 0, report_of("SUCCEEDED"), log);
}

}  // namespace

TEST_CASE("failure mode D: a candidate is judged by one step, whatever its trace adds up to") {
    StageWorld world;
    const TargetJobs jobs = world.children.jobs();
    const auto measured = [&](const JobEnd& end, const TargetJobs& by) {
        return measured_by(end, {JobKind::profile, {}, world.tree, {}, {}, {}, {}, {}}, by, "throughput/mfu");
    };
    const PerfPolicy policy = default_policy();
    PerfRecord champion;
    champion.measured = measured(traced(11, 11'761), jobs);
    const Measurement candidate = measured(traced(6, 6'596), jobs);
    CHECK(champion.measured.metrics.at("trace/total_ms") == doctest::Approx(1837.0));
    CHECK(candidate.metrics.at("trace/total_ms") == doctest::Approx(1002.0));
    CHECK(candidate.metrics.at("step_duration_ms") == doctest::Approx(167.0));
    const PerfDecision decision = decide({policy, RegressionPolicy::fail, true, candidate, &champion});
    CHECK(decision.verdict == PerfVerdict::within_threshold);
    CHECK(decision.reasons.empty());
    // Nor does any gate look at a number of the trace as a whole.
    for (const Gate& gate : policy.gates) {
        for (const GateCondition& condition : gate.all) {
            CAPTURE(condition.metric);
            CHECK(condition.metric.ends_with("_ms"));
            CHECK(condition.metric.find('/') == std::string::npos);
        }
    }
    // Profiles that were asked for other numbers of steps are not compared at all.
    Children asks_for_more;
    asks_for_more.options.profile.profile_num_steps = 11;
    const Measurement longer = measured(traced(11, 11'761), asks_for_more.jobs());
    CHECK(longer.fingerprint.key() != candidate.fingerprint.key());
    CHECK(decide({policy, RegressionPolicy::fail, true, longer, &champion}).verdict == PerfVerdict::incomparable);
}

TEST_CASE("failure mode D: totals that a profile prints as times of one step are a common factor, no regression") {
    StageWorld world;
    const TargetJobs jobs = world.children.jobs();
    const auto measured = [&](int steps) {
        const std::string more = fmt::format(
            R"(, "forward_closed_call_ms": {}, "backward_closed_call_ms": {}, "all_gather_ms": {}, "while_ms": {})",
            41.3 * steps, 26.2 * steps, 5.0 * steps, 9.5 * steps);
        return measured_by(traced(steps, 1000 * steps, more), {JobKind::profile, {}, world.tree, {}, {}, {}, {}, {}},
                           jobs, "throughput/mfu");
    };
    const PerfPolicy policy = default_policy();
    PerfRecord champion;
    champion.measured = measured(6);
    const PerfDecision decision = decide({policy, RegressionPolicy::fail, true, measured(11), &champion});
    CHECK(decision.verdict == PerfVerdict::common_factor);
    CHECK(decision.why_not_compared.find("all changed by +83.3 %") != std::string::npos);
    CHECK((decision.ok && !decision.count_failure && !decision.take_back));
}

}  // namespace gdnctl::loop
