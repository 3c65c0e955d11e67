// Stash by commit id, and the worktree.
#include <filesystem>

#include <doctest/doctest.h>

#include "services/git/checkout.h"
#include "support/git_repo.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;

namespace {

struct Dirty : GitRepo {
    Dirty() {
        write("a.txt", "1\n2\n3\n4\n5\n");
        write("b.txt", "b\n");
        base = commit("base");
        write("a.txt", "1\n2\n3\n4\nmine\n");
        write("staged.txt", "staged\n");
        sh("git add staged.txt");
        write("dir/untracked \xc3\xa9", "untracked\n");
    }
    std::string base;
    std::string before = "";
};

std::string stash_of(const GitCheckout& checkout) {
    const auto made = ok(GitStashes(checkout).make("gdnctl-codex-loop-iter-001-1773161587"));
    REQUIRE(made);
    return made->commit;
}

struct PrivateWorktreeRepo : GitRepo {
    PrivateWorktreeRepo() {
        write("a.txt", "one\n");
        base = commit("base");
        write("a.txt", "two\n");
        write("dir/new.txt", "n\n");
        next = commit("next");
    }
    PrivateWorktree worktree() const {
        const auto checkout = open();
        return ok(PrivateWorktree::open(checkout, outside("slots") / "one", false, system_process(), clock));
    }
    std::string base, next;
};

}  // namespace

TEST_CASE("git stash: comes back with untracked and staged files, is proven and dropped by its id") {
    const Dirty repo;
    const auto checkout = repo.open();
    const std::string before = repo.status();
    const std::string id = stash_of(checkout);
    CHECK(repo.status().empty());
    CHECK(ok(GitStashes(checkout).list()).front().message.ends_with("gdnctl-codex-loop-iter-001-1773161587"));
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
    CHECK(repo.status() == before);
    CHECK(repo.read("dir/untracked \xc3\xa9") == "untracked\n");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::was_there);
    ok(GitStashes(checkout).drop(id));
    CHECK(ok(GitStashes(checkout).list()).empty());
    ok(GitStashes(checkout).drop(id));
    CHECK(ok(GitStashes(repo.open()).make("x")).has_value());
}

TEST_CASE("git stash: nothing to stash is not an error") {
    const Dirty repo;
    repo.commit("all");
    CHECK_FALSE(ok(GitStashes(repo.open()).make("x")));
}

TEST_CASE("git stash: the agent's own stash on top is neither taken nor dropped (defect 11)") {
    const Dirty repo;
    const auto checkout = repo.open();
    const std::string id = stash_of(checkout);
    repo.write("b.txt", "agent\n");
    repo.sh("git stash -q");
    const std::string agents = repo.sh("git rev-parse stash@{0}");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
    ok(GitStashes(checkout).drop(id));
    CHECK(repo.sh("git rev-parse stash@{0}") == agents);
    CHECK(repo.read("a.txt") == "1\n2\n3\n4\nmine\n");
    CHECK(repo.read("b.txt") == "b\n");
}

TEST_CASE("git stash: merges with what was committed meanwhile, a conflict touches nothing and keeps it") {
    const Dirty repo;
    const auto checkout = repo.open();
    const std::string id = stash_of(checkout);
    repo.write("a.txt", "first\n2\n3\n4\n5\n");
    repo.commit("elsewhere in the file");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
    CHECK(repo.read("a.txt") == "first\n2\n3\n4\nmine\n");
    repo.sh("git reset -q --hard && git clean -qfd");
    repo.write("a.txt", "1\n2\n3\n4\ntheirs\n");
    repo.commit("the same line");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::conflict);
    CHECK(repo.status().empty());
    repo.sh("git reset -q --hard " + repo.base);
    repo.write("dir/untracked \xc3\xa9", "in the way\n");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::conflict);
    CHECK(repo.read("dir/untracked \xc3\xa9") == "in the way\n");
    CHECK(ok(GitStashes(checkout).list()).size() == 1);
}

