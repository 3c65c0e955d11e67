// Cases 41 to 43 of the original's tests, and what a held TPU must survive.
#include <thread>

#include "core/log.h"
#include "loop/engine/sync_main.h"
#include "loop/engine/tpu_hold.h"
#include "loop_fixture.h"
#include "platform/fs.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

namespace {

// A checkout, and the repository that it follows.
struct SyncFixture : LoopFixture {
    SyncFixture() {
        sh("git clone -q --bare . ../upstream.git && git remote add origin ../upstream.git && git clone -q "
           "../upstream.git ../other && cd ../other && git config user.name O && git config user.email o@example.org");
    }
    // What would be in the journal.
    mutable std::vector<Record> records;
    SyncMain::Note noted = [this](auto words) {
        records.push_back({RecordType::merge_intent, 1, std::move(words)});
        return Status();
    };
    void upstream(const std::string& command) const {
        sh(command + " && git add -A && git commit -q -m theirs && git push -q", outside("other"));
    }
    static LoopOptions options(SyncPolicy policy, ConflictPolicy conflicts = ConflictPolicy::fail) {
        LoopOptions options;
        options.sync.policy = policy;
        options.sync_main_conflict_policy = conflicts;
        return options;
    }
    Status sync(SyncPolicy policy = SyncPolicy::each_iteration, ConflictPolicy conflicts = ConflictPolicy::fail) const {
        const auto checkout = open();
        return SyncMain(options(policy, conflicts), checkout, {}, noted).run({}, {});
    }
    void diverge() const {
        upstream("echo theirs >kernel.c");
        write("kernel.c", "ours\n");
        commit("ours");
    }
};

struct HoldFixture {
    // An allocator that does what the script says; $1 is --cluster, $2 its value.
    explicit HoldFixture(const std::string& script) {
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

std::string g_said;

constexpr const char* k_holds =
    "trap 'echo released >>released; exit 0' INT\necho TPU allocation is active. Press Ctrl-C to release...\n"
    "echo later\nwhile :; do sleep 0.05; done\n";

}  // namespace

TEST_CASE("sync-main: fetch, then merge (case 42)") {
    const SyncFixture world;
    world.upstream("echo t >theirs.txt");
    ok(world.sync());
    CHECK(world.head() == world.sh("git rev-parse main", world.outside("other")));
    world.upstream("echo u >theirs.txt");
    world.write("ours.txt", "o\n");
    const auto ours = world.commit("ours");
    ok(world.sync());
    CHECK(world.read("theirs.txt") == "u\n");
    CHECK(world.sh("git log -1 --format=%s") == "Merge remote-tracking branch 'origin/main'");
    CHECK(world.sh("git rev-parse HEAD^1") == ours);
    const auto merged = world.head();
    ok(world.sync());
    CHECK(world.head() == merged);
}

TEST_CASE("sync-main: a merge that fails leaves nothing behind, and is an error (case 43)") {
    const SyncFixture world;
    world.diverge();
    const auto before = world.head();
    const auto done = world.sync();
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::conflict);
    CHECK(done.error().message ==
          "failed to merge origin/main into current branch (exit=1). Resolve conflicts and rerun.");
    CHECK(world.head() == before);
    CHECK(world.status().empty());
    CHECK(world.open().unfinished().empty());
}

TEST_CASE("sync-main: a merge that a file of the user's forbids leaves that file alone") {
    const SyncFixture world;
    world.upstream("echo theirs >new.txt");
    world.write("new.txt", "mine\n");
    const auto done = world.sync();
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::conflict);
    CHECK(world.read("new.txt") == "mine\n");
    CHECK(world.head() == world.base);
}

