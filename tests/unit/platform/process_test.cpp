#include "platform/process.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temp_dir.h"
#include "unit/platform/process_support.h"

using namespace gdnctl;
using namespace gdnctl::test;
using End = ProcessResult::End;

TEST_CASE("process: output, error output and exit code") {
    const auto result = must_run(shell("echo out; echo err >&2; exit 3"));
    CHECK(result.end == End::exited);
    CHECK(result.exit_code == 3);
    CHECK(result.out == "out\n");
    CHECK(result.err == "err\n");
    CHECK(result.swept == 0);
    CHECK_FALSE(result.ok());
}

TEST_CASE("process: exit code 255 and death by signal are results") {
    CHECK(must_run(shell("exit 255")).exit_code == 255);
    const auto killed = must_run(shell("kill -KILL $$"));
    CHECK(killed.end == End::signalled);
    CHECK(killed.exit_code == -SIGKILL);
    CHECK(describe_end(killed, {}) == "was killed by signal 9 (Killed)");
}

TEST_CASE("process: a limit on the size of files kills a program, or is an error of its writes") {
    const std::string writes = "kill -XFSZ $$; echo goes on";
    CHECK(must_run(shell(writes)).exit_code == -SIGXFSZ);
    auto spec = shell(writes);
    spec.survives_size_limit = true;
    CHECK(must_run(spec).out == "goes on\n");
}

TEST_CASE("process: lines come one by one, the last without newline too") {
    std::vector<std::string> lines;
    auto spec = shell("printf 'a\\n\\nb\\nlast'; echo err >&2");
    spec.on_stdout_line = [&](std::string_view line) { lines.emplace_back(line); };
    const auto result = must_run(spec);
    CHECK(lines == std::vector<std::string>{"a", "", "b", "last"});
    CHECK(result.out.empty());
    CHECK(result.err == "err\n");
}

TEST_CASE("process: bytes come as they are, the last line's missing newline too") {
    std::string out, err;
    auto spec = shell("printf 'a\\0\\n\\377'; printf no-end >&2");
    spec.on_stdout = [&](std::string_view bytes) { out += bytes; };
    spec.on_stderr = [&](std::string_view bytes) { err += bytes; };
    const auto result = must_run(spec);
    CHECK(out == std::string("a\0\n\377", 4));
    CHECK(err == "no-end");
    CHECK(result.out.empty());
    CHECK(result.err.empty());
}

TEST_CASE("process: stderr merged into stdout keeps the order") {
    auto spec = shell("echo 1; echo 2 >&2; echo 3");
    spec.merge_stderr = true;
    CHECK(must_run(spec).out == "1\n2\n3\n");
}

TEST_CASE("process: capture limit keeps the beginning and says so") {
    auto spec = helper("floods_both");
    spec.capture_limit = 1000;
    const auto result = must_run(spec);
    CHECK(result.out.size() == 1000);
    CHECK(result.out_truncated);
    CHECK(result.err_truncated);
    CHECK(result.ok());
}

TEST_CASE("process: a megabyte on both pipes does not block") {
    const auto result = must_run(helper("floods_both"));
    CHECK(result.ok());
    CHECK(result.out.size() == std::size_t{1} << 20);
    CHECK(result.err.size() == std::size_t{1} << 20);
    CHECK_FALSE(result.out_truncated);
}

TEST_CASE("process: an endless line is cut at the capture limit") {
    std::size_t longest = 0;
    auto spec = helper("floods_both");
    spec.capture_limit = 100;
    spec.on_stdout_line = [&](std::string_view line) { longest = std::max(longest, line.size()); };
    CHECK(must_run(spec).out_truncated);
    CHECK(longest == 100);
}

TEST_CASE("process: stdin is fed while output is read") {
    ProcessSpec spec;
    spec.argv = {"cat"};
    spec.stdin_bytes = std::string(std::size_t{3} << 20, 'y');
    CHECK(must_run(spec).out == spec.stdin_bytes);
}

TEST_CASE("process: what comes through a descriptor follows, in its own time, and need not end") {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    const std::string much(std::size_t{3} << 20, 'z');
    std::thread writer([&] {
        for (std::size_t at = 0; at < much.size();) {
            const ssize_t n = write(ends[1], much.data() + at, much.size() - at);
            if (n <= 0) break;
            at += static_cast<std::size_t>(n);
        }
        close(ends[1]);
    });
    ProcessSpec spec;
    spec.argv = {"cat"};
    spec.stdin_bytes = "first ";
    spec.stdin_fd = ends[0];
    CHECK(must_run(spec).out == "first " + much);
    writer.join();
    close(ends[0]);
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    spec.argv = {"head", "-c", "3"};
    spec.stdin_fd = ends[0];
    CHECK(must_run(spec).out == "fir");  // although the pipe stays open
    close(ends[0]);
    close(ends[1]);
}

