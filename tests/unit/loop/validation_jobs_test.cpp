// The ladder, its jobs and the stages of validation: the recipe's cases 27 to 30, failure classes, flakes.
#include <doctest/doctest.h>

#include "core/json.h"
#include "core/text.h"
#include "loop/engine/log_dir.h"
#include "runlog/records/record.h"
#include "validation_fixture.h"

namespace gdnctl::loop {

TEST_CASE("validation: case 27, profile-only never calls the tests, and its profile has its own name") {
    StageFixture world;
    world.children.options.clusters = {"c"};
    world.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 0, report_of("SUCCEEDED"),
                         "throughput/mfu=5.1\nthroughput/duration=0.167\n");
    TargetJobs jobs = world.children.jobs();
    ProfileStage stage(world.validation(jobs), "throughput/mfu");
    const StageResult result = ok(stage.run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("profile_prefix") == "gdn_loopgate_iter007");
    CHECK(result.facts.at("metric.throughput/mfu") == "5.1");
    CHECK(result.tpu_ms == 2000);
    const StoredMeasurement stored = ok(load_measurement(world.log_dir() / "iteration-007-measurement.json"));
    CHECK(*stored.measurement.value == 5.1);
    CHECK(stored.site.cluster == "c");

    // The stages of each mode.
    for (const auto& [mode, perf, names] :
         {std::tuple{ValidationMode::profile_only, PerfMode::off, "validation-profile "},
          std::tuple{ValidationMode::profile_only, PerfMode::automatic, "validation-profile performance "},
          std::tuple{ValidationMode::required, PerfMode::automatic, "validation-tests validation-profile performance "},
          std::tuple{ValidationMode::automatic, PerfMode::required,
                     "validation-tests validation-profile performance "}}) {
        GateChoices choices;
        choices.validation.mode = mode;
        choices.perf.mode = perf;
        auto transactions = world.transactions();
        const auto gate = ok(GateStages::create(world.gate_deps(transactions, choices)));
        std::string all;
        for (const auto& one : gate->stages()) all += std::string(one->name()) + " ";
        CHECK(all == names);
    }
}

TEST_CASE("validation: what a log says of a step is not what is measured (defect 22)") {
    StageFixture world;
    world.children.options.clusters = {"c"};
    world.write("log.md",
                "# Log\n- Step duration: `1.0 ms`\n- MFU: `60.0`\nthroughput/mfu=60\nthroughput/duration=0.001\n");
    world.commit("words");
    world.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 0, report_of("SUCCEEDED"),
                         "throughput/mfu=5.1\nthroughput/duration=0.167\n");
    TargetJobs jobs = world.children.jobs();
    REQUIRE(ok(ProfileStage(world.validation(jobs), "throughput/mfu").run(world.context())).verdict ==
            StageVerdict::pass);
    const Measurement m = ok(load_measurement(world.log_dir() / "iteration-007-measurement.json")).measurement;
    CHECK(m.metrics.at("step_duration_ms") == doctest::Approx(167.0));
    CHECK(m.metrics.at("throughput/mfu") == 5.1);
}

TEST_CASE("validation: case 27, required runs both suites and measures parity (defect 21)") {
    for (const bool whole : {true, false}) {
        StageFixture world;
        world.children.options.clusters = {"c"};
        if (!whole) world.children.options.pytest_args = "-k few";
        const std::string log = whole ? k_green : "3 passed, 35 deselected in 1.00s";
        world.children.child(world.children.test_words("c", whole ? Words{} : Words{"--pytest-args", "-k few"}), 0,
                             report_of("SUCCEEDED"), log);
        TargetJobs jobs = world.children.jobs();
        TestsStage stage(world.validation(jobs));
        const StageResult result = ok(stage.run(world.context()));
        CHECK(result.verdict == StageVerdict::pass);
        CHECK(result.facts.at("suites") == "kernels,layer");
        CHECK(result.facts.at("passed") == (whole ? "87" : "3"));
        CHECK(result.facts.at("validation_tests_full_parity") == (whole ? "true" : "false"));
        CHECK(stage.wants(DiffClass::change));
        CHECK_FALSE(stage.wants(DiffClass::log_only));
        CHECK_FALSE(stage.wants(DiffClass::no_op));
    }
}

