// A checkout to work in, on real repositories.
#include "services/git/checkout.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/text.h"
#include "services/git/calls.h"
#include "support/git_repo.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;
using Landing = GitLanding::Kind;

namespace {

// One commit with a.txt and b/c.txt.
struct Simple : GitRepo {
    Simple() {
        write("a.txt", "one\n");
        write("b/c.txt", "two\n");
        base = commit("base");
    }
    std::string base;
};

// A commit on top of `parent` that sets one file, made beside the checkout.
std::string beside(const GitCheckout& checkout, const std::string& parent, const std::string& path,
                   const std::string& text) {
    return ok(checkout.commit_files(parent, {{path, text}}, "change " + path + "\n"));
}

}  // namespace

TEST_CASE("git checkout: what git prints is read with any byte in a path") {
    using Kind = GitStatusEntry::Kind;
    const std::string odd = "a b\n\t\"\xff";
    std::string text = "1 .M N... 100644 100644 100644 aa bb " + odd + '\0';
    text += "u UU N... 100644 100644 100644 100644 aa bb cc both" + std::string(1, '\0');
    text += "? new dir/" + std::string(1, '\0') + "! ign" + std::string(1, '\0');
    text += "1 .M SCMU 160000 160000 160000 aa bb sub" + std::string(1, '\0');
    const auto entries = git::parse_status(text);
    REQUIRE(entries);
    REQUIRE(entries->size() == 5);
    CHECK((*entries)[0].path == odd);
    CHECK((*entries)[1].kind == Kind::conflict);
    CHECK((*entries)[2].path == "new dir/");
    CHECK((*entries)[3].kind == Kind::ignored);
    CHECK((*entries)[4].path == "sub");
    CHECK_FALSE(git::parse_status("1 .M N..."));
    CHECK_FALSE(git::parse_status(std::string("x y\0", 4)));
    CHECK_FALSE(git::parse_raw_diff(std::string(":100644 100644 a b M\0", 21)));

    CHECK(git::lock_in_the_way("fatal: Unable to create '/r/.git/index.lock': File exists.\n") == "/r/.git/index.lock");
    CHECK(git::lock_in_the_way("fatal: Unable to create '/r/x.lock': Permission denied").empty());
    CHECK(git::lock_in_the_way("fatal: failed to read /r/.git/worktrees/a b/commondir: Success\n") ==
          "/r/.git/worktrees/a b/commondir");
    CHECK(git::lock_in_the_way("fatal: failed to read /r/.git/worktrees/a/HEAD: Success").empty());
    CHECK(git::reason_of("warning: w\nhint: h\nUpdating a..b\nerror: no\n") == "error: no");
    CHECK(git::reason_of("") == "no reason given");
}

TEST_CASE("git checkout: opens linked worktrees and detached heads, refuses bare, empty and missing repositories") {
    const Simple repo;
    repo.sh("git worktree add -q --detach ../linked");
    FakeClock clock;
    const auto linked = ok(GitCheckout::open(repo.outside("linked"), system_process(), clock));
    CHECK(linked.common_dir() == repo.path() / ".git");
    CHECK(linked.git_dir() == repo.path() / ".git" / "worktrees" / "linked");
    CHECK(ok(linked.head()).branch.empty());
    CHECK(ok(repo.open().head()).branch == "refs/heads/main");
    CHECK(ok(repo.open().worktrees()).size() == 2);

    repo.sh("git init -q ../empty; git init -q --bare ../bare.git; mkdir ../none");
    for (const auto& [name, words] :
         {std::pair{"empty", "no commit yet"}, {"bare.git", "bare"}, {"none", "not inside"}}) {
        const auto refused = GitCheckout::open(repo.outside(name), system_process(), clock);
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == ErrorKind::usage);
        CHECK(refused.error().message.find(words) != std::string::npos);
    }
}

