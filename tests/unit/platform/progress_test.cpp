#include "platform/progress.h"

#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "core/log.h"
#include "support/fake_clock.h"
#include "support/fake_terminal.h"

using namespace gdnctl;
using namespace std::chrono_literals;

namespace {

std::vector<std::string> g_lines;

struct CaughtLog {
    CaughtLog() {
        g_lines.clear();
        log::set_sink([](log::Level, std::string_view line) { g_lines.emplace_back(line); });
    }
    ~CaughtLog() { log::set_sink(nullptr); }
};

struct World {
    CaughtLog log;
    test::FakeTerminal terminal;
    test::FakeClock clock;
};

}  // namespace

TEST_CASE("progress: a bar with rate and time left on a TTY, at most ten times a second") {
    World world;
    world.terminal.err_tty = true;
    Progress progress(world.terminal, world.clock, {.label = "reading", .total = 100'000'000});
    progress.update(0);
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] reading: [....................]   0% 0 B of 100 MB");
    world.terminal.err_text.clear();
    world.clock.advance(99ms);
    progress.update(1000);
    CHECK(world.terminal.err_text.empty());
    world.clock.advance(1901ms);
    progress.update(50'000'000);
    CHECK(world.terminal.err_text ==
          "\r\x1b[K[gdnctl] reading: [##########..........]  50% 50.0 MB of 100 MB, 25.0 MB/s, 2.0 s left");
    world.terminal.err_text.clear();
    progress.finish();
    CHECK(world.terminal.err_text == "\r\x1b[K");
    progress.update(60'000'000);
    CHECK(world.terminal.err_text == "\r\x1b[K");
    CHECK(g_lines.empty());
}

TEST_CASE("progress: a narrow terminal loses the bar first, and no line wraps") {
    World world;
    world.terminal.err_tty = true;
    world.terminal.width = 40;
    Progress progress(world.terminal, world.clock, {.label = "a rather long label", .total = 1000});
    progress.update(10);
    world.clock.advance(1s);
    world.terminal.err_text.clear();
    progress.update(500);
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] a rather long label: 500 B of");
    CHECK(world.terminal.err_text.find('#') == std::string::npos);
}

TEST_CASE("progress: elsewhere a line after ten seconds or a tenth of the work") {
    World world;
    Progress progress(world.terminal, world.clock, {.label = "judging", .unit = "cases", .total = 100});
    progress.update(0);
    world.clock.advance(500ms);
    progress.update(10);
    CHECK(g_lines.empty());
    world.clock.advance(500ms);
    progress.update(10);
    REQUIRE(g_lines.size() == 1);
    CHECK(g_lines[0].ends_with("judging: 10 %, 10 of 100 cases, 9.0 s left"));
    world.clock.advance(9s);
    progress.update(11);
    CHECK(g_lines.size() == 1);
    world.clock.advance(1s);
    progress.update(11);
    CHECK(g_lines.size() == 2);
    CHECK(world.terminal.err_text.empty());
}

TEST_CASE("progress: unknown total, and a resumed start does not flatter the rate") {
    World world;
    Progress progress(world.terminal, world.clock, {.label = "fetching"});
    progress.update(1'000'000);
    world.clock.advance(10s);
    progress.update(1'010'000);
    REQUIRE(g_lines.size() == 1);
    CHECK(g_lines[0].ends_with("fetching: 1.0 MB, 1.0 kB/s"));
}

