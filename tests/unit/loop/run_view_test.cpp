// What people are shown of a journal.
#include "loop/memory/run_view.h"

#include <unistd.h>

#include "loop/engine/log_dir.h"
#include "loop_fixture.h"
#include "platform/fs.h"
#include "run_script.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("run view: texts of others come as one line, without secrets and without control") {
    CHECK(shown("a\nb\r\tc\x1b[31m\x7f") == "a\\nb\\r\\tc\\x1b[31m\\x7f");
    CHECK(shown("caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80") == "caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80");
    CHECK(shown("x\xc2\x85y\xe2\x80\xaez") == "x\\x85y\\u202ez");
    CHECK(shown("\xff\xfe") == "\xef\xbf\xbd\xef\xbf\xbd");
    CHECK(shown("key hf_abcdefghijklmnopqrstuvwxyz012345").find("abcdef") == std::string::npos);
    CHECK(shown("").empty());
    CHECK(shown(std::string_view("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("run view: what does not fit is cut between characters") {
    CHECK(shown("abcdef", 6) == "abcdef");
    CHECK(shown("abcdef", 5) == "abcd…");
    CHECK(shown("wider tiles keep", 14) == "wider tiles…");
    CHECK(shown("wider tiles keep", 12) == "wider tiles…");
    CHECK(shown("\xe6\xbc\xa2\xe6\xbc\xa2\xe6\xbc\xa2", 2) == "\xe6\xbc\xa2…");
    CHECK(shown("abc\n", 4) == "abc…");  // the escape is two wide
    CHECK(shown("abc\n", 5) == "abc\\n");
    CHECK(shown("ab", 1) == "…");
    // Shown twice is shown once.
    for (const char* text : {"a\nb", "\x1b[0m", "back\\slash"}) CHECK(shown(shown(text)) == shown(text));
}

TEST_CASE("run view: a title is cut before the reason, and the reason last") {
    CHECK(title_and_why("Skip the last decay", "tests failed", 40) == "Skip the last decay: tests failed");
    CHECK(title_and_why("Skip the last decay", "tests failed", 27) == "Skip the…: tests failed");
    CHECK(title_and_why("Skip the last decay", "tests failed", 20) == "Skip the…: tests…");
    CHECK(title_and_why("Skip", "tests failed", 20) == "Skip: tests failed");
    CHECK(title_and_why("", "tests failed", 8) == "tests…");
    CHECK(title_and_why("Skip the last decay", "", 8) == "Skip…");
}

TEST_CASE("run view: the dates of a run") {
    CHECK(dates_text("2026-03-10T10:00:00Z", "2026-03-10T10:01:30Z").find(":00 to ") == 13);
    CHECK(dates_text("2026-03-10T10:00:00Z", "2026-03-14T10:01:30Z").find(" to 2026-03-14 ") != std::string::npos);
    CHECK(dates_text("", "2026-03-14T10:01:30Z").empty());
}

TEST_CASE("run view: gates are read with their numbers, everything else is a fact") {
    const auto pass = *parse_gate("while_ms", "pass 4.1 <= 5.0");
    CHECK(pass == GateView{"while_ms", "pass", 4.1, 5.0, "<=", ""});
    const auto failed = *parse_gate("w", "fail 6.25 <= 5 `while_ms` increased by 6.25 ms");
    CHECK(failed.value == 6.25);
    CHECK(failed.words == "`while_ms` increased by 6.25 ms");
    const auto skipped = *parse_gate("c", "skip no value in the baseline");
    CHECK_FALSE(skipped.value);
    CHECK(skipped.words == "no value in the baseline");
    CHECK(parse_gate("c", "skip")->words.empty());
    CHECK(parse_gate("c", "fail 3 of 5")->words == "3 of 5");
    CHECK_FALSE(parse_gate("v", "4.1"));
    CHECK_FALSE(parse_gate("v", ""));
    CHECK_FALSE(parse_gate("v", "passed 87"));
}

TEST_CASE("run view: an iteration has its attempts, stages, gates, decision and cost") {
    const RunView view = view_of(scripted_run(4));
    REQUIRE(view.iterations.size() == 4);
    CHECK(view.ended == 3);
    CHECK(view.open == 4);
    CHECK(view.total == 10);
    const IterationView& second = *view.find(2);
    CHECK(second.retries() == 1);
    CHECK(second.attempts[0].next == "retry");
    CHECK(second.tokens == 20);
    CHECK(second.agent_ms == 2000);
    CHECK(second.outcome == "test-fail");
    CHECK(second.verdict == "reject");
    CHECK(second.counted);
    CHECK(second.reason == "case t_long: WRONG");
    REQUIRE(second.stages.size() == 2);
    CHECK(second.stages[1].sign == "t_long");
    CHECK(second.tpu_ms == 500);
    const IterationView& first = *view.find(1);
    CHECK(first.kept());
    CHECK(first.promoted);
    CHECK(first.settled == "landed");
    REQUIRE(first.stages.back().gates.size() == 1);
    CHECK(first.stages.back().gates[0].value == 4.1);
    CHECK(first.stages.back().facts == std::vector<std::pair<std::string, std::string>>{{"step_ms", "99.5"}});
    CHECK(view.find(5) == nullptr);
    CHECK(view.find(4)->outcome.empty());
    CHECK(view.step_text() == "attempt 1 of the agent");
    CHECK_FALSE(view.stop_rc);
}

TEST_CASE("run view: time in which no process was at work is nobody's, and a clock set back costs nothing") {
    std::vector<Record> records = {{RecordType::run, 0, {{"run", "r"}}, {{"total", 2}}},
                                   {RecordType::iteration, 1},
                                   {RecordType::attempt, 1, {}, {{"attempt", 1}}},
                                   {RecordType::resume, 0, {}, {{"total", 5}}},
                                   {RecordType::attempt_end, 1, {{"class", "ok"}}, {{"attempt", 1}}},
                                   {RecordType::candidate, 1, {{"head", "abc"}}}};
    const char* times[] = {"2026-03-10T10:00:00Z", "2026-03-10T10:00:01Z", "2026-03-10T10:00:11Z",
                           "2026-03-12T00:00:00Z", "2026-03-12T00:00:05Z", "2026-03-11T00:00:00Z"};
    for (std::size_t i = 0; i < records.size(); ++i) records[i].time = times[i];
    const RunView view = view_of(records);
    CHECK(view.wall_ms == 16'000);
    CHECK(view.iterations[0].wall_ms == 15'000);
    CHECK(view.total == 5);
    CHECK(view.step_text() == "the candidate is collected");
}

TEST_CASE("run view: branches that were gone stay told when the candidate follows a branch that has moved") {
    const std::vector<Record> records = {{RecordType::run, 0, {{"run", "r"}}, {{"total", 1}}},
                                         {RecordType::iteration, 1},
                                         {RecordType::candidate, 1, {{"head", "abc"}, {"gone", "gone: the tag v1"}}},
                                         {RecordType::candidate, 1, {{"head", "def"}}}};
    const RunView view = view_of(records);
    CHECK(view.iterations[0].head == "def");
    CHECK(view.iterations[0].gone == "gone: the tag v1");
}

TEST_CASE("run view: an iteration that began and ended within a second took as long as its agent at least") {
    std::vector<Record> records = {{RecordType::run, 0, {{"run", "r"}}, {{"total", 1}}},
                                   {RecordType::iteration, 1},
                                   {RecordType::attempt, 1, {}, {{"attempt", 1}}},
                                   {RecordType::attempt_end, 1, {{"class", "ok"}}, {{"attempt", 1}, {"wall_ms", 25}}},
                                   {RecordType::iteration_end, 1, {{"outcome", "accepted"}}}};
    for (auto& record : records) record.time = "2026-03-10T10:00:00Z";
    const RunView view = view_of(records);
    CHECK(view.iterations[0].wall_ms == 25);
    CHECK(view.wall_ms == 25);
}

TEST_CASE("run view: an empty journal, and records without what they should have") {
    CHECK(view_of({}).iterations.empty());
    const std::vector<Record> odd = {{RecordType::attempt_end, 3}, {RecordType::iteration, 1},
                                     {RecordType::attempt_end, 1}, {RecordType::stage, 2},
                                     {RecordType::stage, 1},       {RecordType::iteration_end, 1}};
    const RunView view = view_of(odd);
    REQUIRE(view.iterations.size() == 1);
    CHECK(view.iterations[0].stages.size() == 1);
    CHECK(view.iterations[0].wall_ms == 0);
    CHECK(view.step_text() == "between two iterations");
}

TEST_CASE("run view: a loop at work is known by its lock, one that died is not, and looking disturbs nobody") {
    const LoopFixture world;
    ok(make_private_directory(world.log_dir()));
    CHECK_FALSE(running(world.log_dir()));
    {
        const auto lock = ok(LoopLock::acquire(world.log_dir(), world.path() / ".git", world.clock.wall()));
        const auto found = running(world.log_dir());
        REQUIRE(found);
        CHECK(found->pid == getpid());
        CHECK(found->since == "2026-03-10T16:53:07Z");
        // Where its process cannot be seen the lock itself says so.
        write_text(world.log_dir() / "codex-loop.lock.json", "{}");
        CHECK(running(world.log_dir()));
    }
    CHECK_FALSE(running(world.log_dir()));
    write_text(world.log_dir() / "codex-loop.lock", "999999999\n");
    CHECK_FALSE(running(world.log_dir()));
    const auto before = list_names(world.log_dir());
    CHECK_FALSE(running(world.log_dir() / "nowhere"));
    CHECK(list_names(world.log_dir()) == before);
}

}  // namespace gdnctl::loop
