// Artefacts, the STOP file and the lock.
#include "loop/engine/log_dir.h"

#include "loop_fixture.h"
#include "support/faults.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

TEST_CASE("log dir: names have three digits at least and are read back, beyond 1000 iterations too") {
    CHECK(iteration_prefix(7) == "iteration-007-");
    CHECK(iteration_prefix(1234) == "iteration-1234-");
    CHECK(iteration_of("iteration-007-prompt.txt") == 7);
    CHECK(iteration_of("iteration-1234-last-message.txt") == 1234);
    for (const char* name :
         {"iteration-07-x", "iteration-007", "iteration--01-x", "iteration-99999999999-x", "journal.jsonl"}) {
        CHECK(iteration_of(name) == 0);
    }
}

TEST_CASE("log dir: nothing is overwritten, earlier runs are set aside (defect 16)") {
    const test::TempDir folder;
    const auto files = ok(Artefacts::open(folder / "logs"));
    write_text(files.unused(1, "transcript", ".log"), "a");
    write_text(files.unused(1, "transcript", ".log").string() + ".gz", "b");
    CHECK(files.unused(1, "transcript", ".log").filename() == "iteration-001-transcript.3.log");
    write_text(files.folder() / "journal.jsonl", "{}\n");
    write_text(files.folder() / "dev_tpu_allocate.log", "kept\n");
    CHECK(ok(files.set_earlier_aside("r1")) == 3);
    CHECK(list_names(files.folder()) == "dev_tpu_allocate.log previous");
    write_text(files.folder() / "journal.jsonl", "{}\n");
    CHECK(ok(files.set_earlier_aside("r1")) == 1);
    CHECK(fs::exists(files.folder() / "previous/r1/journal.jsonl.2"));
    CHECK(ok(files.set_earlier_aside("r1")) == 0);
}

TEST_CASE("log dir: old iterations go, the last ones and everything else stay") {
    const test::TempDir folder;
    const auto files = ok(Artefacts::open(folder / "logs"));
    for (int i = 1; i <= 12; ++i) write_text(files.path(i, "prompt.txt"), "p");
    write_text(files.path(2, "repositories") / "x/y", "p");
    write_text(files.folder() / "journal.jsonl", "{}\n");
    CHECK(ok(files.prune(12, 10)) == 2);
    CHECK(fs::exists(files.path(3, "prompt.txt")));
    CHECK_FALSE(fs::exists(files.path(2, "prompt.txt")));
    // Branches, stashes and loose files of a repository that was inside are only there.
    CHECK(fs::exists(files.path(2, "repositories") / "x/y"));
    CHECK(fs::exists(files.folder() / "journal.jsonl"));
    CHECK_FALSE(files.stop_requested());
    write_text(files.folder() / "STOP", "");
    CHECK(files.stop_requested());
}

TEST_CASE("lock: a second loop on the log directory or the repository is refused with clear words (exit 7)") {
    const test::TempDir folder;
    for (const char* name : {"logs", "logs2", "git", "git2"}) fs::create_directory(folder / name);
    const WallTime now{std::chrono::milliseconds(1'773'161'587'000)};
    {
        const auto first = ok(LoopLock::acquire(folder / "logs", folder / "git", now));
        for (const auto& [logs, repository] : {std::pair{"logs", "git2"}, {"logs2", "git"}}) {
            const auto second = LoopLock::acquire(folder / logs, folder / repository, now);
            REQUIRE_FALSE(second);
            CHECK(second.error().kind == ErrorKind::conflict);
            CHECK(second.error().message.find("process " + std::to_string(getpid())) != std::string::npos);
            CHECK(second.error().message.find("since 2026-03-10 ") != std::string::npos);
        }
        CHECK(LoopLock::acquire(folder / "logs2", folder / "git2", now));
    }
    CHECK(LoopLock::acquire(folder / "logs", folder / "git", now));
}

}  // namespace gdnctl::loop
