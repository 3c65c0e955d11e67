// A second profile with another cross-entropy: beside the first one's record, and never in its way.
#include <algorithm>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "loop/perf/record.h"
#include "validation_world.h"

namespace gdnctl::loop {

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

}  // namespace gdnctl::loop
