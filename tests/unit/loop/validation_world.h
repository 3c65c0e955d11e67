// Validation in tests: children by script, a held TPU by script, a repository with a candidate.
#pragma once

#include <doctest/doctest.h>

#include "loop/gates/validation_gate.h"
#include "loop_world.h"
#include "support/fake_clock.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_process.h"

namespace gdnctl::loop {

using test::FakeClock;
using test::FakeEnv;
using test::FakeHttp;
using test::FakeProcess;
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

inline std::string report_text(const std::string& status, const std::string& failure_class = "none",
                               const std::string& more = "") {
    return R"({"schema":"gdnctl.ray-test/1","backend":"ray","cluster":"c","submission_id":"job-1","status":")" +
           status + R"(","failure_class":")" + failure_class +
           R"(","start_time":1000,"end_time":3000,"tpu_evidence":true,"settings":{},"message":"")" + more + "}";
}

inline ProcessResult process_result(int rc, std::string out) {
    ProcessResult result;
    result.exit_code = rc;
    result.out = std::move(out);
    return result;
}

// A script of children: what each is called with, writes to its log, prints and returns.
struct Children {
    FakeProcess process;
    FakeClock clock;
    Target target = pytest_target();
    ValidationOptions options;

    void child(Words words, int rc, const std::string& out, const std::string& log) {
        words.insert(words.begin(), "/bin/gdnctl");
        process.expect(std::move(words), process_result(rc, out), [log](const ProcessSpec& spec) {
            if (!spec.stderr_file.empty()) write_text(spec.stderr_file, log);
        });
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
    TargetJobs jobs() { return {target, options, "/bin/gdnctl", {}, process}; }
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

struct StageWorld : LoopWorld {
    Children children;
    FakeHttp http;
    FakeEnv env;
    Artefacts artefacts = ok(Artefacts::open(log_dir()));
    Base where{base, "refs/heads/main"};
    Candidate candidate;
    std::filesystem::path tree = path();
    StageContext context(int iteration = 7) { return {iteration, where, candidate, tree, artefacts, {}}; }
    ValidationWorld validation(TargetJobs& jobs, HeldTpu* held = nullptr) {
        HoldOptions hold;
        hold.on = held != nullptr;
        return {jobs, held, children.clock, hold, path()};
    }
    GateSetup gate_setup(Transactions& transactions, GateChoices choices) {
        choices.used = true;
        return {children.target,
                std::move(choices),
                {},
                nullptr,
                transactions.repository(),
                outside("state") / "measure",
                {},
                {},
                path(),
                log_dir(),
                "/bin/gdnctl",
                {},
                children.process,
                children.clock,
                http,
                env};
    }
};

inline JobEnd end_of(JobKind kind, int rc, const std::string& report, const std::string& log,
                     const TargetEvidence& expected = {}) {
    const auto parsed = parse_job_report(report);
    return judge_job(kind, rc, parsed ? *parsed : JobReport{}, evidence_of(log), "c", expected, false);
}

}  // namespace gdnctl::loop
