// Iterations as transactions, in a slot.
#include "loop/engine/transaction.h"

#include "loop_fixture.h"

namespace fs = std::filesystem;

namespace gdnctl::loop {

using Landing = GitLanding::Kind;

TEST_CASE("transaction: accepted work of several commits lands, the log in a commit of its own") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    CHECK(base.branch == "refs/heads/main");
    CHECK(world.ref("iter-001/base") == world.base);
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.commit("one", all.workdir());
    write_text(all.workdir() / "kernel.c", "int speed = 3;\n");
    const std::string head = world.commit("two", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.commits.size() == 2);
    CHECK(candidate.diff == DiffClass::change);
    CHECK_FALSE(candidate.leftovers);
    CHECK(candidate.broken.empty());
    CHECK(world.ref("iter-001/head") == head);
    CHECK(world.head() == world.base);

    CHECK(ok(all.accept(base, candidate, false)).kind == Landing::landed);
    CHECK(world.read("kernel.c") == "int speed = 3;\n");
    const auto logged =
        ok(all.commit_log(1, base.branch, {{{"log.md", "# Log\nentry\n"}}, "Log\n\nGdnctl-Log: id\n"}, false));
    CHECK(logged.kind == Landing::landed);
    CHECK(world.read("log.md") == "# Log\nentry\n");
    CHECK(world.sh("git diff --name-only HEAD~1") == "log.md");
    CHECK(world.sh("git rev-parse HEAD~1") == head);
    CHECK(world.status().empty());
    // Said again after a kill: nothing happens twice.
    CHECK(ok(all.accept(base, candidate, true)).kind == Landing::already);
    const LogEntry entry{{{"log.md", "# Log\nentry\n"}}, "Log\n"};
    CHECK(ok(all.commit_log(1, base.branch, entry, true)).kind == Landing::already);
    CHECK(ok(all.landed_log(1, base.branch)) == logged.tip);
    CHECK_FALSE(ok(all.landed_log(2, base.branch)));
    CHECK(world.sh("git rev-list --count HEAD") == "4");
}

TEST_CASE("transaction: rejected and parked work stays on its ref, the branch where it was (defects 8, 9)") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    write_text(all.workdir() / "kernel.c", "int speed = 0;\n");
    const std::string head = world.commit("slower", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    ok(all.reject(base, candidate));
    CHECK(world.head() == world.base);
    const Base next = ok(all.begin(2, false));
    CHECK(next.sha == world.base);
    CHECK(read_text(all.workdir() / "kernel.c") == "int speed = 1;\n");
    world.sh("git gc -q --prune=now");
    CHECK(world.sh("git show " + world.ref("iter-001/head") + ":kernel.c") == "int speed = 0;");
    CHECK(world.ref("iter-001/head") == head);
}

TEST_CASE("transaction: a merge commit is one candidate like any other (defect 14)") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    world.sh(
        "git checkout -q -b side && echo s > side.c && git add . && git commit -q -m side && git checkout -q --detach "
        "HEAD~1 "
        "&& echo m > main.c && git add . && git commit -q -m m && git merge -q --no-ff -m merge side",
        all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.commits.size() == 3);
    CHECK(candidate.files.size() == 2);
    CHECK(ok(all.accept(base, candidate, false)).kind == Landing::landed);
    CHECK(world.read("side.c") == "s\n");
}

TEST_CASE("transaction: leftovers are saved as patch and ref, and never judged (names with newlines, ignored files)") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.commit("one", all.workdir());
    write_text(all.workdir() / "kernel.c", "int speed = 9;\n");
    write_text(all.workdir() / "left\nover", "x\n");
    write_text(all.workdir() / "cache.o", "x\n");
    world.sh("git init -q clone", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    REQUIRE(candidate.leftovers);
    CHECK(candidate.leftovers->paths == std::vector<std::string>{"kernel.c", "left\nover"});
    CHECK(candidate.leftovers->repositories.size() == 1);
    CHECK(fs::exists(world.log_dir() / "iteration-001-repositories" / "clone" / ".git"));
    CHECK(candidate.leftovers->patch == world.log_dir() / "iteration-001-leftovers.patch");
    CHECK(world.sh("git show refs/gdnctl/r1/iter-001/leftovers:kernel.c") == "int speed = 9;");
    // What is judged now is the commit alone.
    CHECK(read_text(all.workdir() / "kernel.c") == "int speed = 2;\n");
    CHECK(list_names(all.workdir()) == ".git .gitignore kernel.c log.md tests");
    world.sh("git apply --check '" + candidate.leftovers->patch.string() + "'", all.workdir());
}