TEST_CASE("git checkout: no hook, monitor or filter that the agent configures runs in our calls") {
    const Simple repo;
    auto checkout = repo.open();
    const auto trusted = ok(checkout.executable_config());
    const std::string trap = "#!/bin/sh\ntouch " + (repo.path().parent_path() / "sprung").string() + "\ncat\n";
    repo.write("../trap", trap);
    repo.sh(
        "chmod +x ../trap; for h in post-checkout pre-commit post-commit post-merge reference-transaction "
        "post-index-change pre-rebase post-rewrite; do cp ../trap .git/hooks/$h; done");
    const std::string program = repo.outside("trap").string();
    repo.sh("git config core.fsmonitor " + program + " && git config filter.x.clean " + program +
            " && git config filter.x.smudge " + program + " && git config filter.x.required true" +
            " && git config diff.external " + program + " && git config core.pager " + program +
            " && git config merge.m.driver " + program + " && git config core.editor " + program);
    fs::remove(repo.outside("sprung"));
    repo.write(".gitattributes", "* filter=x merge=m\n");
    repo.write("a.txt", "changed\n");

    const auto changed = ok(checkout.trust(trusted));
    CHECK(text::join(changed, " ") ==
          "core.editor core.fsmonitor core.pager diff.external filter.x.clean filter.x.required filter.x.smudge "
          "hooks/post-checkout hooks/post-commit hooks/post-index-change hooks/post-merge hooks/post-rewrite "
          "hooks/pre-commit hooks/pre-rebase hooks/reference-transaction merge.m.driver");
    const auto all = ok(checkout.snapshot(repo.base, "all\n"));
    CHECK_FALSE(all.commit.empty());
    const auto next = beside(checkout, repo.base, "new.txt", "n\n");
    CHECK(ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false)).kind == Landing::landed);
    ok(GitStashes(checkout).make("s"));
    ok(GitStashes(checkout).restore(ok(GitStashes(checkout).list()).front().commit));
    ok(checkout.patch(repo.base, next, {}));
    CHECK_FALSE(fs::exists(repo.outside("sprung")));
    CHECK(repo.read("a.txt") == "changed\n");
}

TEST_CASE("git checkout: a snapshot holds everything that is in the tree and touches nothing") {
    const Simple repo;
    const auto checkout = repo.open();
    CHECK(ok(checkout.snapshot(repo.base, "m\n")).commit.empty());
    const std::string odd = "new\nline \xc3\xa9 \"q\"";
    repo.write(odd, "odd\n");
    repo.write("a.txt", "changed\n");
    fs::remove(repo.path() / "b/c.txt");
    repo.write("tool.sh", "#!/bin/sh\n");
    repo.sh(
        "chmod +x tool.sh; ln -s nowhere link; printf '\\000\\001' > binary; echo ign > x.o; echo '*.o' > .gitignore");
    repo.sh("git add tool.sh");
    const std::string before = repo.status();
    const auto made = ok(checkout.snapshot(repo.base, "m\n"));
    CHECK(repo.status() == before);
    std::map<std::string, GitFileChange> changes;
    for (const auto& change : ok(checkout.diff(repo.base, made.commit))) changes[change.path] = change;
    CHECK(changes.size() == 7);
    CHECK(changes.at(odd).status == 'A');
    CHECK(changes.at("b/c.txt").status == 'D');
    CHECK(changes.at("tool.sh").new_mode == "100755");
    CHECK(changes.at("link").new_mode == "120000");
    CHECK_FALSE(changes.contains("x.o"));

    // The patch gives the same tree again.
    ok(checkout.write_patch(repo.base, made.commit, repo.outside("leftovers.patch")));
    repo.sh("git worktree add -q --detach ../again " + repo.base);
    repo.sh("git apply --binary --index ../leftovers.patch && git write-tree > ../tree", repo.outside("again"));
    CHECK(read_text(repo.outside("tree")) == made.tree + "\n");
}

TEST_CASE("git checkout: a snapshot sees files that were marked unchanged, and names repositories inside") {
    const Simple repo;
    repo.sh("git update-index --assume-unchanged a.txt; git update-index --skip-worktree b/c.txt");
    repo.write("a.txt", "tampered\n");
    repo.write("b/c.txt", "tampered\n");
    repo.sh(
        "git init -q inner; git init -q full; cd full; echo x > y; git add y; git -c user.name=n -c user.email=e "
        "commit -q -m m");
    const auto made = ok(repo.open().snapshot(repo.base, "m\n"));
    CHECK(made.hidden == std::vector<std::string>{"a.txt", "b/c.txt"});
    CHECK(made.repositories == std::vector<std::string>{"full", "inner"});
    CHECK(ok(repo.open().diff(repo.base, made.commit)).size() == 2);
}

