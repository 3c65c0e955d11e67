// A landing that git breaks off half-way, by a filter that stands for a disk that is full.
#include <filesystem>

#include <doctest/doctest.h>

#include "services/git/checkout.h"
#include "support/git_repo.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

// While ../full is there, git fails at z.txt, the last file of a landing, once the lines in it have run.
struct FullDisk : GitRepo {
    FullDisk() {
        write("a.txt", "one\n");
        write("b/c.txt", "two\n");
        write("z.txt", "three\n");
        write(".gitattributes", "z.txt filter=disk\n");
        write("../smudge",
              "#!/bin/sh\n[ -e ../full ] || exec cat\n. ../full; rm ../full; echo 'No space left on device' >&2; exit "
              "1\n");
        sh("chmod +x ../smudge; git config filter.disk.smudge '" + outside("smudge").string() +
           "'; git config filter.disk.clean cat; git config filter.disk.required true");
        base = commit("base");
        next = ok(open().commit_files(
            base, {{"a.txt", "better\n"}, {"b/c.txt", "better\n"}, {"new.txt", "n\n"}, {"z.txt", "better\n"}}, "m\n"));
    }
    Error land_on_full_disk(const std::string& meanwhile) const {
        write("../full", meanwhile);
        const auto landed = BranchMover(open()).land("refs/heads/main", base, next, false);
        REQUIRE_FALSE(landed);
        CHECK(landed.error().kind == ErrorKind::local_io);
        CHECK(head() == base);
        return landed.error();
    }
    std::string rescued() const { return sh("git for-each-ref --format='%(refname)' refs/gdnctl/rescued"); }
    std::string base, next;
};

bool says(const Error& error, const std::string& words) { return error.message.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("git landing: one that the disk was too full for leaves everything as it was") {
    const FullDisk repo;
    const Error error = repo.land_on_full_disk("");
    CHECK(says(error, "git merge failed in "));
    CHECK_FALSE(says(error, "left unchanged"));
    CHECK(repo.status().empty());
    CHECK(repo.read("a.txt") == "one\n");
    CHECK(repo.rescued().empty());
    CHECK(ok(BranchMover(repo.open()).land("refs/heads/main", repo.base, repo.next, true)).kind ==
          GitLanding::Kind::landed);
}

TEST_CASE("git landing: what somebody writes while git fails stays, is pinned and named") {
    const FullDisk repo;
    const Error error = repo.land_on_full_disk("echo mine >a.txt; echo mine too >new.txt");
    CHECK(repo.read("a.txt") == "mine\n");
    CHECK(repo.read("new.txt") == "mine too\n");
    CHECK(repo.read("b/c.txt") == "two\n");
    CHECK(repo.read("z.txt") == "three\n");
    CHECK(repo.status() == " M a.txt\n?? new.txt");
    const std::string ref = repo.rescued();
    CHECK(repo.sh("git show " + ref + ":a.txt") == "mine");
    CHECK(repo.sh("git show " + ref + ":new.txt") == "mine too");
    CHECK(says(error, ": a.txt, new.txt (also kept at " + ref + ")"));
    // When it is tried again, that is in the way.
    const auto again = ok(BranchMover(repo.open()).land("refs/heads/main", repo.base, repo.next, true));
    CHECK(again.kind == GitLanding::Kind::blocked);
    CHECK(again.in_the_way == std::vector<std::string>{"a.txt", "new.txt"});
    CHECK(repo.read("a.txt") == "mine\n");
}

TEST_CASE("git landing: a file that was staged as it shall be and edited after that is nobody's to take back") {
    const FullDisk repo;
    repo.write("a.txt", "better\n");
    repo.sh("git add a.txt");
    repo.write("a.txt", "better\nmine\n");
    const Error error = repo.land_on_full_disk("");
    CHECK(says(error, ": a.txt (also kept at refs/gdnctl/rescued/"));
    CHECK(repo.read("a.txt") == "better\nmine\n");
    CHECK(repo.read("b/c.txt") == "two\n");
    CHECK(repo.sh("git show " + repo.rescued() + ":a.txt") == "better\nmine");
}

TEST_CASE("git landing: the beginning of a file, one that is missing and one that is new are git's own") {
    const FullDisk repo;
    const Error error = repo.land_on_full_disk("printf bet >a.txt; rm b/c.txt; printf '' >new.txt");
    CHECK_FALSE(says(error, "left unchanged"));
    CHECK(repo.status().empty());
    CHECK(repo.rescued().empty());
}

TEST_CASE("git landing: locks of killed gits go one after the other, one that stays leaves the files alone") {
    GitRepo repo;
    repo.write("a.txt", "one\n");
    const std::string base = repo.commit("base");
    const auto checkout = ok(GitCheckout::open(repo.path(), system_process(), repo.clock));
    const std::string next = ok(checkout.commit_files(base, {{"a.txt", "two\n"}, {"new.txt", "n\n"}}, "m\n"));
    // A folder with something in it cannot be removed like a lock.
    repo.write(".git/refs/heads/main.lock/in.txt", "");
    const auto landed = BranchMover(checkout).land("refs/heads/main", base, next, false);
    REQUIRE_FALSE(landed);
    CHECK(landed.error().kind == ErrorKind::conflict);
    CHECK(repo.head() == base);
    CHECK(repo.status().empty());
    repo.sh("rm -r .git/refs/heads/main.lock && touch -d '-11 minutes' .git/refs/heads/main.lock .git/index.lock");
    CHECK(ok(BranchMover(checkout).land("refs/heads/main", base, next, false)).kind == GitLanding::Kind::landed);
    CHECK(repo.head() == next);
    CHECK(repo.read("a.txt") == "two\n");
}

TEST_CASE(
    "git landing: one that a lock refuses leaves an ignored file at a path of the commit alone, and is taken back") {
    GitRepo repo;
    repo.write("a.txt", "one\n");
    repo.write(".gitignore", "*.dat\n");
    const std::string base = repo.commit("base");
    const auto checkout = ok(GitCheckout::open(repo.path(), system_process(), repo.clock));
    const std::string next = ok(checkout.commit_files(base, {{"a.txt", "two\n"}, {"out.dat", "theirs\n"}}, "m\n"));
    repo.write("out.dat", "mine\n");
    repo.write(".git/index.lock", "");
    const auto landed = BranchMover(checkout).land("refs/heads/main", base, next, false);
    REQUIRE_FALSE(landed);
    CHECK(landed.error().kind == ErrorKind::conflict);
    CHECK(says(landed.error(), "index.lock"));
    CHECK(says(landed.error(), "left unchanged, because it differs from what git would write: out.dat"));
    CHECK(repo.head() == base);
    CHECK(repo.read("out.dat") == "mine\n");
    CHECK(repo.read(".git/index.lock").empty());
    CHECK(repo.sh("git for-each-ref refs/gdnctl").empty());
    repo.sh("rm .git/index.lock");
    CHECK(repo.status().empty());
}