TEST_CASE("transaction: leftovers that would make a large patch are on their ref alone, one that is gone too") {
    const LoopFixture world;
    const std::string large(std::size_t{17} << 20, 'x');
    world.write("weights.bin", large);
    world.commit("large");
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    fs::remove(all.workdir() / "weights.bin");
    const Candidate gone = ok(all.collect(1, base));
    REQUIRE(gone.leftovers);
    CHECK(gone.leftovers->paths == std::vector<std::string>{"weights.bin"});
    CHECK(gone.leftovers->patch.empty());
    CHECK_FALSE(fs::exists(world.log_dir() / "iteration-001-leftovers.patch"));
    CHECK(world.sh("git diff --name-status HEAD refs/gdnctl/r1/iter-001/leftovers") == "D\tweights.bin");

    const Base second = ok(all.begin(2, false));
    write_text(all.workdir() / "weights.bin", "small\n");
    write_text(all.workdir() / "new.c", "int small;\n");
    CHECK(ok(all.collect(2, second)).leftovers->patch.empty());
    const Base third = ok(all.begin(3, false));
    write_text(all.workdir() / "new.bin", large);
    CHECK(ok(all.collect(3, third)).leftovers->patch.empty());
    const Base fourth = ok(all.begin(4, false));
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    CHECK_FALSE(ok(all.collect(4, fourth)).leftovers->patch.empty());
}

TEST_CASE("transaction: a change of a protected path is found with its diff, also behind a hide mark") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    write_text(all.workdir() / "tests/cases.txt", "easier\n");
    world.commit("cheat", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.protected_changes == std::vector<std::string>{"tests/cases.txt"});
    CHECK(candidate.protected_diff.find("+easier") != std::string::npos);

    const Base second = ok(all.begin(2, false));
    world.sh("git rm -q -r tests && ln -s /tmp tests && git add -A && git commit -q -m link", all.workdir());
    CHECK(ok(all.collect(2, second)).protected_changes == std::vector<std::string>{"tests/cases.txt"});

    const Base third = ok(all.begin(3, false));
    world.sh("git update-index --assume-unchanged tests/cases.txt", all.workdir());
    write_text(all.workdir() / "tests/cases.txt", "hidden\n");
    const Candidate hidden = ok(all.collect(3, third));
    CHECK(hidden.hidden == std::vector<std::string>{"tests/cases.txt"});
    CHECK(hidden.leftovers);
    CHECK(read_text(all.workdir() / "tests/cases.txt") == "cases\n");
}

TEST_CASE("transaction: no-op and log-only are found before any time is spent (defect 7)") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    CHECK(ok(all.collect(1, base)).diff == DiffClass::no_op);
    world.sh("git commit -q --allow-empty -m nothing", all.workdir());
    const Candidate empty = ok(all.collect(1, base));
    CHECK(empty.diff == DiffClass::no_op);
    CHECK(empty.commits.size() == 1);
    write_text(all.workdir() / "log.md", "# Log\nonly words\n");
    world.commit("words", all.workdir());
    CHECK(ok(all.collect(1, base)).diff == DiffClass::log_only);
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.commit("code", all.workdir());
    CHECK(ok(all.collect(1, base)).diff == DiffClass::change);
}

