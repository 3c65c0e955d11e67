// What the oracle found wrong, from the log of a test job.
#include "loop/gates/stages.h"

#include <algorithm>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/json.h"
#include "loop/perf/state.h"
#include "validation_world.h"

namespace gdnctl::loop {

namespace {

const char* const k_wrong =
    "[gdnctl] judging src:kernel.c on the generated cases\n"
    "case   g1_no_l2norm                          UNSTABLE_INPUT as expected\n"
    "case   marin_beta0                           OK             0 x budget\n"
    "case   t_hand                                WRONG          6.3e+06 x budget\n"
    "       out is off by 6.25e+06 times its error budget\n"
    "       worst: out[b=0,t=2,h=0,v=1] got -0.780000031, want -3.825\n"
    "       where: value head 0 of 1; chunk 0\n"
    "              (of 64 tokens)\n"
    "       first wrong token: out[b=0,t=0,h=0], chunk 0\n"
    "       stage: order; also possible: intra\n"
    "       hint: matches if out is read from the decayed old state\n"
    "case   t_long                                NON_FINITE\n"
    "       stage: decay\n"
    "verdict: WRONG: 2 of 4 cases\n";

}  // namespace

TEST_CASE("gate oracle: stage, head and chunk of the first item that is wrong, and how many others there are") {
    const Evidence evidence = evidence_of(k_wrong);
    CHECK(evidence.oracle.item == "case t_hand");
    CHECK(evidence.oracle.verdict == "WRONG");
    CHECK(evidence.oracle.stage == "order; also possible: intra");
    CHECK(evidence.oracle.where == "value head 0 of 1; chunk 0 (of 64 tokens)");
    CHECK(evidence.oracle.token == "out[b=0,t=0,h=0], chunk 0");
    CHECK(evidence.oracle.sign() == "case t_hand: WRONG, stage order");
    CHECK(evidence.oracle.text() ==
          "case t_hand: WRONG, stage order, value head 0 of 1; chunk 0 (of 64 tokens), and 1 other");
    CHECK_FALSE(evidence_of("case   a   OK  0 x budget\nverdict: OK\n").oracle.found());
    CHECK_FALSE(evidence_of("").oracle.found());
    CHECK(evidence_of("case   a   CRASHED\nother\n       stage: not its own\n").oracle.sign() == "case a: CRASHED");
}

TEST_CASE("gate oracle: a job that ends by it says it, in words and in facts") {
    const JobEnd end = end_of(JobKind::tests, 1, report_of("FAILED", "user"), k_wrong);
    REQUIRE(end.failure);
    CHECK(end.failure->outcome == Outcome::test_fail);
    CHECK(end.failure->sign == "case t_hand: WRONG, stage order");
    CHECK(end.summary ==
          "validation tests on c: verdict WRONG; case t_hand: WRONG, stage order, value head 0 of 1; chunk 0 (of 64 "
          "tokens), and 1 other (job job-1)");
    // What pytest names comes first.
    const JobEnd pytest = end_of(JobKind::tests, 1, report_of("FAILED", "user"),
                                 "FAILED tests/t.py::test_x - AssertionError\n1 failed, 3 passed in 1.00s\n");
    CHECK(pytest.failure->sign == "tests/t.py::test_x");
}

// A second profile with another cross-entropy: beside the first one's record, and never in its way.

namespace {

Words other_words(const std::string& implementation, const std::string& backward, const std::string& prefix) {
    Words words = Children::profile_words("c", prefix);
    *std::next(std::find(words.begin(), words.end(), "--ce-implementation")) = implementation;
    *std::next(std::find(words.begin(), words.end(), "--ce-bwd-mode")) = backward;
    return words;
}

struct CompareWorld : StageWorld {
    CompareWorld() {
        candidate.head = base;
        children.options.clusters = {"c"};
        children.options.ce_compare_implementation = "xla";
        children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 0, report_of("SUCCEEDED"),
                       "throughput/mfu=5.0\n");
    }
    StageResult profile() {
        TargetJobs jobs = children.jobs();
        return ok(ProfileStage(validation(jobs), "throughput/mfu").run(context()));
    }
    Json stored() const { return *parse_json(read_text(artefacts.path(7, "measurement.json")), "measurement"); }
};

}  // namespace

