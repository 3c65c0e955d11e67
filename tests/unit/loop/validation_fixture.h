// Validation in tests: jobs by script, a held TPU by script, a repository with a candidate.
#pragma once

#include <deque>

#include <doctest/doctest.h>

#include "loop/gates/validation_gate.h"
#include "loop_fixture.h"
#include "support/fake_clock.h"
#include "support/fake_env.h"
#include "support/fake_http.h"

namespace gdnctl::loop {

using test::FakeClock;
using test::FakeEnv;
using test::FakeHttp;
using Words = std::vector<std::string>;

inline constexpr const char* k_green = "87 passed, 2 skipped in 3.00s";

inline Target pytest_target() {
    Target target;
    target.name = "t";
    target.style = TargetStyle::levanter;
    target.test.emplace();
    target.test->evidence = {87, 2};
    target.profile.emplace();
    return target;
}

inline Target plain_target() {
    Target target;
    target.name = "p";
    target.test.emplace();
    target.profile.emplace();
    target.metric = TargetMetric{"ms", "ms", true, "json:/ms"};
    return target;
}

inline JobReport report_of(const std::string& status, const std::string& failure_class = "none") {
    JobReport report;
    report.backend = "ray";
    report.cluster = "c";
    report.submission_id = "job-1";
    report.status = status;
    report.failure_class = failure_class;
    report.start_ms = 1000;
    report.end_ms = 3000;
    report.tpu_evidence = true;
    report.runs_as_written = false;
    return report;
}

// Jobs by script, each once and in order: how a person would ask for it, what it writes to its log, and its end.
struct ScriptedJobs final : JobService {
    struct Step {
        Words words;
        JobAnswer answer;
        std::string log;
    };
    std::deque<Step> steps;
    std::vector<JobSpec> calls;
    std::vector<std::string> stopped;                  // "id@cluster"
    std::deque<std::pair<std::string, Status>> looks;  // at clusters

    ~ScriptedJobs() override {
        CHECK(steps.empty());
        CHECK(looks.empty());
    }
    Result<JobAnswer> run(const JobSpec& spec) override {
        REQUIRE_FALSE(steps.empty());
        const Step step = std::move(steps.front());
        steps.pop_front();
        calls.push_back(spec);
        CHECK(command_words(spec) == step.words);
        write_text(spec.log, step.log);
        return step.answer;
    }
    Status stop(const std::string& id, const JobSite& site, const std::filesystem::path&, bool wait) override {
        CHECK_FALSE(wait);
        stopped.push_back(id + "@" + site.cluster);
        return {};
    }
    Status check(const std::string& cluster, std::chrono::milliseconds patience) override {
        CHECK(patience == std::chrono::seconds(60));
        REQUIRE_FALSE(looks.empty());
        const auto look = std::move(looks.front());
        looks.pop_front();
        CHECK(look.first == cluster);
        return look.second;
    }
};

struct Children {
    ScriptedJobs service;
    FakeClock clock;
    Target target = pytest_target();
    ValidationOptions options;

    void child(Words words, int rc, JobReport report, std::string log) {
        service.steps.push_back({std::move(words), {static_cast<ExitCode>(rc), std::move(report)}, std::move(log)});
    }
    Words test_words(const std::string& cluster, const Words& more = {}) const {
        Words words = {"ray-test"};
        if (!cluster.empty()) words.insert(words.end(), {"--cluster", cluster});
        words.insert(words.end(), {"--tests", "both"});
        words.insert(words.end(), more.begin(), more.end());
        words.insert(words.end(), {"--timeout", "1800", "--auto-stop", "--json"});
        return words;
    }
    static Words profile_words(const std::string& cluster, const std::string& prefix) {
        return {"ray-profile", "--cluster",
                cluster,       "--tpu",
                "v5p-8",       "--size",
                "130m",        "--num-steps",
                "20",          "--profile-start-step",
                "2",           "--profile-num-steps",
                "6",           "--batch-size",
                "8",           "--ce-implementation",
                "pallas_tpu",  "--ce-bwd-mode",
                "pallas",      "--run-name-prefix",
                prefix,        "--wandb-mode",
                "online",      "--timeout",
                "3600",        "--auto-stop",
                "--json"};
    }
    TargetJobs jobs() { return {target, options, service}; }
};

struct FakeHeld final : HeldTpu {
    bool is_active = false;
    std::vector<bool> answers;  // to reacquire(), in order
    std::vector<std::string> reasons;
    bool active() const override { return is_active; }
    std::string cluster() const override { return "us-east5-a"; }
    std::string name() const override { return "mine"; }
    bool reacquire(std::string_view reason) override {
        REQUIRE(reasons.size() < answers.size());
        reasons.emplace_back(reason);
        is_active = answers[reasons.size() - 1];
        return is_active;
    }
};

struct StageFixture : LoopFixture {
    Children children;
    FakeHttp http;
    FakeEnv env;
    Artefacts artefacts = ok(Artefacts::open(log_dir()));
    Base where{base, "refs/heads/main"};
    Candidate candidate;
    std::filesystem::path tree = path();
    StageContext context(int iteration = 7) { return {iteration, where, candidate, tree, artefacts, {}}; }
    ValidationDeps validation(TargetJobs& jobs, HeldTpu* held = nullptr) {
        HoldOptions hold;
        hold.on = held != nullptr;
        return {jobs, held, children.clock, hold, {path(), path(), {}}};
    }
    GateDeps gate_deps(Transactions& transactions, GateChoices choices) {
        choices.used = true;
        return {children.target,
                std::move(choices),
                {},
                nullptr,
                transactions.repository(),
                outside("state") / "measure",
                {},
                {},
                {path(), path(), {}},
                log_dir(),
                children.service,
                system_process(),
                children.clock,
                http,
                env,
                "run"};
    }
};

inline JobEnd end_of(JobKind kind, int rc, JobReport report, const std::string& log,
                     const TargetEvidence& expected = {}) {
    return judge_job(kind, {static_cast<ExitCode>(rc), std::move(report)}, evidence_of(log), "c", {expected});
}

}  // namespace gdnctl::loop