TEST_CASE("transaction: a second attempt starts on a clean tree, the first one is kept (defect 10)") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    write_text(all.workdir() / "kernel.c", "half\n");
    const std::string half = world.commit("half", all.workdir());
    write_text(all.workdir() / "more.c", "more\n");
    ok(all.archive_attempt(1, 1, base));
    CHECK(read_text(all.workdir() / "kernel.c") == "int speed = 1;\n");
    CHECK_FALSE(fs::exists(all.workdir() / "more.c"));
    CHECK(world.ref("iter-001/attempt-1/head") == half);
    CHECK(world.sh("git show refs/gdnctl/r1/iter-001/attempt-1/leftovers:more.c") == "more");
    CHECK(fs::exists(world.log_dir() / "iteration-001-attempt-1-leftovers.patch"));
}

TEST_CASE("transaction: the branch moved in mid-iteration, the candidate follows, and nothing is lost") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.commit("faster", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    world.write("theirs.c", "t\n");
    const std::string theirs = world.commit("theirs");
    const auto moved = ok(all.accept(base, candidate, false));
    CHECK(moved.kind == Landing::moved);
    CHECK(moved.tip == theirs);
    const auto followed = ok(all.follow(1, base, candidate, moved.tip));
    REQUIRE(followed);
    CHECK(followed->files.size() == 1);
    CHECK(world.ref("iter-001/head-before-rebase") == candidate.head);
    CHECK(ok(all.accept({moved.tip, base.branch}, *followed, false)).kind == Landing::landed);
    CHECK(world.read("theirs.c") == "t\n");
    CHECK(world.read("kernel.c") == "int speed = 2;\n");

    // One that conflicts is parked; a branch that was wound back is not followed at all.
    const Base second = ok(all.begin(2, false));
    write_text(all.workdir() / "kernel.c", "int speed = 3;\n");
    world.commit("ours", all.workdir());
    const Candidate clash = ok(all.collect(2, second));
    world.write("kernel.c", "int speed = 4;\n");
    const std::string tip = world.commit("same line");
    CHECK_FALSE(ok(all.follow(2, second, clash, tip)));
    CHECK_FALSE(ok(all.follow(2, second, clash, world.base)));
    CHECK(world.ref("iter-002/head") == clash.head);
    CHECK(world.head() == tip);
}

TEST_CASE("transaction: a detached checkout and one with work in the way") {
    const LoopFixture world;
    world.sh("git checkout -q --detach");
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    CHECK(base.branch.empty());
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.commit("faster", all.workdir());
    const Candidate candidate = ok(all.collect(1, base));
    world.write("kernel.c", "mine\n");
    const auto blocked = ok(all.accept(base, candidate, false));
    CHECK(blocked.kind == Landing::blocked);
    CHECK(blocked.in_the_way == std::vector<std::string>{"kernel.c"});
    CHECK(world.read("kernel.c") == "mine\n");
    world.write("kernel.c", "int speed = 1;\n");
    CHECK(ok(all.accept(base, candidate, false)).kind == Landing::landed);
    CHECK(world.sh("git rev-parse main") == world.base);
}

TEST_CASE("transaction: links lead to what the checkout has and git ignores") {
    const LoopFixture world;
    world.write(".venv/bin/python", "p\n");
    auto settings = world.settings(Isolation::worktree);
    settings.links = {".venv", "absent"};
    auto all = ok(Transactions::open(world.path(), settings, ok(Artefacts::open(world.log_dir())), std::nullopt,
                                     system_process(), world.clock));
    ok(all.begin(1, false));
    ok(all.begin(2, false));
    CHECK(read_text(all.workdir() / ".venv/bin/python") == "p\n");
    CHECK(world.read(".venv/bin/python") == "p\n");
}

