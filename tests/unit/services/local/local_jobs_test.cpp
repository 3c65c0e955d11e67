#include <csignal>

#include <sys/stat.h>
#include <sys/wait.h>

#include "support/fake_clock.h"
#include "unit/services/local/local_fixture.h"

namespace gdnctl::local {

namespace {

std::string read_all(JobLog& log) {
    std::string text;
    const auto n = log.pump([&](std::string_view bytes) {
        text += bytes;
        return true;
    });
    REQUIRE(n);
    CHECK(*n == text.size());
    return text;
}

}  // namespace

TEST_CASE("local: a job that succeeds has its log, its exit code and Ray's message") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(world.request("ok-1", "echo hi; echo err >&2; exit 0")));
    const JobDetails d = world.wait_end("ok-1");
    CHECK(d.state == JobState::succeeded);
    CHECK(d.message == "Job finished successfully.");
    CHECK(d.driver_exit_code == 0);
    CHECK_FALSE(d.error_type);
    CHECK(d.driver_node_id->starts_with("local-"));
    CHECK(*d.end_time >= *d.start_time);
    CHECK(world.log_of("ok-1") == "hi\nerr\n");
    CHECK(classify(d).exit == ExitCode::ok);
}

TEST_CASE("local: exit codes and signals end as on Ray") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(world.request("exit3", "echo out; exit 3")));
    REQUIRE(jobs->submit(world.request("kill9", "echo before; kill -9 $$")));
    REQUIRE(jobs->submit(world.request("childkill", "sh -c 'kill -9 $$'; echo rc=$?")));
    REQUIRE(jobs->submit(world.request("noout", "exit 7")));
    REQUIRE(jobs->submit(world.request("nocmd", "no_such_command_xyz")));

    JobDetails d = world.wait_end("exit3");
    CHECK(d.state == JobState::failed);
    CHECK(d.error_type == "JOB_ENTRYPOINT_COMMAND_ERROR");
    CHECK(d.driver_exit_code == 3);
    CHECK(d.message ==
          "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\nout\n");
    CHECK(classify(d).exit == ExitCode::check_failed);

    d = world.wait_end("kill9");
    CHECK(d.driver_exit_code == -9);
    CHECK(d.message.starts_with("Job entrypoint command failed with exit code -9, last available logs"));

    CHECK(world.wait_end("childkill").state == JobState::succeeded);
    CHECK(world.log_of("childkill").find("rc=137") != std::string::npos);
    CHECK(world.wait_end("noout").message == "Job entrypoint command failed with exit code 7. No logs available.");
    CHECK(world.wait_end("nocmd").driver_exit_code == 127);
}

TEST_CASE("local: environment, session and standard input of the entrypoint, values on disk nowhere") {
    LocalFixture world;
    world.env["RAY_ADDRESS"] = "10.0.0.7:6399";
    world.env["FROM_SUBMITTER"] = "a b\"c$HOME";
    world.env["GDNCTL_PROCESS_MARK"] = "somebody";
    JobRequest r = LocalFixture::request("env-1",
                                         "echo \"[$RAY_ADDRESS][$FROM_SUBMITTER][$MINE][$PYTHONUNBUFFERED]"
                                         "[$GDNCTL_SUBMISSION_ID][$GDNCTL_PROCESS_MARK]\"; cat; pwd; "
                                         "echo sid $(cut -d' ' -f6 /proc/$$/stat) $$");
    r.env = {{"MINE", "secret-value"}, {"MINE", "later-wins"}};
    REQUIRE(world.backend()->submit(r));
    const JobDetails d = world.wait_end("env-1");
    const std::string log = world.log_of("env-1");
    CHECK(log.starts_with("[][a b\"c$HOME][later-wins][1][env-1][local-job-env-1@"));
    CHECK(log.find(world.store().file("env-1", "work").string()) != std::string::npos);
    CHECK(d.env_names == std::vector<std::string>{"MINE"});
    const std::string sid = log.substr(log.find("sid ") + 4);
    CHECK(sid.substr(0, sid.find(' ')) + "\n" == sid.substr(sid.find(' ') + 1));
    for (const char* name : {"request.json", "job.json", "supervisor.json"}) {
        const std::string text = file_text(world.store().file("env-1", name));
        CHECK_FALSE(text.empty());
        CHECK(text.find("secret-value") == std::string::npos);
        CHECK(text.find("later-wins") == std::string::npos);
    }
    struct stat info{};
    REQUIRE(stat(world.store().file("env-1", "request.json").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777U) == 0600U);
}