TEST_CASE("ce compare: a second run under a name of its own, kept beside the first one's numbers (defect 13)") {
    CompareWorld world;
    world.children.child(
        other_words("xla", "pallas", "gdn_loopgate_ce_xla_pallas_iter007"), 0, report_of("SUCCEEDED"),
        "Fused cross-entropy selected implementation: xla\nthroughput/mfu=5.4\nthroughput/duration=0.2\n"
        "wandb: https://wandb.ai/a/b/runs/c\n");
    const StageResult result = world.profile();
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.tpu_ms == 4000);  // of both
    CHECK(result.facts.at("metric.throughput/mfu") == "5");
    CHECK(result.facts.at("ce_ab_compare") == "xla, pallas: 5.4 (+8.00%)");
    const Json json = world.stored();
    CHECK(json["metric_value"] == 5.0);
    CHECK(json["ce_requested_implementation"] == "pallas_tpu");
    const Json& compare = json["ce_ab_compare"];
    CHECK(compare["metric_value"] == 5.4);
    CHECK(compare["delta_pct"].get<double>() == doctest::Approx(8.0));
    CHECK(compare["ce_requested_implementation"] == "xla");
    CHECK(compare["ce_backend_selected"] == "xla");
    CHECK(compare["profile_prefix"] == "gdn_loopgate_ce_xla_pallas_iter007");
    CHECK(compare["run_url"] == "https://wandb.ai/a/b/runs/c");
    CHECK(compare["hotspot_metrics"]["step_duration_ms"] == 200.0);
    CHECK(compare["failure"].is_null());
    const auto back = load_measurement(world.artefacts.path(7, "measurement.json"));
    REQUIRE(back);
    REQUIRE(back->measurement.ce_ab_compare);
    CHECK(*parse_measurement(measurement_json(back->measurement)).ce_ab_compare == *back->measurement.ce_ab_compare);
    CHECK(back->measurement.ce_ab_compare->metrics.at("throughput/mfu") == 5.4);
}

TEST_CASE("ce compare: whatever becomes of it, the gate is the first profile's (defect 13)") {
    struct Case {
        int rc;
        JobReport report;
        std::string log, failure;
    };
    for (const Case& one : {Case{1, report_of("FAILED", "user"), "Traceback\n", "the profile failed"},
                            Case{1, report_of("FAILED", "user"), "RESOURCE_EXHAUSTED: vmem\n", "RESOURCE_EXHAUSTED"},
                            Case{4, {}, "ConnectionResetError\n", "ConnectionResetError"},
                            Case{0, report_of("SUCCEEDED"), "no number\n", "no throughput/mfu was measured"}}) {
        CAPTURE(one.failure);
        CompareWorld world;
        world.children.options.ce_compare_implementation = "auto";
        world.children.options.ce_compare_bwd_mode = "xla_streaming";
        world.children.child(
            other_words("pallas_tpu", "xla_streaming", "gdn_loopgate_ce_pallas_tpu_xla_streaming_iter007"), one.rc,
            one.report, one.log);
        const StageResult result = world.profile();
        CHECK(result.verdict == StageVerdict::pass);
        CHECK(result.facts.at("metric.throughput/mfu") == "5");
        const std::string failure = world.stored()["ce_ab_compare"]["failure"].get<std::string>();
        CHECK_MESSAGE(failure.find(one.failure) != std::string::npos, failure);
        CHECK(world.stored()["ce_ab_compare"]["metric_value"].is_null());
    }
}

TEST_CASE("ce compare: off unless it is asked for, and only where there is something to compare") {
    GateChoices choices;
    CHECK_FALSE(ce_comparison(choices.validation));
    choices.validation.ce_compare_bwd_mode = "xla_streaming";
    CHECK(ce_comparison(choices.validation) == CeChoice{"pallas_tpu", "xla_streaming"});
    CHECK(check_gates(choices));
    choices.validation.ce_compare_bwd_mode = "pallas";
    choices.validation.ce_compare_implementation = "pallas_tpu";
    CHECK(check_gates(choices).error().kind == ErrorKind::usage);
    // A run of the one is never found under the other's name, nor under those of the runs in turns.
    const ValidationOptions& options = choices.validation;
    const std::string first = profile_prefix(options, 7) + "_";
    const std::string other = ce_profile_prefix(options, {"xla", "pallas"}, 7) + "_";
    CHECK((other + "130m").find(first) == std::string::npos);
    CHECK((first + "1234abcd_130m").find(other) == std::string::npos);
    // A target that takes no settings has one profile.
    StageWorld world;
    world.candidate.head = world.base;
    world.children.target = plain_target();
    world.children.options.ce_compare_implementation = "xla";
    world.children.child({"ray-profile", "--timeout", "3600", "--auto-stop", "--json"}, 0, report_of("SUCCEEDED"), "");
    TargetJobs jobs = world.children.jobs();
    CHECK(ok(ProfileStage(world.validation(jobs), "ms").run(world.context())).verdict == StageVerdict::pass);
}

// Totals of traces that hold other numbers of steps and events say nothing of a candidate.

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