TEST_CASE("validation: case 28, a held TPU that was lost is got back first") {
    StageFixture world;
    FakeHeld held;
    held.answers = {true};
    world.children.child({"dev-tpu-test", "--cluster", "us-east5-a", "--tpu-name", "mine", "--tests", "both"}, 0, {},
                         k_green);
    TargetJobs jobs = world.children.jobs();
    const StageResult result = ok(TestsStage(world.validation(jobs, &held)).run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(held.reasons == Words{"validation tests starting without an active held dev TPU"});
}

TEST_CASE("validation: case 29, Ray where there is none, and the held TPU again after that") {
    StageFixture world;
    FakeHeld held;
    held.answers = {false, true};
    world.children.options.clusters = {"c"};
    world.children.child(world.children.test_words("c"), 1, {}, "what a mess");
    world.children.child({"dev-tpu-test", "--cluster", "us-east5-a", "--tpu-name", "mine", "--tests", "both"}, 0, {},
                         k_green);
    TargetJobs jobs = world.children.jobs();
    const StageResult result = ok(TestsStage(world.validation(jobs, &held)).run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(held.reasons ==
          Words{"validation tests starting without an active held dev TPU", "validation tests Ray fallback failed"});
}

TEST_CASE("validation: case 30, a profile that does not end is stopped once, and may be tried again") {
    StageFixture world;
    world.children.child(Children::profile_words("c", "p"), 124, report_of("RUNNING", "timeout"), "slow");
    TargetJobs jobs = world.children.jobs();
    JobOrder order{JobKind::profile, {"c", "", ""}, world.path(), world.log_dir() / "x.log", "p", "", {}};
    const JobEnd end = ok(jobs.run(order));
    CHECK(end.rc == 124);
    CHECK(end.retryable);
    CHECK(end.summary.find("job-1") != std::string::npos);
    CHECK(world.children.service.stopped == Words{"job-1@c"});
    // One that the command has stopped itself is left alone.
    world.children.child(Children::profile_words("c", "p"), 124, report_of("STOPPED", "timeout"), "slow");
    CHECK(ok(jobs.run(order)).retryable);
    CHECK(world.children.service.stopped.size() == 1);
    // Two time limits are enough.
    world.children.options.clusters = {"c"};
    for (int i = 0; i < 2; ++i) {
        world.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 124, report_of("STOPPED", "timeout"),
                             "slow");
    }
    const StageResult result = ok(ProfileStage(world.validation(jobs), "m").run(world.context()));
    CHECK(result.verdict == StageVerdict::fail);
    CHECK(result.outcome == Outcome::rejected);
    CHECK(result.exit_status == 124);
}

TEST_CASE("validation: what a failed job means (failure mode F)") {
    const auto outcome = [](const JobEnd& end) {
        return end.failure ? std::string(to_text(end.failure->outcome)) : "ok";
    };
    const auto tests = [&](int rc, const JobReport& report, const std::string& log) {
        const JobEnd end = end_of(JobKind::tests, rc, report, log, {87, 2});
        return outcome(end) + (end.retryable ? " again" : "");
    };
    const JobReport red = report_of("FAILED", "user");
    CHECK(tests(0, report_of("SUCCEEDED"), k_green) == "ok");
    CHECK(tests(0, report_of("SUCCEEDED"), "49 passed, 40 skipped in 3.00s") == "environment");
    CHECK(tests(0, report_of("SUCCEEDED"), "no summary") == "environment");
    CHECK(tests(1, red, "1 failed, 86 passed in 3.00s") == "test-fail");
    CHECK(tests(1, red, "RESOURCE_EXHAUSTED: vmem") == "oom");
    CHECK(tests(1, red, "Mosaic failed to compile") == "compile");
    CHECK(tests(1, red, "The TPU is already in use by another process\n1 failed in 1.00s") == "infra again");
    CHECK(tests(1, report_of("SUCCEEDED"), "87 passed in 3.00s") == "infra again");  // no TPU was seen
    CHECK(tests(1, report_of("FAILED", "infra-suspect"), "") == "infra again");
    CHECK(tests(2, {}, "[gdnctl] error: unknown option") == "environment");
    CHECK(tests(2, {}, "No cluster config found for region x") == "environment");
    CHECK(tests(3, report_of("STOPPED", "stopped"), "") == "infra again");
    CHECK(tests(4, {}, "") == "infra again");
    CHECK(tests(5, {}, "") == "environment");
    CHECK(tests(70, {}, "") == "infra again");
    CHECK(tests(124, report_of("PENDING", "timeout"), "") == "infra again");
    CHECK(tests(124, report_of("RUNNING", "timeout"), "INFO - [w] Status gdn_test: RUNNING") == "infra again");
    CHECK(outcome(end_of(JobKind::profile, 1, red, "Traceback")) == "rejected");
    CHECK(outcome(end_of(JobKind::tests, 1, red, "verdict: WRONG: case x")) == "test-fail");
    CHECK(end_of(JobKind::tests, 0, report_of("SUCCEEDED"), k_green).summary ==
          "validation tests on c: 87 passed, 2 skipped (job job-1)");
}

TEST_CASE("validation: clusters one after the other, one that does not exist is not asked twice") {
    Children children;
    children.options.clusters = {"gone", "busy", "good"};
    std::vector<std::string> asked;
    std::map<std::string, int> calls;
    Ladder ladder(JobKind::tests, {{"gone", "", ""}, {"busy", "", ""}, {"good", "", ""}},
                  {[&](const JobSite& site) -> Result<JobEnd> {
                       asked.push_back(site.cluster);
                       const int n = ++calls[site.cluster];
                       if (site.cluster == "gone")
                           return end_of(JobKind::tests, 2, {}, "No cluster config found for region gone");
                       if (site.cluster == "busy" || n == 1) return end_of(JobKind::tests, 4, {}, "");
                       return end_of(JobKind::tests, 0, report_of("SUCCEEDED"), k_green);
                   },
                   nullptr, [] { return false; }, children.clock});
    const JobEnd end = ok(ladder.climb(-1, std::chrono::seconds(120)));
    CHECK_FALSE(end.failure.has_value());
    CHECK(asked == Words{"gone", "busy", "good", "busy", "good"});
    CHECK(children.clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::seconds(120)});
}