TEST_CASE("local: secrets are in no command line") {
    LocalFixture world;
    JobRequest r = LocalFixture::request("argv-1", "echo up; sleep 300");
    r.env = {{"TOKEN", "hunter2-hunter2"}};
    REQUIRE(world.backend()->submit(r));
    world.wait_log("argv-1", "up");
    for (const ProcessInfo& p : all_processes()) {
        CHECK(file_text("/proc/" + std::to_string(p.id.pid) + "/cmdline").find("hunter2-hunter2") == std::string::npos);
    }
    REQUIRE(world.backend()->stop("argv-1"));
    world.wait_end("argv-1");
}

TEST_CASE("local: the working directory is a private copy with exec bits, links followed, deleted files skipped") {
    LocalFixture world;
    const auto tree = world.folder / "tree";
    write_text(tree / "run.sh", "#!/bin/sh\necho ran; cat data/x.txt link.txt; echo changed >data/x.txt\n");
    std::filesystem::permissions(tree / "run.sh", std::filesystem::perms(0755));
    write_text(tree / "data/x.txt", "payload\n");
    std::filesystem::create_symlink("data/x.txt", tree / "link.txt");
    JobRequest r = LocalFixture::request("tree-1", "./run.sh");
    r.working_dir = WorkingTree{tree, {"data/x.txt", "gone.txt", "link.txt", "run.sh"}};
    r.keep_workdir = true;
    REQUIRE(world.backend()->submit(r));
    CHECK(world.wait_end("tree-1").state == JobState::succeeded);
    CHECK(world.log_of("tree-1") == "ran\npayload\npayload\n");
    CHECK(file_text(world.store().file("tree-1", "work") / "data/x.txt") == "changed\n");
    CHECK(file_text(tree / "data/x.txt") == "payload\n");
}

TEST_CASE("local: without keep_workdir the working directory goes away") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(world.request("gone-1", "mkdir -p a/b; echo x >a/b/c")));
    world.wait_end("gone-1");
    const auto work = world.store().file("gone-1", "work");
    for (int i = 0; i < 500 && std::filesystem::exists(work); ++i) nap();
    CHECK_FALSE(std::filesystem::exists(work));
}

TEST_CASE("local: a link that leaves the working directory is refused and nothing stays behind") {
    LocalFixture world;
    const auto tree = world.folder / "tree";
    write_text(world.folder / "secret.txt", "s\n");
    std::filesystem::create_directories(tree);
    std::filesystem::create_symlink("../secret.txt", tree / "out.txt");
    JobRequest r = LocalFixture::request("esc-1", "true");
    r.working_dir = WorkingTree{tree, {"out.txt"}};
    const auto submitted = world.backend()->submit(r);
    REQUIRE_FALSE(submitted);
    CHECK(exit_code_of(submitted.error().kind) == ExitCode::local_io);
    CHECK(std::filesystem::is_empty(world.store().jobs()));
}

TEST_CASE("local: an id that is taken is refused with Ray's words, exit 2") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(world.request("same", "true")));
    const auto again = jobs->submit(world.request("same", "true"));
    REQUIRE_FALSE(again);
    CHECK(again.error().message == "Job with submission_id same already exists. Please use a different submission_id.");
    CHECK(exit_code_of(again.error().kind) == ExitCode::usage);
    CHECK(jobs->submit(world.request("latest", "true")).error().kind == ErrorKind::usage);
    CHECK(jobs->submit(world.request("../x", "true")).error().kind == ErrorKind::usage);
    world.wait_end("same");
}