TEST_CASE("git stash: comes back beside what the agent left uncommitted, and when half of it is there") {
    const Dirty repo;
    const auto checkout = repo.open();
    const std::string id = stash_of(checkout);
    repo.write("b.txt", "left by the agent\n");
    repo.write("a.txt", "agent\n2\n3\n4\n5\n");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
    CHECK(repo.read("b.txt") == "left by the agent\n");
    CHECK(repo.read("a.txt") == "agent\n2\n3\n4\nmine\n");
    CHECK(repo.read("staged.txt") == "staged\n");
    // As a killed `git stash push` leaves it: the stash is made, the tree only half cleaned.
    repo.sh("git reset -q --hard && git clean -qfd");
    repo.write("a.txt", "1\n2\n3\n4\nmine\n");
    repo.write("dir/untracked \xc3\xa9", "untracked\n");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
    CHECK(repo.read("staged.txt") == "staged\n");
}

TEST_CASE("git stash: comes back where a full disk has left the beginnings of its files") {
    const GitRepo repo;
    repo.write("a.txt", "one\ntwo\n");
    repo.write("b.txt", "b\n");
    repo.commit("base");
    const auto git = repo.open();
    repo.write("a.txt", "ONE\ntwo\nthree\n");
    repo.write("dir/new.txt", "new one\n");
    repo.write("other.txt", "other\n");
    const auto stash = ok(GitStashes(git).make("mine"));
    REQUIRE(stash);
    repo.write("a.txt", "ON");
    repo.write("dir/new.txt", "");
    CHECK(ok(GitStashes(git).restore(stash->commit)) == GitRestore::restored);
    CHECK(repo.read("a.txt") == "ONE\ntwo\nthree\n");
    CHECK(repo.read("dir/new.txt") == "new one\n");
    CHECK(repo.read("other.txt") == "other\n");
    repo.write("dir/new.txt", "somebody's");
    CHECK(ok(GitStashes(git).restore(stash->commit)) == GitRestore::conflict);
    CHECK(repo.read("dir/new.txt") == "somebody's");
}

TEST_CASE("git stash: survives being dropped by the agent while a ref has it") {
    const Dirty repo;
    const auto checkout = repo.open();
    const std::string id = stash_of(checkout);
    const GitRefUpdate pin{"refs/gdnctl/r/iter-001/stash", id};
    ok(checkout.update_refs(std::span(&pin, 1)));
    repo.sh("git stash clear && git gc -q --prune=now");
    CHECK(ok(GitStashes(checkout).restore(id)) == GitRestore::restored);
}

TEST_CASE("git stash: what cannot be stashed is named, and everything is put back") {
    const Dirty repo;
    repo.sh(
        "git init -q inner && cd inner && echo x > y && git add y && git -c user.name=n -c user.email=e commit -q -m "
        "m");
    const std::string before = repo.status();
    const auto refused = GitStashes(repo.open()).make("x");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::conflict);
    CHECK(refused.error().message.find("inner") != std::string::npos);
    CHECK(repo.status() == before);
    CHECK(ok(GitStashes(repo.open()).list()).empty());
}

TEST_CASE("git slot: is made once, moves from commit to commit and holds nothing else") {
    const PrivateWorktreeRepo repo;
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    ok(worktree.move_to(repo.base, {}));
    CHECK(read_text(root / "a.txt") == "one\n");
    CHECK_FALSE(fs::exists(root / "dir"));
    write_text(root / "a.txt", "dirty\n");
    write_text(root / "junk.o", "x");
    write_text(root / ".venv/lib", "kept");
    repo.sh("echo '*.o' >> .git/info/exclude; git update-index --assume-unchanged a.txt", root);
    const std::string venv = ".venv";
    ok(worktree.show({"a.txt"}));
    ok(worktree.move_to(repo.next, std::span(&venv, 1)));
    CHECK(list_names(root) == ".git .venv a.txt dir");
    CHECK(read_text(root / "a.txt") == "two\n");
    CHECK(repo.status(root) == "?? .venv/");
    CHECK(repo.worktree().rescued().empty() == false);  // .venv
    CHECK(repo.status().empty());
}

