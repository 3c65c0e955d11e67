// Options, --resilient, prompts, outcomes, brakes: literals only.
#include "loop/engine/options.h"

#include <csignal>

#include <doctest/doctest.h>

#include "loop/engine/journal.h"
#include "loop/engine/messages.h"
#include "loop/engine/outcome.h"
#include "loop/engine/prompt.h"
#include "support/temp_dir.h"

namespace gdnctl::loop {

TEST_CASE("prompt: the recipe's example, byte for byte") {
    const std::vector<std::string> directives = {"A", "B\nC"};
    CHECK(assemble_prompt("It {{ITERATION}}/{{TOTAL_ITERATIONS}} @ {{HEAD_SHA}}\n\n\n", {2, 5, "abc"}, directives) ==
          "It 2/5 @ abc\n\nSession directives for this codex-loop run (must follow unless they conflict with "
          "tests/correctness):\n\n[Directive 1]\nA\n[Directive 2]\nB\nC\n");
}

TEST_CASE("prompt: without directives the rest of the template stays as it is") {
    CHECK(assemble_prompt("x {{ITERATION}} {{ITERATION}}\n\n \t", {7, 9, "s"}, {}) == "x 7 7\n\n \t");
    CHECK(assemble_prompt("", {1, 1, "s"}, {}).empty());
}

TEST_CASE("prompt: placeholders are literal, directives are not substituted, others stay and are named once") {
    const std::vector<std::string> directives = {"{{ITERATION}}"};
    CHECK(assemble_prompt("{{ ITERATION }}{{OTHER}}", {1, 2, "s"}, directives)
              .ends_with("[Directive 1]\n{{ITERATION}}\n"));
    CHECK(unknown_placeholders(
              "{{A_1}} {{ITERATION}} {{A_1}} {{iteration}} {{ HEAD_SHA }} {{HEAD_SHA}} {{a b}} {{}} {{") ==
          std::vector<std::string>{"{{A_1}}", "{{iteration}}", "{{ HEAD_SHA }}"});
    const std::vector<std::string> given = {"  ", "\n a\nb \n", ""};
    CHECK(trimmed_directives(given) == std::vector<std::string>{"a\nb"});
}

TEST_CASE("prompt: the directive of a held TPU and the warnings about post-checks") {
    const std::string text = managed_tpu_directive("gdnctl", "us-east5-a", "me", "");
    CHECK(text.starts_with("Managed dev TPU mode is active for this run.\n\n- "));
    CHECK(text.find("`gdnctl dev-tpu-test --cluster us-east5-a --tpu-name me --tests both`") != std::string::npos);
    CHECK(text.find("--tpu v5p-8 ...`") != std::string::npos);
    CHECK(managed_tpu_directive("gdnctl", "c", "n", "v6e-4").find("--tpu v6e-4 ...") != std::string::npos);

    const std::vector<std::string> checks = {"gdnctl ray-test --x", "gdnctl dev-tpu-test --cluster=c --tpu-name n",
                                             "gdnctl dev-tpu-profile --cluster cc --tpu-name n", "true"};
    const auto warnings = post_check_warnings(checks, "c", "n");
    REQUIRE(warnings.size() == 2);
    CHECK(warnings[0] ==
          "WARNING: --hold-dev-tpu is active but --post-check contains a Ray TPU command. Prefer "
          "dev-tpu-test/dev-tpu-profile for this loop session.");
    CHECK(warnings[1] ==
          "WARNING: --hold-dev-tpu is active but --post-check does not target --cluster c --tpu-name n.");
}

TEST_CASE("prompt: the directive that goes with gates says what is judged, and by what") {
    const std::string all = gates_directive({true, "throughput/mfu", true, "pallas_tpu", "pallas"});
    CHECK(all.starts_with("The loop validates the commits of this run.\n\n- "));
    CHECK(all.find("runs the target's tests and a profile on what you committed") != std::string::npos);
    CHECK(all.find("compares `throughput/mfu` (higher is better)") != std::string::npos);
    CHECK(all.find("cross-entropy `pallas_tpu`, backward `pallas`") != std::string::npos);
    const std::string profile = gates_directive({});
    CHECK(profile.find("runs a profile on") != std::string::npos);
    CHECK(profile.find("better") == std::string::npos);
    CHECK(profile.find("cross-entropy") == std::string::npos);
}

TEST_CASE("options: the recipe's defaults") {
    const LoopOptions o;
    CHECK(o.model == "gpt-5.3-codex");
    CHECK(o.reasoning_effort == "xhigh");
    CHECK(o.sleep_seconds == 5);
    CHECK(to_text(o.post_check_policy) == "fail");
    CHECK(o.post_check_retries == 0);
    CHECK(o.max_failures == 0);
    CHECK(o.codex_retries == 0);
    CHECK(o.retry_sleep_seconds == 20);
    CHECK(o.log_dir == ".agents/logs/gdn_codex_loop");
    CHECK(to_text(o.dirty_policy) == "fail");
    CHECK(to_text(o.stash_restore_policy) == "warn-keep");
    CHECK(to_text(o.no_commit_policy) == "fail");
    CHECK(to_text(o.iteration_error_policy) == "fail");
    CHECK(to_text(o.hold.policy) == "required");
    CHECK(o.hold.cluster == "us-central1");
    CHECK(o.hold.sync_path == ".");
    CHECK(o.hold.ready_timeout_s == 900);
    CHECK(o.hold.allocate_attempts == 1);
    CHECK(o.hold.allocate_retry_sleep_s == 30);
    CHECK(o.hold.stop_timeout_s == 120);
    CHECK(o.keep_iterations == 200);
}

TEST_CASE("options: wrong ones are usage errors in the recipe's words") {
    const auto words = [](auto change) {
        LoopOptions o;
        o.iterations = 1;
        change(o);
        const auto checked = check_options(o);
        if (!checked) CHECK(checked.error().kind == ErrorKind::usage);
        return checked ? std::string() : checked.error().message;
    };
    CHECK(words([](LoopOptions&) {}).empty());
    CHECK(words([](LoopOptions& o) { o.iterations = 0; }) == "--iterations must be > 0.");
    CHECK(words([](LoopOptions& o) { o.hold.on = true; }) == "--hold-dev-tpu requires --dev-tpu-name.");
    CHECK(words([](LoopOptions& o) { o.hold.ready_timeout_s = 0; }) == "--dev-tpu-ready-timeout must be > 0.");
    CHECK(words([](LoopOptions& o) { o.hold.stop_timeout_s = 0; }) == "--dev-tpu-stop-timeout must be > 0.");
    CHECK(words([](LoopOptions& o) { o.hold.allocate_attempts = 0; }) == "--dev-tpu-allocate-attempts must be > 0.");
    CHECK(words([](LoopOptions& o) { o.hold.allocate_retry_sleep_s = -1; }) ==
          "--dev-tpu-allocate-retry-sleep must be >= 0.");
    CHECK(words([](LoopOptions& o) { o.max_failures = -1; }).empty());
}

TEST_CASE("resilient: every rewrite of the table, with old and new value") {
    LoopOptions o;
    CHECK(make_resilient(o).empty());
    o.resilient = true;
    o.hold.on = true;
    o.stash_restore_policy = StashRestorePolicy::fail;
    const std::vector<Rewrite> expected = {{"--max-failures", "0", "-1"},
                                           {"--dirty-policy", "fail", "stash"},
                                           {"--no-commit-policy", "fail", "count-failure"},
                                           {"--post-check-policy", "fail", "count-failure"},
                                           {"--iteration-error-policy", "fail", "count-failure"},
                                           {"--hold-dev-tpu-policy", "required", "best-effort"},
                                           {"--stash-restore-policy", "fail", "warn-keep"},
                                           {"--codex-retries", "0", "2"},
                                           {"--post-check-retries", "0", "2"},
                                           {"--hold-dev-tpu", "on", "off"},
                                           {"--sync-main-conflict-policy", "fail", "skip"}};
    CHECK(make_resilient(o) == expected);
    CHECK(make_resilient(o).empty());
    CHECK_FALSE(o.hold.on);
    CHECK(o.gates.validation_mode == "off");
    CHECK(o.gates.perf_mode == "off");
}

TEST_CASE("resilient: what was chosen otherwise stays, and gates are rewritten only where they are used") {
    LoopOptions o;
    o.resilient = true;
    o.max_failures = -1;
    o.codex_retries = 5;
    o.no_commit_policy = Policy::go_on;
    o.hold.name = "me";
    o.gates.used = true;
    o.gates.perf_regression_policy = "fail";
    o.gates.validation_mode = "profile-only";
    o.gates.ray_cluster_given = true;
    const auto list = make_resilient(o);
    CHECK(o.codex_retries == 5);
    CHECK(o.no_commit_policy == Policy::go_on);
    CHECK(o.gates.validation_mode == "profile-only");
    CHECK(o.gates.validation_max_attempts == -1);
    CHECK(o.gates.perf_mode == "required");
    CHECK(o.gates.perf_regression_policy == "revert-count-failure");
    CHECK_FALSE(o.gates.ray_cluster_auto);
    CHECK(o.gates.cross_tpu_test_fallback);
    CHECK(list.back() == Rewrite{"--perf-regression-policy", "fail", "revert-count-failure"});
}

TEST_CASE("outcome: every class has its count and its candidate's fate") {
    CHECK(rule_of(Outcome::no_op) == OutcomeRule{Counts::by_policy, Disposition::none, Pause::no});
    for (const auto one : {Outcome::agent_error, Outcome::timeout}) {
        CHECK(rule_of(one) == OutcomeRule{Counts::yes, Disposition::parked, Pause::no});
    }
    CHECK(rule_of(Outcome::environment) == OutcomeRule{Counts::no, Disposition::parked, Pause::at_once});
    CHECK(rule_of(Outcome::infra) == OutcomeRule{Counts::no, Disposition::parked, Pause::after_three});
    for (const auto one : {Outcome::compile, Outcome::oom, Outcome::test_fail, Outcome::rejected}) {
        CHECK(rule_of(one) == OutcomeRule{Counts::yes, Disposition::rejected, Pause::no});
    }
    CHECK(rule_of(Outcome::flaky) == OutcomeRule{Counts::no, Disposition::kept, Pause::no});
    for (int i = 0; i <= static_cast<int>(Outcome::rejected); ++i) {
        const auto one = static_cast<Outcome>(i);
        CHECK(parse_outcome(to_text(one)) == one);
    }
    CHECK_FALSE(parse_outcome("fine"));
}

TEST_CASE("outcome: each known sign names its class, trouble of the surroundings wins (failure mode I)") {
    const auto class_of = [](std::string_view output) {
        const auto failure = failure_of(output);
        return failure ? to_text(failure->outcome) : "none";
    };
    CHECK(class_of("No cluster config found for region us-x") == "environment");
    CHECK(class_of("No virtual environment or system Python installation found for path ../../.venv/bin/python") ==
          "environment");
    CHECK(class_of("404 The specified bucket does not exist: gs://marin-us-east5-a") == "environment");
    CHECK(class_of("ssh: Could not resolve hostname dev-tpu-me") == "infra");
    CHECK(class_of("ssh: connect to host h port 22: Connection timed out") == "infra");
    CHECK(class_of("The TPU is already in use by another process probably owned by another user") == "infra");
    CHECK(class_of("open(/dev/vfio/0): Device or resource busy") == "infra");
    CHECK(class_of("JOB_SUPERVISOR_ACTOR_START_TIMEOUT") == "infra");
    CHECK(class_of("ConnectionResetError: [Errno 104]") == "infra");
    CHECK(class_of("connection refused: http://localhost:8283") == "infra");
    CHECK(class_of("Dashboard: http://localhost:8283\n1 failed, connection refused") == "none");
    CHECK(class_of("ConnectionError: Failed to connect to Ray at address: http://localhost:8283.") == "infra");
    CHECK(class_of("RuntimeError: No accelerator found. Run with --allow-cpu") == "infra");
    CHECK(class_of("WARNING: No GPU/TPU found, falling back to CPU.") == "infra");
    CHECK(class_of("jaxlib is not installed. Falling back to cpu.") == "infra");
    CHECK(class_of("RuntimeError: Unable to initialize backend 'tpu': UNAVAILABLE") == "infra");
    CHECK(class_of("the job was pending too long") == "infra");
    CHECK(class_of("bucket gs://marin-us-east5-a does not exist") == "environment");
    CHECK(class_of("trace in gs://marin-us-east5/x\nfile y does not exist") == "none");
    CHECK(class_of("data cache region does not match the region of the VM") == "environment");
    CHECK(class_of("HF_TOKEN is not set") == "environment");
    CHECK(class_of("wandb: ERROR api_key not configured (no-tty)") == "environment");
    CHECK(class_of("exceeded scoped vmem limit by 1M") == "oom");
    CHECK(class_of("XLA compilation failed") == "compile");
    CHECK(class_of("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem") == "oom");
    CHECK(class_of("jax.errors: Mosaic failed to compile TPU kernel") == "compile");
    CHECK(class_of("jaxlib.MosaicError: bad layout") == "compile");
    CHECK(class_of("XlaRuntimeError: INTERNAL: during codegen") == "compile");
    CHECK(class_of("UNIMPLEMENTED: dynamic slice") == "compile");
    CHECK(class_of("RESOURCE_EXHAUSTED\nssh: Could not resolve hostname x") == "infra");
    CHECK(class_of("2 failed, 85 passed") == "none");
    for (const char* usual : {"No GPU/TPU found, falling back to CPU.", "jaxlib is not installed. Falling back to cpu.",
                              "Unable to initialize backend 'tpu': UNAVAILABLE", "No accelerator found",
                              "assert 'gs://x/y does not exist' == ''"}) {
        CHECK_FALSE(failure_of(usual, Place::anywhere));
    }
    CHECK(failure_of("Falling back to cpu\nConnectionResetError", Place::anywhere)->sign == "ConnectionResetError");
    CHECK(failure_of("x ConnectionResetError 1")->sign == failure_of("y ConnectionResetError 2")->sign);
}

TEST_CASE("failures: more than the limit stops, 0 at the first one, negative never, pauses grow") {
    CHECK(too_many_failures(1, 0));
    CHECK_FALSE(too_many_failures(0, 0));
    CHECK_FALSE(too_many_failures(3, 3));
    CHECK(too_many_failures(4, 3));
    CHECK_FALSE(too_many_failures(1000, -1));
    CHECK(pause_seconds(5, 0) == 5);
    CHECK(pause_seconds(5, 3) == 40);
    CHECK(pause_seconds(5, 60) == 900);
    CHECK(pause_seconds(0, 60) == 0);
    CHECK(pause_seconds(3600, 2) == 3600);
}

TEST_CASE("outcome: a job that waits for a step of somebody else's until its limit is nobody's fault") {
    const std::string waits = "2026-03-10 - INFO - [host-1] Status gdn_profile: RUNNING\n";
    CHECK(waits_for_step(waits));
    CHECK(waits_for_step("[host-1] Status tokenize: SUCCESS\n" + waits + "GET /health 200\n"));
    CHECK_FALSE(waits_for_step(waits + "[host-1] Attempting to acquire lock for gdn_profile\n"));
    CHECK_FALSE(waits_for_step(waits + "[host-1] Status gdn_profile: None\n"));
    CHECK_FALSE(waits_for_step("Status: RUNNING\n"));
}

TEST_CASE("circuit breaker: environment at once, the third infra in a row, never for the candidate's own faults") {
    using Past = std::vector<PastIteration>;
    const PastIteration ssh{Outcome::infra, "port 22: "}, ray{Outcome::infra, "localhost:8283"};
    const PastIteration red{Outcome::test_fail, ""}, bucket{Outcome::environment, "bucket"};
    CHECK_FALSE(circuit_breaker({}));
    CHECK_FALSE(circuit_breaker(Past{ssh, ssh}));
    CHECK(circuit_breaker(Past{ssh, ssh, ssh}) == "port 22: ");
    CHECK(circuit_breaker(Past{ssh, ray, ray}) == "localhost:8283");
    CHECK_FALSE(circuit_breaker(Past{ssh, ssh, red, ssh}));
    CHECK_FALSE(circuit_breaker(Past{red, red, red, red}));
    CHECK(circuit_breaker(Past{red, bucket}) == "bucket");
    CHECK(circuit_breaker(Past{{Outcome::environment, ""}}) == "environment");
}

TEST_CASE("circuit breaker: the third failure in a row of which the agent says the same") {
    using Past = std::vector<PastIteration>;
    const PastIteration down{Outcome::agent_error, "server-error", "server-error: high demand"};
    const PastIteration cut{Outcome::agent_error, "stream", "stream: disconnected"};
    const PastIteration silent{Outcome::agent_error, "failed", ""}, red{Outcome::test_fail, ""};
    CHECK_FALSE(circuit_breaker(Past{down, down}));
    CHECK(circuit_breaker(Past{cut, down, down, down}) == "server-error: high demand");
    CHECK_FALSE(circuit_breaker(Past{down, down, cut}));
    CHECK_FALSE(circuit_breaker(Past{down, red, down, down}));
    CHECK_FALSE(circuit_breaker(Past{silent, silent, silent, silent}));
}

TEST_CASE("circuit breaker: what names one request alone makes no other trouble of it") {
    CHECK(said_of("server-error", "unexpected status 503 x: y, url: z, request id: 1f") ==
          said_of("server-error", "unexpected status 503 x: y, url: z, request id: 2e"));
    CHECK(said_of("rate-limit", "try again in 1.5s") == said_of("rate-limit", "try again in 12.25s"));
    CHECK(said_of("failed", "boom") != said_of("failed", "bang"));
    CHECK(said_of("failed", "boom") != said_of("stream", "boom"));
}

TEST_CASE("budgets: each has its own reason, and none is no end") {
    CHECK_FALSE(budget_end({}, {1'000'000, 1'000'000, 1'000'000, 1000}));
    CHECK(budget_end({.wall_s = 60}, {.wall_s = 60}) == "max-wall");
    CHECK_FALSE(budget_end({.wall_s = 60}, {.wall_s = 59}));
    CHECK(budget_end({.tpu_minutes = 2}, {.tpu_s = 120}) == "max-tpu-minutes");
    CHECK_FALSE(budget_end({.tpu_minutes = 2}, {.tpu_s = 119}));
    CHECK(budget_end({.tokens = 10}, {.tokens = 11}) == "max-tokens");
    CHECK(budget_end({.plateau = 3}, {.since_promotion = 3}) == "plateau");
    CHECK_FALSE(budget_end({.plateau = 3}, {.since_promotion = 2}));
}

TEST_CASE("messages: the recipe's words") {
    CHECK(message::ending("x", SIGINT) == "Ctrl-C: x; --resume continues. Ctrl-C again ends at once.");
    CHECK(message::ending("x", SIGTERM) == "SIGTERM: x; --resume continues. A second SIGTERM ends at once.");
    CHECK(message::ending("x", SIGHUP) == "the terminal was closed: x; --resume continues.");
    CHECK(message::stash(7, 1773161587) == "gdnctl-codex-loop-iter-007-1773161587");
    CHECK(message::heading(2, 5) == "=== codex iteration 2/5 ===");
    CHECK(message::directives_loaded(3) == "session directives: 3 loaded");
    CHECK(message::agent_retry(1, 3, 124) == "codex iteration command failed (attempt 1/3, rc=124); retrying.");
    CHECK(message::agent_failed(2) + message::going_on(Policy::count_failure) ==
          "codex iteration failed with exit code 2 Continuing due to policy=count-failure.");
    CHECK(message::post_check_retry(1, 2, "make x") == "post-check failed (attempt 1/2) for command: make x");
    CHECK(message::iteration_raised(4, message::k_dirty) ==
          "iteration 4 raised: Working tree is dirty before starting the iteration. Commit/stash or rerun with "
          "--allow-dirty or --dirty-policy stash.");
    CHECK(message::iteration_raised(4, "no branch") + message::going_on(Policy::go_on) ==
          "iteration 4 raised: no branch. Continuing due to policy=continue.");
    CHECK(message::k_no_commit ==
          "Iteration did not produce a new commit. Use --allow-no-commit or set --no-commit-policy "
          "count-failure/continue.");
    CHECK(message::going_on(Policy::fail).empty());
    CHECK(message::stopped("no-commit", 3, 3) == "codex-loop stopped: reason=no-commit iteration=3 rc=3");
}

TEST_CASE("run words: what the journal keeps comes back, without its secrets") {
    const test::TempDir folder;
    const auto file = folder.path() / "journal.jsonl";
    CHECK_FALSE(words_of_run(file).value());
    RunWords words;
    words.cwd = "sub";
    words.target = "t";
    words.given = {{"--model", {"m"}}, {"--post-check", {"a 'b'", "c hf_abcdefghijklmnopqrstuvwxyz012345"}}};
    words.configured = {{"--model", {"file"}}};
    {
        auto journal = LoopJournal::open(file);
        REQUIRE(journal);
        REQUIRE(journal->append({RecordType::run, 0, {{"run", "r"}, {"loop_id", "l"}}}, {}));
        CHECK_FALSE(words_of_run(file).value());  // of a gdnctl that kept none
        REQUIRE(journal->append({RecordType::resume, 0, {{"options", to_text(words)}}}, {}));
        REQUIRE(journal->append({RecordType::iteration, 1}, {}));
    }
    const auto kept = words_of_run(file).value();
    REQUIRE(kept);
    CHECK(kept->run == "r");
    CHECK(kept->cwd == "sub");
    CHECK(kept->target == "t");
    CHECK(kept->configured == words.configured);
    CHECK(kept->given.at("--model") == words.given.at("--model"));
    CHECK(kept->given.at("--post-check")[0] == "a 'b'");
    CHECK(kept->given.at("--post-check")[1].find("mnop") == std::string::npos);
    CHECK(kept->masked == std::set<std::string>{"--post-check"});
}

TEST_CASE("run words: options that cannot be read are a configuration error") {
    const test::TempDir folder;
    const auto file = folder.path() / "journal.jsonl";
    auto journal = LoopJournal::open(file);
    REQUIRE(journal->append({RecordType::run, 0, {{"run", "r"}, {"options", "[]"}}}, {}));
    const auto words = words_of_run(file);
    REQUIRE(!words);
    CHECK(words.error().kind == ErrorKind::config);
}

}  // namespace gdnctl::loop