TEST_CASE("validation: attempts, deterministic failures (defect 20), no cluster left, an end that is asked for") {
    Children children;
    int calls = 0;
    const auto ladder = [&](int rc, const char* log, bool stop = false) {
        calls = 0;
        return Ladder(JobKind::tests, {{"c", "", ""}},
                      {[&calls, rc, log](const JobSite&) -> Result<JobEnd> {
                           ++calls;
                           return end_of(JobKind::tests, rc, rc == 1 ? report_of("FAILED", "user") : JobReport(), log);
                       },
                       nullptr, [stop] { return stop; }, children.clock});
    };
    CHECK(ok(ladder(4, "").climb(3, std::chrono::seconds(1))).failure->outcome == Outcome::infra);
    CHECK(calls == 3);
    CHECK(ok(ladder(1, "1 failed in 1.00s").climb(-1, std::chrono::seconds(1))).failure->outcome == Outcome::test_fail);
    CHECK(calls == 1);  // again and again would not make it green
    const JobEnd none = ok(ladder(2, "No cluster config found for region c").climb(-1, std::chrono::seconds(1)));
    CHECK(none.rc == 1);
    CHECK_FALSE(none.retryable);
    CHECK(none.summary == "no valid Ray clusters remain for validation tests.");
    CHECK(ok(ladder(4, "", true).climb(-1, std::chrono::seconds(1))).failure->outcome == Outcome::infra);
    CHECK(calls == 1);
}

