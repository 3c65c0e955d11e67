// Options of the gates, and the performance stage on a repository.
#include "loop/gates/validation_gate.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "platform/signals.h"
#include "validation_fixture.h"

namespace gdnctl::loop {

TEST_CASE("gate options: off unless asked for, and mistakes are found before anything is run") {
    GateChoices choices;
    CHECK(resolve_modes(choices)->validation == ValidationMode::off);
    choices.used = true;
    CHECK(resolve_modes(choices)->validation == ValidationMode::required);
    CHECK(resolve_modes(choices)->perf);
    choices.validation.mode = ValidationMode::off;
    CHECK_FALSE(resolve_modes(choices)->perf);
    choices.perf.mode = PerfMode::required;
    CHECK(resolve_modes(choices).error().kind == ErrorKind::usage);
    choices = {};
    choices.perf.limits["max_while_increase_ms"] = -1.0;
    CHECK(check_gates(choices).error().message == "--perf-max-while-increase-ms must be >= 0.");
    choices = {};
    choices.perf.pairs = 4;
    CHECK(check_gates(choices).error().message == "--perf-pairs must be 1, 3, 5 or 9.");
    choices = {};
    choices.validation.max_attempts = 0;
    CHECK(check_gates(choices).error().message == "--validation-max-attempts must be -1 or >= 1.");
    // Layers of the policy: built in, the target's table, options.
    Target target = plain_target();
    target.gates["hold"].value = std::string("keep");
    target.gates["min_improvement_pct"].value = 2.0;
    PerfOptions perf;
    perf.min_improvement_pct = 3.0;
    perf.limits["max_while_increase_ms"] = 1.0;
    const auto policy = policy_of(perf, target, "/");
    REQUIRE(policy);
    CHECK(policy->hold == Hold::keep);
    CHECK(policy->min_improvement_pct == 3.0);
    CHECK(policy->limits.at("max_while_increase_ms") == 1.0);
    CHECK_FALSE(perf_settings(perf, target, "/", "/logs")->higher_is_better);
    CHECK(perf_settings(perf, target, "/", "/logs")->state_file == "/logs/perf_state.json");
}

TEST_CASE("gate options: what --resilient makes of them") {
    GateChoices choices;
    choices.used = true;
    choices.perf.regression_policy = RegressionPolicy::fail;
    choices.perf.mode = PerfMode::off;
    std::vector<Rewrite> list;
    make_resilient(choices, list);
    CHECK(choices.validation.mode == ValidationMode::required);
    CHECK(choices.validation.max_attempts == -1);
    CHECK(choices.validation.cluster_auto);
    CHECK(choices.validation.cross_tpu_tests);
    CHECK(choices.perf.mode == PerfMode::required);
    CHECK(choices.perf.regression_policy == RegressionPolicy::revert_count_failure);
    const std::vector<Rewrite> expected = {{"--validation-ray-cluster-auto", "off", "on"},
                                           {"--validation-cross-tpu-test-fallback", "off", "on"},
                                           {"--perf-mode", "off", "required"},
                                           {"--perf-regression-policy", "fail", "revert-count-failure"}};
    CHECK(list == expected);
    // What was chosen otherwise stays.
    GateChoices own;
    own.used = true;
    own.validation.mode = ValidationMode::profile_only;
    own.validation.max_attempts = 5;
    own.validation.clusters = {"us-central1"};
    own.perf.regression_policy = RegressionPolicy::go_on;
    make_resilient(own, list);
    CHECK(own.validation.mode == ValidationMode::profile_only);
    CHECK(own.validation.max_attempts == -1);
    CHECK_FALSE(own.validation.cluster_auto);
    CHECK(own.perf.mode == PerfMode::required);
    CHECK(own.perf.regression_policy == RegressionPolicy::go_on);
}

TEST_CASE("gate options: a state that does not parse, or a target without a profile, ends it at once") {
    StageFixture world;
    auto transactions = world.transactions();
    const auto create = [&] {
        GateChoices choices;
        choices.validation.mode = ValidationMode::required;
        return GateStages::create(world.gate_deps(transactions, choices));
    };
    REQUIRE(create());
    write_text(world.log_dir() / "perf_state.json", "{");
    CHECK(exit_code_of(create().error().kind) == ExitCode::usage);
    std::filesystem::remove(world.log_dir() / "perf_state.json");
    world.children.target.profile.reset();
    CHECK(create().error().kind == ErrorKind::usage);
}

TEST_CASE("performance stage: pairs in checkouts of their own, the verdict once (failure mode O)") {
    StageFixture world;
    world.children.target = plain_target();
    world.write("kernel.c", "int speed = 2;\n");
    const std::string head = world.commit("faster");
    world.sh("git checkout -q " + world.base);
    const std::filesystem::path slot = world.outside("state") / "candidate";
    world.sh("git worktree add -q --detach '" + slot.string() + "' " + head);
    world.tree = slot;
    world.candidate.head = head;
    // The profile: 8 ms of the kernel with `speed = 2`, 10 ms of the other.
    struct Profiler final : JobService {
        std::vector<std::string> seen;
        Result<JobAnswer> run(const JobSpec& spec) override {
            const bool fast = read_text(spec.tree / "kernel.c").find("= 2") != std::string::npos;
            seen.emplace_back(fast ? "candidate" : "champion");
            write_text(spec.log, fast ? "{\"ms\": 8}\n" : "{\"ms\": 10}\n");
            JobReport report = report_of("SUCCEEDED");
            report.backend = report.cluster = "local";
            report.entrypoint = "x";
            report.runs_as_written = true;
            report.metric_name = "ms";
            report.metric_value = fast ? 8 : 10;
            return JobAnswer{ExitCode::ok, report};
        }
        Status stop(const std::string&, const JobSite&, const std::filesystem::path&, bool) override { return {}; }
        Status check(const std::string&, std::chrono::milliseconds) override { return {}; }
    } profiler;
    TargetJobs jobs(world.children.target, world.children.options, profiler);
    auto transactions = world.transactions();
    CommitTrees trees(transactions.repository(), {world.outside("state") / "measure", {"log.md"}, {}}, system_process(),
                      world.children.clock);
    CHECK(ok(trees.differs(world.base, head)));
    CHECK_FALSE(ok(trees.differs(head, head)));
    const Result<PerfSettings> settings = perf_settings({}, world.children.target, world.path(), world.log_dir());
    REQUIRE(settings);
    ProfileStage first(world.validation(jobs), "ms");
    REQUIRE(ok(first.run(world.context())).verdict == StageVerdict::pass);
    PerformanceStage stage(*settings, jobs, trees, world.children.clock);
    StageResult result = ok(stage.run(world.context()));
    CHECK(result.verdict == StageVerdict::pass);
    CHECK(result.promoted);
    CHECK(result.facts.at("decision") == "promoted");
    CHECK(result.facts.at("gain") == "1.25x faster (1.247-1.253x, 3 pairs)");
    CHECK(profiler.seen ==
          Words{"candidate", "champion", "champion", "candidate", "candidate", "champion", "champion", "candidate"});
    // Killed after the verdict was written, before the loop's own record: nothing is measured again.
    profiler.seen.clear();
    result = ok(stage.run(world.context()));
    CHECK(result.promoted);
    CHECK(profiler.seen.empty());
    // The same once more in a later iteration is not better than itself, and nobody's failure.
    world.where.sha = head;
    REQUIRE(ok(first.run(world.context(8))).verdict == StageVerdict::pass);
    result = ok(stage.run(world.context(8)));
    CHECK(result.verdict == StageVerdict::fail);
    CHECK(result.outcome == Outcome::rejected);
    CHECK(result.policy == Policy::go_on);
    CHECK(stage.policy() == Policy::count_failure);
}

TEST_CASE(
    "performance stage: runs of either side have names of their own, and the champion's failure is nobody's (defect "
    "13)") {
    StageFixture world;
    world.children.options.clusters = {"c"};
    world.write("kernel.c", "int speed = 2;\n");
    const std::string head = world.commit("faster");
    world.candidate.head = head;
    struct Profiler final : JobService {
        std::set<std::string> names;
        bool champion_fails = false;
        Result<JobAnswer> run(const JobSpec& spec) override {
            names.insert(spec.profile.run_name_prefix);
            const bool fast = read_text(spec.tree / "kernel.c").find("= 2") != std::string::npos;
            const bool red = champion_fails && !fast;
            write_text(spec.log, red ? "Traceback\n" : fast ? "throughput/mfu=5.0\n" : "throughput/mfu=4.0\n");
            if (red) return JobAnswer{ExitCode::check_failed, report_of("FAILED", "user")};
            return JobAnswer{ExitCode::ok, report_of("SUCCEEDED")};
        }
        Status stop(const std::string&, const JobSite&, const std::filesystem::path&, bool) override { return {}; }
        Status check(const std::string&, std::chrono::milliseconds) override { return {}; }
    } profiler;
    TargetJobs jobs(world.children.target, world.children.options, profiler);
    auto transactions = world.transactions();
    CommitTrees trees(transactions.repository(), {world.outside("state") / "measure", {"log.md"}, {}}, system_process(),
                      world.children.clock);
    const PerfSettings settings = *perf_settings({}, world.children.target, world.path(), world.log_dir());
    REQUIRE(ok(ProfileStage(world.validation(jobs), settings.metric).run(world.context())).verdict ==
            StageVerdict::pass);
    PerformanceStage stage(settings, jobs, trees, world.children.clock);
    profiler.champion_fails = true;
    StageResult result = ok(stage.run(world.context()));
    CHECK(result.verdict == StageVerdict::fail);
    CHECK(result.outcome == Outcome::infra);  // not counted, parked; the candidate itself was never the reason
    profiler.champion_fails = false;
    result = ok(stage.run(world.context()));
    CHECK(result.promoted);
    CHECK(profiler.names == std::set<std::string>{"gdn_loopgate_iter007", "gdn_loopgate_iter007_" + head.substr(0, 8),
                                                  "gdn_loopgate_iter007_" + world.base.substr(0, 8)});
}

// Clusters that gates need are looked at before an agent is paid.

namespace {

struct PreflightFixture {
    ScriptedJobs jobs;
    ValidationOptions options;
    HoldOptions hold;
    bool resilient = false;
    std::stop_source stop;
    test::TempDir folder;

