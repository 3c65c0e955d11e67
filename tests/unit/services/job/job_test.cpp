#include "services/job/job.h"

#include <fstream>
#include <sstream>

#include <doctest/doctest.h>

#include "core/json.h"
#include "support/temp_dir.h"

namespace gdnctl {

namespace {

JobDetails recorded(const std::string& name) {
    std::ifstream in(std::string(GDNCTL_FIXTURES) + "/jobs/" + name + ".json");
    std::stringstream text;
    text << in.rdbuf();
    const auto details = parse_job_details(text.str());
    REQUIRE_MESSAGE(details, name);
    return *details;
}

JobDetails failed(std::string_view type, std::optional<int> code = std::nullopt, std::string message = "x") {
    JobDetails d;
    d.state = JobState::failed;
    if (!type.empty()) d.error_type = std::string(type);
    d.driver_exit_code = code;
    d.message = std::move(message);
    return d;
}

int exit_of(const JobDetails& d) { return static_cast<int>(classify(d).exit); }

}  // namespace

TEST_CASE("job contract: recorded jobs of a real server end with the contract's exit codes") {
    CHECK(exit_of(recorded("exit3-failed")) == 1);
    CHECK(exit_of(recorded("kill9-failed")) == 1);
    CHECK(recorded("kill9-failed").driver_exit_code == -9);
    CHECK(exit_of(recorded("nocmd-failed")) == 1);
    CHECK(exit_of(recorded("childkill-succeeded")) == 0);
    CHECK(exit_of(recorded("queued-stopped")) == 3);
    CHECK(exit_of(recorded("st-ign-stopped")) == 3);
    CHECK_FALSE(recorded("st-ign-stopped").driver_exit_code);
    CHECK(exit_of(recorded("pend8b-failed")) == 4);
    CHECK(exit_of(recorded("supdie-failed")) == 4);
    // The supervisor failed to start, but because of what was asked for.
    CHECK(exit_of(recorded("tpu3-failed")) == 2);
    CHECK(exit_of(recorded("envint-failed")) == 2);
    CHECK(exit_of(recorded("badwd-failed")) == 2);
    CHECK(exit_of(recorded("pend8-pending")) == 0);
}

TEST_CASE("job contract: messages are word for word those of the real server") {
    CHECK(job_message::pending(true, false) == recorded("pend8-pending").message);
    CHECK(job_message::pending(false, true) == recorded("ok-1-pending").message);
    CHECK(job_message::start_timeout(20) == recorded("pend8b-failed").message);
    CHECK(job_message::k_stopped == recorded("queued-stopped").message);
    CHECK(job_message::k_succeeded == recorded("childkill-succeeded").message);
    const std::string log =
        "2026-11-21 15:07:29,420\tINFO job_manager.py:581 -- Runtime env is setting up.\nRunning entrypoint for job "
        "noout: exit 7\n";
    CHECK(job_message::exit_code(7, log) == recorded("noout-failed").message);
    CHECK(job_message::exit_code(7, "") == "Job entrypoint command failed with exit code 7. No logs available.");
}

TEST_CASE("job contract: the excerpt is the last 10 lines, at most 20,000 characters") {
    std::string log;
    for (int i = 1; i <= 30; ++i) log += "line " + std::to_string(i) + "\n";
    const std::string message = job_message::exit_code(1, log);
    CHECK(
        message.ends_with("chars):\nline 21\nline 22\nline 23\nline 24\nline 25\nline 26\nline 27\nline 28\nline "
                          "29\nline 30\n"));
    const std::string head = job_message::exit_code(1, "x").substr(0, job_message::exit_code(1, "x").size() - 1);
    CHECK(job_message::exit_code(1, std::string(50000, 'a')).size() == head.size() + 20000);
    CHECK(job_message::exit_code(1, "\n") == head + "\n");
}

TEST_CASE("job contract: every error type has its exit code, before the driver's own code is looked at") {
    using namespace job_error;
    for (const auto type : {k_command_error, k_command_start_error, k_runtime_env}) {
        CHECK(classify(failed(type)).exit == ExitCode::check_failed);
        CHECK(classify(failed(type)).failure == FailureClass::user);
    }
    for (const auto type : {k_start_timeout, k_start_failure, k_unschedulable, k_died, k_unknown, k_driver_infra}) {
        CHECK(classify(failed(type)).exit == ExitCode::infrastructure);
        CHECK(classify(failed(type, 1)).exit == ExitCode::infrastructure);  // an infra failure with exit code 1
        CHECK(classify(failed(type)).failure == FailureClass::infra);
    }
    // Types that we do not know: the exit code, then the message.
    CHECK(exit_of(failed("SOMETHING_NEW", 1)) == 1);
    CHECK(exit_of(failed("SOMETHING_NEW", std::nullopt, "Job supervisor actor vanished: x")) == 4);
    CHECK(exit_of(failed("", std::nullopt, "Job failed.")) == 1);
}

TEST_CASE("job contract: a stop that met the end of the command is a stop") {
    const JobDetails raced =
        failed(job_error::k_command_start_error, std::nullopt,
               "Traceback (most recent call last):\n  File \"job_supervisor.py\", line 402, in run\n"
               "    job_process = psutil.Process(child_pid)\n"
               "psutil.NoSuchProcess: process PID not found (pid=29622)");
    CHECK(classify(raced).exit == ExitCode::nothing_done);
    CHECK(classify(raced).failure == FailureClass::stopped);
}

TEST_CASE("job contract: signs of a bad accelerator node make a plain failure suspect, never an infra one") {
    for (const char* sign : {"No accelerator found", "Device or resource busy", "FAILED_PRECONDITION",
                             "The TPU is already in use by another process"}) {
        const JobVerdict v = classify(failed(job_error::k_command_error, 1), std::string("x ") + sign + " y");
        CHECK(v.failure == FailureClass::infra_suspect);
        CHECK(v.exit == ExitCode::check_failed);
    }
    CHECK(classify(failed(job_error::k_died), "No accelerator found").failure == FailureClass::infra);
    CHECK(classify(failed(job_error::k_command_error, 1), "all fine").failure == FailureClass::user);
}

TEST_CASE("job contract: details survive being written and read, unknown keys and nulls are ignored") {
    JobDetails d = failed(job_error::k_command_error, -9, "m\n");
    d.submission_id = "a-1";
    d.entrypoint = "echo \"x\"";
    d.start_time = WallTime(std::chrono::milliseconds(1795273649041));
    d.end_time = WallTime(std::chrono::milliseconds(1795273653378));
    d.metadata = {{"kind", "test"}};
    d.env_names = {"A", "B"};
    d.driver_node_id = "local-h";
    d.driver_pid = 4711;
    const std::string text = to_text(job_details_json(d));
    const auto back = parse_job_details(text);
    REQUIRE(back);
    CHECK(to_text(job_details_json(*back)) == text);
    CHECK(back->driver_pid == 4711);

    CHECK(parse_job_details(R"({"status":"RUNNING","retry_policy":{},"message":null})")->state == JobState::running);
    CHECK(parse_job_details(R"({"status":"WEIRD"})")->state == JobState::unknown);
    CHECK_FALSE(parse_job_details(R"([])"));
    CHECK_FALSE(parse_job_details("{"));
    CHECK_FALSE(parse_job_details(R"({"message":"no status"})"));
}

TEST_CASE("job contract: submission ids") {
    const WallTime t{std::chrono::milliseconds(1773161587000)};
    CHECK(make_submission_id("test", "me", t, 0x0a1b2c3dU) == "gdnctl-test-me-20260310T165307-0a1b2c3d");
    const std::string odd = make_submission_id("test", "j. dœ/\n" + std::string(300, 'x'), t, 1);
    CHECK(check_submission_id(odd));
    CHECK(odd.size() <= 100);
    for (const char* bad : {"", "latest", "a b", "../x", "a/b", "-x", "\xc3\xa9"}) {
        CHECK_FALSE(check_submission_id(bad));
    }
    CHECK_FALSE(check_submission_id(std::string(101, 'a')));
}

TEST_CASE("job contract: the id of a job that exists is any text") {
    for (const char* id : {"etl.daily:2026-01-01", "a b", "a/b", "-x", "\xc3\xa9", "latest2"}) CHECK(check_job_id(id));
    CHECK(check_job_id(std::string(500, 'a')));
    CHECK_FALSE(check_job_id(""));
    CHECK_FALSE(check_job_id("latest"));
}

TEST_CASE("job contract: a state that is not known is kept as the server spells it, and is no success") {
    const auto runs = parse_job_details(R"({"status":"RESTARTING","submission_id":"a"})");
    REQUIRE(runs);
    CHECK(runs->state == JobState::unknown);
    CHECK_FALSE(is_terminal(runs->state));
    CHECK(status_of(*runs) == "RESTARTING");
    const auto ended = parse_job_details(R"({"status":"CANCELLED","submission_id":"b","end_time":5})");
    REQUIRE(ended);
    CHECK(is_terminal(ended->state));
    CHECK(classify(*ended).exit == ExitCode::infrastructure);
    CHECK(job_details_json(*ended)["status"] == "CANCELLED");
    Json object;
    put_job(object, {}, *ended, classify(*ended));
    CHECK(object["status"] == "CANCELLED");
    CHECK(status_of(*parse_job_details(R"({"status":"FAILED"})")) == "FAILED");
}

TEST_CASE("job contract: TPU types and their resources") {
    const auto chips = [](const char* type) { return tpu_resources(type)->at("TPU"); };
    CHECK(chips("v4-8") == 4);
    CHECK(chips("v5p-8") == 4);
    CHECK(chips("v6e-4") == 4);
    CHECK(chips("v6e-8") == 8);
    CHECK(chips("v5litepod-4") == 4);
    CHECK(tpu_resources("v5p-8")->at("TPU-v5p-8-head") == 1);
    CHECK(tpu_resources("v5p-128").error().message == "Only single tpu nodes are supported with the CLI");
    for (const char* bad : {"", "v5p", "8", "-8", "v5p-", "v5p-0"}) {
        CHECK(tpu_resources(bad).error().message.starts_with("Cannot parse TPU type: "));
    }
}

TEST_CASE("job contract: KEY=VALUE items") {
    const auto items = parse_env_items({"A=1", "  ", "_b2=", "C=x=y z"}, "-e");
    REQUIRE(items);
    REQUIRE(items->size() == 3);
    CHECK((*items)[1].value.empty());
    CHECK((*items)[2].value == "x=y z");
    for (const char* bad : {"MISSING_EQUALS", "1BAD=v", "=v", "A B=1", "A-B=1"}) {
        const auto refused = parse_env_items({bad}, "-e");
        REQUIRE_FALSE(refused);
        CHECK(exit_code_of(refused.error().kind) == ExitCode::usage);
    }
    // The value may be a secret.
    CHECK(parse_env_items({"BAD-KEY=hunter2"}, "-e").error().message.find("hunter2") == std::string::npos);
}

TEST_CASE("job contract: what travels with a job") {
    for (const char* yes : {"a.py", "lib/levanter/src/x.py", "docs.md", "src/docs/x", "venvs/x", ".gitignore"}) {
        CHECK_MESSAGE(is_packaged(yes), yes);
    }
    for (const char* no : {"a.mov", "x.pyc", "docs/x.md", "docs", "lib/levanter/docs/a", "a/__pycache__/b.py",
                           ".git/config", "a/.venv/bin/python", "node_modules/x", "p.egg-info/PKG", "x.pack",
                           "a/tests/snapshot/x", "q/docs/figures/a.png", ".ruff_cache/x"}) {
        CHECK_MESSAGE(!is_packaged(no), no);
    }
}

TEST_CASE("job contract: the JSON of a job has its keys in one order") {
    Json out;
    out["schema"] = "x";
    put_job(out, {"local", "local", "/s", "file:///s"}, failed(job_error::k_died), {FailureClass::infra, ExitCode::ok});
    CHECK(to_text(out) ==
          R"({"schema":"x","backend":"local","cluster":"local","address":"/s","submission_id":"","status":"FAILED",)"
          R"("error_type":"JOB_SUPERVISOR_ACTOR_DIED","message":"x","failure_class":"infra","driver_exit_code":null,)"
          R"("start_time":null,"end_time":null,"url":"file:///s"})");
}

// The files of a working tree as a job on this machine gets them.

namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TempDir;
using test::write_text;

std::string copied(const WorkingTree& tree, const fs::path& into, std::uint64_t limit = k_package_limit) {
    const Status done = copy_tree(tree, into, {}, limit);
    return done ? "ok" : done.error().message;
}

}  // namespace

TEST_CASE("tree copy: files with their exec bits, links followed, what has gone left out") {
    const TempDir dir;
    const fs::path root = dir / "tree", work = dir / "work";
    const std::string large(std::size_t{5} << 20, 'x');
    write_text(root / "run.sh", "#!/bin/sh\n");
    fs::permissions(root / "run.sh", fs::perms(0700));
    write_text(root / "sub/deep/a.c", "a");
    write_text(root / "sub/b.c", "b");
    write_text(root / "large", large);
    write_text(root / "empty", "");
    fs::create_symlink("sub/b.c", root / "link");
    fs::create_directory_symlink("sub", root / "folder");
    fs::create_symlink("nothing", root / "broken");
    const WorkingTree tree{
        root, {"broken", "empty", "folder/b.c", "gone", "large", "link", "run.sh", "sub/b.c", "sub/deep/a.c"}};
    REQUIRE(copied(tree, work) == "ok");
    CHECK(test::list_names(work) == "empty folder large link run.sh sub");
    CHECK(read_text(work / "large") == large);
    CHECK(read_text(work / "sub/deep/a.c") == "a");
    for (const char* name : {"link", "folder"}) CHECK_FALSE(fs::is_symlink(work / name));
    CHECK(read_text(work / "link") == "b");
    CHECK(read_text(work / "folder/b.c") == "b");
    const auto executable = [&](const char* name) {
        return (fs::status(work / name).permissions() & fs::perms::owner_exec) != fs::perms::none;
    };
    CHECK(executable("run.sh"));
    CHECK_FALSE(executable("link"));
    // A job's copy is its own.
    write_text(work / "sub/b.c", "changed");
    CHECK(read_text(root / "sub/b.c") == "b");
}

TEST_CASE("tree copy: nothing from outside the tree, and nothing after a stop request") {
    const TempDir dir;
    write_text(dir / "secret", "s");
    write_text(dir / "tree/a", "a");
    fs::create_symlink("../secret", dir / "tree/out");
    CHECK(copied({dir / "tree", {"a", "out"}}, dir / "work").starts_with("unsafe path: out leads out"));
    std::stop_source stop;
    stop.request_stop();
    const Status stopped = copy_tree({dir / "tree", {"a"}}, dir / "stopped", stop.get_token());
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind == ErrorKind::interrupted);
}

TEST_CASE("tree copy: the limit is that of the package, whatever size the files have") {
    const TempDir dir;
    write_text(dir / "tree/zeros", std::string(100'000, '\0'));
    CHECK(copied({dir / "tree", {"zeros"}}, dir / "work", 10'000) == "ok");
    CHECK(fs::file_size(dir / "work/zeros") == 100'000);
    CHECK_FALSE(fs::exists(dir / "package.zip"));
    CHECK(copied({dir / "tree", {"zeros"}}, dir / "other", 50).find("more than 50 bytes") != std::string::npos);
    // A file that was added counts, too, and is named.
    write_text(dir / "program", std::string(900'000, '\0'));
    const Error error = package_too_large({dir / "tree", {"zeros"}, {{"bin/program", dir / "program"}}}, 50);
    CHECK(error.message.ends_with("it would hold 2 files of 1.0 MB"));
    CHECK(error.hint.ends_with("the largest:\n        900000  bin/program\n        100000  zeros"));
}

}  // namespace gdnctl
