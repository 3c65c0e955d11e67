#include <atomic>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/json.h"
#include "core/text.h"
#include "platform/journal.h"
#include "platform/process.h"
#include "unit/services/local/local_fixture.h"

namespace gdnctl::local {

namespace {

std::vector<std::filesystem::path> hidden_entries(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().filename().string().starts_with('.')) found.push_back(entry.path());
    }
    return found;
}

JobDetails ended(const std::string& id, WallTime end) {
    JobDetails d;
    d.submission_id = id;
    d.state = JobState::succeeded;
    d.start_time = end;
    d.end_time = end;
    return d;
}

}  // namespace

TEST_CASE("local: two submits of one id at once: one wins") {
    LocalFixture world;
    int won = 0;
    int taken = 0;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
            const auto submitted = world.backend()->submit(LocalFixture::request("one", "echo once"));
            const std::lock_guard guard(mutex);
            won += submitted ? 1 : 0;
            taken += !submitted && submitted.error().message == job_message::already_exists("one") ? 1 : 0;
        });
    }
    for (auto& t : threads) t.join();
    CHECK(won == 1);
    CHECK(taken == 7);
    CHECK(world.wait_end("one").state == JobState::succeeded);
    CHECK(world.log_of("one") == "once\n");
    CHECK(hidden_entries(world.store().jobs()).empty());
}

TEST_CASE("local: 100 parallel submits all run, never more at once than there are resources") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"SLOT":4})";
    constexpr int k_threads = 10;
    std::vector<std::thread> threads;
    std::atomic<int> submitted = 0;
    const std::string busy = (world.folder / "busy").string();
    // Each job leaves a file while it runs; one that sees more than four of them says so.
    const std::string entrypoint = "mkdir -p " + busy + "; touch " + busy + "/$GDNCTL_SUBMISSION_ID; n=$(ls " + busy +
                                   " | wc -l); [ $n -le 4 ] || echo too many: $n; rm " + busy +
                                   "/$GDNCTL_SUBMISSION_ID";
    for (int t = 0; t < k_threads; ++t) {
        threads.emplace_back([&, t] {
            const auto jobs = world.backend();
            for (int i = 0; i < 100 / k_threads; ++i) {
                JobRequest r = LocalFixture::request("p-" + std::to_string(t) + "-" + std::to_string(i), entrypoint);
                r.resources = {{"SLOT", 1}};
                submitted += jobs->submit(r) ? 1 : 0;
            }
        });
    }
    for (auto& t : threads) t.join();
    CHECK(submitted == 100);
    const auto ids = world.store().ids();
    CHECK(ids.size() == 100);
    for (const std::string& id : ids) {
        CHECK(world.wait_end(id).state == JobState::succeeded);
        CHECK(world.log_of(id).empty());
    }
    // A job has ended before it has left the queue, both under one lock.
    CHECK(world.store().lock());
    CHECK(world.store().queue().empty());
}

