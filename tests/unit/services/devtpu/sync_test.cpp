// Syncs to a folder on this machine, by the scripts that also run on a TPU's host.
#include "services/devtpu/sync.h"

#include <filesystem>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/fake_clock.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::devtpu;
using test::read_text;
using test::write_text;
namespace fs = std::filesystem;

namespace {

class SyncFixture {
public:
    SyncFixture() : m_connection(local_connection(m_folder / "held by me", "hold-1")) {
        fs::create_directories(here());
    }
    fs::path here() const { return m_folder / "here"; }
    fs::path there() const { return m_folder / "held by me" / "marin"; }
    fs::path kept() const { return m_folder / "held by me" / "kept"; }
    const HostConnection& connection() const { return m_connection; }

    // All files of the tree here, but for those that git would ignore.
    Result<SyncReport> sync(const std::set<std::string>& ignored = {}) {
        m_request.tree = {here(), {}};
        if (m_request.source.root.empty()) m_request.source = {here().string(), "unborn"};
        for (const auto& entry : fs::recursive_directory_iterator(here())) {
            const std::string name = entry.path().lexically_relative(here()).string();
            if (entry.is_directory() || ignored.contains(name)) continue;
            m_request.tree.files.push_back(name);
        }
        m_request.has_commit = [](const std::string& commit) { return commit == "known"; };
        m_request.hashes = m_folder / "state" / "hashes";
        return sync_tree(m_connection, m_request, *m_process, *m_clock, {});
    }
    std::size_t synced(const std::set<std::string>& ignored = {}) {
        const auto report = sync(ignored);
        REQUIRE_MESSAGE(report, report.error().text());
        return report->files;
    }
    SyncRequest& request() { return m_request; }
    void use(Process& process, Clock& clock) {
        m_process = &process;
        m_clock = &clock;
    }

private:
    test::TempDir m_folder;
    HostConnection m_connection;
    SyncRequest m_request;
    Process* m_process = &system_process();
    Clock* m_clock = &system_clock();
};

// The lock that a running command holds.
class RunLock {
public:
    explicit RunLock(const SyncFixture& world)
        : m_file(open((world.there().parent_path() / "run.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
        take();
    }
    ~RunLock() { close(m_file); }
    RunLock(const RunLock&) = delete;
    RunLock& operator=(const RunLock&) = delete;
    void take() const { REQUIRE(flock(m_file, LOCK_SH | LOCK_NB) == 0); }
    void release() const { REQUIRE(flock(m_file, LOCK_UN) == 0); }

private:
    int m_file;
};

// Does something after the first script that places files has placed them.
class AfterPlacing final : public Process {
public:
    explicit AfterPlacing(std::function<void()> action) : m_action(std::move(action)) {}
    Result<ProcessResult> run(const ProcessSpec& spec) override {
        auto result = system_process().run(spec);
        const bool placed = result && result->ok() && spec.argv.back().find("exit 76") != std::string::npos;
        if (placed && m_action) std::exchange(m_action, nullptr)();
        return result;
    }

private:
    std::function<void()> m_action;
};

void set_times(const fs::path& path, const fs::path& like) {
    struct stat info{};
    REQUIRE(stat(like.c_str(), &info) == 0);
    const struct timespec times[2] = {info.st_atim, info.st_mtim};
    REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
}

}  // namespace

TEST_CASE("every name arrives") {
    SyncFixture world;
    const std::vector<std::string> names = {"-",     "-dash", "#a",    ";b",          "#d/x", "new\nline",       "\n",
                                            " sp ",  "tab\t", "*?[a]", "back\\slash", "a:b",  "bad\377utf8",     "~",
                                            "$HOME", "`id`",  "'q\"",  "s^r^",        "r",    "deep/er/and/-/x", "!x",
                                            "%s",    "@y",    "\001"};
    for (const auto& name : names) write_text(world.here() / name, "of " + name);
    CHECK(world.synced() == names.size());
    for (const auto& name : names) CHECK(read_text(world.there() / name) == "of " + name);
    CHECK(test::list_names(world.there().parent_path() / "incoming").empty());
    for (const auto& name : names) fs::remove_all(world.here() / name);
    write_text(world.here() / "last", "");
    CHECK(world.synced() == 1);
    CHECK(test::list_names(world.there()) == "last");
}

TEST_CASE("removed is only what was sent, has not changed there, and is gone here") {
    SyncFixture world;
    for (const char* name : {"gone", "changed", "ignored", "sub/deep/gone", "stays"})
        write_text(world.here() / name, "1");
    world.synced();
    write_text(world.there() / "changed", "five hours of work");
    write_text(world.there() / "sub" / "mine", "not sent");
    write_text(world.there() / "ignored", "more");
    for (const char* name : {"gone", "changed", "sub"}) fs::remove_all(world.here() / name);
    CHECK(world.synced({"ignored"}) == 1);
    CHECK(test::list_names(world.there()) == "changed ignored stays sub");
    CHECK(test::list_names(world.there() / "sub") == "mine");
    CHECK(read_text(world.there() / "changed") == "five hours of work");
    CHECK(read_text(world.there() / "ignored") == "more");
    // What is no longer part of the tree belongs to the host from then on.
    fs::remove(world.here() / "ignored");
    CHECK(world.synced() == 1);
    CHECK(read_text(world.there() / "ignored") == "more");
}

TEST_CASE("another content of the same size and time is sent, from here and over a change there") {
    SyncFixture world;
    write_text(world.here() / "a", "old");
    write_text(world.here() / "b", "old");
    world.synced();
    world.synced();
    const fs::path like = world.here() / "like";
    write_text(like, "");
    for (const fs::path& path : {world.here() / "a", world.there() / "b"}) {
        set_times(like, path);
        write_text(path, "new");
        set_times(path, like);
    }
    fs::remove(like);
    CHECK(world.synced() == 2);
    CHECK(read_text(world.there() / "a") == "new");
    CHECK(read_text(world.there() / "b") == "old");
    CHECK(read_text(world.kept() / "b") == "new");
}

TEST_CASE("the executable bit is part of a file") {
    SyncFixture world;
    write_text(world.here() / "run", "x");
    world.synced();
    fs::permissions(world.here() / "run", fs::perms::owner_exec, fs::perm_options::add);
    world.synced();
    CHECK((fs::status(world.there() / "run").permissions() & fs::perms::owner_exec) != fs::perms::none);
}

TEST_CASE("files become folders and folders files, and nothing of the host is lost") {
    SyncFixture world;
    write_text(world.here() / "file", "1");
    write_text(world.here() / "folder" / "x", "1");
    write_text(world.here() / "mixed" / "x", "1");
    write_text(world.here() / "edited", "1");
    world.synced();
    write_text(world.there() / "mixed" / "mine", "mine");
    write_text(world.there() / "edited", "mine");
    for (const char* name : {"file", "folder", "mixed", "edited"}) fs::remove_all(world.here() / name);
    write_text(world.here() / "file" / "x", "2");
    write_text(world.here() / "edited" / "x", "2");
    write_text(world.here() / "folder", "2");
    write_text(world.here() / "mixed", "2");
    CHECK(world.synced() == 4);
    for (const char* name : {"file/x", "edited/x", "folder", "mixed"}) CHECK(read_text(world.there() / name) == "2");
    CHECK(read_text(world.kept() / "edited") == "mine");
    const auto places = fs::recursive_directory_iterator(world.kept());
    CHECK(std::count_if(begin(places), end(places), [](const auto& it) { return it.path().filename() == "mine"; }) ==
          1);
    CHECK(world.synced() == 4);
}

TEST_CASE("links on the host lead no sync out of its tree") {
    SyncFixture world;
    write_text(world.here() / "data" / "x", "1");
    write_text(world.here() / "note", "1");
    world.synced();
    const fs::path outside = world.there().parent_path() / "outside";
    write_text(outside / "x", "outside");
    write_text(outside / "note", "outside");
    fs::remove_all(world.there() / "data");
    fs::create_symlink(outside, world.there() / "data");
    fs::remove(world.there() / "note");
    fs::create_symlink(outside / "note", world.there() / "note");
    CHECK(world.synced() == 2);
    CHECK(read_text(outside / "x") == "outside");
    CHECK(read_text(outside / "note") == "outside");
    CHECK(read_text(world.there() / "data" / "x") == "1");
    CHECK(fs::is_symlink(world.kept() / "data"));
    // Nor does a removal.
    fs::rename(world.there() / "data", outside / "data");
    fs::create_symlink(outside / "data", world.there() / "data");
    fs::remove_all(world.here() / "data");
    CHECK(world.synced() == 1);
    CHECK(read_text(outside / "data" / "x") == "1");
}

TEST_CASE("a sync waits for a command that runs in the tree, and each wait has its own limit") {
    SyncFixture world;
    write_text(world.here() / "file", "1");
    world.synced();
    write_text(world.here() / "file", "22");
    const RunLock lock(world);
    test::FakeClock clock;
    int sleeps = 0;
    bool ends = true;
    clock.when_asleep([&] {
        CHECK(read_text(world.there() / "file").size() < read_text(world.here() / "file").size());
        clock.advance(std::chrono::minutes(20));
        if (++sleeps <= 2 && ends) lock.release();
    });
    AfterPlacing process([&] {
        write_text(world.here() / "file", "333");
        lock.take();
    });
    world.use(process, clock);
    CHECK(world.synced() == 1);
    CHECK(sleeps == 2);
    CHECK(read_text(world.there() / "file") == "333");
    write_text(world.here() / "file", "4444");
    lock.take();
    ends = false;
    const auto late = world.sync();
    REQUIRE(!late);
    CHECK(late.error().kind == ErrorKind::conflict);
    CHECK(read_text(world.there() / "file") == "333");
}

TEST_CASE("pipes and sockets are no files") {
    SyncFixture world;
    write_text(world.here() / "a", "1");
    REQUIRE(mkfifo((world.here() / "pipe").c_str(), 0600) == 0);
    CHECK(world.synced() == 1);
    REQUIRE(mkfifo((world.there() / "b").c_str(), 0600) == 0);
    write_text(world.here() / "b", "1");
    CHECK(world.synced() == 2);
    CHECK(read_text(world.there() / "b") == "1");
}

TEST_CASE("an empty tree and one of another repository do not replace the tree there") {
    SyncFixture world;
    write_text(world.here() / "a", "1");
    world.request().source = {world.here().string(), "known"};
    world.synced();
    fs::rename(world.here() / "a", world.here().parent_path() / "a");
    CHECK(world.synced() == 0);
    CHECK(read_text(world.there() / "a") == "1");
    write_text(world.here() / "b", "1");
    const auto refused = [&](TreeSource source) {
        const std::string before = test::list_names(world.there());
        world.request().source = std::move(source);
        const auto report = world.sync();
        return !report && report.error().kind == ErrorKind::usage && test::list_names(world.there()) == before;
    };
    CHECK(refused({world.here().string(), ""}));  // no longer a repository
    CHECK(refused({"/elsewhere", ""}));
    world.request().source = {"/elsewhere", "another"};
    CHECK(world.synced() == 1);  // a clone or worktree: it has the commit
    CHECK(test::list_names(world.there()) == "b");
    write_text(world.here() / "c", "1");
    CHECK(refused({"/third", "third"}));
    world.request().replaces_other = true;
    CHECK(world.synced() == 2);
}

TEST_CASE("what a killed sync has left does not hinder the next") {
    SyncFixture world;
    write_text(world.here() / "a", "1");
    world.synced();
    // Placed, but not yet recorded.
    write_text(world.here() / "b", "1");
    write_text(world.there() / "b", "1");
    write_text(world.there().parent_path() / "incoming" / "0123" / "b", "half");
    CHECK(world.synced() == 2);
    fs::remove(world.here() / "b");
    CHECK(world.synced() == 1);
    CHECK(!fs::exists(world.there() / "b"));
    // A damaged record, and damaged hashes.
    write_text(world.there().parent_path() / "sent", std::string("rubbish\0\0more", 13));
    write_text(world.request().hashes, "rubbish");
    write_text(world.here() / "a", "2");
    CHECK(world.synced() == 1);
    CHECK(read_text(world.there() / "a") == "2");
}