TEST_CASE("transaction: hooks and settings of the agent do not run in ours, and are reported") {
    const LoopFixture world;
    auto all = world.transactions();
    const Base base = ok(all.begin(1, false));
    ok(all.remember_setup());
    const std::string trap = world.outside("trap").string();
    write_text(trap, "#!/bin/sh\ntouch '" + world.outside("sprung").string() + "'\ncat\n");
    world.sh("chmod +x " + trap + " && cp " + trap + " .git/hooks/post-checkout && cp " + trap +
             " .git/hooks/post-merge && "
             "git config filter.trap.clean " +
             trap + " && git config filter.trap.smudge " + trap);
    write_text(all.workdir() / ".gitattributes", "* filter=trap\n");
    write_text(all.workdir() / "kernel.c", "int speed = 2;\n");
    world.sh("git -c filter.trap.clean=cat commit -q -m m -a; git -c filter.trap.clean=cat add -A; rm -f '" +
                 world.outside("sprung").string() + "'",
             all.workdir());
    fs::remove(world.outside("sprung"));
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.config_changes == std::vector<std::string>{"filter.trap.clean", "filter.trap.smudge",
                                                               "hooks/post-checkout", "hooks/post-merge"});
    CHECK(ok(all.accept(base, candidate, false)).kind == Landing::landed);
    ok(all.begin(2, false));
    CHECK_FALSE(fs::exists(world.outside("sprung")));
    // What is changed while nothing runs is the user's.
    world.sh("git config alias.mine status");
    ok(all.committed(ok(all.begin(2, true))));
    CHECK(world.sh("git config alias.mine; ls .git/gdnctl-settings | grep before || true") == "status");
}

TEST_CASE("transaction: names of runs and places of slots are checked") {
    const LoopFixture world;
    const auto artefacts = ok(Artefacts::open(world.log_dir()));
    auto settings = world.settings(Isolation::worktree);
    for (const std::string name : {"", "Run", "a/b", "../x"}) {
        settings.run = name;
        CHECK_FALSE(Transactions::open(world.path(), settings, artefacts, std::nullopt, system_process(), world.clock));
    }
    settings.run = "r1";
    settings.slot = world.path() / "slot";
    const auto inside =
        Transactions::open(world.path(), settings, artefacts, std::nullopt, system_process(), world.clock);
    REQUIRE_FALSE(inside);
    CHECK(inside.error().kind == ErrorKind::usage);
    const auto folder = ok(slot_folder("/state", "/home/u/my repo/.git"));
    CHECK(folder.string().starts_with("/state/worktrees/my repo-"));
    CHECK(folder.filename().string().size() == std::string("my repo-").size() + 12);
}

TEST_CASE("in place: iterations work in the checkout, the log directory inside never makes it dirty (defect 12)") {
    const LoopFixture world;
    auto all = world.transactions(Isolation::inplace);
    CHECK(all.workdir() == world.path());
    CHECK(ok(all.dirty()).empty());
    write_text(world.log_dir() / "dev_tpu_allocate.log", "live\n");
    CHECK(ok(all.dirty()).empty());
    world.write("mine.txt", "mine\n");
    world.write("kernel.c", "int speed = 1; // mine\n");
    const auto stash = ok(all.stash_user_work(1, "gdnctl-codex-loop-iter-001-1773161587", false));
    REQUIRE(stash);
    CHECK(read_text(world.log_dir() / "dev_tpu_allocate.log") == "live\n");
    CHECK(world.ref("iter-001/stash") == *stash);
    const Base base = ok(all.begin(1, false));
    world.write("other.c", "int other;\n");
    world.commit("agent");
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.commits.size() == 1);
    CHECK(ok(all.accept(base, candidate, false)).kind == Landing::already);
    CHECK(ok(all.bring_back(*stash)) == GitRestore::restored);
    CHECK(world.read("kernel.c") == "int speed = 1; // mine\n");
    CHECK(world.sh("git stash list").empty());
    CHECK(ok(all.bring_back(*stash)) == GitRestore::was_there);
}