TEST_CASE("local: the submitter is killed before the supervisor is there: FAILED/ACTOR_DIED, not PENDING for ever") {
    LocalFixture world;
    REQUIRE(world.store().create());
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    waitpid(gone, nullptr, 0);
    std::filesystem::create_directories(world.store().job("lost") / "work");
    JobDetails d = ended("lost", {});
    d.state = JobState::pending;
    d.end_time.reset();
    REQUIRE(world.store().write(d));
    REQUIRE(world.store().write_supervisor(
        "lost", {{{gone, 1}, identity_of(getpid()).boot_id, identity_of(getpid()).pid_namespace}, std::nullopt}));
    CHECK(world.backend()->details("lost")->error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(world.backend()->list({})->size() == 1);
}

TEST_CASE("local: a supervisor's record that cannot be read now says nothing about the job, and nobody ends it") {
    LocalFixture world;
    REQUIRE(world.store().create());
    JobDetails d = ended("kept", {});
    d.state = JobState::running;
    d.end_time.reset();
    std::filesystem::create_directories(world.store().file("kept", "supervisor.json"));  // reading it is an I/O error
    REQUIRE(world.store().write(d));
    CHECK(world.backend()->details("kept")->state == JobState::running);
    CHECK(world.backend()->list({})->size() == 1);
    const auto settled = world.store().settle("kept");
    REQUIRE_FALSE(settled);
    CHECK(exit_code_of(settled.error().kind) == ExitCode::local_io);
    CHECK(settled.error().message.find("supervisor.json") != std::string::npos);
    CHECK(world.store().is_looked_after("kept"));
    CHECK(world.store().read("kept")->state == JobState::running);
}

TEST_CASE("local: a supervisor that cannot start fails the submit and the job, and frees its resources") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"TPU":4})";
    const auto jobs = make_local_jobs({world.folder / "state", world.env, nullptr, "/nonexistent/gdnctl"});
    JobRequest r = LocalFixture::request("no-sup", "true");
    r.resources = {{"TPU", 4}};
    const auto submitted = jobs->submit(r);
    REQUIRE_FALSE(submitted);
    CHECK(exit_code_of(submitted.error().kind) == ExitCode::infrastructure);
    CHECK(jobs->details("no-sup")->error_type == "JOB_SUPERVISOR_ACTOR_START_FAILURE");
    CHECK(world.store().queue().empty());
}

TEST_CASE("local: a state folder that is removed takes its jobs with it") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
    REQUIRE(
        world.backend()->submit(LocalFixture::request("rm-a", "trap '' TERM; echo up; while :; do sleep 0.1; done")));
    JobRequest waiting = LocalFixture::request("rm-b", "true");
    waiting.resources = {{"TPU", 1}};
    REQUIRE(world.backend()->submit(waiting));
    world.wait_log("rm-a", "up");
    const ProcessIdentity running = world.supervisor_of("rm-a")->supervisor;
    const ProcessIdentity pending = world.supervisor_of("rm-b")->supervisor;
    std::filesystem::remove_all(world.folder / "state");
    for (int i = 0; i < 2000 && (is_same_process(running) || is_same_process(pending)); ++i) nap();
    CHECK_FALSE(is_same_process(running));
    CHECK_FALSE(is_same_process(pending));
    CHECK(world.processes_of("rm-a") == 0);
}

TEST_CASE("local: a damaged record is named, and hides no other job") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(LocalFixture::request("good", "true")));
    world.wait_end("good");
    REQUIRE(jobs->submit(LocalFixture::request("bad", "true")));
    world.wait_end("bad");
    write_text(world.store().file("bad", "job.json"), "{\"status\":");
    CHECK(exit_code_of(jobs->details("bad").error().kind) == ExitCode::local_io);
    CHECK(jobs->list({})->size() == 1);
}

TEST_CASE("local: a queue that is missing or damaged is made again from the jobs") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"TPU":4})";
    const auto jobs = world.backend();
    JobRequest first = LocalFixture::request("q-a", "while [ ! -e go ]; do sleep 0.05; done");
    first.resources = {{"TPU", 4}};
    REQUIRE(jobs->submit(first));
    world.wait_started("q-a");
    write_text(world.store().root() / "queue.json", "garbage");
    JobRequest second = LocalFixture::request("q-b", "true");
    second.resources = {{"TPU", 4}};
    REQUIRE(jobs->submit(second));
    REQUIRE(jobs->submit(LocalFixture::request("free", "sleep 0.2")));
    world.wait_end("free");
    CHECK(jobs->details("q-b")->state == JobState::pending);
    write_text(world.store().file("q-a", "work") / "go", "");
    CHECK(world.wait_end("q-b").state == JobState::succeeded);
}

