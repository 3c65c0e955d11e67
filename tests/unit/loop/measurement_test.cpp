// What a profile run leaves behind: the recipe's cases 19, 20, 23 to 26 and 31, and what a report says.
#include "loop/measure/measurement.h"

#include <doctest/doctest.h>

#include "loop/gates/validation_options.h"
#include "services/job/job.h"

namespace gdnctl::loop {

namespace {

JobReport ray_profile_report() {
    JobReport report;
    report.runs_as_written = false;
    report.cluster = "us-central1";
    return report;
}

std::string env_of(const ProfileSettings& settings, const std::string& name) {
    Config config;
    ConfigTable table;
    table["target"].value = std::string("marin");
    config.overlay(table);
    const auto target = select_target(config, "/nowhere");
    const auto command = profile_command(*target, settings, "gdnctl");
    REQUIRE(command);
    for (const auto& [key, value] : command->env) {
        if (key == name) return value;
    }
    return "(absent)";
}

}  // namespace

TEST_CASE("measurement: case 19, numbers and settings of a run's output") {
    const Evidence evidence = evidence_of(
        "INFO Fused cross-entropy selected implementation: "
        "pallas_tpu\nthroughput/mfu=5.1\nthroughput/duration=0.167\n");
    ProfileQuestion question{"throughput/mfu", gate_profile_settings(), {}};
    question.settings.ce_implementation = "pallas_tpu";
    question.settings.ce_bwd_mode = "xla_streaming";
    const Measurement m = measurement_of(ray_profile_report(), evidence, question);
    CHECK(*m.value == 5.1);
    CHECK(m.source == "cli-output");
    CHECK(m.metrics.at("throughput/duration") == 0.167);
    CHECK(m.metrics.at("step_duration_ms") == doctest::Approx(167.0));
    CHECK(m.ce_backend_selected == "pallas_tpu");
    CHECK(m.ce_requested_implementation == "pallas_tpu");
    CHECK(m.ce_bwd_mode == "xla_streaming");
    CHECK(m.fingerprint.effective.at("cross-entropy") == "pallas_tpu");
}

TEST_CASE("measurement: case 20, the whole address of a run") {
    const std::string url =
        "https://wandb.ai/marin-community/marin/runs/gdn_trisolve_i6_dev_130m_ch128_seg16_20steps-1f9dea";
    const Evidence evidence = evidence_of("wandb: View run at: " + url + "\n");
    CHECK(measurement_of(ray_profile_report(), evidence, {"x", {}, {}}).run_url == url);
}

TEST_CASE("measurement: case 23, profile environment is kept or refused before the loop") {
    GateChoices choices;
    choices.validation.profile_env = {"A=identity", "WANDB_MODE=offline", "EMPTY_VALUE="};
    CHECK(check_gates(choices));
    CHECK(parse_env_items(choices.validation.profile_env, "x")->size() == 3);
    for (const char* bad : {"MISSING_EQUALS", "1BAD=value", "=value"}) {
        CAPTURE(bad);
        choices.validation.profile_env = {bad};
        const Status status = check_gates(choices);
        REQUIRE_FALSE(status);
        CHECK(status.error().kind == ErrorKind::usage);
        CHECK(status.error().message.find("--validation-profile-env") != std::string::npos);
    }
}

TEST_CASE("measurement: case 24, the cross-entropy's settings become variables") {
    ProfileSettings s = gate_profile_settings();
    CHECK(env_of(s, "LEVANTER_FUSED_CE_IMPLEMENTATION") == "pallas_tpu");
    CHECK(env_of(s, "LEVANTER_PALLAS_TPU_BWD_USE_XLA_STREAMING_BENCH") == "0");
    s.ce_implementation = "auto";
    CHECK(env_of(s, "LEVANTER_FUSED_CE_IMPLEMENTATION") == "(absent)");
    s.ce_bwd_mode = "xla_streaming";
    CHECK(env_of(s, "LEVANTER_PALLAS_TPU_BWD_USE_XLA_STREAMING_BENCH") == "1");
}

TEST_CASE("measurement: case 25, layers and blocks become variables") {
    ProfileSettings s = gate_profile_settings();
    s.gdn_layers_per_block = 1;
    s.gdn_block_size = 4;
    CHECK(env_of(s, "GDN_PROFILE_GDN_LAYERS_PER_BLOCK") == "1");
    CHECK(env_of(s, "GDN_PROFILE_GDN_BLOCK_SIZE") == "4");
    CHECK(env_of(s, "GDN_PROFILE_ALL_TRANSFORMER") == "(absent)");
    s.all_transformer = true;
    CHECK(env_of(s, "GDN_PROFILE_ALL_TRANSFORMER") == "1");
}

TEST_CASE("measurement: case 26, the bucket of a cluster is that of its region") {
    CHECK(bucket_of("us-east5-a") == "gs://marin-us-east5");
    CHECK(bucket_of("us-east5") == "gs://marin-us-east5");
    CHECK(bucket_of("marin-us-central1") == "gs://marin-us-central1");
}

TEST_CASE("measurement: case 31, configured and reported layers") {
    ProfileQuestion question{"throughput/mfu", gate_profile_settings(), {}};
    question.settings.gdn_layers_per_block = 1;
    question.settings.gdn_block_size = 4;
    Measurement m = measurement_of(ray_profile_report(), evidence_of("throughput/duration=0.1\n"), question);
    CHECK(m.profile_architecture == "hybrid");
    CHECK(*m.gdn_layer_fraction == 0.25);
    CHECK(m.metrics.at("step_duration_ms") == doctest::Approx(100.0));
    m = measurement_of(ray_profile_report(),
                       evidence_of("GDN profile model: all_transformer=1 gdn_layers_per_block=0 gdn_block_size=4 "
                                   "gdn_layer_fraction=0.0\n"),
                       question);
    CHECK(m.profile_architecture == "attn_only");
    CHECK(*m.gdn_layers_per_block == 0);
    ProfileSettings clamped;
    clamped.gdn_layers_per_block = 9;
    clamped.gdn_block_size = 4;
    CHECK(*model_of(clamped, {}).fraction == 1.0);
    CHECK(model_of(ProfileSettings{}, {}).architecture.empty());
}

TEST_CASE("measurement: settings that a run reports, beside what it was asked for (failure mode J)") {
    ProfileSettings asked = gate_profile_settings();
    asked.gdn_layers_per_block = 5;
    asked.gdn_block_size = 6;
    asked.chunk_size = 96;
    const Evidence said = evidence_of(
        "Fused cross-entropy selected implementation: xla\n[gdnctl] GDN profile model: all_transformer=0 "
        "gdn_layers_per_block=3 gdn_block_size=4 chunk_size=128 other=1 gdn_layer_fraction=0.750000\n");
    const SettingWords words = setting_words(asked, said.output.profile());
    const std::map<std::string, std::string> requested = {
        {"all_transformer", "0"}, {"ce_implementation", "pallas_tpu"}, {"chunk_size", "96"},
        {"gdn_block_size", "6"},  {"gdn_layer_fraction", "0.833333"},  {"gdn_layers_per_block", "5"}};
    const std::map<std::string, std::string> effective = {
        {"all_transformer", "0"}, {"ce_implementation", "xla"},       {"chunk_size", "128"},
        {"gdn_block_size", "4"},  {"gdn_layer_fraction", "0.750000"}, {"gdn_layers_per_block", "3"}};
    CHECK(words.requested == requested);
    CHECK(words.effective == effective);
    // Of what it was not asked for only what took effect is known, and of what it does not say nothing.
    const SettingWords plain = setting_words(ProfileSettings{}, said.output.profile());
    CHECK(plain.effective.size() == 6);
    CHECK_FALSE(plain.requested.contains("gdn_layer_fraction"));
    asked.ce_implementation = "auto";
    CHECK_FALSE(setting_words(asked, said.output.profile()).requested.contains("ce_implementation"));
    CHECK(setting_words(asked, {}).effective.empty());
    CHECK(setting_words(asked, {}).requested.empty());
}

TEST_CASE("measurement: the last object of the log is evidence, the target's metric among it") {
    JobReport report;
    report.metric_name = "gdn/forward_ms";
    report.metric_value = 0.5;
    report.entrypoint = "gdnctl oracle bench";
    report.cluster = "local";
    const Evidence evidence = evidence_of(
        "words {\"a\":1}\n{\"forward\": {\"median_ms\": 0.5, \"n\": 3}, \"while_ms\": 2,\n \"t\": \"x\"}\nend\n");
    const Measurement m = measurement_of(report, evidence, {"gdn/forward_ms", {}, {{"machine", "m"}}});
    CHECK(*m.value == 0.5);
    CHECK(m.metrics.at("forward/median_ms") == 0.5);
    CHECK(m.metrics.at("while_ms") == 2.0);
    CHECK(m.metrics.count("t") == 0);
    CHECK(m.fingerprint.asked.at("command") == "gdnctl oracle bench");
    CHECK(m.fingerprint.asked.at("machine") == "m");
    CHECK_FALSE(measurement_of(report, evidence, {"throughput/mfu", {}, {}}).value.has_value());
}

TEST_CASE("measurement: names of failed tests and how far they were off") {
    const Evidence evidence = evidence_of(
        "tests/t.py::test_a PASSED\nE  Max absolute difference: 1.19e-05\n"
        "FAILED tests/t.py::test_layer[4] - AssertionError: no\nFAILED tests/t.py::test_layer[4] - again\nFAILED "
        "nothing\n"
        "==== 1 failed, 87 passed, 2 skipped in 3.00s ====\n");
    CHECK(evidence.failed_tests == std::vector<std::string>{"tests/t.py::test_layer[4]"});
    CHECK(*evidence.max_abs == doctest::Approx(1.19e-5));
    CHECK(evidence.output.pytest()->failed == 1);
}

}  // namespace gdnctl::loop
