// Options of the gates, and the performance stage on a repository.
#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "validation_world.h"

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
    LoopOptions options;
    options.resilient = true;
    options.gates = gate_options_of(choices);
    CHECK(options.gates.used);
    CHECK(options.gates.validation_mode == "required");
    make_resilient(options);
    take_rewrites(choices, options.gates);
    CHECK(choices.validation.mode == ValidationMode::required);
    CHECK(choices.validation.max_attempts == -1);
    CHECK(choices.validation.cluster_auto);
    CHECK(choices.validation.cross_tpu_tests);
    CHECK(choices.perf.mode == PerfMode::required);
    CHECK(choices.perf.regression_policy == RegressionPolicy::revert_count_failure);
    // Alone it adds no work on a TPU.
    GateChoices none;
    LoopOptions plain;
    plain.resilient = true;
    plain.gates = gate_options_of(none);
    make_resilient(plain);
    CHECK_FALSE(plain.gates.used);
    CHECK(plain.gates.validation_mode == "off");
}

TEST_CASE("gate options: a state that does not parse, or a target without a profile, ends it at once") {
    StageWorld world;
    auto transactions = world.transactions();
    const auto create = [&] {
        GateChoices choices;
        choices.validation.mode = ValidationMode::required;
        return GateStages::create(world.gate_setup(transactions, choices));
    };
    REQUIRE(create());
    write_text(world.log_dir() / "perf_state.json", "{");
    CHECK(exit_code_of(create().error().kind) == ExitCode::usage);
    std::filesystem::remove(world.log_dir() / "perf_state.json");
    world.children.target.profile.reset();
    CHECK(create().error().kind == ErrorKind::usage);
}

TEST_CASE("performance stage: pairs in checkouts of their own, the verdict once (failure mode O)") {
    StageWorld world;
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
    StageWorld world;
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

}  // namespace gdnctl::loop
