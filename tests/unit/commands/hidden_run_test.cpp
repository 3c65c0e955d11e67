// The commands that this program starts itself with, and the one that writes its pages.
#include <iostream>
#include <sstream>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command_world.h"
#include "services/local/store.h"

namespace gdnctl::commands {
namespace {

using test::CommandWorld;
namespace fs = std::filesystem;

// The exit code of `work` in a process of its own, for commands that change the process that they run in.
template <class Work>
int in_child(const Work& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A job of the local backend that waits for its supervisor.
struct StagedJob : CommandWorld {
    local::Store store{context.state_dir / "local", clock};
    int code = 0;        // of the supervisor
    std::string answer;  // to the submitter

    explicit StagedJob(const std::string& command) {
        REQUIRE(store.create());
        fs::create_directories(store.job("j") / "work");
        local::LocalRequest request;
        request.submission_id = "j";
        request.entrypoint = command;
        test::write_text(store.file("j", "request.json"), local::to_json_text(request));
        JobDetails details;
        details.submission_id = "j";
        details.entrypoint = command;
        details.start_time = clock.wall();
        REQUIRE(store.write(details));
    }
    // As a process of its own, to which the submitter sends this.
    void supervise(const fs::path& folder, std::string_view environment) {
        int ends[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        REQUIRE(::write(ends[0], environment.data(), environment.size()) == static_cast<ssize_t>(environment.size()));
        shutdown(ends[0], SHUT_WR);
        code = in_child([&] {
            constexpr int k_socket = 3;  // where a supervisor looks for it
            const int far = dup(ends[1]);
            close(ends[0]);
            dup2(far, k_socket);
            return run(k_local_supervisor_row, {folder.string()});
        });
        close(ends[1]);
        char buffer[4096];
        for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
            answer.append(buffer, static_cast<std::size_t>(n));
        }
        close(ends[0]);
    }
};

// What is written to std::cout meanwhile.
class Printed {
public:
    Printed() : m_before(std::cout.rdbuf(m_text.rdbuf())) {}
    ~Printed() { std::cout.rdbuf(m_before); }
    Printed(const Printed&) = delete;
    Printed& operator=(const Printed&) = delete;
    std::string text() const { return m_text.str(); }

private:
    std::ostringstream m_text;
    std::streambuf* m_before;
};

}  // namespace

TEST_CASE("__docs: one reference of every command, or a page each, to stdout or a folder") {
    CommandWorld world;
    CHECK(world.run(k_docs_row, {"markdown"}) == 0);
    CHECK(world.printed("codex-loop"));
    CHECK(test::list_names(world.context.cwd).empty());
    const std::string reference = world.terminal.out_text;
    CHECK(world.run(k_docs_row, {"markdown", "--out", "a/b"}) == 0);
    CHECK(world.terminal.out_text.empty());
    CHECK(world.read("a/b/cli-reference.md") == reference);
    CHECK(world.run(k_docs_row, {"man", "--out", "man"}) == 0);
    CHECK(test::list_names(world.file("man")).find("gdnctl-codex-loop.1") != std::string::npos);
    world.check({k_docs_row, {"html"}, 2, "html"});
}

TEST_CASE("__dev-tpu-holder: the lease ends it, a stop ends it, a machine that is taken away ends it") {
    struct End {
        const char *preempted, *reason;
        bool stopped;
    };
    for (const End& end : {End{"FALSE", "lease", false}, End{"TRUE", "preempted", false}, End{"FALSE", "stop", true}}) {
        CAPTURE(end.reason);
        CommandWorld world;
        const std::string metadata = "http://127.0.0.1:9";
        world.env.values.insert({{"GDNCTL_HOLD_FILE", world.file("lease").string()},
                                 {"GDNCTL_HOLD_NAME", "a"},
                                 {"GDNCTL_METADATA_BASE", metadata},
                                 {"GDNCTL_HOLD_LEASE_S", "60"},
                                 {"GDNCTL_HOLD_GRACE_S", "60"},
                                 {"GDNCTL_HOLD_MAX_S", "600"}});
        for (const char* path : {"/instance/network-interfaces/0/access-configs/0/external-ip",
                                 "/instance/attributes/instance-id", "/instance/zone"}) {
            world.http.on("GET " + metadata + path, 200, "10.0.0.1");
        }
        world.http.on("GET " + metadata + "/instance/preempted", 200, end.preempted);
        if (end.stopped) world.stop.request_stop();
        const Printed printed;
        CHECK(world.run(k_dev_tpu_holder_row, {}) == 0);
        CHECK(printed.text().find("10.0.0.1") != std::string::npos);
        CHECK(printed.text().find(std::string("{\"reason\":\"") + end.reason + "\"}") != std::string::npos);
        CHECK(!fs::exists(world.file("lease")));
    }
    CommandWorld world;
    world.env.values["GDNCTL_HOLD_FILE"] = world.file("none/lease").string();
    CHECK(world.run(k_dev_tpu_holder_row, {}) == 8);
}

TEST_CASE("__local-supervisor: a job's end is on record, whatever it is, and a job that is not there is none") {
    const std::string_view environment("WORD=hello\0\0", 12);
    {
        StagedJob job("echo $WORD");
        job.supervise(job.store.job("j"), environment);
        CHECK(job.code == 0);
        CHECK(job.answer == "ready\n");
        CHECK(job.store.read("j")->state == JobState::succeeded);
        CHECK(test::read_text(job.store.file("j", "log")) == "hello\n");
        CHECK(!fs::exists(job.store.file("j", "work")));
    }
    {
        StagedJob job("exit 5");
        job.supervise(job.store.job("j"), environment);
        CHECK(job.code == 0);
        CHECK(job.store.read("j")->state == JobState::failed);
        CHECK(job.store.read("j")->driver_exit_code == 5);
    }
    StagedJob job("true");
    job.supervise(job.store.job("none"), environment);
    CHECK(job.code == 4);
    CHECK(job.answer.find("request.json") != std::string::npos);
    job.answer.clear();
    job.supervise(job.store.job("j"), "WORD=hel");
    CHECK(job.code == 4);
    CHECK(job.answer == "the submitter ended before it had sent the environment");
    CHECK(job.store.read("j")->state == JobState::pending);
}

TEST_CASE("__kernel-host: a program gets the files of both sides") {
    CommandWorld world;
    world.write("inputs.safetensors", "numbers");
    const std::string folder = world.context.cwd.string();
    const auto host = [&](std::vector<std::string> words) {
        return in_child([&] { return world.run(k_kernel_host_row, std::move(words)); });
    };
    CHECK(host({"program", folder, "cp"}) == 0);
    CHECK(world.read("outputs.safetensors") == "numbers");
    CHECK(!world.read("network").empty());
    CHECK(host({"program", folder, "exit 5;"}) == 5);
    CHECK(host({"script", folder, "cp"}) == 2);
}

}  // namespace gdnctl::commands
