// Branches, tags and stashes that an iteration has nothing to do with.
#include "loop_world.h"

namespace gdnctl::loop {

namespace {

struct Bystanders : LoopWorld {
    Bystanders() {
        sh("git checkout -q -b topic && git commit -q --allow-empty -m topic && git checkout -q main");
        topic = sh("git rev-parse topic");
    }
    std::string others() const { return sh("git for-each-ref --format='%(refname)' refs/gdnctl-others"); }
    std::string topic;
};

}  // namespace

TEST_CASE("transaction: a branch that the agent deletes is said, and kept, also where the loop was killed meanwhile") {
    const Bystanders world;
    const Base base = ok(world.transactions().begin(1, false));
    CHECK(world.others() == "refs/gdnctl-others/r1/last");
    world.sh("git branch -q -D topic && git reflog expire --expire=now --all && git gc -q --prune=now");
    for (const bool first : {true, false}) {
        INFO("first: " << first);
        auto all = world.transactions(Isolation::worktree, true);
        const auto gone = ok(all.collect(1, base)).gone;
        if (!first) {
            CHECK(gone.empty());
            ok(all.leave_names());
            break;
        }
        REQUIRE(gone.size() == 1);
        CHECK(gone.front() == "gone: the branch topic, which was at " + world.topic.substr(0, 12));
    }
    CHECK(world.sh("git merge-base --is-ancestor " + world.topic + " " + world.others() + " && echo kept") == "kept");
}

TEST_CASE("transaction: what becomes of other branches between two iterations is told by the second") {
    const Bystanders world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    CHECK(ok(all.collect(1, base)).gone.empty());
    world.sh("git branch -q -m topic renamed");
    const Base second = ok(all.begin(2, false));
    CHECK(ok(all.collect(2, second)).gone.size() == 1);
    const Base third = ok(all.begin(3, false));
    CHECK(ok(all.collect(3, third)).gone.empty());
}

TEST_CASE("transaction: branches that go on, new ones and stashes in another order are no loss") {
    const Bystanders world;
    auto all = world.transactions();
    world.write("kernel.c", "one\n");
    world.sh("git stash -q -m one && echo two > kernel.c && git stash -q -m two");
    const Base base = ok(all.begin(1, false));
    world.sh(
        "git checkout -q topic && git commit -q --allow-empty -m more && git tag new && git branch other && git "
        "checkout "
        "-q main");
    world.sh("s=$(git rev-parse stash@{1}) && git stash drop -q stash@{1} && git stash store -m one $s");
    CHECK(ok(all.collect(1, base)).gone.empty());
    ok(all.leave_names());
    CHECK(world.others().empty());
}

TEST_CASE("in place: the run's own stash and branch are not among the others, a stash that stays is") {
    const Bystanders world;
    auto all = world.transactions(Isolation::inplace);
    world.write("kernel.c", "mine\n");
    const auto stash = ok(all.set_aside(1, "gdnctl-codex-loop-iter-001-1", false));
    REQUIRE(stash);
    const Base base = ok(all.begin(1, false));
    world.write("kernel.c", "agent\n");
    world.commit("agent");
    world.sh("git stash clear");
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.gone.empty());
    ok(all.reject(base, candidate));
    ok(all.begin(2, false));
    world.sh("git stash store " + *stash);
    const Base third = ok(all.begin(3, false));
    world.sh("git stash clear");
    const auto gone = ok(all.collect(3, third)).gone;
    REQUIRE(gone.size() == 1);
    CHECK(gone.front().starts_with("gone: the stash " + stash->substr(0, 12)));
}

TEST_CASE("transaction: where the ref that keeps the others is deleted too, the iteration goes on") {
    const Bystanders world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    world.sh(
        "git branch -q -D topic && git update-ref -d refs/gdnctl-others/r1/last && git reflog expire --expire=now "
        "--all "
        "&& git gc -q --prune=now");
    CHECK(ok(all.collect(1, base)).gone.size() == 1);
    const Base second = ok(all.begin(2, false));
    CHECK(ok(all.collect(2, second)).gone.empty());
}

}  // namespace gdnctl::loop