TEST_CASE("git slot: an agent that switched branches or stopped in a merge does not take the branch along") {
    const PrivateWorktreeRepo repo;
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    repo.sh(
        "git checkout -q -b agents && git checkout -q --detach HEAD~1 && echo x > a.txt && git commit -q -am x && "
        "git checkout -q agents; git merge -q -m m HEAD@{1} || true",
        root);
    ok(worktree.move_to(repo.base, {}));
    CHECK(repo.sh("git rev-parse agents") == repo.next);
    CHECK(ok(worktree.checkout().head()).branch.empty());
    CHECK(repo.sh("git status --porcelain=v1 -b", root) == "## HEAD (no branch)");
    CHECK_FALSE(fs::exists(worktree.checkout().git_dir() / "MERGE_HEAD"));
}

TEST_CASE("git slot: work that was left in it is pinned when it is opened again") {
    const PrivateWorktreeRepo repo;
    const fs::path root = repo.worktree().checkout().root();
    write_text(root / "precious", "p\n");
    repo.sh("git add -A && git commit -q -m 'overnight' && echo more > more.txt", root);
    const auto worktree = repo.worktree();
    REQUIRE(worktree.rescued().size() == 1);
    CHECK(repo.sh("git show " + worktree.rescued().front() + ":more.txt") == "more");
    CHECK(repo.sh("git show " + worktree.rescued().front() + ":precious") == "p");
    CHECK(repo.worktree().rescued().empty());
}

TEST_CASE("git slot: a replaced .git, a removed slot and a pruned registration are mended, and nothing is deleted") {
    const PrivateWorktreeRepo repo;
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    fs::remove(root / ".git");
    repo.sh(
        "git init -q . && echo deep > deep.txt && git add deep.txt && git -c user.name=n -c user.email=e commit -q -m "
        "m "
        "&& git init -q inner",
        root);
    const std::vector<std::string> inner = {"inner"};
    const auto aside = ok(worktree.move_repositories_aside(inner, repo.outside("aside")));
    CHECK(aside.size() == 2);
    CHECK(fs::exists(repo.outside("aside") / "dot-git" / "HEAD"));
    CHECK(fs::exists(repo.outside("aside") / "inner"));
    ok(worktree.move_to(repo.base, {}));
    CHECK(list_names(root) == ".git a.txt");

    fs::remove_all(root);
    ok(worktree.move_to(repo.next, {}));
    CHECK(read_text(root / "a.txt") == "two\n");
    fs::remove_all(root);
    repo.sh("git worktree prune");
    auto again = repo.worktree();
    ok(again.move_to(repo.next, {}));
    CHECK(read_text(root / "dir/new.txt") == "n\n");
}

TEST_CASE("git slot: a worktree that a killed git had begun is no obstacle, neither the slot's nor another") {
    const PrivateWorktreeRepo repo;
    const fs::path root = repo.worktree().checkout().root();
    const fs::path admins = repo.path() / ".git/worktrees";
    for (const char* name : {"HEAD", "index"}) fs::remove(admins / "one" / name);
    write_text(admins / "one/commondir", "");
    write_text(admins / "others/gitdir", repo.outside("others").string() + "/.git\n");
    write_text(admins / "others/locked", "initializing");
    write_text(admins / "others/commondir", "");
    auto worktree = repo.worktree();
    ok(worktree.move_to(repo.next, {}));
    CHECK(worktree.checkout().root() == root);
    CHECK(read_text(root / "a.txt") == "two\n");
    ok(repo.open().remove_worktree(root));
    CHECK_FALSE(fs::exists(admins / "one"));
}