    void cluster(const std::string& name, const Status& answer) { jobs.looks.emplace_back(name, answer); }
    void cluster(const std::string& name, ErrorKind kind, std::string message) {
        cluster(name, fail(kind, std::move(message)));
    }
    Status look() { return check_clusters_answer({options, hold, resilient, folder.path(), jobs, stop.get_token()}); }
};

}  // namespace

TEST_CASE("cluster preflight: one that answers is enough, and no more are asked") {
    PreflightFixture world;
    world.options.clusters = {"a", "b", "c"};
    world.cluster("a", ErrorKind::infrastructure, "no head node found for cluster a");
    world.cluster("b", Status());
    ok(world.look());
    PreflightFixture usual;  // wherever such a job goes by itself
    usual.cluster("", Status());
    ok(usual.look());
    PreflightFixture here;
    here.options.clusters = {"local"};
    ok(here.look());
}

TEST_CASE("cluster preflight: none answers, --resilient goes on, as it may come back") {
    for (const bool resilient : {false, true}) {
        PreflightFixture world;
        world.resilient = resilient;
        world.options.clusters = {"a", "b"};
        world.cluster("a", ErrorKind::infrastructure, "no head node found for cluster a");
        world.cluster("b", ErrorKind::authentication, "Forbidden");
        const Status looked = world.look();
        CHECK(looked.has_value() == resilient);
        if (looked) continue;
        CHECK(looked.error().kind == ErrorKind::infrastructure);
        CHECK(looked.error().message ==
              "no cluster that validation needs can be used: a: no head node found for cluster a; b: Forbidden");
        CHECK(looked.error().hint.find("--resilient") != std::string::npos);
    }
}

TEST_CASE("cluster preflight: what is configured wrong does not come back by itself") {
    for (const bool resilient : {false, true}) {
        for (const auto& [said, kind] : {std::pair{ErrorKind::authentication, ErrorKind::authentication},
                                         {ErrorKind::usage, ErrorKind::usage},
                                         {ErrorKind::config, ErrorKind::usage}}) {
            PreflightFixture world;
            world.resilient = resilient;
            world.options.clusters = {"a"};
            world.cluster("a", said, "no");
            const Status looked = world.look();
            REQUIRE_FALSE(looked);
            CHECK(looked.error().kind == kind);
            CHECK(looked.error().hint.find("--resilient") == std::string::npos);
        }
    }
}

TEST_CASE("cluster preflight: one that never answers has a minute, a signal ends it") {
    PreflightFixture world;
    world.options.clusters = {"a"};
    world.cluster("a", ErrorKind::timeout, "no answer within 1 min");
    Status looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == ErrorKind::infrastructure);
    world.stop.request_stop();
    world.cluster("a", ErrorKind::interrupted, "interrupted");
    looked = world.look();
    REQUIRE_FALSE(looked);
    CHECK(looked.error().kind == stopped_error().kind);
}

