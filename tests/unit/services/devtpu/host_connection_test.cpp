// The scripts that run on a TPU's host, run here.
#include "services/devtpu/host_connection.h"

#include <chrono>
#include <filesystem>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/process.h"
#include "services/devtpu/sync.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::devtpu;
using test::read_text;
using test::write_text;
namespace fs = std::filesystem;

namespace {

class Host {
public:
    Host() : m_connection(local_connection(m_folder / "with space", "hold-1")) {
        write_text(local_lease(m_folder / "with space", "hold-1"), "");
        fs::create_directories(tree());
    }
    fs::path tree() const { return m_folder / "with space" / "marin"; }
    const HostConnection& connection() const { return m_connection; }
    Answer run(const std::string& line, std::vector<JobEnv> env = {}) {
        // Tests run side by side, and what a run leaves is known by its id.
        const HostCommand command{line, std::move(env), "hold-1." + std::to_string(::getpid()), 600, {}};
        return ask(receive_line(), command_script(m_connection, command));
    }
    // One whose client renews its record, or does not; the others renew the lease until it ends.
    Answer run_renewed(const std::string& line, std::string_view unlike, std::int64_t lease_s) {
        const std::string run_id = fmt::format("hold-1.{}{}", ::getpid(), unlike);
        const HostCommand command{line, {}, run_id, lease_s, run_record(m_connection.lease, run_id)};
        std::jthread others([&](std::stop_token stop) {
            for (; !stop.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
                utimensat(AT_FDCWD, m_connection.lease.c_str(), nullptr, 0);
            }
        });
        return ask(receive_line(), command_script(m_connection, command));
    }
    Answer receive(std::string script) { return ask(receive_line(), std::move(script)); }
    Answer ask(const std::string& line, std::string input) {
        auto answer = ask_host(m_connection, line, std::move(input), std::chrono::seconds(20), system_process(), {});
        REQUIRE(answer);
        return *answer;
    }

private:
    test::TempDir m_folder;
    HostConnection m_connection;
};

}  // namespace

TEST_CASE("a command runs in the tree, with its environment, and gives its exit code") {
    Host host;
    const Answer answer = host.run("pwd; printf %s \"$A\"; exit 7", {{"A", "it's $HOME\n\"x\""}});
    CHECK(answer.out == host.tree().string() + "\nit's $HOME\n\"x\"");
    CHECK(answer.exit_code == 7);
    CHECK(host.run("exit 255").exit_code == 254);
    CHECK(host.run("kill -9 $$").exit_code == 137);
    CHECK(host.run("printf %s \"$A\" | od -An -tx1", {{"A", "\x81\x88\xff\n"}}).out == " 81 88 ff 0a\n");
    CHECK(test::list_names(host.tree().parent_path()) == "lease-hold-1 marin");
}

TEST_CASE("a script that a lost connection has cut is not run") {
    Host host;
    const std::string script = command_script(host.connection(), {"echo ran", {}, "hold-1.abc", 600, {}});
    for (const std::size_t kept : {std::size_t{0}, script.size() / 2, script.size() - 1}) {
        const Answer answer = host.receive(script.substr(0, kept));
        CHECK(answer.out.empty());
        CHECK(answer.exit_code == 98);
    }
}

TEST_CASE("what a command leaves behind is ended, also in a session of its own") {
    Host host;
    const Answer answer =
        host.run("setsid sh -c 'echo $$ >pid; exec sleep 300' & while [ ! -s pid ]; do sleep 0.01; done");
    CHECK(answer.exit_code == 0);
    const std::string pid = read_text(host.tree() / "pid");
    REQUIRE(pid.size() > 1);
    CHECK(!fs::exists("/proc/" + pid.substr(0, pid.size() - 1)));
}

TEST_CASE("a command ends when its own client no longer renews it, whoever renews the lease") {
    Host host;
    const Answer answer = host.run_renewed("env -i sleep 300 & echo $! >pid; wait", "a", 1);
    CHECK(answer.exit_code == 143);
    const std::string pid = read_text(host.tree() / "pid");
    REQUIRE(pid.size() > 1);
    CHECK(!fs::exists("/proc/" + pid.substr(0, pid.size() - 1)));
    CHECK(test::list_names(host.tree().parent_path()) == "lease-hold-1 marin");
    CHECK(host.run_renewed("for i in 1 2 3 4; do sleep 1; touch ../lease-hold-1.*; done; exit 5", "b", 2).exit_code ==
          5);
}

