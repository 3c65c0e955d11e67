// What an agent left in its worktree, sorted; and candidates as commits.
#include "loop/evolve/store.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "support/git_repo.h"

namespace gdnctl::loop::evolve {

using test::ok;

namespace {

struct StoreFixture : test::GitRepo {
    StoreFixture() {
        write("src/kernel.c", "int speed = 1;\n");
        write("src/other.c", "int other;\n");
        write("tests/cases.txt", "cases\n");
        write("gdnctl.toml", "# mine\n");
        write(".gitignore", "*.o\n");
        base = commit("base");
        repository.emplace(open());
        store.emplace(*repository, "r1", PathRules{{"src/**"}, {"tests/**", "src/guard.c"}}, outside("worktrees"),
                      system_process(), clock);
        tree = ok(store->prepare(base));
    }
    void put(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((tree / name).parent_path());
        test::write_text(tree / name, text);
    }
    std::string base;
    std::optional<GitCheckout> repository;
    std::optional<Store> store;
    std::filesystem::path tree;
};

using Paths = std::vector<std::string>;

}  // namespace

TEST_CASE("evolve store: takes the mutable files of what an agent left, and names the rest") {
    StoreFixture world;
    world.put("src/kernel.c", "int speed = 2;\n");
    world.put("src/new.c", "new\n");
    std::filesystem::remove(world.tree / "src/other.c");
    world.put("notes.txt", "mine\n");
    world.put("src/kernel.o", "ignored\n");
    world.sh("git add -A && git commit -qm 'by the agent' && git commit -q --allow-empty -m again", world.tree);
    const Work work = ok(world.store->collect(world.base));
    CHECK(work.agent_commits == 2);
    CHECK(work.changes.size() == 3);
    CHECK(work.forbidden == Paths{"notes.txt"});
    CHECK(work.tampered.empty());
    CHECK(work.refused.empty());
    CHECK(work.ignored == Paths{"src/kernel.o"});
    const std::vector<std::string> parents = {world.base};
    const WallTime when{std::chrono::seconds(1'773'161'587)};
    const auto made = ok(world.store->commit(work, parents, "attempt\n", when));
    REQUIRE(made);
    CHECK(world.sh("git diff --name-only " + world.base + " " + made->commit) ==
          "src/kernel.c\nsrc/new.c\nsrc/other.c");
    CHECK(world.sh("git rev-list --count " + world.base + ".." + made->commit) == "1");
    CHECK(world.sh("git log -1 --format='%an %at' " + made->commit) == "gdnctl 1773161587");
    CHECK(made->added == 2);
    CHECK(made->removed == 2);
    CHECK(made->patch_id.size() == 40);
    CHECK(made->code_key.size() == 64);
    CHECK(ok(world.store->commit(work, parents, "attempt\n", when))->commit ==
          made->commit);  // the same input, the same id
    CHECK(ok(world.store->mutable_key(made->commit)) == made->mutable_key);
    CHECK(ok(world.store->mutable_key(world.base)) != made->mutable_key);
    // Nothing of it is in the user's checkout.
    CHECK(world.head() == world.base);
    CHECK(world.status().empty());
    // The next attempt begins with the files of its parent and nothing else.
    const auto again = ok(world.store->prepare(made->commit));
    CHECK(test::read_text(again / "src/kernel.c") == "int speed = 2;\n");
    CHECK_FALSE(std::filesystem::exists(again / "notes.txt"));
    CHECK(ok(world.store->collect(made->commit)).changes.empty());
    REQUIRE(world.store->tidy());
    CHECK_FALSE(std::filesystem::exists(again));
}

TEST_CASE("evolve store: tells protected files, large ones, links out of the tree and repositories") {
    StoreFixture world;
    world.put("tests/cases.txt", "fewer\n");
    std::filesystem::remove(world.tree / "gdnctl.toml");
    world.put("src/guard.c", "protected, although src is mutable\n");
    world.put("src/large.bin", std::string((std::size_t{5} << 20) + 1, 'x'));
    std::filesystem::create_symlink("/etc/passwd", world.tree / "src/out");
    std::filesystem::create_symlink("../../elsewhere", world.tree / "src/up");
    std::filesystem::create_symlink("kernel.c", world.tree / "src/in");
    world.sh(
        "git init -q src/nested && git -C src/nested -c user.name=a -c user.email=a@b commit -q --allow-empty -m n",
        world.tree);
    const Work work = ok(world.store->collect(world.base));
    CHECK(work.tampered == Paths{"gdnctl.toml", "src/guard.c", "tests/cases.txt"});
    Paths refused = work.refused;
    std::sort(refused.begin(), refused.end());
    CHECK(refused == Paths{"src/large.bin", "src/nested", "src/out", "src/up"});
    REQUIRE(work.changes.size() == 1);
    CHECK(work.changes[0].path == "src/in");
}

TEST_CASE("evolve store: gives each launch a checkout of its own") {
    StoreFixture world;
    std::filesystem::path first;
    for (int i = 0; i < 2; ++i) {
        REQUIRE(world.store->with_fresh_checkout(world.base, [&](const std::filesystem::path& tree) -> Status {
            CHECK(tree != first);
            CHECK(tree.parent_path() == std::filesystem::canonical(world.outside("worktrees")));
            CHECK(test::read_text(tree / "src/kernel.c") == "int speed = 1;\n");
            test::write_text(tree / "src/kernel.c", "spoilt\n");
            first = tree;
            return {};
        }));
        CHECK_FALSE(std::filesystem::exists(first));
    }
    CHECK(world.store
              ->with_fresh_checkout(
                  world.base,
                  [](const std::filesystem::path&) -> Status { return fail(ErrorKind::infrastructure, "no"); })
              .error()
              .message == "no");
    CHECK(world.sh("git worktree list | wc -l") == "2");  // ours and the agent's
}

TEST_CASE("evolve code key: comments and white space of C") {
    const std::string bare = without_comments("k.c", "int a = 1;\nint b = 2;\n");
    CHECK(bare == "int a = 1;\nint b = 2;\n");
    for (const char* same :
         {"int a = 1;  // one\n\nint b = 2;\n", "/* two\n lines */\nint a = 1;\n\tint b  =\t2; /* x */\r\n",
          "int a = 1;\nint b = 2;", "// \"\nint a = 1;\nint b = 2;\n/* open"}) {
        CHECK(without_comments("src/k.c", same) == bare);
        CHECK(without_comments("src/k.hpp", same) == bare);
    }
    CHECK(without_comments("k.c", "int a = 1; int b = 2;\n") != bare);
    CHECK(without_comments("k.c", "inta = 1;\nint b = 2;\n") != bare);
    // What is in a string is no comment.
    CHECK(without_comments("k.c", "f(\"a//b\", '\"', \"/*\"); // c\n") == "f(\"a//b\", '\"', \"/*\");\n");
    CHECK(without_comments("k.c", "f(\"\\\"//\");\n") == "f(\"\\\"//\");\n");
    CHECK(without_comments("k.c", "#define A 1\n") == "#define A 1\n");
}

TEST_CASE("evolve code key: Python keeps its indentation, a shell its first line, other files everything") {
    CHECK(without_comments("k.py", "if a:  # why\n    b = '#'\n\n# c\n") == "if a:\n    b = '#'\n");
    CHECK(without_comments("k.py", "if a:\nb\n") != without_comments("k.py", "if a:\n    b\n"));
    CHECK(without_comments("k.sh", "#!/bin/sh\necho $# # all\n  exit 1 \n") == "#!/bin/sh\necho $#\nexit 1\n");
    CHECK(without_comments("k.txt", "a  # b\n\n") == "a  # b\n\n");
    CHECK(without_comments("k.c", "").empty());
}

}  // namespace gdnctl::loop::evolve