TEST_CASE("git checkout: a sparse checkout loses nothing in snapshot, landing and stash") {
    const Simple repo;
    repo.sh("git sparse-checkout set --cone d && mkdir d");
    REQUIRE_FALSE(fs::exists(repo.path() / "b"));
    const auto checkout = repo.open();
    CHECK(ok(checkout.snapshot(repo.base, "m\n")).commit.empty());
    repo.write("d/new", "n\n");
    const auto made = ok(checkout.snapshot(repo.base, "m\n"));
    CHECK(ok(checkout.diff(repo.base, made.commit)).size() == 1);
    const auto stash = ok(GitStashes(checkout).make("s"));
    REQUIRE(stash);
    const auto next = beside(checkout, repo.base, "b/c.txt", "far\n");
    CHECK(ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false)).kind == Landing::landed);
    CHECK(ok(GitStashes(checkout).restore(stash->commit)) == GitRestore::restored);
    CHECK(repo.read("d/new") == "n\n");
    CHECK_FALSE(fs::exists(repo.path() / "b"));
    CHECK(repo.sh("git show HEAD:b/c.txt") == "far");
}

TEST_CASE("git checkout: refs are changed together and only from what they were") {
    const Simple repo;
    const auto checkout = repo.open();
    const std::vector<GitRefUpdate> both = {{"refs/gdnctl/r/iter-001/base", repo.base, std::string(k_no_object)},
                                            {"refs/gdnctl/r/iter-001/head", repo.base}};
    ok(checkout.update_refs(both));
    CHECK(ok(checkout.refs("refs/gdnctl/r")).size() == 2);
    const std::vector<GitRefUpdate> again = {{"refs/gdnctl/r/iter-002/head", repo.base},
                                             {"refs/gdnctl/r/iter-001/base", repo.base, std::string(k_no_object)}};
    const auto refused = checkout.update_refs(again);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::conflict);
    CHECK(ok(checkout.refs("refs/gdnctl/r")).size() == 2);
    const GitRefUpdate gone{"refs/gdnctl/r/iter-001/head", std::string(k_no_object), repo.base};
    ok(checkout.update_refs(std::span(&gone, 1)));
    CHECK(ok(checkout.refs("refs/gdnctl/r")).size() == 1);
}

TEST_CASE("git landing: the branch moves with its checkout, and uncommitted work beside it stays") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.write("b/c.txt", "mine\n");
    repo.write("untracked", "mine too\n");
    const auto landed = ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false));
    CHECK(landed.kind == Landing::landed);
    CHECK(repo.head() == next);
    CHECK(repo.read("a.txt") == "better\n");
    CHECK(repo.status() == " M b/c.txt\n?? untracked");
    CHECK(ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false)).kind == Landing::already);
}

TEST_CASE("git landing: uncommitted work in the way is not touched and named") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.write("a.txt", "mine\n");
    const auto blocked = ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false));
    CHECK(blocked.kind == Landing::blocked);
    CHECK(blocked.in_the_way == std::vector<std::string>{"a.txt"});
    CHECK(ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, true)).kind == Landing::blocked);
    CHECK(repo.read("a.txt") == "mine\n");
    CHECK(repo.head() == repo.base);
}

TEST_CASE("git landing: a branch that someone moved meanwhile is left alone") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.write("b/c.txt", "theirs\n");
    const auto theirs = repo.commit("theirs");
    const auto moved = ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, false));
    CHECK(moved.kind == Landing::moved);
    CHECK(moved.tip == theirs);
    CHECK(repo.head() == theirs);
    CHECK(repo.status().empty());
}

TEST_CASE("git landing: a branch that no checkout has, one of a linked worktree, and a detached head") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.sh("git branch lone && git worktree add -q -b other ../linked && git checkout -q --detach");
    CHECK(ok(BranchMover(checkout).land("refs/heads/lone", repo.base, next, false)).kind == Landing::landed);
    CHECK(repo.sh("git rev-parse lone") == next);
    const auto other = ok(BranchMover(checkout).land("refs/heads/other", repo.base, next, false));
    CHECK(other.kind == Landing::landed);
    CHECK(other.checkout == repo.outside("linked"));
    CHECK(read_text(repo.outside("linked") / "a.txt") == "better\n");
    CHECK(repo.read("a.txt") == "one\n");
    CHECK(ok(BranchMover(checkout).land("", repo.base, next, false)).kind == Landing::landed);
    CHECK(repo.read("a.txt") == "better\n");
    CHECK(repo.sh("git rev-parse main") == repo.base);
}