TEST_CASE("local: an unknown id does not exist, exit 6") {
    LocalFixture world;
    const auto jobs = world.backend();
    CHECK(jobs->details("nope").error().message == "Job nope does not exist");
    CHECK(exit_code_of(jobs->stop("nope").error().kind) == ExitCode::remote_missing);
    CHECK(exit_code_of(jobs->open_log("nope", {}).error().kind) == ExitCode::remote_missing);
    CHECK(jobs->list({})->empty());
}

TEST_CASE("local: an entrypoint that is too long fails to start, exit 1") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(world.request("long", "true " + std::string(200 << 10, 'x'))));
    const JobDetails d = world.wait_end("long");
    CHECK(d.error_type == "JOB_ENTRYPOINT_COMMAND_START_ERROR");
    CHECK(d.message.find("Argument list too long") != std::string::npos);
    CHECK(classify(d).exit == ExitCode::check_failed);
}

TEST_CASE("local: leftovers of a job that ended are killed before its state is terminal") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(
        world.request("left", "sleep 300 & setsid sleep 301 & (setsid sh -c 'sleep 302 & sleep 303' &) ; echo done")));
    CHECK(world.wait_end("left").state == JobState::succeeded);
    CHECK(world.processes_of("left") == 0);
}

TEST_CASE("local: stop ends a child that ignores SIGTERM and one in a session of its own") {
    LocalFixture world;
    const auto jobs = world.backend();
    JobRequest r = LocalFixture::request("st-ign",
                                         "trap '' TERM; setsid sleep 301 & (trap '' TERM; sleep 302; sleep 303) & "
                                         "echo up; while :; do sleep 0.2; done");
    r.env = {{"RAY_JOB_STOP_WAIT_TIME_S", "1"}};
    REQUIRE(jobs->submit(r));
    world.wait_log("st-ign", "up");
    CHECK(*jobs->stop("st-ign"));
    const JobDetails d = world.wait_end("st-ign");
    CHECK(d.state == JobState::stopped);
    CHECK(d.message == "Job was intentionally stopped.");
    CHECK_FALSE(d.driver_exit_code);
    CHECK(world.processes_of("st-ign") == 0);
    CHECK(classify(d).exit == ExitCode::nothing_done);
    CHECK_FALSE(*jobs->stop("st-ign"));
}

TEST_CASE("local: a job that handles the stop signal gets the time to") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(
        world.request("st-term", "trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.1; done")));
    // A program of its own: a shell's background processes ignore SIGINT.
    JobRequest r =
        LocalFixture::request("st-int", "trap 'echo got INT; exit 0' INT; echo up; while :; do sleep 0.1; done");
    r.env = {{"RAY_JOB_STOP_SIGNAL", "SIGINT"}, {"RAY_JOB_STOP_WAIT_TIME_S", "20"}};
    REQUIRE(jobs->submit(r));
    world.wait_log("st-term", "up");
    world.wait_log("st-int", "up");
    CHECK(*jobs->stop("st-term"));
    CHECK(*jobs->stop("st-int"));
    CHECK(world.wait_end("st-term").state == JobState::stopped);
    CHECK(world.wait_end("st-int").state == JobState::stopped);
    CHECK(world.log_of("st-term").find("got TERM\n") != std::string::npos);
    CHECK(world.log_of("st-int").find("got INT\n") != std::string::npos);
}

TEST_CASE("local: supervisor SIGKILLed: FAILED/ACTOR_DIED, exit 4, no process left") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(
        world.request("supdie", "setsid sleep 321 & sleep 322 & echo up; sleep 323; echo never")));
    world.wait_log("supdie", "up");
    const auto record = world.supervisor_of("supdie");
    REQUIRE(record);
    REQUIRE(world.processes_of("supdie") >= 3);
    REQUIRE(send_signal(record->supervisor.id, SIGKILL));
    const JobDetails d = world.wait_end("supdie");
    CHECK(d.state == JobState::failed);
    CHECK(d.error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(d.message ==
          "Job supervisor actor died: local supervisor " + std::to_string(record->supervisor.id.pid) + " is gone");
    CHECK(classify(d).exit == ExitCode::infrastructure);
    CHECK(world.processes_of("supdie") == 0);
}

