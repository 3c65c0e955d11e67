// Locks whose owners are gone, and those whose owners may live.
#include <csignal>
#include <filesystem>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "services/git/calls.h"
#include "support/git_repo.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;

namespace {

struct Locked : GitRepo {
    Locked() {
        write("a.txt", "one\n");
        base = commit("base");
    }
    void lock(const std::string& name, const char* age) const {
        sh("mkdir -p $(dirname .git/" + name + ") && touch -d '-" + std::string(age) + "' .git/" + name);
    }
    bool there(const std::string& name) const { return fs::exists(path() / ".git" / name); }
    std::string base;
};

// A process that is not called git, and waits in a folder, with a file open or not.
class Program {
public:
    Program(const fs::path& folder, const fs::path& file) {
        m_child = fork();
        if (m_child != 0) return;
        const bool here = chdir(folder.c_str()) == 0;
        if (here && !file.empty()) m_file = open(file.c_str(), O_RDWR);
        for (;;) pause();
    }
    ~Program() {
        kill(m_child, SIGKILL);
        waitpid(m_child, nullptr, 0);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    void wait_until_in(const fs::path& folder) const {
        std::error_code problem;
        const fs::path link = fs::path("/proc") / std::to_string(m_child) / "cwd";
        while (fs::read_symlink(link, problem) != folder) usleep(1000);
        usleep(20'000);
    }

private:
    pid_t m_child = 0;
    int m_file = -1;
};

const std::vector<std::string> k_locks = {"index.lock",
                                          "HEAD.lock",
                                          "config.lock",
                                          "packed-refs.lock",
                                          "shallow.lock",
                                          "refs/heads/main.lock",
                                          "refs/tags/v1.lock",
                                          "refs/stash.lock",
                                          "info/sparse-checkout.lock",
                                          "objects/info/commit-graph.lock"};

}  // namespace

TEST_CASE("git locks: one that nobody has is removed when it is ten minutes old, not before") {
    const Locked repo;
    const auto checkout = repo.open();
    for (const auto& name : k_locks) repo.lock(name, "9 minutes");
    repo.lock("refs/gdnctl/r1/iter-001/base.lock", "0 minutes");
    ok(checkout.clear_stale_locks());
    for (const auto& name : k_locks) CHECK(repo.there(name));
    CHECK_FALSE(repo.there("refs/gdnctl/r1/iter-001/base.lock"));
    repo.lock("worktrees/w/commondir", "0 minutes");  // empty: no program keeps it so
    ok(checkout.clear_stale_locks());
    CHECK_FALSE(repo.there("worktrees/w/commondir"));
    for (const auto& name : k_locks) repo.lock(name, "11 minutes");
    ok(checkout.clear_stale_locks());
    for (const auto& name : k_locks) {
        INFO(name);
        CHECK_FALSE(repo.there(name));
    }
}

TEST_CASE("git locks: one that a process has open, or in whose folder it works, stays however old it is") {
    const Locked repo;
    const auto checkout = repo.open();
    repo.lock("index.lock", "2 hours");
    repo.lock("refs/heads/main.lock", "2 hours");
    {
        const Program open_one(repo.path().parent_path(), repo.path() / ".git/index.lock");
        const Program here(repo.path() / ".git/refs/heads", {});
        open_one.wait_until_in(repo.path().parent_path());
        here.wait_until_in(repo.path() / ".git/refs/heads");
        ok(checkout.clear_stale_locks(GitForcedEnd{fs::file_time_type::min(), fs::file_time_type::max(), true}));
        CHECK(repo.there("index.lock"));
        CHECK(repo.there("refs/heads/main.lock"));
        const Status cleared = checkout.clear_index_lock();
        REQUIRE_FALSE(cleared);
        CHECK(cleared.error().kind == ErrorKind::conflict);
        repo.write("a.txt", "x\n");
        CHECK_FALSE(checkout.stash("s"));
        CHECK(repo.there("index.lock"));
        CHECK(repo.read("a.txt") == "x\n");
    }
    CHECK(ok(checkout.stash("s")));
    CHECK_FALSE(repo.there("index.lock"));
}

TEST_CASE("git locks: what our processes left that were killed goes at once, what is older does not") {
    const Locked repo;
    const auto checkout = repo.open();
    repo.lock("config.lock", "5 minutes");
    repo.lock("index.lock", "1 minutes");
    repo.lock("packed-refs.lock", "1 minutes");
    repo.lock("shallow.lock", "0 minutes");
    const auto now = fs::file_time_type::clock::now();
    GitForcedEnd forced{now - std::chrono::minutes(2), now - std::chrono::seconds(30)};
    ok(checkout.clear_stale_locks(forced));
    CHECK(repo.there("config.lock"));
    CHECK(repo.there("shallow.lock"));  // made after they had ended
    CHECK_FALSE(repo.there("packed-refs.lock"));
    CHECK(repo.there("index.lock"));  // they did not work in this checkout
    forced.in_checkout = true;
    ok(checkout.clear_stale_locks(forced));
    CHECK_FALSE(repo.there("index.lock"));
}

TEST_CASE("git locks: one of another user stays, since their programs may be hidden from us") {
    if (geteuid() != 0) return;
    const Locked repo;
    const auto checkout = repo.open();
    repo.lock("index.lock", "2 hours");
    repo.sh("chown -h 12345 .git/index.lock");
    ok(checkout.clear_stale_locks());
    CHECK(repo.there("index.lock"));
    repo.sh("chown -h 0 .git/index.lock");
    ok(checkout.clear_stale_locks());
    CHECK_FALSE(repo.there("index.lock"));
}

TEST_CASE("git locks: the main checkout's index is not the affair of a linked one, a slot's is its own") {
    const Locked repo;
    const auto checkout = repo.open();
    auto slot = ok(GitSlot::open(checkout, repo.outside("slot"), true, system_process(), repo.clock));
    repo.lock("index.lock", "11 minutes");
    repo.lock("worktrees/slot/index.lock", "0 minutes");
    ok(slot.checkout().clear_stale_locks());
    CHECK(repo.there("index.lock"));
    CHECK_FALSE(repo.there("worktrees/slot/index.lock"));
}