TEST_CASE("local: pruning keeps the newest 200 terminal jobs of 30 days, and all that still run") {
    LocalFixture world;
    REQUIRE(world.store().create());
    const WallTime now = system_clock().wall();
    const auto add = [&](const std::string& id, WallTime end) {
        std::filesystem::create_directories(world.store().job(id));
        REQUIRE(world.store().write(ended(id, end)));
    };
    for (int i = 0; i < 203; ++i) add("n-" + std::to_string(i), now - std::chrono::minutes(i + 1));
    add("ancient", now - std::chrono::days(31));
    std::filesystem::create_directories(world.store().jobs() / ".new-999999999-1-x");
    std::filesystem::create_directories(world.store().jobs() / ".old-y" / "work");
    REQUIRE(world.backend()->submit(LocalFixture::request("fresh", "sleep 300")));
    const auto ids = world.store().ids();
    CHECK(ids.size() == 201);
    CHECK(world.store().exists("fresh"));
    CHECK(world.store().exists("n-0"));
    CHECK(world.store().exists("n-199"));
    CHECK_FALSE(world.store().exists("n-200"));
    CHECK_FALSE(world.store().exists("ancient"));
    CHECK(hidden_entries(world.store().jobs()).empty());
    REQUIRE(world.backend()->stop("fresh"));
    world.wait_end("fresh");
}

TEST_CASE("local: a state folder that others may write to is refused, exit 8") {
    LocalFixture world;
    std::filesystem::create_directories(world.folder / "state");
    std::filesystem::permissions(world.folder / "state", std::filesystem::perms(0777));
    const auto submitted = world.backend()->submit(LocalFixture::request("w-1", "true"));
    REQUIRE_FALSE(submitted);
    CHECK(exit_code_of(submitted.error().kind) == ExitCode::local_io);
    CHECK(exit_code_of(world.backend()->list({}).error().kind) == ExitCode::local_io);
    CHECK_FALSE(std::filesystem::exists(world.folder / "state" / "local"));
}

TEST_CASE("local: a state folder of someone else is refused, exit 8") {
    if (geteuid() != 0) {
        MESSAGE("skipped: giving a folder away needs root");
        return;
    }
    LocalFixture world;
    std::filesystem::create_directories(world.folder / "state");
    REQUIRE(chown((world.folder / "state").c_str(), 12345, 12345) == 0);
    CHECK(exit_code_of(world.backend()->submit(LocalFixture::request("w-1", "true")).error().kind) ==
          ExitCode::local_io);
}

TEST_CASE("local: no room for the record: exit 8, no half job") {
    LocalFixture world;
    REQUIRE(world.store().create());
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{64, 64};
        setrlimit(RLIMIT_FSIZE, &limit);
        const auto submitted = world.backend()->submit(LocalFixture::request("full", "true"));
        _exit(submitted ? 99 : static_cast<int>(exit_code_of(submitted.error().kind)));
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WEXITSTATUS(status) == 8);
    CHECK_FALSE(world.store().exists("full"));
    CHECK(hidden_entries(world.store().jobs()).empty());
}

TEST_CASE("local: no room for the log: the job fails by the signal, and its record is whole") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(LocalFixture::request("biglog",
                                                          "ulimit -f 8; i=0; while [ $i -lt 2000 ]; do echo 'a line of "
                                                          "some forty bytes, again and again'; i=$((i+1)); done")));
    const JobDetails d = world.wait_end("biglog");
    CHECK(d.state == JobState::failed);
    CHECK(d.driver_exit_code.has_value());
    CHECK(classify(d).exit == ExitCode::check_failed);
}

TEST_CASE("local: capacity and start timeout that make no sense are configuration errors") {
    LocalFixture world;
    for (const char* bad : {"2", "{", R"({"CPU":"x"})", R"({"CPU":-1})"}) {
        world.env["GDNCTL_LOCAL_RESOURCES"] = bad;
        CHECK(exit_code_of(world.backend()->submit(LocalFixture::request("c", "true")).error().kind) ==
              ExitCode::usage);
    }
    world.env.erase("GDNCTL_LOCAL_RESOURCES");
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "soon";
    CHECK(exit_code_of(world.backend()->submit(LocalFixture::request("c", "true")).error().kind) == ExitCode::usage);
}

