// perf_state.json: versions, unknown fields, faults; and policy files.
#include <csignal>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "core/json.h"
#include "loop/perf/gates.h"
#include "loop/perf/state.h"
#include "support/temp_dir.h"

namespace gdnctl::loop {

using test::read_text;
using test::TempDir;
using test::write_text;

namespace {

PerfRecord example_record(double value = 4.2) {
    PerfRecord record;
    record.iteration = 7;
    record.commit = "0123456789abcdef0123456789abcdef01234567";
    record.measured.metric = "throughput/mfu";
    record.measured.value = value;
    record.measured.points = {value, 4.1};
    record.measured.source = "cli-output";
    record.measured.metrics = {{"throughput/mfu", value}, {"while_ms", 8.5}};
    record.measured.fingerprint = {{{"cluster", "a"}}, {{"ce", "pallas_tpu"}}};
    record.measured.gdn_layers_per_block = 1;
    record.measured.gdn_layer_fraction = 0.25;
    record.decision = PerfVerdict::control_flow_regression;
    record.delta_vs_champion_pct = -1.5;
    record.baseline_source = "champion";
    record.baseline_metrics = {{"while_ms", 0.0}};
    record.gates = {{"while", GateResult::Kind::fail, "`while_ms` increased by 8.5 ms", "while_ms 0 -> 8.5"}};
    record.pairs = PairLook{3, 0.01, 0.002, 0.005, 0.015, PairVerdict::keep};
    record.unit = "%";
    record.measured.busy = "other programs use 2 of 2 CPUs";
    runlog::Gain gain;
    gain.metric = "throughput/mfu";
    gain.pairs = 3;
    gain.factor = 1.01;
    gain.busy = record.measured.busy;
    record.gain = gain;
    record.timestamp_unix = 1'773'161'587;
    return record;
}

Status save(const std::filesystem::path& path, const PerfRecord& record) {
    return update_perf_state(path, [&](PerfState& state) {
        state.append(record);
        state.set_champion(record);
        return Status();
    });
}

}  // namespace

TEST_CASE("perf state: what is written is read again, with the recipe's names in order") {
    const TempDir dir;
    const auto path = dir / "perf_state.json";
    REQUIRE(save(path, example_record()));
    const auto json = nlohmann::json::parse(read_text(path));
    CHECK(json["version"] == 2);
    for (const char* field : {"iteration",
                              "commit",
                              "metric",
                              "metric_value",
                              "metric_source",
                              "metric_points",
                              "ce_backend_selected",
                              "ce_requested_implementation",
                              "ce_bwd_mode",
                              "ce_ab_compare",
                              "profile_architecture",
                              "gdn_layers_per_block",
                              "gdn_block_size",
                              "gdn_layer_fraction",
                              "metrics",
                              "hotspot_metrics",
                              "hotspot_heading",
                              "hotspot_baseline_heading",
                              "run_url",
                              "timestamp_unix",
                              "decision",
                              "delta_vs_champion_pct",
                              "gain",
                              "metric_unit",
                              "hotspot_baseline_source",
                              "hotspot_baseline_metrics",
                              "control_gate_reasons"}) {
        CAPTURE(field);
        CHECK(json["champion"].contains(field));
    }
    CHECK(json["champion"]["metrics"] == nlohmann::json{{"throughput/mfu", 4.2}});
    CHECK(json["champion"]["hotspot_metrics"] == nlohmann::json{{"while_ms", 8.5}});
    CHECK(read_text(path).starts_with("{\n  \"champion\": {\n    \"baseline") == false);
    CHECK(read_text(path).starts_with("{\n  \"champion\": {\n    \"busy\": "));  // sorted

    const PerfState state = *load_perf_state(path);
    const PerfRecord want = example_record();
    const PerfRecord got = *state.champion(want.measured.fingerprint.key());
    CHECK(got.measured == want.measured);
    CHECK(got.decision == want.decision);
    CHECK(got.gates == want.gates);
    CHECK(got.unit == want.unit);
    CHECK(got.gain == want.gain);
    CHECK(got.pairs->mean == doctest::Approx(0.01));
    CHECK(got.baseline_metrics == want.baseline_metrics);
    CHECK(state.history().size() == 1);
    CHECK_FALSE(state.champion("another").has_value());
}

TEST_CASE("perf state: versions 1 and 2 of the recipe are read, unknown fields stay") {
    const TempDir dir;
    const auto path = dir / "perf_state.json";
    for (const int version : {1, 2}) {
        write_text(path, R"({"version": )" + std::to_string(version) +
                             R"(, "mystery": [1], "champion": {"commit": "abc", "metric": "throughput/mfu",
                             "metric_value": 4.5, "odd": {"x": 1}}, "history": [{"iteration": 3, "note": "keep"}]})");
        const auto champion = load_perf_state(path)->champion("whatever");  // without a fingerprint: everybody's
        REQUIRE(champion);
        CHECK(*champion->measured.value == 4.5);
        CHECK(champion->commit == "abc");
        REQUIRE(update_perf_state(path, [](PerfState& state) {
            state.append(example_record());
            return Status();
        }));
        const auto json = nlohmann::json::parse(read_text(path));
        CHECK(json["version"] == 2);
        CHECK(json["mystery"] == nlohmann::json{1});
        CHECK(json["champion"]["odd"]["x"] == 1);
        CHECK(json["history"][0]["note"] == "keep");
        CHECK(json["history"].size() == 2);
    }
}