TEST_CASE("progress: quiet shows nothing, secrets are masked, a jump of the wall clock changes nothing") {
    World world;
    {
        Progress quiet(world.terminal, world.clock, {.label = "x", .total = 10, .quiet = true});
        quiet.update(0);
        world.clock.advance(100s);
        quiet.update(5);
    }
    Progress progress(world.terminal, world.clock,
                      {.label = "from hf_abcdefghijklmnopqrstuvwxyz0123456789", .total = 10});
    progress.update(0);
    world.clock.jump_wall(100h);
    progress.update(0);
    CHECK(g_lines.empty());
    world.clock.advance(10s);
    progress.update(5);
    REQUIRE(g_lines.size() == 1);
    CHECK(g_lines[0].find("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
}

TEST_CASE("progress: short work leaves the terminal alone") {
    World world;
    world.terminal.err_tty = true;
    Progress progress(world.terminal, world.clock,
                      {.label = "timing", .unit = "turns", .total = 10, .after = std::chrono::seconds(2)});
    progress.update(0);
    world.clock.advance(1999ms);
    progress.update(5);
    CHECK(world.terminal.err_text.empty());
    world.clock.advance(1ms);
    progress.note("builtin:fused");
    progress.update(5);
    CHECK(world.terminal.err_text ==
          "\r\x1b[K[gdnctl] timing: [##########..........]  50% 5 of 10 turns, 2.0 s left, builtin:fused");
}

TEST_CASE("progress: work that counts nothing shows its time and the latest note") {
    World world;
    world.terminal.err_tty = true;
    Progress progress(world.terminal, world.clock, {.label = "verifying attempt 4"});
    progress.note("test");
    progress.tick();
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] verifying attempt 4: ..., test");
    world.terminal.err_text.clear();
    world.clock.advance(500ms);
    progress.tick();
    CHECK(world.terminal.err_text.empty());
    progress.note("pair 1 of at most 9");
    progress.tick();
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] verifying attempt 4: ..., pair 1 of at most 9");
    world.terminal.err_text.clear();
    world.clock.advance(62s);
    progress.tick();
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] verifying attempt 4: 1 min 2 s, pair 1 of at most 9");
}

TEST_CASE("progress: elsewhere such work writes a line every half minute") {
    World world;
    Progress progress(world.terminal, world.clock, {.label = "gcloud compute"});
    progress.tick();
    world.clock.advance(29s);
    progress.tick();
    CHECK(g_lines.empty());
    world.clock.advance(1s);
    progress.tick();
    REQUIRE(g_lines.size() == 1);
    CHECK(g_lines[0].ends_with("gcloud compute: 30 s"));
    CHECK(world.terminal.err_text.empty());
}

TEST_CASE("progress: a line that is too long ends between two facts") {
    World world;
    world.terminal.err_tty = true;
    world.terminal.width = 60;
    Progress progress(world.terminal, world.clock, {.label = "judging attempt 12"});
    progress.note("pair 3 of at most 9, the candidate 1.012x as fast so far");
    progress.tick();
    CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] judging attempt 12: ..., pair 3 of at most 9");
}

TEST_CASE("progress: a question from another thread draws nothing") {
    World world;
    world.terminal.err_tty = true;
    Progress progress(world.terminal, world.clock, {.label = "comparing"});
    const auto asked = ticking(progress, [] { return true; });
    bool answer = false;
    std::thread([&] { answer = asked(); }).join();
    CHECK(answer);
    CHECK(world.terminal.err_text.empty());
    CHECK(asked());
    CHECK_FALSE(world.terminal.err_text.empty());
}

TEST_CASE("progress: what waits keeps the innermost clock ticking, one on the terminal before one that is not") {
    World world, file;
    world.terminal.err_tty = true;
    CHECK_FALSE(Progress::is_live());
    Progress::keep_ticking();
    Progress outer(world.terminal, world.clock, {.label = "outer"});
    {
        Progress inner(file.terminal, world.clock, {.label = "inner"});
        Progress::keep_ticking();
        CHECK(world.terminal.err_text == "\r\x1b[K[gdnctl] outer: ...");
    }
    {
        Progress inner(world.terminal, world.clock, {.label = "inner"});
        Progress::keep_ticking();
        CHECK(world.terminal.err_text.ends_with("[gdnctl] inner: ..."));
        inner.update(1);
        world.terminal.err_text.clear();
        world.clock.advance(5s);
        Progress::keep_ticking();  // it counts
        CHECK(world.terminal.err_text.empty());
    }
    Progress::keep_ticking();
    CHECK(world.terminal.err_text.ends_with("[gdnctl] outer: 5 s"));
    outer.finish();
    CHECK_FALSE(Progress::is_live());
}
