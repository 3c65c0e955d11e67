// kill -9 after every single step of submit, supervisor, stop and clean-up (tests/support/programs/kill_after_step.c),
// until a run gets through untouched.
#include <csignal>
#include <cstdlib>

#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "core/json.h"
#include "core/text.h"
#include "local_world.h"
#include "platform/journal.h"
#include "platform/process.h"

namespace gdnctl::local {

namespace {

constexpr int k_most_steps = 500;
constexpr const char* k_killer = GDNCTL_TEST_BIN "/kill_after_step ";
constexpr const char* k_gdnctl = GDNCTL_TEST_BIN "/gdnctl ";

struct KillWorld : LocalWorld {
    KillWorld() {
        // The leak check cannot look into a process that is traced.
        env["ASAN_OPTIONS"] += (env["ASAN_OPTIONS"].empty() ? "" : ":") + std::string("detect_leaks=0");
        env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
        write_text(repository() / "gdnctl.toml",
                   "target = \"t\"\n[targets.t.test]\nargv = [\"sh\", \"-c\", \"echo up; sleep 300\"]\n"
                   "resources = { CPU = 1 }\n");
        write_text(repository() / "src" / "kernel.c", "int kernel;\n");
    }
    std::filesystem::path repository() const { return folder / "repository"; }
    std::filesystem::path said() const { return folder / "said"; }

    // `gdnctl WORDS`, killed after its `step`-th change. Returns its exit code; 137: it was killed.
    int run_killed(int step, const std::string& words) const {
        std::string command = "cd " + text::shell_quote(repository().string()) + " && env -i";
        for (const auto& [name, value] : env) command += " " + name + "=" + text::shell_quote(value);
        command += " GDNCTL_STATE_DIR=" + text::shell_quote((folder / "state").string()) + " " + k_killer +
                   std::to_string(step) + " " + k_gdnctl + words + " >/dev/null 2>" +
                   text::shell_quote(said().string()) + " </dev/null";
        const int status = std::system(command.c_str());
        REQUIRE(WIFEXITED(status));
        return WEXITSTATUS(status);
    }
    static JobRequest cpu_request(const std::string& id, const std::string& entrypoint) {
        JobRequest r = request(id, entrypoint);
        r.resources = {{"CPU", 1}};
        return r;
    }
    std::size_t supervisors_of(const std::string& id) const {
        return processes_with_mark(supervisor_mark(store().job(id)), all_processes()).size();
    }
    void wait_for_silence(const std::string& id) const {
        for (int i = 0; i < 2000 && supervisors_of(id) + processes_of(id) > 0; ++i) nap();
        CHECK(supervisors_of(id) == 0);
        CHECK(processes_of(id) == 0);
    }
    std::vector<std::string> hidden() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(store().jobs())) {
            const std::string name = entry.path().filename().string();
            if (name.starts_with('.')) found.push_back(name);
        }
        return found;
    }

    // The job is unknown, or has ended once it was told to; nothing of it runs; what it held is free; the next job
    // runs; and nothing half-made is left by then.
    void check_aftermath(const std::string& id) {
        INFO("killed: ", file_text(said()));
        const auto jobs = backend();
        const auto found = jobs->details(id);
        if (found) {
            CHECK(jobs->list()->size() == store().ids().size());
            const auto stopped = jobs->stop(id);
            REQUIRE_MESSAGE(stopped, (stopped ? "" : stopped.error().text()));
            const JobDetails end = wait_end(id);
            CHECK(jobs->details(id)->message == end.message);
        } else {
            CHECK(found.error().kind == ErrorKind::remote_missing);
            CHECK_FALSE(store().exists(id));
        }
        wait_for_silence(id);
        const std::string next = id + "-next";
        REQUIRE(jobs->submit(cpu_request(next, "true")));
        CHECK(wait_end(next).state == JobState::succeeded);
        wait_for_silence(next);
        CHECK(store().queue().empty());
        CHECK(hidden().empty());
        CHECK_FALSE(std::filesystem::exists(store().file(id, "work")));
        CHECK_FALSE(std::filesystem::exists(store().file(id, ".old-work")));
        for (const std::string& job : {id, next}) {
            if (store().exists(job)) REQUIRE(jobs->remove(job));
        }
    }

    void sweep_stop(const Resources& resources, JobState before);
};

#define REQUIRE_TRACING(code)                               \
    if ((code) == 77) {                                     \
        MESSAGE("not tested: tracing is not allowed here"); \
        return;                                             \
    }

void KillWorld::sweep_stop(const Resources& resources, JobState before) {
    const auto jobs = backend();
    int code = 137;
    int step = 0;
    while (code == 137 && ++step < k_most_steps) {
        const std::string id = "stop-" + std::to_string(step);
        JobRequest r = request(id, "echo up; sleep 300");
        r.resources = resources;
        REQUIRE(jobs->submit(r));
        if (before == JobState::running) wait_log(id, "up");
        code = run_killed(step, "ray-stop --cluster local " + id);
        REQUIRE_TRACING(code);
        // Once the wish is on record it comes true, whoever was killed.
        if (std::filesystem::exists(store().file(id, "stop"))) {
            CHECK(wait_end(id).state == JobState::stopped);
        } else {
            CHECK(jobs->details(id)->state == before);
        }
        check_aftermath(id);
    }
    CHECK(code == 0);
    CHECK(step > 3);
}

}  // namespace