TEST_CASE("git landing: what a killed landing left is completed, people's work is not") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = ok(checkout.commit_files(
        repo.base, {{"a.txt", "better and longer\n"}, {"b/c.txt", "better\n"}, {"new.txt", "n\n"}}, "m\n"));
    // As a kill leaves it: one file done, one with its beginning, one missing, and git's lock.
    repo.write("a.txt", "better an");
    fs::remove(repo.path() / "b/c.txt");
    repo.write("new.txt", "n\n");
    repo.sh("touch -d '-11 minutes' .git/index.lock");
    const auto landed = ok(BranchMover(checkout).land("refs/heads/main", repo.base, next, true));
    CHECK(landed.kind == Landing::landed);
    CHECK(repo.head() == next);
    CHECK(repo.status().empty());
    CHECK(repo.read("a.txt") == "better and longer\n");
    CHECK(repo.clock.sleeps().size() == 3);
}

TEST_CASE("git rebase: commits and merges go on top of what moved, a conflict leaves everything as it was") {
    const Simple repo;
    repo.sh(
        "git checkout -q -b side && echo s > side.txt && git add . && git commit -q -m side && git checkout -q -b work "
        "main "
        "&& echo w > work.txt && git add . && git commit -q -m work && git merge -q --no-ff -m merge side");
    const auto head = repo.head();
    repo.sh("git checkout -q main && echo t > theirs.txt && git add . && git commit -q -m theirs");
    const auto onto = repo.head();
    repo.sh("git checkout -q --detach " + head);
    const auto checkout = repo.open();
    const auto moved = ok(BranchMover(checkout).rebase(repo.base, head, onto));
    REQUIRE(moved);
    CHECK(ok(checkout.is_ancestor(onto, *moved)));
    CHECK(repo.sh("git ls-files") == "a.txt\nb/c.txt\nside.txt\ntheirs.txt\nwork.txt");

    const auto clash = beside(checkout, repo.base, "theirs.txt", "other\n");
    CHECK_FALSE(ok(BranchMover(checkout).rebase(repo.base, clash, onto)));
    CHECK(repo.head() == clash);
    CHECK(repo.status().empty());
}

TEST_CASE("git checkout: commits are taken off the branch, and never over uncommitted work") {
    const Simple repo;
    repo.write("a.txt", "worse\n");
    repo.commit("worse");
    repo.write("b/c.txt", "mine\n");
    const auto checkout = repo.open();
    ok(BranchMover(checkout).undo_to(repo.base));
    CHECK(repo.read("a.txt") == "one\n");
    CHECK(repo.read("b/c.txt") == "mine\n");
    repo.write("a.txt", "worse\n");
    repo.sh("git commit -q -m worse a.txt");
    repo.write("a.txt", "mine\n");
    const auto refused = BranchMover(checkout).undo_to(repo.base);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::conflict);
    CHECK(repo.read("a.txt") == "mine\n");
}

TEST_CASE("git checkout: what a killed taking back left is completed, people's work is not") {
    const Simple repo;
    repo.write("a.txt", "worse\n");
    repo.write("b/c.txt", "worse and longer\n");
    repo.write("new.txt", "n\n");
    repo.commit("worse");
    const auto checkout = repo.open();
    // As a kill leaves it: one file is back, one has its beginning, one has gone.
    repo.write("a.txt", "one\n");
    repo.write("b/c.txt", repo.sh("git show " + repo.base + ":b/c.txt | head -c 1"));
    fs::remove(repo.path() / "new.txt");
    ok(BranchMover(checkout).undo_to(repo.base));
    CHECK(repo.head() == repo.base);
    CHECK(repo.sh("git symbolic-ref HEAD") == "refs/heads/main");
    CHECK(repo.status().empty());
    CHECK(repo.read("a.txt") == "one\n");

    repo.write("a.txt", "worse\n");
    repo.write("b/c.txt", "worse and longer\n");
    const auto worse = repo.commit("worse again");
    repo.write("a.txt", "one\n");
    repo.write("b/c.txt", "mine\n");
    const auto refused = BranchMover(checkout).undo_to(repo.base);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::conflict);
    CHECK(repo.head() == worse);
    CHECK(repo.read("b/c.txt") == "mine\n");
}