TEST_CASE("sync-main: conflicts can be skipped, once means once, also then") {
    const SyncFixture world;
    world.diverge();
    const auto before = world.head();
    ok(world.sync(SyncPolicy::each_iteration, ConflictPolicy::skip));
    CHECK(world.head() == before);
    const auto checkout = world.open();
    SyncMain once(SyncFixture::options(SyncPolicy::once, ConflictPolicy::skip), checkout, {}, world.noted);
    ok(once.run({}, {}));
    world.sh("mv ../upstream.git ../away.git");
    ok(once.run({}, {}));
    const auto gone = world.sync();
    REQUIRE_FALSE(gone);
    CHECK(gone.error().kind == ErrorKind::infrastructure);
    CHECK(gone.error().message.starts_with(
        "failed to fetch origin/main (exit=128): fatal: '../upstream.git' does not appear"));
}

TEST_CASE("sync-main: a merge that a kill broke off is finished, and no work is taken for its") {
    for (const bool forward : {true, false}) {
        const SyncFixture world;
        world.upstream("echo theirs >kernel.c && echo t >theirs.txt && mkdir sub && echo s >sub/deep.txt");
        if (!forward) {
            world.write("ours.txt", "o\n");
            world.commit("ours");
        }
        world.write("mine.txt", "mine\n");
        const auto before = world.head();
        const auto checkout = world.open();
        SyncMain killed(SyncFixture::options(SyncPolicy::once), checkout, {}, [&](auto words) {
            ok(world.noted(words));
            // As git leaves it: a file moved, one with half of its content, one not there yet, the index as it was.
            world.write("kernel.c", "the");
            world.write("theirs.txt", "t\n");
            return fail(ErrorKind::internal, "killed");
        });
        REQUIRE_FALSE(killed.run({}, {}));
        CHECK(world.head() == before);
        world.sh("mv ../upstream.git ../away.git");  // it needs no network
        SyncMain resumed(SyncFixture::options(SyncPolicy::off), checkout, {}, world.noted);
        ok(resumed.run({}, world.records));
        CHECK(world.read("kernel.c") == "theirs\n");
        CHECK(world.read("sub/deep.txt") == "s\n");
        CHECK(world.status() == "?? mine.txt");
        CHECK(world.sh("git log -1 --format=%s") ==
              (forward ? "theirs" : "Merge remote-tracking branch 'origin/main'"));
        const auto merged = world.head();
        ok(resumed.run({}, world.records));
        CHECK(world.head() == merged);
    }
}

TEST_CASE("sync-main: what somebody wrote after the kill stays, and is said") {
    const SyncFixture world;
    world.upstream("echo theirs >kernel.c");
    const auto checkout = world.open();
    SyncMain killed(SyncFixture::options(SyncPolicy::once), checkout, {}, [&](auto words) {
        ok(world.noted(words));
        world.write("kernel.c", "my own\n");
        return fail(ErrorKind::internal, "killed");
    });
    REQUIRE_FALSE(killed.run({}, {}));
    const auto done =
        SyncMain(SyncFixture::options(SyncPolicy::once), checkout, {}, world.noted).run({}, world.records);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::conflict);
    CHECK(done.error().hint.find("kernel.c") != std::string::npos);
    CHECK(world.read("kernel.c") == "my own\n");
    CHECK(world.head() == world.base);
}

TEST_CASE("sync-main: a merge says what git would, also on another branch, and keeps to the user's name") {
    const SyncFixture world;
    world.upstream("echo t >theirs.txt");
    world.sh("git checkout -q -b speed");
    world.write("ours.txt", "o\n");
    world.commit("ours");
    world.sh("git config user.name 'A Person' && git config commit.gpgsign true");
    ok(world.sync());
    CHECK(world.sh("git log -1 --format='%s; %an'") ==
          "Merge remote-tracking branch 'origin/main' into speed; A Person");
    CHECK(world.sh("git symbolic-ref HEAD") == "refs/heads/speed");
    CHECK(world.status().empty());
}