TEST_CASE("git slot: what an agent did away with while it worked there is there again") {
    const PrivateWorktreeRepo repo;
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    ok(worktree.move_to(repo.base, {}));
    repo.sh("echo x >a.txt && git commit -q -am x", root);
    const std::string head = repo.sh("git rev-parse HEAD", root);
    const auto git = ok(GitCheckout::open(repo.path(), system_process(), repo.clock));
    fs::remove_all(root);
    ok(worktree.mend(git));
    CHECK(ok(worktree.checkout().head()).sha == head);
    ok(worktree.move_to(repo.next, {}));
    repo.sh("echo y >a.txt && git commit -q -am y", root);
    fs::remove_all(root);
    auto again = repo.worktree();
    REQUIRE(again.rescued().size() == 1);
    CHECK(repo.sh("git show " + again.rescued().front() + ":a.txt") == "y");
    CHECK(repo.status(root).empty());
    ok(worktree.move_to(repo.next, {}));
    repo.sh("git worktree remove --force " + root.string());
    ok(worktree.mend(git));
    CHECK(ok(worktree.checkout().head()).sha == repo.next);
    write_text(root / "left.txt", "left\n");
    fs::remove_all(worktree.checkout().git_dir());
    ok(worktree.mend(git));
    ok(worktree.move_to(repo.base, {}));
    CHECK(list_names(root) == ".git a.txt");
    bool kept = false;
    for (const auto& entry : fs::directory_iterator(root.parent_path())) {
        kept = kept || fs::exists(entry.path() / "left.txt");
    }
    CHECK(kept);
}

TEST_CASE("git slot: files that may not be read or removed are kept all the same") {
    const PrivateWorktreeRepo repo;
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    ok(worktree.move_to(repo.base, {}));
    repo.sh(
        "mkdir closed full && echo 1 >closed/x && echo 1 >full/x && echo 1 >secret && chmod 0 closed secret && chmod "
        "500 full",
        root);
    const GitSnapshot left = ok(worktree.snapshot(repo.base, "left"));
    CHECK(repo.sh("git ls-tree -r --name-only " + left.commit) == "a.txt\nclosed/x\nfull/x\nsecret");
    repo.sh("chmod 500 full", root);
    ok(worktree.move_to(repo.next, {}));
    CHECK(list_names(root) == ".git a.txt dir");
}

TEST_CASE("git slot: follows the sparse checkout that the repository has") {
    const PrivateWorktreeRepo repo;
    repo.sh("git sparse-checkout set --cone other");
    auto worktree = repo.worktree();
    ok(worktree.move_to(repo.next, {}));
    CHECK(list_names(worktree.checkout().root()) == ".git a.txt");
    CHECK(ok(worktree.checkout().snapshot(repo.next, "m\n")).commit.empty());
}

TEST_CASE("git slot: submodules are there without fetching, and what is made in them is kept in the user's") {
    PrivateWorktreeRepo repo;
    repo.sh(
        "git init -q ../lib && cd ../lib && echo l > l.txt && git add . && git -c user.name=n -c user.email=e commit "
        "-q -m l");
    repo.sh("git -c protocol.file.allow=always submodule --quiet add ../lib sub && git commit -q -m sub");
    repo.sh("rm -rf ../lib");
    const auto checkout = repo.open();
    auto worktree = repo.worktree();
    const fs::path root = worktree.checkout().root();
    ok(worktree.move_to(repo.head(), {}));
    ok(worktree.fill_submodules(checkout));
    CHECK(read_text(root / "sub/l.txt") == "l\n");
    CHECK(repo.status(root).empty());
    CHECK(ok(worktree.keep_submodules(checkout, "refs/gdnctl/r/iter-001/head")).empty());

    write_text(root / "sub/l.txt", "changed\n");
    repo.sh("git -c user.name=n -c user.email=e commit -q -am changed", root / "sub");
    write_text(root / "sub/left.txt", "left\n");
    CHECK(ok(worktree.keep_submodules(checkout, "refs/gdnctl/r/iter-001/head")) == std::vector<std::string>{"sub"});
    CHECK(repo.sh("git show refs/gdnctl/r/iter-001/head:left.txt", repo.path() / "sub") == "left");
    CHECK(repo.sh("git show refs/gdnctl/r/iter-001/head~1:l.txt", repo.path() / "sub") == "changed");
    ok(worktree.fill_submodules(checkout));
    CHECK(repo.status(root).empty());
    CHECK(list_names(root / "sub") == ".git l.txt");
}