TEST_CASE("so does one that has a terminal") {
    Host host;
    const std::string run_id = fmt::format("hold-1.{}d", ::getpid());
    HostCommand command{"sleep 300", {{"A", "b"}}, run_id, 1, run_record(host.connection().lease, run_id)};
    const fs::path script = host.tree() / "script";
    write_text(script, terminal_script(host.connection(), command));
    CHECK(host.receive(fmt::format("sh '{0}' '{0}'; exit #whole", script.string())).exit_code == 143);
    CHECK(!fs::exists(script));
    command.line = "pwd; exit 255";
    write_text(script, terminal_script(host.connection(), command));
    const Answer answer = host.receive(fmt::format("sh '{0}' '{0}'; exit #whole", script.string()));
    CHECK(answer.out == host.tree().string() + "\n");
    CHECK(answer.exit_code == 254);
}

TEST_CASE("nothing limits a command where another program holds the TPU") {
    Host host;
    HostConnection connection = host.connection();
    connection.lease.clear();
    CHECK(host.receive(command_script(connection, {"sleep 3; exit 6", {}, "hold-1.c", 1, {}})).exit_code == 6);
    CHECK(ssh_connection({}, "a", "").lease.empty());
}

TEST_CASE("a command that begins after its hold has ended is ended") {
    Host host;
    fs::remove(host.connection().lease);
    CHECK(host.run_renewed("sleep 300", "g", 600).exit_code == 143);
}

TEST_CASE("a command without a tree says so") {
    Host host;
    fs::remove_all(host.tree());
    const Answer answer = host.run("true");
    CHECK(answer.exit_code == 97);
    const auto complaint = host_complaint(answer.exit_code, answer.err);
    REQUIRE(complaint);
    CHECK(complaint->message == "nothing has been synced to the TPU's host yet");
}