TEST_CASE("validation: a test that passes alone is flaky, one that fails twice is red (failure mode G)") {
    const std::string red =
        "FAILED t.py::test_gdn_layer_backward_matches_hf[4] - E\nmax_abs=1.19e-05\n1 failed, 87 passed, 2 skipped in "
        "3.00s";
    for (const bool flaky : {true, false}) {
        StageFixture world;
        world.children.options.clusters = {"c"};
        const Words alone = world.children.test_words("c", {"--pytest-args", "-k test_gdn_layer_backward_matches_hf"});
        world.children.child(world.children.test_words("c"), 1, report_of("FAILED", "user"), red);
        if (flaky) {
            world.children.child(alone, 0, report_of("SUCCEEDED"), "4 passed, 85 deselected in 3.00s");
        } else {
            world.children.child(alone, 4, {}, "");  // says nothing about the test
            world.children.child(alone, 1, report_of("FAILED", "user"), "1 failed in 3.00s");
        }
        TargetJobs jobs = world.children.jobs();
        const StageResult result = ok(TestsStage(world.validation(jobs)).run(world.context()));
        CHECK(result.verdict == (flaky ? StageVerdict::pass : StageVerdict::fail));
        CHECK(result.outcome == (flaky ? Outcome::flaky : Outcome::test_fail));
        const auto line = Json::parse(read_text(world.log_dir() / "flakes.jsonl"));
        CHECK(line["test"] == "t.py::test_gdn_layer_backward_matches_hf[4]");
        CHECK(line["max_abs"].get<double>() == doctest::Approx(1.19e-5));
        CHECK(line["passed_alone"] == flaky);
    }
}

TEST_CASE("validation: a target that runs as it is written gets no settings, no cluster is named unless one is") {
    StageFixture world;
    world.children.target = plain_target();
    world.children.child({"ray-test", "--timeout", "1800", "--auto-stop", "--json"}, 0, report_of("SUCCEEDED"),
                         "verdict: OK (70 cases)\n");
    TargetJobs jobs = world.children.jobs();
    const StageResult result = ok(TestsStage(world.validation(jobs)).run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.facts.at("verdict") == "OK");
    CHECK(world.children.service.calls[0].tree == world.path());
}

TEST_CASE("validation: a job has its name on record before it is submitted, and none without a record") {
    StageFixture world;
    world.children.target = plain_target();
    bool fails = false;
    TargetJobs jobs = world.children.jobs();
    jobs.name_jobs_by([&](const JobOrder& order) -> Result<std::string> {
        CHECK(order.kind == JobKind::tests);
        if (fails) return fail(ErrorKind::local_io, "no room");
        CHECK(world.children.service.calls.empty());
        return std::string("job-1");
    });
    world.children.child({"ray-test", "--timeout", "1800", "--auto-stop", "--json", "--submission-id", "job-1"}, 0,
                         report_of("SUCCEEDED"), "verdict: OK (70 cases)\n");
    CHECK(ok(TestsStage(world.validation(jobs)).run(world.context())).verdict == StageVerdict::pass);
    fails = true;
    const auto refused = TestsStage(world.validation(jobs)).run(world.context());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "no room");
}

TEST_CASE("resume: the job that a killed run was waiting for is stopped, no other") {
    const auto stopped_of = [](const std::vector<Record>& records, const Status& end) {
        std::vector<std::string> words;
        ok(stop_job_of(records, [&](const std::string& id, const std::string& cluster) {
            words.push_back(id + "@" + cluster);
            return end;
        }));
        return text::join(words, " ");
    };
    const auto error = [](ErrorKind kind) { return Status(fail(kind, "no")); };
    const Record first{RecordType::job, 1, {{"job", "a"}, {"cluster", "c"}}};
    const Record second{RecordType::job, 1, {{"job", "b"}, {"cluster", "c"}}};
    std::vector<Record> records = {{RecordType::run}, {RecordType::iteration, 1}};
    CHECK(stopped_of(records, {}).empty());
    records.push_back(first);
    records.push_back(second);
    for (const Status& end :
         {Status(), error(ErrorKind::infrastructure), error(ErrorKind::remote_missing), error(ErrorKind::timeout)}) {
        CHECK(stopped_of(records, end) == "b@c");
    }
    CHECK_FALSE(stop_job_of(records, [&](auto&&, auto&&) { return error(ErrorKind::interrupted); }));
    records.push_back({RecordType::stage, 1, {{"name", "validation-tests"}}});
    CHECK(stopped_of(records, {}).empty());
    records.push_back(first);
    CHECK(stopped_of(records, {}) == "a@c");
    records.push_back({RecordType::iteration_end, 1});
    CHECK(stopped_of(records, {}).empty());
}