TEST_CASE("local: supervisor told to end by SIGTERM takes the job with it and says so") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(world.request("supterm", "setsid sleep 321 & echo up; sleep 323")));
    world.wait_log("supterm", "up");
    REQUIRE(send_signal(world.supervisor_of("supterm")->supervisor.id, SIGTERM));
    const JobDetails d = world.wait_end("supterm");
    CHECK(d.error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(d.message.ends_with("was told to end"));
    CHECK(world.processes_of("supterm") == 0);
}

TEST_CASE("local: a reused pid is spared") {
    LocalFixture world;
    REQUIRE(world.backend()->submit(world.request("reused", "echo up; sleep 300")));
    world.wait_log("reused", "up");
    auto record = world.supervisor_of("reused");
    REQUIRE(record);
    const pid_t stranger = fork();
    if (stranger == 0) {
        setsid();
        execl("/bin/sleep", "sleep", "300", static_cast<char*>(nullptr));
        _exit(1);
    }
    send_signal(record->supervisor.id, SIGKILL);
    // The record now names the stranger's pid with the start time of someone else.
    record->supervisor.id = {stranger, 1};
    record->child = record->supervisor;
    REQUIRE(world.store().write_supervisor("reused", *record));
    CHECK(world.wait_end("reused").error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK_FALSE(process_info(stranger)->dead());
    CHECK(world.processes_of("reused") == 0);
    kill(stranger, SIGKILL);
    waitpid(stranger, nullptr, 0);
}

TEST_CASE("local: a record of an earlier boot is dead, one of another pid namespace cannot be judged") {
    const ProcessIdentity self = identity_of(getpid());
    CHECK(is_alive(self));
    ProcessIdentity other = self;
    other.boot_id = "11111111-2222";
    CHECK_FALSE(is_alive(other));
    other = self;
    other.pid_namespace = "pid:[1]";
    other.id.start_ticks += 1;
    CHECK(is_alive(other));
    CHECK_FALSE(is_same_process(other));
}

TEST_CASE("local: 1 TPU head: second PENDING until the first ends") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":2,"TPU":4,"TPU-v5p-8-head":1})";
    const auto jobs = world.backend();
    JobRequest first = LocalFixture::request("tpu-a", "while [ ! -e go ]; do sleep 0.05; done; echo first");
    first.resources = *tpu_resources("v5p-8");
    JobRequest second = LocalFixture::request("tpu-b", "echo second");
    second.resources = first.resources;
    REQUIRE(jobs->submit(first));
    CHECK(world.wait_started("tpu-a").state == JobState::running);
    CHECK(jobs->submit(second)->warnings.empty());
    // One that asks for nothing of it need not wait; by its end the second has had its chance.
    REQUIRE(jobs->submit(world.request("free", "sleep 0.3")));
    CHECK(world.wait_end("free").state == JobState::succeeded);
    const JobDetails waiting = *jobs->details("tpu-b");
    CHECK(waiting.state == JobState::pending);
    CHECK(waiting.message ==
          "Job has not started yet. It may be waiting for resources (CPUs, GPUs, memory, custom resources) to become "
          "available.");
    write_text(world.store().file("tpu-a", "work") / "go", "");
    CHECK(world.wait_end("tpu-a").state == JobState::succeeded);
    CHECK(world.wait_end("tpu-b").state == JobState::succeeded);
}

TEST_CASE("local: a dead supervisor's resources are free") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"TPU":4})";
    const auto jobs = world.backend();
    JobRequest first = LocalFixture::request("dead-a", "echo up; sleep 300");
    first.resources = {{"TPU", 4}};
    REQUIRE(jobs->submit(first));
    world.wait_log("dead-a", "up");
    JobRequest second = LocalFixture::request("dead-b", "echo second");
    second.resources = {{"TPU", 4}};
    REQUIRE(jobs->submit(second));
    send_signal(world.supervisor_of("dead-a")->supervisor.id, SIGKILL);
    // Nobody reads dead-a: the waiting one finds out by itself.
    CHECK(world.wait_end("dead-b").state == JobState::succeeded);
    CHECK(world.store().read("dead-a")->error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(world.processes_of("dead-a") == 0);
}

