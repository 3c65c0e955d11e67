#include "platform/terminal.h"

#include <array>
#include <cstdlib>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "platform/fs.h"
#include "support/fake_env.h"
#include "support/faults.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using test::FakeEnv;
using test::TempDir;

namespace {

struct Pipe {
    Pipe() {
        std::array<int, 2> ends{};
        REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
        in.reset(ends[0]);
        out.reset(ends[1]);
    }
    std::string content() const {
        std::array<char, 4096> piece{};
        const ssize_t n = read(in.get(), piece.data(), piece.size());
        return n > 0 ? std::string(piece.data(), static_cast<std::size_t>(n)) : std::string();
    }
    UniqueFd in, out;
};

// Both sides of a pseudo-terminal that is 123 columns wide.
struct Tty {
    Tty() {
        us.reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
        REQUIRE(us.valid());
        REQUIRE(grantpt(us.get()) == 0);
        REQUIRE(unlockpt(us.get()) == 0);
        program.reset(open(ptsname(us.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
        REQUIRE(program.valid());
        winsize size{};
        size.ws_col = 123;
        REQUIRE(ioctl(program.get(), TIOCSWINSZ, &size) == 0);
    }
    // What the program wrote, to the first `last` or until nothing comes for 5 s: a terminal hands it on when it likes.
    std::string read_until(char last) const {
        std::string seen;
        pollfd waiting{us.get(), POLLIN, 0};
        char c = 0;
        while ((seen.empty() || seen.back() != last) && poll(&waiting, 1, 5000) == 1 && read(us.get(), &c, 1) == 1) {
            seen += c;
        }
        return seen;
    }

    UniqueFd us, program;
};

}  // namespace

TEST_CASE("terminal: a pipe is written at flush and at the end") {
    const FakeEnv env;
    const Pipe out;
    {
        const auto terminal = make_terminal(ColorMode::automatic, env, out.out.get(), 2);
        terminal->out("a\n");
        CHECK(out.content().empty());
        REQUIRE(terminal->flush());
        CHECK(out.content() == "a\n");
        terminal->out("b");
    }
    CHECK(out.content() == "b");
}

TEST_CASE("terminal: a reader that has left is noticed and is no error") {
    const FakeEnv env;
    Pipe out;
    const auto terminal = make_terminal(ColorMode::automatic, env, out.out.get(), 2);
    out.in.reset();
    CHECK_FALSE(terminal->out_closed());
    terminal->out("a\n");
    CHECK(terminal->flush());
    CHECK(terminal->out_closed());
    terminal->out(std::string(1 << 20, 'x'));
    CHECK(terminal->flush());
}

TEST_CASE("terminal: a full disk is reported once") {
    const FakeEnv env;
    const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
    const auto terminal = make_terminal(ColorMode::automatic, env, full.get(), 2);
    terminal->out("a");
    const auto status = terminal->flush();
    REQUIRE_FALSE(status);
    CHECK(status.error().kind == ErrorKind::local_io);
    CHECK(status.error().message == "cannot write to standard output: No space left on device");
    CHECK_FALSE(status.error().hint.empty());
    CHECK_FALSE(terminal->out_closed());
    terminal->out("b");
    CHECK(terminal->flush());
}

TEST_CASE("terminal: a file size limit is reported, not died of") {
    const FakeEnv env;
    const TempDir dir;
    const UniqueFd file(open((dir / "out").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    const test::FileSizeLimit limit(10);
    const auto terminal = make_terminal(ColorMode::automatic, env, file.get(), 2);
    terminal->out(std::string(100, 'x'));
    CHECK(terminal->flush().error().message == "cannot write to standard output: File too large");
}

TEST_CASE("terminal: closed standard streams are errors, and no file takes their place") {
    const auto end = test::in_child([] {
        close(0);
        close(1);
        close(2);
        const FakeEnv env;
        const auto terminal = make_terminal(ColorMode::automatic, env);
        const UniqueFd file(open("/dev/null", O_WRONLY | O_CLOEXEC));
        if (file.get() <= 2) return 1;
        terminal->err("dropped");
        if (!terminal->flush()) return 2;  // nothing written, nothing wrong
        terminal->out("x");
        const auto status = terminal->flush();
        return !status && status.error().message == "cannot write to standard output: Bad file descriptor" ? 0 : 3;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("terminal: a slow reader of a non-blocking pipe gets everything") {
    const FakeEnv env;
    Pipe out;
    const std::string text(300000, 'x');
    const auto end = test::in_child([&] {
        out.in.reset();
        const auto terminal = make_terminal(ColorMode::automatic, env, 1, 2);
        fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
        terminal->out(text);
        return terminal->flush() ? 0 : 1;
    });
    CHECK(end.exit_code == 0);
    CHECK((end.output == text));  // too long to be shown
}

TEST_CASE("terminal: a TTY gets lines at once, in the order of both streams") {
    const FakeEnv env;
    const Tty tty;
    const auto terminal = make_terminal(ColorMode::automatic, env, tty.program.get(), tty.program.get());
    CHECK(terminal->out_is_tty());
    CHECK(terminal->err_is_tty());
    terminal->out("one\ntw");
    terminal->out("o");
    terminal->err("!");
    CHECK(tty.read_until('!') == "one\r\ntwo!");  // without a flush
}

TEST_CASE("terminal: a TTY gets text and colours, and shows every other control sequence") {
    const FakeEnv env;
    const Tty tty;
    const auto terminal = make_terminal(ColorMode::automatic, env, tty.program.get(), tty.program.get());
    terminal->out("\x1B[1;31mred\x1B[0m \x1B]0;title\x07 \x1B[2J \u202E \u009B2J|");
    REQUIRE(terminal->flush());
    CHECK(tty.read_until('|') == "\x1B[1;31mred\x1B[0m \\x1b]0;title\\x07 \\x1b[2J \\u202e \\x9b2J|");
    for (const std::string_view piece :
         {"10 %\r", "20 %\r\nend \x1B[3", "1mred\x1B", "[0m \xCE", "\xB2 \x1B[3", "K|"}) {
        terminal->err(piece);
    }
    CHECK(tty.read_until('|') == "10 %\r\n20 %\r\nend \x1B[31mred\x1B[0m \xCE\xB2 \\x1b[3K|");
    terminal->move_err("\r\x1B[K|");
    CHECK(tty.read_until('|') == "\r\x1B[K|");
}

TEST_CASE("terminal: a pipe gets the bytes as they are") {
    const FakeEnv env;
    const Pipe out;
    const auto terminal = make_terminal(ColorMode::automatic, env, out.out.get(), 2);
    terminal->out("\x1B[2J\r\xFF");
    REQUIRE(terminal->flush());
    CHECK(out.content() == "\x1B[2J\r\xFF");
}

TEST_CASE("terminal: width from COLUMNS, from the TTY, or a default") {
    const Tty tty;
    const Pipe pipe;
    const auto columns = [&](const FakeEnv& env, int out, int err) {
        return make_terminal(ColorMode::automatic, env, out, err)->columns();
    };
    CHECK(columns({{"COLUMNS", "77"}}, tty.program.get(), 2) == 77);
    CHECK(columns({{"COLUMNS", "7"}}, tty.program.get(), 2) == 40);
    CHECK(columns({{"COLUMNS", "wide"}}, tty.program.get(), 2) == 123);
    CHECK(columns({{"COLUMNS", ""}}, pipe.out.get(), tty.program.get()) == 123);
    CHECK(columns({}, pipe.out.get(), pipe.out.get()) == 100);
}

TEST_CASE("terminal: colour follows option, NO_COLOR, TTY and TERM, in this order") {
    const Tty tty;
    const Pipe pipe;
    const auto color = [&](ColorMode mode, const FakeEnv& env, int out) {
        return make_terminal(mode, env, out, pipe.out.get())->color_out();
    };
    const FakeEnv plain{{"TERM", "xterm"}};
    CHECK(color(ColorMode::automatic, plain, tty.program.get()));
    CHECK_FALSE(color(ColorMode::automatic, plain, pipe.out.get()));
    CHECK_FALSE(color(ColorMode::never, plain, tty.program.get()));
    CHECK(color(ColorMode::always, {{"NO_COLOR", "1"}}, pipe.out.get()));
    CHECK_FALSE(color(ColorMode::automatic, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}, tty.program.get()));
    CHECK(color(ColorMode::automatic, {{"TERM", "xterm"}, {"NO_COLOR", ""}}, tty.program.get()));
    CHECK_FALSE(color(ColorMode::automatic, {{"TERM", "dumb"}}, tty.program.get()));
    CHECK_FALSE(color(ColorMode::automatic, {}, tty.program.get()));
    const auto terminal = make_terminal(ColorMode::automatic, plain, pipe.out.get(), tty.program.get());
    CHECK_FALSE(terminal->color_out());
    CHECK(terminal->color_err());
}