TEST_CASE("git checkout: files are committed without touching the checkout, with the mode that they have") {
    const Simple repo;
    repo.write("run.sh", "#!/bin/sh\n");
    repo.sh("chmod +x run.sh");
    const auto base = repo.commit("script");
    const auto checkout = repo.open();
    const auto made =
        ok(checkout.commit_files(base, {{"run.sh", "#!/bin/bash\n"}, {"docs/empty", ""}}, "two\n\nKey: v\n"));
    CHECK(repo.status().empty());
    CHECK(repo.sh("git ls-tree -r " + made + " run.sh docs | cut -c1-6") == "100644\n100755");
    CHECK(repo.sh("git log -1 --format=%an%n%b " + made) == "T\nKey: v");
    repo.sh("git config --unset user.name; git config --unset user.email; git config user.useConfigOnly true");
    const auto nobodys = ok(checkout.commit_files(base, {{"a.txt", "2\n"}}, "three\n"));
    CHECK(repo.sh("git log -1 --format=%an " + nobodys) == "gdnctl");
}

TEST_CASE("git checkout: a lock that lives is waited for, not removed") {
    const Simple repo;
    const auto checkout = repo.open();
    repo.write(".git/index.lock", "");
    repo.write("a.txt", "x\n");
    repo.clock.when_asleep([&] { fs::remove(repo.path() / ".git/index.lock"); });
    CHECK(ok(GitStashes(checkout).make("s")));
    CHECK(repo.clock.sleeps() == std::vector<std::chrono::milliseconds>{std::chrono::seconds(2)});
}

TEST_CASE("git checkout: the log directory is kept out of git once, whatever its name") {
    const Simple repo;
    const auto checkout = repo.open();
    const fs::path logs = repo.path() / "lo gs[1]" / "run";
    ok(checkout.exclude(logs));
    ok(checkout.exclude(logs));
    write_text(logs / "iteration-001-prompt.txt", "p");
    CHECK(ok(checkout.dirty_paths()).empty());
    const std::string text = repo.read(".git/info/exclude");
    CHECK(text.ends_with("/lo\\ gs\\[1]/run/\n"));
    CHECK(text.find("gs\\[1]") == text.rfind("gs\\[1]"));
    ok(checkout.exclude(repo.outside("elsewhere")));
    CHECK_FALSE(checkout.exclude(repo.path()));
}