TEST_CASE("local: a large environment and a value with every byte arrive whole") {
    LocalFixture world;
    std::string odd = "$HOME %s 'x' \"y\" \\ ";
    for (int c = 1; c < 256; ++c) odd += static_cast<char>(c);
    for (int i = 0; i < 60; ++i) world.env["BIG_" + std::to_string(i)] = std::string(20000, 'b');
    JobRequest r = LocalFixture::request("env-big", "printf %s \"$ODD\" >odd; env | grep -c '^BIG_'");
    r.env = {{"ODD", odd}};
    r.keep_workdir = true;
    REQUIRE(world.backend()->submit(r));
    CHECK(world.wait_end("env-big").state == JobState::succeeded);
    CHECK(world.log_of("env-big") == "60\n");
    CHECK(file_text(world.store().file("env-big", "work") / "odd") == odd);
}

TEST_CASE("local: a job that submits another one does not take it along when it ends") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(LocalFixture::request("outer", "echo up; sleep 300")));
    world.wait_log("outer", "up");
    // As a process of the outer job would: with its environment.
    world.env["GDNCTL_SUBMISSION_ID"] = "outer";
    world.env["GDNCTL_PROCESS_MARK"] = job_mark(world.store().job("outer"));
    REQUIRE(world.backend()->submit(LocalFixture::request("inner", "sleep 0.5; echo inner done")));
    REQUIRE(world.backend()->stop("outer"));
    world.wait_end("outer");
    CHECK(world.wait_end("inner").state == JobState::succeeded);
}

TEST_CASE("local: clearing up after a dead supervisor spares the job of the same id in another state directory") {
    LocalFixture mine;
    LocalFixture other;
    for (LocalFixture* world : {&mine, &other}) {
        REQUIRE(
            world->backend()->submit(LocalFixture::request("twin", "echo up; until [ -e go ]; do sleep 0.02; done")));
        world->wait_log("twin", "up");
    }
    REQUIRE(send_signal(mine.supervisor_of("twin")->supervisor.id, SIGKILL));
    CHECK(mine.wait_end("twin").error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(mine.processes_of("twin") == 0);
    CHECK(other.processes_of("twin") > 0);
    write_text(other.store().file("twin", "work") / "go", "");
    CHECK(other.wait_end("twin").state == JobState::succeeded);
}

// kill -9 after every single step of submit, supervisor, stop and clean-up (tests/support/programs/kill_after_step.c),
// until a run gets through untouched.

namespace {

constexpr int k_most_steps = 500;
constexpr const char* k_killer = GDNCTL_TEST_BIN "/kill_after_step ";
constexpr const char* k_gdnctl = GDNCTL_TEST_BIN "/gdnctl ";

struct LocalKillFixture : LocalFixture {
    LocalKillFixture() {
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
            CHECK(jobs->list({})->size() == store().ids().size());
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

void LocalKillFixture::sweep_stop(const Resources& resources, JobState before) {
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
    LocalKillFixture world;
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
    LocalKillFixture world;
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
            jobs->submit(LocalKillFixture::cpu_request(id, "echo up; setsid sleep 300 & echo done; sleep 0.02"));
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
    LocalKillFixture world;
    world.sweep_stop({{"CPU", 1}}, JobState::running);
}

TEST_CASE("local: a stop of a pending job killed after each of its steps can be repeated") {
    LocalKillFixture world;
    world.sweep_stop({{"TPU", 1}}, JobState::pending);
}

TEST_CASE("local: who finds a dead supervisor and is killed after each step of clearing up leaves that to the next") {
    LocalKillFixture world;
    const auto jobs = world.backend();
    int code = 137;
    int step = 0;
    while (code == 137 && ++step < k_most_steps) {
        const std::string id = "settle-" + std::to_string(step);
        REQUIRE(jobs->submit(LocalKillFixture::cpu_request(id, "setsid sleep 300 & echo up; sleep 300")));
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
    LocalFixture world;
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
