// Cases 41 to 43 of the original's tests, and what a held TPU must survive.
#include <thread>

#include "gdnctl/platform/fs.h"
#include "loop/sync_main.h"
#include "loop/tpu_hold.h"
#include "loop_world.h"
#include "support/fake_process.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

namespace {

ProcessResult exit_with(int code, std::string out = {}) {
    ProcessResult result;
    result.exit_code = code;
    result.out = std::move(out);
    return result;
}

SyncMain sync_with(LoopOptions options, Process& process, Clock& clock) {
    options.sync.policy = SyncPolicy::each_iteration;
    return SyncMain(options, "/", process, clock, {});
}

struct HoldWorld {
    // An allocator that does what the script says; $1 is --cluster, $2 its value.
    explicit HoldWorld(const std::string& script) {
        write_text(folder / "allocator", "#!/bin/bash\necho \"$@\" >>" + (folder / "calls").string() + "\n" + script);
        fs::permissions(folder / "allocator", fs::perms::owner_all);
        settings.allocator = {(folder / "allocator").string()};
        settings.options.name = "t";
        settings.options.cluster = "a";
        settings.options.stop_timeout_s = 5;
        settings.options.allocate_retry_sleep_s = 0;
        settings.log = folder / "allocate.log";
        settings.cwd = folder.path();
    }
    TpuHold hold() { return TpuHold(settings, system_process(), system_clock(), {}); }
    std::string calls() const { return read_text(folder / "calls"); }
    test::TempDir folder;
    HoldSettings settings;
};

constexpr const char* k_holds =
    "trap 'echo released >>released; exit 0' INT\necho TPU allocation is active. Press Ctrl-C to release...\n"
    "echo later\nwhile :; do sleep 0.05; done\n";

}  // namespace

TEST_CASE("sync-main: fetch, then merge (case 42)") {
    test::FakeProcess process;
    test::FakeClock clock;
    process.expect({"git", "fetch", "origin", "main"}, 0);
    process.expect({"git", "merge", "--no-edit", "origin/main"}, 0);
    CHECK(sync_with({}, process, clock).run());
}

TEST_CASE("sync-main: a merge that fails is taken back, and is an error (case 43)") {
    test::FakeProcess process;
    test::FakeClock clock;
    process.expect({"git", "fetch", "origin", "main"}, 0);
    process.expect({"git", "merge", "--no-edit", "origin/main"}, exit_with(1, "CONFLICT (content): a\n"));
    process.expect({"git", "merge", "--abort"}, 0);
    const auto done = sync_with({}, process, clock).run();
    REQUIRE_FALSE(done);
    CHECK(done.error().message ==
          "failed to merge origin/main into current branch (exit=1). Resolve conflicts and rerun.");
}

TEST_CASE("sync-main: conflicts can be skipped; a busy git is tried again; once means once") {
    test::FakeProcess process;
    test::FakeClock clock;
    LoopOptions options;
    options.sync_main_conflict_policy = ConflictPolicy::skip;
    process.expect({"git", "fetch", "origin", "main"},
                   exit_with(128, "fatal: Unable to create '/r/.git/x.lock': File exists.\n"));
    process.expect({"git", "fetch", "origin", "main"}, 0);
    process.expect({"git", "merge", "--no-edit", "origin/main"}, exit_with(1, "Automatic merge failed; fix\n"));
    process.expect({"git", "merge", "--abort"}, 0);
    CHECK(sync_with(options, process, clock).run());
    CHECK(clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::seconds(2)});

    test::FakeProcess other;
    options.sync.policy = SyncPolicy::once;
    SyncMain once(options, "/", other, clock, {});
    other.expect({"git", "fetch", "origin", "main"}, 0);
    other.expect({"git", "merge", "--no-edit", "origin/main"}, 0);
    CHECK(once.run());
    CHECK(once.run());
}

TEST_CASE("held TPU: the log keeps lines up to the marker and the notice, later ones are absent (case 41)") {
    AllocateLog log;
    CHECK(log.take("asking") == "asking\n");
    CHECK_FALSE(log.ready());
    CHECK(
        log.take("TPU allocated successfully!") ==
        "TPU allocated successfully!\n[gdnctl] dev TPU became active; suppressing further allocation log output while "
        "keeping the hold process drained.\n");
    CHECK(log.ready());
    CHECK(log.take("later").empty());
}

TEST_CASE("held TPU: the allocator's words") {
    HoldSettings settings;
    settings.allocator = {"alloc", "-x"};
    settings.options.name = "t";
    settings.options.type = "v5p-8";
    settings.options.verbose = true;
    settings.options.fallback_clusters = {"b", "us-central1", "b"};
    CHECK(allocator_argv(settings, "c") == std::vector<std::string>{"alloc", "-x", "--cluster", "c", "--tpu-name", "t",
                                                                    "--verbose", "allocate", "--sync-path", ".",
                                                                    "--tpu-type", "v5p-8"});
    CHECK(hold_clusters(settings.options) == std::vector<std::string>{"us-central1", "b"});
}

TEST_CASE("held TPU: ready, held, released by SIGINT") {
    HoldWorld world(k_holds);
    {
        TpuHold hold = world.hold();
        test::ok(hold.acquire());
        CHECK(hold.active());
        CHECK(hold.cluster() == "a");
    }
    CHECK(read_text(world.folder / "released") == "released\n");
    CHECK(read_text(world.folder / "allocate.log").find("later") == std::string::npos);
}

TEST_CASE("held TPU: an early exit leads to the next cluster, and all failures to an error with the log's last lines") {
    HoldWorld world(std::string("[ $2 = a ] && { echo no capacity; exit 3; }\n") + k_holds);
    world.settings.options.fallback_clusters = {"b"};
    TpuHold hold = world.hold();
    test::ok(hold.acquire());
    CHECK(hold.cluster() == "b");
    hold.release();
    CHECK_FALSE(hold.active());

    HoldWorld never("echo no capacity\nexit 3\n");
    never.settings.options.allocate_attempts = 2;
    TpuHold other = never.hold();
    const auto got = other.acquire();
    REQUIRE_FALSE(got);
    CHECK(got.error().kind == ErrorKind::infrastructure);
    CHECK(never.calls() ==
          "--cluster a --tpu-name t allocate --sync-path .\n--cluster a --tpu-name t allocate "
          "--sync-path .\n");
}

TEST_CASE("held TPU: not ready in time is ended, also when it ignores SIGINT") {
    HoldWorld world("trap '' INT\nwhile :; do sleep 0.05; done\n");
    world.settings.options.ready_timeout_s = 1;
    world.settings.options.stop_timeout_s = 1;
    TpuHold hold = world.hold();
    CHECK_FALSE(hold.acquire());
    CHECK_FALSE(hold.active());
}

TEST_CASE("held TPU: lost and got again, not more often than allowed") {
    HoldWorld world("echo TPU allocated successfully!\nsleep 0.2\n");
    TpuHold hold = world.hold();
    test::ok(hold.acquire());
    while (hold.active()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(hold.reacquire("tests start without one"));
    while (hold.active()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(hold.reacquire("tests start without one"));
}

}  // namespace gdnctl::loop