TEST_CASE("validation: the order of clusters") {
    ValidationOptions options;
    HoldOptions hold;
    CHECK(cluster_order(options, hold, "", {"d"}) == Words{""});
    hold.on = true;
    hold.fallback_clusters = {"us-east5", "us-central1"};
    CHECK(cluster_order(options, hold, "us-east5", {"d"}) == Words{"us-east5", "us-central1"});
    options.cluster_auto = true;
    CHECK(cluster_order(options, hold, "", {"d", "us-east5"}) == Words{"us-central1", "us-east5", "d"});
    options.clusters = {"x", "x", "y"};
    CHECK(cluster_order(options, hold, "a", {"d"}) == Words{"x", "y"});

    const test::TempDir dir;
    write_text(dir / "infra/marin-us-east5.yaml", "available_node_types:\n  tpu_slice_v5p_8:\n");
    write_text(dir / "infra/marin-eu-west4.yaml", "available_node_types:\n  tpu_slice_v6e-4:\n");
    write_text(dir / "infra/marin-us-vllm.yaml", "available_node_types:\n  tpu_slice_v5p_8:\n");
    CHECK(discover_clusters(dir.path(), "v5p-8", {"vllm", "big-run"}) == Words{"us-east5"});
    CHECK(discover_clusters(dir.path(), "v6e-4", {}) == Words{"eu-west4"});
    CHECK(discover_clusters(dir / "nowhere", "v6e-4", {}).empty());
}

// Where jobs of validation are tried: clusters that are found, and tests on another accelerator.

namespace {

// A cluster file with node types of these accelerators; the first is what `auto` means.
void put_cluster(const StageFixture& world, const std::string& name, const Words& types) {
    std::string text = "cluster_name: marin-" + name + "\navailable_node_types:\n";
    for (const auto& type : types) {
        std::string word = type;
        std::replace(word.begin(), word.end(), '-', '_');
        text += "  tpu_slice_" + word +
                ": {max_workers: 4, resources: {TPU: 4}, node_config: {acceleratorType: " + type + "}}\n";
    }
    world.write("infra/marin-" + name + ".yaml", text);
}

Words with_tpu(Words words, const std::string& type) {
    const auto at = std::find(words.begin(), words.end(), "--timeout");
    words.insert(at, {"--tpu", type});
    return words;
}

// One pass over all sites, none of which works.
StageResult climb(StageFixture& world, JobKind kind) {
    world.children.options.max_attempts = 1;
    TargetJobs jobs = world.children.jobs();
    if (kind == JobKind::tests) return ok(TestsStage(world.validation(jobs)).run(world.context()));
    return ok(ProfileStage(world.validation(jobs), "throughput/mfu").run(world.context()));
}

}  // namespace

TEST_CASE("validation: tests may go to any v5p, v5e or v6e of the clusters, after the one that is meant") {
    StageFixture world;
    put_cluster(world, "c", {"v5p-8", "v4-8", "v6e-4"});
    put_cluster(world, "d", {"v5litepod-4"});
    world.children.options.clusters = {"c", "d"};
    world.children.options.tpu = "v5p-8";
    world.children.options.cross_tpu_tests = true;
    Children& children = world.children;
    for (const auto& [cluster, type] : {std::pair{"c", "v5p-8"}, {"d", "v5p-8"}, {"c", "v6e-4"}}) {
        children.child(with_tpu(children.test_words(cluster), type), 4, {}, "");
    }
    children.child(with_tpu(children.test_words("d"), "v5litepod-4"), 0, report_of("SUCCEEDED"), k_green);
    CHECK(climb(world, JobKind::tests).verdict == StageVerdict::pass);
}

TEST_CASE("validation: without --validation-cross-tpu-test-fallback tests, and profiles always, keep to their TPU") {
    StageFixture world;
    put_cluster(world, "c", {"v5p-8", "v6e-4"});
    world.children.options.clusters = {"c"};
    world.children.child(world.children.test_words("c"), 4, {}, "");
    CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);

    StageFixture other;
    put_cluster(other, "c", {"v5p-8", "v6e-4"});
    other.children.options.clusters = {"c"};
    other.children.options.cross_tpu_tests = true;
    other.children.child(Children::profile_words("c", "gdn_loopgate_iter007"), 4, {}, "");
    CHECK(climb(other, JobKind::profile).outcome == Outcome::infra);
}