TEST_CASE("local: a submit killed after each of its steps leaves a job that can be ended, or none") {
    KillWorld world;
    REQUIRE(world.store().create());
    int code = 137;
    int step = 0;
    while (code == 137 && ++step < k_most_steps) {
        const std::string id = "submit-" + std::to_string(step);
        // Pruning is part of a submit: give it something to do.
        JobDetails old;
        old.submission_id = "ancient";
        old.state = JobState::succeeded;
        old.end_time = system_clock().wall() - std::chrono::days(31);
        write_text(world.store().file("ancient", "log"), "x");
        REQUIRE(world.store().write(old));
        write_text(world.store().jobs() / ".new-999999999-1-1" / "work" / "f", "x");
        code = world.run_killed(step, "ray-test --cluster local --no-wait --submission-id " + id);
        REQUIRE_TRACING(code);
        world.check_aftermath(id);
        CHECK_FALSE(world.store().exists("ancient"));
        const auto journal = read_journal(world.folder / "state" / "jobs.jsonl");
        REQUIRE(journal);
        for (const std::string& record : journal->records) CHECK(parse_json(record, "a submission"));
    }
    CHECK(code == 0);
    CHECK(step > 30);
    const auto journal = read_journal(world.folder / "state" / "jobs.jsonl");
    CHECK(journal->torn.empty());
    CHECK(journal->records.back().find("submit-" + std::to_string(step)) != std::string::npos);
}

TEST_CASE("local: a supervisor killed after each of its steps: its job has ended, nothing of it runs on") {
    KillWorld world;
    const auto program = world.folder / "supervisor";
    const auto jobs = make_local_jobs({world.folder / "state", world.env, nullptr, program});
    bool killed = true;
    int step = 0;
    while (killed && ++step < k_most_steps) {
        const std::string id = "supervisor-" + std::to_string(step);
        write_text(program, std::string("#!/bin/sh\nexec ") + k_killer + std::to_string(step) + " " + k_gdnctl +
                                "\"$@\" 2>" + world.said().string() + "\n");
        std::filesystem::permissions(program, std::filesystem::perms(0700));
        const auto submitted =
            jobs->submit(KillWorld::cpu_request(id, "echo up; setsid sleep 300 & echo done; sleep 0.02"));
        const JobDetails end = world.wait_end(id);
        const std::string type = end.error_type.value_or("");
        INFO("step ", step, ": ", end.message);
        if (!submitted) {
            CHECK(exit_code_of(submitted.error().kind) == ExitCode::infrastructure);
            CHECK(type == job_error::k_start_failure);
        } else if (end.state == JobState::succeeded) {
            CHECK(world.log_of(id) == "up\ndone\n");
        } else {
            CHECK(type == job_error::k_died);
        }
        world.wait_for_silence(id);
        const std::string said = file_text(world.said());
        REQUIRE_TRACING(said.empty() ? 77 : 0);
        killed = said.find("killed after step") != std::string::npos;
        world.check_aftermath(id);
        if (!killed) CHECK(end.state == JobState::succeeded);
    }
    CHECK_FALSE(killed);
    CHECK(step > 10);
}

TEST_CASE("local: a stop of a running job killed after each of its steps can be repeated") {
    KillWorld world;
    world.sweep_stop({{"CPU", 1}}, JobState::running);
}

TEST_CASE("local: a stop of a pending job killed after each of its steps can be repeated") {
    KillWorld world;
    world.sweep_stop({{"TPU", 1}}, JobState::pending);
}

TEST_CASE("local: who finds a dead supervisor and is killed after each step of clearing up leaves that to the next") {
    KillWorld world;
    const auto jobs = world.backend();
    int code = 137;
    int step = 0;
    while (code == 137 && ++step < k_most_steps) {
        const std::string id = "settle-" + std::to_string(step);
        REQUIRE(jobs->submit(KillWorld::cpu_request(id, "setsid sleep 300 & echo up; sleep 300")));
        world.wait_log(id, "up");
        const auto record = world.supervisor_of(id);
        REQUIRE(record);
        send_signal(record->supervisor.id, SIGKILL);
        for (int i = 0; i < 2000 && is_same_process(record->supervisor); ++i) nap();
        code = world.run_killed(step, "ray-list --cluster local");
        REQUIRE_TRACING(code);
        CHECK(jobs->details(id)->error_type == "JOB_SUPERVISOR_ACTOR_DIED");
        world.check_aftermath(id);
    }
    CHECK(code == 0);
    CHECK(step > 5);
}

TEST_CASE("local: a supervisor that we have adopted outlives our children, and leaves no zombie") {
    ProcessSpec spec;
    spec.argv = {"true"};
    REQUIRE(system_process().run(spec));  // from here on we adopt
    LocalWorld world;
    REQUIRE(world.backend()->submit(world.request("adopted", "sleep 300")));
    world.wait_started("adopted");
    const ProcessId supervisor = world.supervisor_of("adopted")->supervisor.id;
    REQUIRE(process_info(supervisor.pid)->parent == getpid());
    REQUIRE(system_process().run(spec));
    CHECK(is_running(supervisor));
    CHECK(*world.backend()->stop("adopted"));
    world.wait_end("adopted");
    for (int i = 0; i < 1000 && is_running(supervisor); ++i) nap();
    REQUIRE(system_process().run(spec));
    CHECK_FALSE(process_info(supervisor.pid).has_value());
}

}  // namespace gdnctl::local
