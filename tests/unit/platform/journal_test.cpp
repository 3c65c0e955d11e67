#include "platform/journal.h"

#include <atomic>
#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include "support/fake_clock.h"
#include "support/faults.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace std::chrono_literals;
using test::TempDir;
using Lines = std::vector<std::string>;

namespace {

Journal must_open(const std::filesystem::path& path) {
    auto journal = Journal::open(path);
    REQUIRE_MESSAGE(journal, (journal ? "" : journal.error().text()));
    return std::move(*journal);
}

Lines records_of(const std::filesystem::path& path) {
    const auto contents = read_journal(path);
    REQUIRE(contents);
    return contents->records;
}

}  // namespace

TEST_CASE("journal: parsing") {
    auto contents = parse_journal("");
    CHECK(contents.records.empty());
    CHECK(contents.torn.empty());
    contents = parse_journal("{\"a\":1}\n\n{\"b\":2}\n");
    CHECK(contents.records == Lines{"{\"a\":1}", "{\"b\":2}"});
    CHECK(contents.whole_bytes == 17);
    contents = parse_journal("{\"a\":1}\n{\"b\":");
    CHECK(contents.records == Lines{"{\"a\":1}"});
    CHECK(contents.torn == "{\"b\":");
    CHECK(contents.whole_bytes == 8);
    // An editor may have dropped the last newline.
    contents = parse_journal("{\"a\":1}\n{\"b\":2}");
    CHECK(contents.records == Lines{"{\"a\":1}", "{\"b\":2}"});
    CHECK(contents.torn.empty());
    // A number could be the beginning of a longer one; only an object is whole for certain.
    CHECK(parse_journal("12").torn == "12");
    CHECK(parse_journal(std::string_view("\0\0\0", 3)).torn.size() == 3);
}

TEST_CASE("journal: records come back in order, and the file is private") {
    const TempDir dir;
    CHECK(records_of(dir / "j").empty());
    {
        Journal journal = must_open(dir / "j");
        CHECK(journal.cut_off().empty());
        REQUIRE(journal.append("{\"n\":1}"));
        REQUIRE(journal.append("{\"n\":2}"));
        CHECK(records_of(dir / "j") == Lines{"{\"n\":1}", "{\"n\":2}"});
    }
    REQUIRE(must_open(dir / "j").append("{\"n\":3}"));
    CHECK(test::read_text(dir / "j") == "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    CHECK(std::filesystem::status(dir / "j").permissions() == static_cast<std::filesystem::perms>(0600));
}

TEST_CASE("journal: a record is one line") {
    const TempDir dir;
    Journal journal = must_open(dir / "j");
    CHECK(journal.append("a\nb").error().kind == ErrorKind::internal);
    CHECK(journal.append("").error().kind == ErrorKind::internal);
    CHECK(test::read_text(dir / "j").empty());
}

TEST_CASE("journal: a torn last line is cut off by the next writer") {
    const TempDir dir;
    test::write_text(dir / "j", "{\"n\":1}\n{\"n\":");
    CHECK(read_journal(dir / "j").value().torn == "{\"n\":");
    Journal journal = must_open(dir / "j");
    CHECK(journal.cut_off() == "{\"n\":");
    REQUIRE(journal.append("{\"n\":2}"));
    CHECK(test::read_text(dir / "j") == "{\"n\":1}\n{\"n\":2}\n");
}

TEST_CASE("journal: a torn line longer than one reading step, with nothing before it") {
    const TempDir dir;
    test::write_text(dir / "j", "{\"n\":\"" + std::string(200000, 'x'));
    Journal journal = must_open(dir / "j");
    CHECK(journal.cut_off().size() == 200006);
    CHECK(test::read_text(dir / "j").empty());
}

TEST_CASE("journal: a whole last line without newline is completed") {
    const TempDir dir;
    test::write_text(dir / "j", "{\"n\":1}");
    Journal journal = must_open(dir / "j");
    CHECK(journal.cut_off().empty());
    REQUIRE(journal.append("{\"n\":2}"));
    CHECK(test::read_text(dir / "j") == "{\"n\":1}\n{\"n\":2}\n");
}

TEST_CASE("journal: of two writers the second is told who holds it") {
    const TempDir dir;
    const Journal first = must_open(dir / "j");
    const auto second = Journal::open(dir / "j");
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == ErrorKind::conflict);
    CHECK(second.error().message == fmt::format("{} is held by process {}", (dir / "j.lock").string(), getpid()));
}

TEST_CASE("journal: a full disk leaves no half record") {
    const TempDir dir;
    Journal journal = must_open(dir / "j");
    REQUIRE(journal.append("{\"n\":1}"));
    {
        const test::FileSizeLimit limit(100);
        const auto status = journal.append("{\"long\":\"" + std::string(500, 'x') + "\"}");
        REQUIRE_FALSE(status);
        CHECK(status.error().kind == ErrorKind::local_io);
        CHECK(test::read_text(dir / "j") == "{\"n\":1}\n");
    }
    REQUIRE(journal.append("{\"n\":2}"));
    CHECK(records_of(dir / "j") == Lines{"{\"n\":1}", "{\"n\":2}"});
}

TEST_CASE("journal: a really full disk leaves no half record") {
    const TempDir dir;
    std::filesystem::create_directory(dir / "small");
    if (mount("none", (dir / "small").c_str(), "tmpfs", 0, "size=32k") != 0) {
        MESSAGE("skipped: mounting a small tmpfs needs root");
        return;
    }
    {
        Journal journal = must_open(dir / "small/j");
        const std::string record = "{\"x\":\"" + std::string(5000, 'x') + "\"}";
        Status status;
        std::size_t written = 0;
        for (; written < 20 && (status = journal.append(record)); ++written) {
        }
        CHECK(written > 0);
        CHECK_FALSE(status);
        CHECK(read_journal(dir / "small/j").value().torn.empty());
        CHECK(records_of(dir / "small/j").size() == written);
    }
    umount((dir / "small").c_str());
}