TEST_CASE("in place: a rejected candidate is taken off the branch, leftovers stay and are saved") {
    const LoopFixture world;
    auto all = world.transactions(Isolation::inplace);
    const Base base = ok(all.begin(1, false));
    world.write("kernel.c", "int speed = 0;\n");
    const std::string head = world.commit("slower");
    world.write("left.c", "left\n");
    world.write("tests/cases.txt", "easier\n");
    const Candidate candidate = ok(all.collect(1, base));
    CHECK(candidate.protected_changes == std::vector<std::string>{"tests/cases.txt"});
    CHECK(world.read("left.c") == "left\n");
    ok(all.reject(base, candidate));
    ok(all.reject(base, candidate));
    CHECK(world.head() == world.base);
    CHECK(world.ref("iter-001/head") == head);
    CHECK(world.read("left.c") == "left\n");
    CHECK(fs::exists(world.log_dir() / "iteration-001-leftovers.patch"));
}

TEST_CASE("in place: another branch or a rewritten history is an error of the iteration, the base stays") {
    const LoopFixture world;
    auto all = world.transactions(Isolation::inplace);
    const Base base = ok(all.begin(1, false));
    world.sh("git checkout -q -b elsewhere");
    CHECK(ok(all.collect(1, base)).broken.find("refs/heads/elsewhere") != std::string::npos);
    world.sh("git checkout -q main && git commit -q --amend -m rewritten");
    const Candidate rewritten = ok(all.collect(1, base));
    CHECK(rewritten.broken.find("no longer contains the commit " + world.base.substr(0, 12)) != std::string::npos);
    ok(all.reject(base, rewritten));
    world.sh("git gc -q --prune=now");
    CHECK(world.ref("iter-001/base") == world.base);
}

TEST_CASE(
    "in place: what switched the branch is undone, wherever that was broken off, and the branch of others stays") {
    const std::vector<std::string> killed = {"true", "git update-ref --no-deref HEAD HEAD",
                                             "git update-ref --no-deref HEAD HEAD && echo half >kernel.c",
                                             "git update-ref --no-deref HEAD HEAD && git reset -q --hard main"};
    for (const auto& so_far : killed) {
        CAPTURE(so_far);
        const LoopFixture world;
        auto all = world.transactions(Isolation::inplace);
        const Base base = ok(all.begin(1, false));
        world.sh("git checkout -q -b elsewhere && echo half a line >kernel.c && git commit -q -am theirs");
        const auto theirs = world.head();
        const Candidate candidate = ok(all.collect(1, base));
        world.sh(so_far);
        world.write("mine.txt", "mine\n");
        // Half of what the file is to be is what git may have left.
        if (so_far.ends_with("kernel.c")) world.write("kernel.c", world.sh("git show main:kernel.c").substr(0, 3));
        ok(all.reject(base, candidate));
        CHECK(world.sh("git symbolic-ref HEAD") == "refs/heads/main");
        CHECK(world.head() == base.sha);
        CHECK(world.status() == "?? mine.txt");
        CHECK(world.sh("git rev-parse elsewhere") == theirs);
        ok(all.reject(base, candidate));
        CHECK(world.head() == base.sha);
    }
}

TEST_CASE("in place: a stash that was cut short by a kill is made whole") {
    const LoopFixture world;
    auto all = world.transactions(Isolation::inplace);
    world.write("mine.txt", "mine\n");
    world.write("kernel.c", "mine\n");
    ok(all.stash_user_work(1, "gdnctl-codex-loop-iter-001-1", false));
    world.write("kernel.c", "mine\n");  // not yet cleaned when it was killed
    const auto stash = ok(all.stash_user_work(1, "gdnctl-codex-loop-iter-001-1", true));
    REQUIRE(stash);
    CHECK(world.status().empty());
    CHECK(ok(all.bring_back(*stash)) == GitRestore::restored);
    CHECK(world.read("kernel.c") == "mine\n");
    CHECK(world.read("mine.txt") == "mine\n");
    CHECK(world.sh("git stash list").empty());
}

}  // namespace gdnctl::loop

namespace gdnctl::loop {

// Branches, tags and stashes that an iteration has nothing to do with.

namespace {

struct Bystanders : LoopFixture {
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
    const auto stash = ok(all.stash_user_work(1, "gdnctl-codex-loop-iter-001-1", false));
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
