// A checkout to work in, on real repositories.
#include "services/git/checkout.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

#include "core/text.h"
#include "services/git/calls.h"
#include "services/git/parse.h"
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
    CHECK(ok(checkout.land("refs/heads/main", repo.base, next, false)).kind == Landing::landed);
    ok(checkout.stash("s"));
    ok(checkout.restore_stash(ok(checkout.stashes()).front().commit));
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
    const auto stash = ok(checkout.stash("s"));
    REQUIRE(stash);
    const auto next = beside(checkout, repo.base, "b/c.txt", "far\n");
    CHECK(ok(checkout.land("refs/heads/main", repo.base, next, false)).kind == Landing::landed);
    CHECK(ok(checkout.restore_stash(stash->commit)) == GitRestore::restored);
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
    const auto landed = ok(checkout.land("refs/heads/main", repo.base, next, false));
    CHECK(landed.kind == Landing::landed);
    CHECK(repo.head() == next);
    CHECK(repo.read("a.txt") == "better\n");
    CHECK(repo.status() == " M b/c.txt\n?? untracked");
    CHECK(ok(checkout.land("refs/heads/main", repo.base, next, false)).kind == Landing::already);
}

TEST_CASE("git landing: uncommitted work in the way is not touched and named") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.write("a.txt", "mine\n");
    const auto blocked = ok(checkout.land("refs/heads/main", repo.base, next, false));
    CHECK(blocked.kind == Landing::blocked);
    CHECK(blocked.in_the_way == std::vector<std::string>{"a.txt"});
    CHECK(ok(checkout.land("refs/heads/main", repo.base, next, true)).kind == Landing::blocked);
    CHECK(repo.read("a.txt") == "mine\n");
    CHECK(repo.head() == repo.base);
}

TEST_CASE("git landing: a branch that someone moved meanwhile is left alone") {
    const Simple repo;
    const auto checkout = repo.open();
    const auto next = beside(checkout, repo.base, "a.txt", "better\n");
    repo.write("b/c.txt", "theirs\n");
    const auto theirs = repo.commit("theirs");
    const auto moved = ok(checkout.land("refs/heads/main", repo.base, next, false));
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
    CHECK(ok(checkout.land("refs/heads/lone", repo.base, next, false)).kind == Landing::landed);
    CHECK(repo.sh("git rev-parse lone") == next);
    const auto other = ok(checkout.land("refs/heads/other", repo.base, next, false));
    CHECK(other.kind == Landing::landed);
    CHECK(other.checkout == repo.outside("linked"));
    CHECK(read_text(repo.outside("linked") / "a.txt") == "better\n");
    CHECK(repo.read("a.txt") == "one\n");
    CHECK(ok(checkout.land("", repo.base, next, false)).kind == Landing::landed);
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
    const auto landed = ok(checkout.land("refs/heads/main", repo.base, next, true));
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
    const auto moved = ok(checkout.rebase(repo.base, head, onto));
    REQUIRE(moved);
    CHECK(ok(checkout.is_ancestor(onto, *moved)));
    CHECK(repo.sh("git ls-files") == "a.txt\nb/c.txt\nside.txt\ntheirs.txt\nwork.txt");

    const auto clash = beside(checkout, repo.base, "theirs.txt", "other\n");
    CHECK_FALSE(ok(checkout.rebase(repo.base, clash, onto)));
    CHECK(repo.head() == clash);
    CHECK(repo.status().empty());
}

TEST_CASE("git checkout: commits are taken off the branch, and never over uncommitted work") {
    const Simple repo;
    repo.write("a.txt", "worse\n");
    repo.commit("worse");
    repo.write("b/c.txt", "mine\n");
    const auto checkout = repo.open();
    ok(checkout.undo_to(repo.base));
    CHECK(repo.read("a.txt") == "one\n");
    CHECK(repo.read("b/c.txt") == "mine\n");
    repo.write("a.txt", "worse\n");
    repo.sh("git commit -q -m worse a.txt");
    repo.write("a.txt", "mine\n");
    const auto refused = checkout.undo_to(repo.base);
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
    ok(checkout.undo_to(repo.base));
    CHECK(repo.head() == repo.base);
    CHECK(repo.sh("git symbolic-ref HEAD") == "refs/heads/main");
    CHECK(repo.status().empty());
    CHECK(repo.read("a.txt") == "one\n");

    repo.write("a.txt", "worse\n");
    repo.write("b/c.txt", "worse and longer\n");
    const auto worse = repo.commit("worse again");
    repo.write("a.txt", "one\n");
    repo.write("b/c.txt", "mine\n");
    const auto refused = checkout.undo_to(repo.base);
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
    CHECK(ok(checkout.stash("s")));
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