TEST_CASE("local: PENDING stop is STOPPED at once and never runs") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
    const auto jobs = world.backend();
    JobRequest r = LocalFixture::request("pend-stop", "echo never");
    r.resources = {{"TPU", 4}};
    const auto submitted = jobs->submit(r);
    REQUIRE(submitted);
    REQUIRE(submitted->warnings.size() == 1);
    CHECK(submitted->warnings[0].find("can never offer") != std::string::npos);
    CHECK(*jobs->stop("pend-stop"));
    CHECK(jobs->details("pend-stop")->state == JobState::stopped);
    const auto record = world.supervisor_of("pend-stop");
    for (int i = 0; i < 1000 && is_same_process(record->supervisor); ++i) nap();
    CHECK_FALSE(is_same_process(record->supervisor));
    CHECK(world.log_of("pend-stop").empty());
    CHECK(jobs->details("pend-stop")->state == JobState::stopped);
}

TEST_CASE("local: start timeout: FAILED/START_TIMEOUT with Ray's text, exit 4") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "0.5";
    JobRequest r = LocalFixture::request("late", "echo never");
    r.resources = {{"TPU", 8}};
    REQUIRE(world.backend()->submit(r));
    const JobDetails d = world.wait_end("late");
    CHECK(d.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT");
    CHECK(d.message == job_message::start_timeout(0.5));
    CHECK(classify(d).exit == ExitCode::infrastructure);
    CHECK(world.log_of("late").empty());
}

TEST_CASE("local: DELETE only when terminal") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(world.request("del", "sleep 300")));
    world.wait_started("del");
    const auto refused = jobs->remove("del");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message == "Attempted to delete job 'del', but it is in a non-terminal state");
    CHECK(*jobs->stop("del"));
    world.wait_end("del");
    CHECK(jobs->remove("del"));
    CHECK(jobs->details("del").error().kind == ErrorKind::remote_missing);
}

TEST_CASE("local: the log reader gives each byte once, raw, from any tail") {
    LocalFixture world;
    const auto jobs = world.backend();
    REQUIRE(jobs->submit(world.request("bytes", "printf 'a\\na\\n\\377b\\nlast'")));
    world.wait_end("bytes");
    const auto tail = [&](std::optional<std::size_t> lines) { return read_all(**jobs->open_log("bytes", {lines})); };
    const std::string all =
        "a\na\n\xff"
        "b\nlast";
    CHECK(tail(std::nullopt) == all);
    CHECK(tail(1) == "last");
    CHECK(tail(2) == all.substr(4));
    CHECK(tail(4) == all);
    CHECK(tail(99) == all);
    CHECK(tail(0).empty());
}

// Someone sets the clock while jobs wait, run and end. The submitter's clock is off, the supervisor's is right, so that
// between them the clock jumps by as much.

namespace {

using std::chrono::days;

// Time passes as it does, but someone has set another date.
class WrongClock final : public Clock {
public:
    explicit WrongClock(days off) : m_off(off) {}
    WallTime wall() const override { return system_clock().wall() + m_off; }
    Monotonic monotonic() const override { return system_clock().monotonic(); }
    bool sleep_for(std::chrono::milliseconds d, std::stop_token stop) override {
        return system_clock().sleep_for(d, stop);
    }

private:
    days m_off;
};

}  // namespace

TEST_CASE("local clock: set back between submit and end, a job still ends no earlier than it began") {
    LocalFixture world;
    WrongClock tomorrow(days{1});
    REQUIRE(world.backend(&tomorrow)->submit(LocalFixture::request("back", "exit 3")));
    const JobDetails d = world.wait_end("back");
    CHECK(d.state == JobState::failed);
    CHECK(d.driver_exit_code == 3);
    REQUIRE(d.start_time);
    CHECK(*d.start_time > system_clock().wall());
    CHECK(d.end_time == d.start_time);
}