TEST_CASE("cluster preflight: an accelerator that none of the named clusters has is a mistake") {
    const test::TempDir folder;
    const auto put = [&](const std::string& name, const std::string& types) {
        write_text(
            folder / "infra" / ("marin-" + name + ".yaml"),
            "cluster_name: marin-" + name + "\navailable_node_types:\n  head_default: {resources: {CPU: 0}}\n" + types);
    };
    put("p", "  w: {resources: {TPU: 4}, node_config: {acceleratorType: v5p-8}}\n");
    put("e", "  w: {resources: {TPU: 4}, node_config: {acceleratorType: v6e-4}}\n");
    put("unsaid", "");
    const auto check = [&](const ValidationOptions& options, const Target& target = pytest_target()) {
        const Status done = check_cluster_files(options, target, {folder.path(), folder.path(), {}});
        return done ? std::string("ok") : done.error().message + " | " + done.error().hint;
    };
    ValidationOptions options;
    CHECK(check(options) == "ok");  // nobody is named
    options.clusters = {"p"};
    CHECK(check(options) == "ok");
    options.profile.tpu = "v6e-4";
    CHECK(check(options) ==
          "no cluster offers --validation-profile-tpu v6e-4: jobs would wait forever | marin-p offers v5p-8");
    CHECK(check(options, plain_target()) == "ok");  // its profiles ask for none
    options.clusters = {"p", "e"};
    CHECK(check(options) == "ok");
    options.clusters = {"p", "unsaid"};
    CHECK(check(options) == "ok");
    options.clusters = {"p", "gone"};
    CHECK(check(options).starts_with("no cluster offers"));
    options.clusters = {"gone", "local"};
    CHECK(check(options) == "ok");
    options.clusters = {"gone"};
    CHECK(check(options).starts_with("No cluster config found for region gone"));
    options.clusters = {"p"};
    options.profile.tpu = "v5p-8";
    options.tpu = "v4-8";
    CHECK(check(options).starts_with("no cluster offers --validation-ray-tpu v4-8"));
    CHECK(check(options, plain_target()).starts_with("no cluster offers --validation-ray-tpu v4-8"));
    options.mode = ValidationMode::profile_only;
    CHECK(check(options) == "ok");
}

}  // namespace gdnctl::loop