TEST_CASE("validation: what auto means is not tried a second time") {
    StageFixture world;
    put_cluster(world, "c", {"v5p-8", "v6e-4"});
    world.children.options.clusters = {"c"};
    world.children.options.cross_tpu_tests = true;
    world.children.child(world.children.test_words("c"), 4, {}, "");
    world.children.child(with_tpu(world.children.test_words("c"), "v6e-4"), 4, {}, "");
    CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);
}

TEST_CASE(
    "validation: clusters are found by the profile's TPU, --validation-ray-cluster-exclude replaces the defaults") {
    for (const bool replaced : {false, true}) {
        StageFixture world;
        for (const char* name : {"a-vllm", "b", "big-run"}) put_cluster(world, name, {"v5p-8"});
        put_cluster(world, "e", {"v6e-4"});
        world.children.options.cluster_auto = true;
        if (replaced) world.children.options.cluster_exclude = {"b.yaml", "big"};
        for (const char* name : {"us-central1", replaced ? "a-vllm" : "b"}) {
            world.children.child(world.children.test_words(name), 4, {}, "");
        }
        CHECK(climb(world, JobKind::tests).outcome == Outcome::infra);
    }
}

TEST_CASE("validation: the oracle's verdict comes before the tests'") {
    const auto judged = [](int rc, const std::string& verdict, const std::string& log) {
        JobAnswer answer{static_cast<ExitCode>(rc), report_of(rc == 0 ? "SUCCEEDED" : "FAILED")};
        answer.report.failure_class = rc == 0 ? "none" : "user";
        if (!verdict.empty()) {
            answer.oracle = R"({"schema":"gdnctl.oracle-verify/1","op":"gdn","kernel":"py:k.py","verdict":")" +
                            verdict + R"(","environment":{"platform":"tpu"},"groups":[{"verdict":")" + verdict +
                            R"(","tensor":"out","stage":"solve","hint":"the inverse is that of I - M",)"
                            R"("case":"device_001","cases":["device_001","device_004"],"error_x_budget":312.5}]})";
        }
        return judge_job(JobKind::tests, std::move(answer), evidence_of(log), "c", {.oracle = true});
    };
    JobEnd wrong = judged(1, "WRONG", "RESOURCE_EXHAUSTED: of an earlier try");
    CHECK(wrong.failure == Failure{Outcome::test_fail, "oracle: WRONG: the inverse is that of I - M"});
    CHECK(json::text_at(wrong.oracle, "/groups/0/stage") == "solve");
    CHECK(json::text_at(wrong.oracle, "/environment/platform") == "tpu");
    wrong.oracle["command"] = "gdnctl oracle verify gdn --kernel py:k.py --dtype bf16";
    CHECK(runlog::oracle_lines(wrong.oracle) ==
          std::vector<std::string>{
              "out, stage solve: the inverse is that of I - M; 2 cases, 312 x budget, smallest: device_001",
              "reproduce: gdnctl oracle verify gdn --kernel py:k.py --dtype bf16 --case device_001"});

    CHECK(judged(9, "NO_ENTRY_POINT", "ModuleNotFoundError: No module named 'x'").failure->outcome ==
          Outcome::test_fail);
    CHECK(judged(9, "NO_ENTRY_POINT", "The TPU is already in use by process with pid 7").failure->outcome ==
          Outcome::infra);
    CHECK(judged(124, "TIMED_OUT", "").failure->outcome == Outcome::test_fail);
    CHECK(judged(1, "OK", "1 failed, 86 passed in 3.00s").failure->outcome == Outcome::test_fail);

    CHECK(judged(0, "", k_green).failure == Failure{Outcome::infra, "passed, but without a verdict of the oracle"});
    CHECK(judged(1, "", "sh: no").failure == Failure{Outcome::test_fail, std::string(k_no_oracle_verdict)});
    CHECK(judged(1, "", "gdnctl: failed step: uv sync (exit status 1)").failure->outcome == Outcome::test_fail);
    CHECK_FALSE(judged(0, "OK", k_green).failure);
}

}  // namespace gdnctl::loop