TEST_CASE("local clock: set back before a stop of a waiting job, and before its supervisor is found dead") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"CPU":1})";
    WrongClock tomorrow(days{1});
    JobRequest waits = LocalFixture::request("waits", "echo never");
    waits.resources = {{"TPU", 1}};
    REQUIRE(world.backend(&tomorrow)->submit(waits));
    REQUIRE(world.backend()->stop("waits"));
    const JobDetails stopped = world.wait_end("waits");
    CHECK(stopped.state == JobState::stopped);
    CHECK(stopped.end_time == stopped.start_time);

    REQUIRE(world.backend(&tomorrow)->submit(LocalFixture::request("dies", "echo up; sleep 300")));
    world.wait_log("dies", "up");
    REQUIRE(send_signal(world.supervisor_of("dies")->supervisor.id, SIGKILL));
    const JobDetails died = world.wait_end("dies");
    CHECK(died.error_type == "JOB_SUPERVISOR_ACTOR_DIED");
    CHECK(died.end_time == died.start_time);
}

TEST_CASE("local clock: the start timeout counts seconds that passed, not what the clock shows") {
    LocalFixture world;
    world.env["GDNCTL_LOCAL_RESOURCES"] = R"({"SLOT":1})";
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "300";
    // By the clock it waits for a year the moment it is there.
    WrongClock year_ago(days{-365});
    JobRequest first = LocalFixture::request("first", "while [ ! -e go ]; do sleep 0.05; done");
    first.resources = {{"SLOT", 1}};
    JobRequest second = LocalFixture::request("second", "echo its turn");
    second.resources = first.resources;
    REQUIRE(world.backend()->submit(first));
    CHECK(world.wait_started("first").state == JobState::running);
    REQUIRE(world.backend(&year_ago)->submit(second));
    // One that asks for nothing of it need not wait; by its end the second has had its chance to give up.
    REQUIRE(world.backend()->submit(LocalFixture::request("free", "sleep 0.3")));
    CHECK(world.wait_end("free").state == JobState::succeeded);
    CHECK(world.backend()->details("second")->state == JobState::pending);
    write_text(world.store().file("first", "work") / "go", "");
    CHECK(world.wait_end("second").state == JobState::succeeded);
    CHECK(world.log_of("second") == "its turn\n");

    // And a clock that is ahead keeps nobody waiting longer than that.
    world.env["RAY_JOB_START_TIMEOUT_SECONDS"] = "0.2";
    WrongClock next_year(days{365});
    JobRequest late = LocalFixture::request("late", "echo never");
    late.resources = {{"NOWHERE", 1}};
    REQUIRE(world.backend(&next_year)->submit(late));
    const JobDetails d = world.wait_end("late");
    CHECK(d.error_type == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT");
    CHECK(d.end_time == d.start_time);
}

TEST_CASE("local clock: pruning by age takes no job that runs, and none whose end lies ahead") {
    LocalFixture world;
    REQUIRE(world.store().create());
    test::FakeClock clock;
    const Store store(world.folder / "state" / "local", clock);
    const auto add = [&](const std::string& id, JobState state) {
        JobDetails d;
        d.submission_id = id;
        d.state = state;
        d.start_time = clock.wall();
        if (is_terminal(state)) d.end_time = clock.wall();
        std::filesystem::create_directories(store.job(id));
        REQUIRE(store.write(d));
    };
    add("runs", JobState::running);
    add("waits", JobState::pending);
    add("ended", JobState::succeeded);
    const std::vector<std::string> all = {"ended", "runs", "waits"};
    for (const days jump : {days(-3650), days(3650), days(29)}) {  // a look at an age of -10 years, 0 and 29 days
        clock.jump_wall(jump);
        store.prune();
        CHECK(store.ids() == all);
    }
    clock.jump_wall(days(2));
    store.prune();
    CHECK(store.ids() == std::vector<std::string>{"runs", "waits"});
}

}  // namespace gdnctl::local