TEST_CASE("sync-main: no hook of the repository runs") {
    const SyncFixture world;
    world.upstream("echo t >theirs.txt");
    world.write("ours.txt", "o\n");
    world.commit("ours");
    for (const char* hook :
         {"post-merge", "pre-merge-commit", "commit-msg", "reference-transaction", "post-checkout"}) {
        world.write(std::string(".git/hooks/") + hook, "#!/bin/sh\necho ran >>" + world.outside("ran").string() + "\n");
        world.sh(std::string("chmod +x .git/hooks/") + hook);
    }
    ok(world.sync());
    CHECK(world.read("theirs.txt") == "t\n");
    CHECK_FALSE(fs::exists(world.outside("ran")));
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
    HoldFixture world(k_holds);
    {
        TpuHold hold = world.hold();
        test::ok(hold.acquire());
        CHECK(hold.active());
        CHECK(hold.cluster() == "a");
    }
    CHECK(read_text(world.folder / "released") == "released\n");
    CHECK(read_text(world.folder / "allocate.log").find("later") == std::string::npos);
}

TEST_CASE("held TPU: an early exit leads to the next cluster, and all failures to an error") {
    HoldFixture world(std::string("[ $2 = a ] && { echo no capacity; exit 3; }\n") + k_holds);
    world.settings.options.fallback_clusters = {"b"};
    TpuHold hold = world.hold();
    test::ok(hold.acquire());
    CHECK(hold.cluster() == "b");
    hold.release();
    CHECK_FALSE(hold.active());

    HoldFixture never("echo no capacity\nexit 3\n");
    never.settings.options.allocate_attempts = 2;
    TpuHold other = never.hold();
    const auto got = other.acquire();
    REQUIRE_FALSE(got);
    CHECK(got.error().kind == ErrorKind::infrastructure);
    CHECK(never.calls() ==
          "--cluster a --tpu-name t allocate --sync-path .\n--cluster a --tpu-name t allocate "
          "--sync-path .\n");
}

TEST_CASE("held TPU: a failure names cluster, attempt and log, and shows the log's last 80 lines") {
    HoldFixture world("seq -f 'line %.0f of the log' 1 100\nexit 3\n");
    world.settings.options.fallback_clusters = {"b"};
    world.settings.options.allocate_attempts = 2;
    g_said.clear();
    log::set_sink([](log::Level, std::string_view line) { g_said.append(line).append("\n"); });
    TpuHold hold = world.hold();
    const auto got = hold.acquire();
    log::set_sink(nullptr);
    REQUIRE_FALSE(got);
    CHECK(got.error().message == "no dev TPU was available: tried a, b, a, b");
    CHECK(got.error().hint == "see " + world.settings.log.string());
    const std::string last = "[gdnctl] dev TPU t on b (attempt 2): the allocator exited with code 3; log " +
                             world.settings.log.string() +
                             "\n[gdnctl]   line 21 of the log\n[gdnctl]   line 22 of the log\n";
    CHECK(g_said.find(last) != std::string::npos);
    CHECK(g_said.find("dev TPU t on a (attempt 1): ") != std::string::npos);
    CHECK(g_said.ends_with("\n[gdnctl]   line 100 of the log\n"));
}

TEST_CASE("held TPU: not ready in time is ended, also when it ignores SIGINT") {
    HoldFixture world("trap '' INT\nwhile :; do sleep 0.05; done\n");
    world.settings.options.ready_timeout_s = 1;
    world.settings.options.stop_timeout_s = 1;
    TpuHold hold = world.hold();
    CHECK_FALSE(hold.acquire());
    CHECK_FALSE(hold.active());
}

TEST_CASE("held TPU: lost and got again, not more often than allowed") {
    HoldFixture world("echo TPU allocated successfully!\nsleep 0.2\n");
    TpuHold hold = world.hold();
    test::ok(hold.acquire());
    while (hold.active()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(hold.reacquire("tests start without one"));
    while (hold.active()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(hold.reacquire("tests start without one"));
}

}  // namespace gdnctl::loop