TEST_CASE("perf state: one that does not parse is exit 2 and is not touched (defect 15)") {
    const TempDir dir;
    const auto path = dir / "perf_state.json";
    for (const char* text : {"", "{", "[]", "null", R"({"version": 3, "champion": null, "history": []})",
                             R"({"champion": null, "history": []})", R"({"version": "2"})",
                             R"({"version": 2, "champion": 4})", R"({"version": 2, "history": {}})",
                             R"({"version": 2, "history": [1]})", R"({"version": 2, "champions": []})"}) {
        CAPTURE(text);
        write_text(path, text);
        const Status saved = save(path, example_record());
        REQUIRE_FALSE(saved);
        CHECK(exit_code_of(saved.error().kind) == ExitCode::usage);
        CHECK(read_text(path) == text);
    }
    std::filesystem::remove(path);
    CHECK(load_perf_state(path)->history().empty());
    // A change that fails writes nothing.
    CHECK_FALSE(update_perf_state(path, [](PerfState&) { return Status(fail(ErrorKind::infrastructure, "no")); }));
    CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("perf state: a full disk leaves the old content whole (defect 15)") {
    const TempDir dir;
    const auto path = dir / "perf_state.json";
    REQUIRE(save(path, example_record()));
    const std::string before = read_text(path);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    rlimit small = old;
    small.rlim_cur = 100;
    setrlimit(RLIMIT_FSIZE, &small);
    const Status saved = save(path, example_record());
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    REQUIRE_FALSE(saved);
    CHECK(saved.error().kind == ErrorKind::local_io);
    CHECK(read_text(path) == before);
    CHECK(test::list_names(dir.path()) == "perf_state.json perf_state.json.lock");
}

TEST_CASE("perf state: a champion without a number, and numbers that are none, stay readable") {
    const auto state =
        PerfState::parse(R"({"version": 2, "champion": {"commit": 5, "metric_value": "4.0"}, "history": []})", "s");
    REQUIRE(state);
    CHECK_FALSE(state->champion("k")->measured.value.has_value());
    PerfRecord record = example_record();
    record.delta_vs_champion_pct = std::numeric_limits<double>::infinity();
    CHECK(record_json(record)["delta_vs_champion_pct"].is_null());
}

TEST_CASE("perf state: suspects are the refusals since the last good look, of this configuration") {
    PerfState state;
    const auto add = [&](PerfVerdict verdict, const char* cluster) {
        PerfRecord record = example_record();
        record.decision = verdict;
        record.measured.fingerprint.asked["cluster"] = cluster;
        state.append(record);
    };
    add(PerfVerdict::regression, "a");
    add(PerfVerdict::aa_ok, "a");
    add(PerfVerdict::regression, "a");
    add(PerfVerdict::regression, "b");
    add(PerfVerdict::within_threshold, "a");
    add(PerfVerdict::control_flow_regression, "a");
    CHECK(state.mark_suspects(example_record().measured.fingerprint.key()) == 2);
    std::string marks;
    for (const PerfRecord& record : state.history()) marks += record.suspect ? '1' : '0';
    CHECK(marks == "001001");
}

TEST_CASE("policy file: what is printed is read again") {
    const PerfPolicy policy = default_policy();
    const auto again = parse_policy(gdnctl::to_text(policy_json(policy), 2), "p", PerfPolicy{});
    REQUIRE(again);
    CHECK(*again == policy);
}

TEST_CASE("policy file: what it does not name stays") {
    const auto policy = parse_policy(
        R"({"schema": "gdnctl.policy/1", "name": "mine", "hold": "keep", "limits": {"max_while_increase_ms": 1.5}})",
        "p", default_policy());
    REQUIRE(policy);
    CHECK(policy->name == "mine");
    CHECK(policy->hold == Hold::keep);
    CHECK(policy->limits.at("max_while_increase_ms") == 1.5);
    CHECK(policy->limits.at("new_conditional_ms") == 5.0);
    CHECK(policy->gates.size() == 14);
    const auto none = parse_policy(R"({"schema": "gdnctl.policy/1", "gates": []})", "p", default_policy());
    CHECK(none->gates.empty());
    Target target;
    target.gates["hold"].value = std::string("refuse");
    target.gates["max_regression_pct"].value = std::int64_t{2};
    const auto laid = policy_of_target(target, default_policy());
    REQUIRE(laid);
    CHECK(laid->hold == Hold::refuse);
    CHECK(laid->max_regression_pct == 2.0);
}

TEST_CASE("policy file: mistakes are named by file and field") {
    const auto message = [](const char* text) {
        const auto policy = parse_policy(text, "p.json", default_policy());
        REQUIRE_FALSE(policy);
        CHECK(exit_code_of(policy.error().kind) == ExitCode::usage);
        return policy.error().message + (policy.error().hint.empty() ? "" : " | " + policy.error().hint);
    };
    CHECK(message("{").starts_with("p.json"));
    CHECK(message("[]") == "p.json: a policy is a JSON object");
    CHECK(message("{}") ==
          "p.json: `schema` must be \"gdnctl.policy/1\" | `gdnctl policy show` prints one to start from");
    const std::string head = R"({"schema": "gdnctl.policy/1", )";
    CHECK(message((head + R"("hodl": "keep"})").c_str()) == "unknown key p.json: hodl | did you mean `hold`?");
    CHECK(message((head + R"("hold": "drop"})").c_str()) == "p.json: hold must be automatic, keep or refuse");
    CHECK(message((head + R"("override_pct": -1})").c_str()) == "p.json: override_pct must be a number, 0 or more");
    CHECK(
        message((head + R"("gates": [{"id": "a", "says": "s", "all": [{"metric": "m", "when": "up", "limit": "x"}]}]})")
                    .c_str()) ==
        "p.json: gates[0].all[0].when must be rises-over, drops-less-than, drops-by or new-bucket");
    CHECK(
        message(
            (head +
             R"("gates": [{"id": "a", "says": "s", "all": [{"metric": "m", "when": "drops-by", "limit": "new_conditional"}]}]})")
                .c_str()) ==
        "p.json: gate `a` refers to the limit `new_conditional`, which is not in `limits` | did you mean "
        "`new_conditional_ms`?");
    CHECK(message((head + R"("gates": [{"id": "A", "says": "s", "all": []}]})").c_str()) ==
          "p.json: gates[0].id must be made of a-z, 0-9 and `-`");
    CHECK(message((head + R"("gates": [{"id": "a", "says": "s", "all": []}]})").c_str()) ==
          "p.json: gates[0].all must be a list of conditions, at least one");
}

}  // namespace gdnctl::loop
