#include "platform/shown_process.h"

#include <doctest/doctest.h>

#include "support/fake_clock.h"
#include "support/fake_process.h"
#include "support/fake_terminal.h"

using namespace gdnctl;
using namespace std::chrono_literals;

TEST_CASE("shown process: gcloud's command and time are on the terminal after two seconds, and gone at the end") {
    test::FakeProcess inner;
    test::FakeTerminal terminal;
    test::FakeClock clock;
    terminal.err_tty = true;
    inner.expect({"gcloud", "compute", "instances", "list", "--project=p"}, ProcessResult{}, [&](const auto& spec) {
        REQUIRE(spec.watch);
        CHECK(spec.watch());
        CHECK(terminal.err_text.empty());
        clock.advance(3s);
        CHECK(spec.watch());
        CHECK(terminal.err_text == "\r\x1b[K[gdnctl] gcloud compute instances list: 3 s");
        terminal.err_text.clear();
    });
    ShownProcess shown(inner, terminal, clock, false);
    ProcessSpec spec;
    spec.argv = {"gcloud", "compute", "instances", "list", "--project=p"};
    CHECK(shown.run(spec));
    CHECK(terminal.err_text == "\r\x1b[K");
}

TEST_CASE("shown process: the caller's watch still decides, and other programs are run as they are") {
    test::FakeProcess inner;
    test::FakeTerminal terminal;
    test::FakeClock clock;
    inner.expect({"gcloud", "info"}, ProcessResult{}, [](const auto& spec) { CHECK_FALSE(spec.watch()); });
    inner.expect({"git", "status"}, ProcessResult{}, [](const auto& spec) { CHECK_FALSE(spec.watch); });
    ShownProcess shown(inner, terminal, clock, true);
    ProcessSpec spec;
    spec.argv = {"gcloud", "info"};
    spec.watch = [] { return false; };
    CHECK(shown.run(spec));
    ProcessSpec other;
    other.argv = {"git", "status"};
    CHECK(shown.run(other));
    CHECK(terminal.err_text.empty());
}