TEST_CASE("a command that is alone keeps others of its kind and syncs out until it ends") {
    Host host;
    const auto run = [&](std::string line, std::string_view unlike, bool alone = true) {
        HostCommand command{std::move(line), {}, fmt::format("hold-1.{}{}", ::getpid(), unlike), 600, {}};
        command.alone = alone;
        return host.receive(command_script(host.connection(), command));
    };
    std::jthread first([&] { CHECK(run("touch on; sleep 2", "e").exit_code == 0); });
    while (!fs::exists(host.tree() / "on")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Answer second = run("touch second", "f");
    CHECK(turn_of(second.exit_code, second.err) == Turn::busy);
    CHECK(run("true", "h", false).exit_code == 0);
    first.join();
    CHECK(run("touch second", "f").exit_code == 0);
    CHECK(turn_of(99, "the command's own 99\n") == Turn::mine);
}

TEST_CASE("a command does not run in another tree than its own") {
    Host host;
    HostCommand command{"touch ran", {}, fmt::format("hold-1.{}g", ::getpid()), 600, {}};
    command.tree = std::string(64, 'a');
    const Answer answer = host.receive(command_script(host.connection(), command));
    CHECK(turn_of(answer.exit_code, answer.err) == Turn::other_tree);
    CHECK(!fs::exists(host.tree() / "ran"));
}

TEST_CASE(
    "a command that needs its tree shares the lock with others, and one with a terminal says its turn in its file") {
    Host host;
    HostCommand command{"touch on; sleep 3", {}, fmt::format("hold-1.{}i", ::getpid()), 600, {}};
    command.tree = *tree_mark("");
    std::jthread first([&] { CHECK(host.receive(command_script(host.connection(), command)).exit_code == 0); });
    while (!fs::exists(host.tree() / "on")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    HostCommand other{"true", {}, fmt::format("hold-1.{}j", ::getpid()), 600, {}};
    other.tree = command.tree;
    CHECK(host.receive(command_script(host.connection(), other)).exit_code == 0);
    const fs::path script = host.tree().parent_path() / "script";
    const auto in_terminal = [&] {
        write_text(script, terminal_script(host.connection(), other));
        return host.receive(fmt::format("sh '{0}' '{0}'; exit #whole", script.string())).exit_code;
    };
    CHECK(in_terminal() == 0);
    CHECK(!fs::exists(script));
    other.alone = true;
    CHECK(in_terminal() == k_turn_code);
    CHECK(turn_of(k_turn_code, read_text(script)) == Turn::busy);
    first.join();
    other.tree = std::string(64, 'a');
    CHECK(in_terminal() == k_turn_code);
    CHECK(turn_of(k_turn_code, read_text(script)) == Turn::other_tree);
}

TEST_CASE("the lease is renewed where there is one") {
    Host host;
    const std::chrono::seconds limit(20);
    CHECK(touch_lease(host.connection(), {}, limit, system_process(), {}));
    const std::string run = run_record(host.connection().lease, "hold-1.1f");
    CHECK(touch_lease(host.connection(), run, limit, system_process(), {}));
    CHECK(!fs::exists(run));  // what its run has removed does not come back
    fs::remove(host.connection().lease);
    const Status renewed = touch_lease(host.connection(), {}, limit, system_process(), {});
    REQUIRE(!renewed);
    CHECK(renewed.error().kind == ErrorKind::remote_missing);
    CHECK(!fs::exists(host.connection().lease));
}

TEST_CASE("over ssh one word carries the line, whatever the login shell is") {
    const HostConnection connection = ssh_connection({"-o", "BatchMode=yes"}, "a", "hold-1");
    const auto argv = host_argv(connection, "echo x");
    CHECK(argv == std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "dev-tpu-a", "exec sh -c 'echo x'"});
    CHECK(connection.lease == "/tmp/gdnctl-hold/hold-1");
}

TEST_CASE("why ssh failed") {
    CHECK(ssh_error("Warning\nalice@h: Permission denied (publickey).\r\n").kind == ErrorKind::authentication);
    CHECK(ssh_error("ssh: connect to host h port 22: Connection refused").message ==
          "ssh: connect to host h port 22: Connection refused");
    CHECK(ssh_error("@ REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.")
              .message.find("key has changed since this hold began") != std::string::npos);
    CHECK(ssh_error("").message == "ssh: the connection was lost");
    const Error many = ssh_error(
        "Received disconnect from 127.0.0.1 port 22:2: Too many authentication failures\r\n"
        "Disconnected from 127.0.0.1 port 22\r\n");
    CHECK(many.kind == ErrorKind::authentication);
    CHECK(many.message == "ssh: Received disconnect from 127.0.0.1 port 22:2: Too many authentication failures");
    CHECK(many.hint.find("IdentitiesOnly") != std::string::npos);
    CHECK(ssh_error("kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.1 port 22")
              .message ==
          "ssh: kex_exchange_identification: read: Connection reset by peer; "
          "Connection reset by 10.0.0.1 port 22");
    CHECK(ssh_error("Load key \"/k\": bad permissions\na@h: Permission denied (publickey).").message ==
          "ssh: Load key \"/k\": bad permissions; a@h: Permission denied (publickey).");
}

TEST_CASE("what a login shell prints first is not the answer") {
    CHECK(after_mark("Welcome\nto host 1gdnctl-begins\n/home/a\n") == "/home/a\n");
    CHECK(after_mark("gdnctl-begins\n").empty());
    CHECK(after_mark("no mark\n") == "no mark\n");
    CHECK(marked("pwd") == "echo gdnctl-begins; pwd");
}

TEST_CASE("a command's input follows its script, and its exit code 255 is told") {
    Host host;
    HostCommand command{
        "read -r a; echo \"got $a\"; cat; exit 255", {}, fmt::format("hold-1.{}e", ::getpid()), 60, {}, true};
    const std::string script = command_script(host.connection(), command);
    const Answer answer = host.ask(receive_line(script.size()), script + std::string("one\ntwo\0three", 13));
    CHECK(answer.out == std::string("got one\ntwo\0three", 17));
    CHECK(answer.exit_code == 254);
    CHECK(answer.err == k_was_255);
    CHECK(host.run("cat; exit 254").err.empty());
}