namespace gdnctl {

// Branches, tags and stashes, and the commit that keeps what they lead to.

using test::ok;

namespace {

struct Named : test::GitRepo {
    Named() {
        write("a.txt", "a\n");
        base = commit("base");
        sh("git checkout -q -b topic/one && git commit -q --allow-empty -m one && git tag -a -m t v1");
        topic = sh("git rev-parse HEAD");
        tag = sh("git rev-parse v1");
        sh("git tag blob $(git rev-parse HEAD:a.txt) && git checkout -q main");
        sh("git update-ref refs/remotes/origin/x main && git notes --ref=gdnctl add -m ours && git update-ref "
           "refs/gdnctl/r/iter-001/base main");
    }
    GitCheckout open() const { return ok(GitCheckout::open(path(), system_process(), clock)); }
    std::string base, topic, tag;
};

}  // namespace

TEST_CASE("git names: branches, tags and stashes, not what was fetched, and not ours") {
    const Named repo;
    repo.write("a.txt", "b\n");
    repo.sh("git stash -q -m 'first one' && echo c > a.txt && git stash -q -m second");
    const auto checkout = repo.open();
    const std::string blob = repo.sh("git rev-parse blob");
    const std::vector<GitName> expected = {
        {"refs/heads/main", repo.base},
        {"refs/heads/topic/one", repo.topic},
        {std::string(k_stash_ref), repo.sh("git rev-parse stash@{0}"), "On main: second"},
        {std::string(k_stash_ref), repo.sh("git rev-parse stash@{1}"), "On main: first one"},
        {"refs/tags/blob", blob},
        {"refs/tags/v1", repo.tag}};
    CHECK(ok(checkout.names()) == expected);

    const std::string kept = ok(checkout.gather(expected, "Kept\n"));
    CHECK(repo.sh("git cat-file -t " + kept) == "commit");
    CHECK(repo.sh("git log -1 --format=%s%an " + kept) == "Keptgdnctl");
    CHECK(repo.sh("git ls-tree " + kept).empty());
    repo.sh("git update-ref refs/gdnctl-others/r/last " + kept);
    repo.sh(
        "git stash clear; git branch -q -D topic/one; git tag -d v1; git reflog expire --expire=now --all; git gc -q "
        "--prune=now");
    for (const auto& name : expected) {
        INFO(name.ref << ' ' << name.said);
        if (name.object == blob || name.object == repo.tag) continue;
        CHECK(repo.sh("git cat-file -t " + name.object) == "commit");
        CHECK(ok(checkout.is_ancestor(name.object, kept)));
    }
    CHECK(repo.sh("git fsck --strict 2>&1").empty());
}

TEST_CASE("git names: refs that lead nowhere are no trouble, and neither is a repository with nothing to keep") {
    const Named repo;
    const auto checkout = repo.open();
    const std::string nowhere(40, '1');
    repo.write(".git/refs/heads/bad", nowhere + "\n");
    repo.write(".git/refs/heads/junk", "junk\n");
    const auto names = ok(checkout.names());
    CHECK(std::find(names.begin(), names.end(), GitName{"refs/heads/bad", nowhere}) != names.end());
    const std::string kept = ok(checkout.gather(names, "Kept\n"));
    CHECK(repo.sh("git cat-file commit " + kept + " | grep -c ^parent") == "2");  // main, topic and its tag
    const std::string none = ok(checkout.gather({}, "None\n"));
    CHECK(repo.sh("git cat-file commit " + none + " | grep -c ^parent || true") == "0");
}

TEST_CASE("git names: more than a command line has room for") {
    const test::GitRepo repo;
    repo.write("a.txt", "a\n");
    repo.commit("base");
    repo.sh(
        "for i in $(seq 40000); do printf 'commit refs/heads/many\\ncommitter T <t@e> %d +0000\\ndata 1\\nx\\n' $i; "
        "done | "
        "git fast-import --quiet");
    std::vector<GitName> names;
    const std::string commits = repo.sh("git rev-list many");
    for (const auto commit : text::split(commits, '\n')) names.push_back({"refs/heads/b", std::string(commit)});
    REQUIRE(names.size() == 40000);
    const auto checkout = ok(GitCheckout::open(repo.path(), system_process(), repo.clock));
    const std::string kept = ok(checkout.gather(names, "Kept\n"));
    CHECK(repo.sh("git cat-file commit " + kept + " | grep -c ^parent") == "40000");
}

TEST_CASE("git names: a ref that no room is left for is local_io, although git does not say why") {
    const Named repo;
    const auto checkout = repo.open();
    const GitRefUpdate pin{"refs/gdnctl/r/iter-002/base", repo.base};
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit small{31, before.rlim_max};  // bytes; an object's name takes 41
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const Status pinned = checkout.update_refs(std::span(&pin, 1));
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    REQUIRE_FALSE(pinned.has_value());
    CHECK(pinned.error().kind == ErrorKind::local_io);
    CHECK(pinned.error().hint.find("limit on the size of files") != std::string::npos);
}

}  // namespace gdnctl

// Locks whose owners are gone, and those whose owners may live.
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
        CHECK_FALSE(GitStashes(checkout).make("s"));
        CHECK(repo.there("index.lock"));
        CHECK(repo.read("a.txt") == "x\n");
    }
    CHECK(ok(GitStashes(checkout).make("s")));
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
    auto worktree = ok(PrivateWorktree::open(checkout, repo.outside("slot"), true, system_process(), repo.clock));
    repo.lock("index.lock", "11 minutes");
    repo.lock("worktrees/slot/index.lock", "0 minutes");
    ok(worktree.checkout().clear_stale_locks());
    CHECK(repo.there("index.lock"));
    CHECK_FALSE(repo.there("worktrees/slot/index.lock"));
}