TEST_CASE("process: without input stdin is empty") {
    ProcessSpec spec;
    spec.argv = {"cat"};
    CHECK(must_run(spec).out.empty());
}

TEST_CASE("process: a child that reads nothing or closes stdin early is fine") {
    ProcessSpec spec;
    spec.argv = {"true"};
    spec.stdin_bytes = std::string(std::size_t{3} << 20, 'y');
    CHECK(must_run(spec).ok());
    spec.argv = helper("closes_stdin").argv;
    const auto result = must_run(spec);
    CHECK(result.ok());
    CHECK(result.out == "y");
}

TEST_CASE("process: streams from and to files, which are appended to") {
    const TempDir dir;
    write_text(dir / "in", "text");
    write_text(dir / "out", "before ");
    auto spec = shell("cat; echo err >&2");
    spec.stdin_file = dir / "in";
    spec.stdout_file = dir / "out";
    spec.stderr_file = dir / "err";
    const auto result = must_run(spec);
    CHECK(result.out.empty());
    CHECK(read_text(dir / "out") == "before text");
    CHECK(read_text(dir / "err") == "err\n");
    struct stat facts{};
    REQUIRE(stat((dir / "err").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777U) == 0600);
}

TEST_CASE("process: environment and working folder") {
    const TempDir dir;
    setenv("GDNCTL_TEST_GONE", "1", 1);
    auto spec = shell("pwd; echo \"$NAME ${GDNCTL_TEST_GONE-unset}\"");
    spec.cwd = dir.path();
    spec.env = {{"NAME", "a b"}, {"GDNCTL_TEST_GONE", std::nullopt}};
    CHECK(must_run(spec).out == dir.path().string() + "\na b unset\n");
    spec = shell("echo ${HOME-unset}");
    spec.clean_env = true;
    CHECK(must_run(spec).out == "unset\n");
    unsetenv("GDNCTL_TEST_GONE");
}

TEST_CASE("process: marks nest") {
    auto spec = shell("echo $GDNCTL_PROCESS_MARK");
    const std::string outer = must_run(spec).out;
    CHECK(outer.starts_with(fmt::format("{}-", getpid())));
    setenv("GDNCTL_PROCESS_MARK", "outer", 1);
    CHECK(must_run(spec).out.starts_with("outer:"));
    unsetenv("GDNCTL_PROCESS_MARK");
    CHECK(must_run(spec).out != outer);
}

TEST_CASE("process: a program of its own group or session") {
    const auto group = must_run(shell("ps -o pid=,pgid= -p $$"));
    const auto words = [](const std::string& line) {
        return text::shell_split(line).value_or(std::vector<std::string>{});
    };
    REQUIRE(words(group.out).size() == 2);
    CHECK(words(group.out)[0] == words(group.out)[1]);
    auto spec = shell("ps -o pid=,sid= -p $$");
    spec.new_session = true;
    const auto session = must_run(spec);
    CHECK(words(session.out)[0] == words(session.out)[1]);
}

TEST_CASE("process: what cannot be started is said with the reason") {
    const TempDir dir;
    ProcessSpec spec;
    CHECK(must_fail(spec).kind == ErrorKind::usage);

    spec.argv = {"no-such-program"};
    auto error = must_fail(spec);
    CHECK(error.kind == ErrorKind::local_io);
    CHECK(error.message == "cannot run 'no-such-program': not found in PATH");
    CHECK(error.hint == "install 'no-such-program', or add its folder to PATH");

    spec.argv = {(dir / "absent").string()};
    CHECK(must_fail(spec).message == fmt::format("cannot run '{}': No such file or directory", spec.argv[0]));

    write_text(dir / "plain", "#!/bin/sh\n");
    spec.argv = {(dir / "plain").string()};
    error = must_fail(spec);
    CHECK(error.message == fmt::format("cannot run '{}': Permission denied", spec.argv[0]));
    CHECK(error.hint == "make it executable: chmod +x " + spec.argv[0]);

    spec.argv = {"true"};
    spec.cwd = dir / "nowhere";
    CHECK(must_fail(spec).message ==
          fmt::format("cannot run 'true' in {}: No such file or directory", spec.cwd.string()));

    spec.cwd.clear();
    spec.stdout_file = dir / "nowhere" / "out";
    CHECK(must_fail(spec).message ==
          fmt::format("cannot write {}: No such file or directory", spec.stdout_file.string()));
}

TEST_CASE("process: PATH of the child decides, relative folders start at its working folder") {
    const TempDir dir;
    write_text(dir / "bin/tool", "#!/bin/sh\necho found\n");
    std::filesystem::permissions(dir / "bin/tool", std::filesystem::perms::owner_all);
    ProcessSpec spec;
    spec.argv = {"tool"};
    spec.cwd = dir.path();
    spec.env = {{"PATH", "/nowhere:bin"}};
    CHECK(must_run(spec).out == "found\n");
}