TEST_CASE("journal: a removed file is noticed") {
    const TempDir dir;
    Journal journal = must_open(dir / "j");
    std::filesystem::remove(dir / "j");
    CHECK(journal.append("{}").error().kind == ErrorKind::conflict);
}

TEST_CASE("journal: a read-only or missing folder is a local I/O error") {
    const TempDir dir;
    std::filesystem::permissions(dir.path(), static_cast<std::filesystem::perms>(0555));
    const auto end = test::as_nobody([&] {
        const auto journal = Journal::open(dir / "j");
        return !journal && journal.error().kind == ErrorKind::local_io ? 0 : 1;
    });
    CHECK(end.exit_code == 0);
    CHECK(Journal::open(dir / "no/where").error().kind == ErrorKind::local_io);
}

TEST_CASE("journal: killed at each step, what was acknowledged is there") {
    const TempDir dir;
    const auto record = [](int n) { return fmt::format("{{\"n\":{},\"text\":\"{}\"}}", n, std::string(300, 'x')); };
    constexpr int k_records = 4;
    const auto body = [&] {
        auto journal = Journal::open(dir / "j");
        for (int n = 0; journal && n < k_records; ++n) {
            if (journal->append(record(n)) && write(1, "k", 1) != 1) return;
        }
    };
    std::size_t most = 0;
    const int kills = test::kill_at_each_step(body, [&](std::string_view acknowledged) {
        const Lines found = records_of(dir / "j");
        CHECK(found.size() >= acknowledged.size());
        CHECK(found.size() <= acknowledged.size() + 1);
        for (std::size_t n = 0; n < found.size(); ++n) CHECK(found[n] == record(static_cast<int>(n)));
        most = std::max(most, found.size());
        // The next writer gets the lock at once and goes on after a whole line.
        REQUIRE(must_open(dir / "j").append("{\"next\":true}"));
        CHECK(records_of(dir / "j").size() == found.size() + 1);
        std::filesystem::remove(dir / "j");
    });
    if (kills == 0) {
        MESSAGE("skipped: the system does not allow tracing");
        return;
    }
    CHECK(kills > 4 * k_records);
    CHECK(most == k_records);
}

TEST_CASE("lock: held once, free again afterwards") {
    const TempDir dir;
    {
        const auto first = FileLock::acquire(dir / "lock");
        REQUIRE(first);
        const auto second = FileLock::acquire(dir / "lock");
        REQUIRE_FALSE(second);
        CHECK(second.error().kind == ErrorKind::conflict);
        CHECK_FALSE(second.error().hint.empty());
    }
    CHECK(test::read_text(dir / "lock").empty());
    CHECK(FileLock::acquire(dir / "lock"));
    CHECK(FileLock::acquire(dir / "no/where").error().kind == ErrorKind::local_io);
}

TEST_CASE("lock: a holder that did not say who it is") {
    const TempDir dir;
    auto first = FileLock::acquire(dir / "lock");
    REQUIRE(first);
    test::write_text(dir / "lock", "");
    CHECK(FileLock::acquire(dir / "lock").error().message ==
          fmt::format("{} is held by another process", (dir / "lock").string()));
}

TEST_CASE("lock: waits as long as asked, on the monotonic clock") {
    const TempDir dir;
    auto first = FileLock::acquire(dir / "lock");
    REQUIRE(first);
    test::FakeClock clock;
    clock.when_asleep([&] { clock.jump_wall(-1h); });
    CHECK(FileLock::acquire(dir / "lock", {.limit = 2s, .clock = &clock}).error().kind == ErrorKind::conflict);
    CHECK(clock.sleeps().size() > 15);

    std::size_t looks = 0;
    clock.when_asleep([&] {
        if (++looks == 3) first = tl::unexpected(Error{});
    });
    CHECK(FileLock::acquire(dir / "lock", {.limit = 2s, .clock = &clock}));
    CHECK(looks == 3);
}

TEST_CASE("lock: a stop request ends the wait") {
    const TempDir dir;
    const auto first = FileLock::acquire(dir / "lock");
    test::FakeClock clock;
    std::stop_source stop;
    clock.when_asleep([&] { stop.request_stop(); });
    const auto second = FileLock::acquire(dir / "lock", {.limit = 1h, .clock = &clock, .stop = stop.get_token()});
    CHECK(second.error().kind == ErrorKind::interrupted);
}

TEST_CASE("lock: moving keeps it, assigning lets go of the old one") {
    const TempDir dir;
    auto a = FileLock::acquire(dir / "a");
    auto b = FileLock::acquire(dir / "b");
    REQUIRE((a && b));
    *a = std::move(*b);
    CHECK(FileLock::acquire(dir / "a"));
    CHECK_FALSE(FileLock::acquire(dir / "b"));
}

TEST_CASE("lock: threads and a killed holder") {
    const TempDir dir;
    std::atomic<int> inside = 0;  // flock() orders processes, not the threads of one
    const auto enter = [&] {
        const auto lock = FileLock::acquire(dir / "lock", {.limit = 60s});
        if (lock) ++inside;
    };
    {
        const std::jthread one(enter);
        const std::jthread two(enter);
    }
    CHECK(inside == 2);
    const auto end = test::in_child([&] {
        const auto lock = FileLock::acquire(dir / "lock");
        kill(getpid(), SIGKILL);
        return lock ? 0 : 1;
    });
    CHECK(end.exit_code == -SIGKILL);
    CHECK(FileLock::acquire(dir / "lock"));
}
