// The same questions to libgit2 and to the git program, on real repositories in temporary folders.
#include "services/git/history.h"

#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/fs.h"
#include "platform/process.h"
#include "services/git/git.h"
#include "support/git_repo.h"
#include "target/target.h"

namespace fs = std::filesystem;
using namespace gdnctl;

namespace {

using Repo = test::GitRepo;
using test::ok;

std::unique_ptr<CommitFacts> open_ok(const fs::path& path, GitReader reader) {
    auto facts = open_commit_facts(path, system_process(), reader);
    if (!facts) FAIL("cannot open: " << facts.error().text());
    return std::move(*facts);
}

std::string sha_of(const Result<std::optional<CommitInfo>>& info) {
    if (!info) return "error: " + info.error().message;
    return *info ? (**info).sha : "";
}

const GitReader k_readers[] = {GitReader::libgit2, GitReader::program};

}  // namespace

TEST_CASE("git facts: the commit that introduced a line, over edits, removal, merges and renormalised endings") {
    Repo repo;
    repo.write("docs/log.md", "# Log\n### Iteration 0 - start\n- Commit: this commit\n");
    const auto first = repo.commit("first");
    repo.write("other.txt", "x\n");
    repo.commit("unrelated");
    repo.write("docs/log.md", "# Log\n### Iteration 0 - start\n- Commit: this commit\n### Iteration 1 - next\r\n");
    const auto second = repo.commit("second");
    repo.sh("git checkout -q -b side");
    repo.write(
        "docs/log.md",
        "# Log\n### Iteration 0 - start\n- Commit: this commit\n### Iteration 1 - next\r\n### Iteration 2 - side\n");
    const auto side = repo.commit("side");
    repo.sh("git checkout -q main");
    repo.write("other.txt", "y\n");
    repo.commit("main goes on");
    repo.sh("git merge -q --no-ff -m 'merge side' side");
    repo.write("docs/log.md", "# Log\n### Iteration 1 - next\n### Iteration 2 - side\n");
    repo.commit("drop iteration 0");
    repo.write("docs/log.md", "# Log\n### Iteration 0 - start\n### Iteration 1 - next\n### Iteration 2 - side\n");
    repo.commit("bring it back");
    repo.write("docs/log.md", "# Log\n### Iteration 0 - start\n### Iteration 3 - not yet committed\n");
    for (const auto reader : k_readers) {
        CAPTURE(static_cast<int>(reader));
        auto facts = open_ok(repo.path() / "docs", reader);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 0 - start")) == first);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 1 - next")) == second);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 1 - next\r")) == second);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 2 - side")) == side);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "- Commit: this commit")) == first);
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 3 - not yet committed")).empty());
        CHECK(sha_of(facts->introduced_line("docs/log.md", "### Iteration 0")).empty());
        CHECK(sha_of(facts->introduced_line("absent.md", "### Iteration 0 - start")).empty());
    }
}

TEST_CASE("git facts: a line that only a merge brought in belongs to the merge, and says so") {
    Repo repo;
    repo.write("log.md", "a\n");
    repo.commit("base");
    repo.sh("git checkout -q -b side");
    repo.write("log.md", "b\n");
    repo.commit("side");
    repo.sh("git checkout -q main");
    repo.write("log.md", "c\n");
    repo.commit("main");
    repo.sh("git merge -q side || true");
    repo.write("log.md", "b\nc\n### Iteration 7 - in the merge\n");
    const auto merge = repo.commit("merge");
    for (const auto reader : k_readers) {
        auto facts = open_ok(repo.path(), reader);
        const auto info = ok(facts->introduced_line("log.md", "### Iteration 7 - in the merge"));
        REQUIRE(info);
        CHECK(info->sha == merge);
        CHECK(info->is_merge);
        CHECK(info->summary == "merge");
    }
}

TEST_CASE("git facts: revisions, ancestry, parked and rejected refs, reverts, trailers, files at a revision") {
    Repo repo;
    repo.write("log.md", "one\n");
    const auto base = repo.commit("base");
    repo.write("log.md", "two\n");
    const auto good = repo.commit("better kernel\n\nGdnctl-Iteration: 20260310T165307Z-82\n");
    const auto bad = repo.commit("worse kernel\n\nbody\n\nGdnctl-Iteration: other\nSigned-off-by: T <t@example.org>");
    repo.commit("Revert \"worse kernel\"\n\nThis reverts commit " + bad + ".\n");
    const auto back = repo.commit("two steps");
    const auto undo = repo.commit("Revert \"two steps\"\n\nThis reverts commit " + back.substr(0, 12) + ".\n");
    repo.commit("Reapply\n\nThis reverts commit " + undo + ".\n");
    repo.sh("git checkout -q --detach " + base);
    const auto parked = repo.commit("parked\n\nGdnctl-Iteration: parked-1");
    repo.sh("git update-ref refs/gdnctl/parked/1 HEAD && git checkout -q --detach " + base);
    const auto rejected = repo.commit("rejected");
    repo.sh("git tag -a -m t t HEAD && git update-ref refs/gdnctl/20260310-main/iter-002 t && git checkout -q main");
    for (const auto reader : k_readers) {
        CAPTURE(static_cast<int>(reader));
        auto facts = open_ok(repo.path(), reader);
        CHECK(sha_of(facts->resolve(base)) == base);
        CHECK(sha_of(facts->resolve(base.substr(0, 9))) == base);
        CHECK(sha_of(facts->resolve("main~6")) == base);
        CHECK(sha_of(facts->resolve("t")) == rejected);
        CHECK(sha_of(facts->resolve("deadbeef")).empty());
        CHECK(sha_of(facts->resolve("--all")).empty());
        CHECK(sha_of(facts->resolve("a..b")).empty());
        CHECK(sha_of(facts->resolve("")).empty());
        CHECK(sha_of(facts->resolve("HEAD^{tree}")).empty());
        const auto info = ok(facts->resolve(good));
        CHECK(info->summary == "better kernel");
        CHECK(!info->is_merge);
        CHECK(format_iso8601(info->time) == repo.sh("TZ=UTC git show -s --date=format-local:%Y-%m-%dT%H:%M:%SZ "
                                                    "--format=%cd " +
                                                    good));
        CHECK(ok(facts->is_ancestor_of_head(base)));
        CHECK(ok(facts->is_ancestor_of_head(base.substr(0, 10))));
        CHECK(!ok(facts->is_ancestor_of_head(parked)));
        CHECK(!ok(facts->is_ancestor_of_head("0123456789")));
        CHECK(ok(facts->on_parked_ref(parked)));
        CHECK(ok(facts->on_parked_ref(rejected)));
        CHECK(!ok(facts->on_parked_ref(good)));
        CHECK(ok(facts->is_reverted(bad)));
        CHECK(!ok(facts->is_reverted(good)));
        CHECK(!ok(facts->is_reverted(back)));  // its revert was reverted
        CHECK(ok(facts->is_reverted(undo)));
        CHECK(sha_of(facts->with_iteration_trailer("20260310T165307Z-82")) == good);
        CHECK(sha_of(facts->with_iteration_trailer("other")) == bad);
        CHECK(sha_of(facts->with_iteration_trailer("parked-1")) == parked);
        CHECK(sha_of(facts->with_iteration_trailer("20260310T165307Z-8")).empty());
        CHECK(ok(facts->file_at(base, "log.md")) == "one\n");
        CHECK(ok(facts->file_at("HEAD", "log.md")) == "two\n");
        CHECK(!ok(facts->file_at("HEAD", "none.md")));
        const auto missing = facts->file_at("no-such", "log.md");
        REQUIRE(!missing);
        CHECK(missing.error().kind == ErrorKind::usage);
    }
}

TEST_CASE("git facts: an unborn branch has no history and no error") {
    Repo repo;
    for (const auto reader : k_readers) {
        CAPTURE(static_cast<int>(reader));
        auto facts = open_ok(repo.path(), reader);
        CHECK(sha_of(facts->resolve("HEAD")).empty());
        CHECK(sha_of(facts->introduced_line("log.md", "# x")).empty());
        CHECK(!ok(facts->is_ancestor_of_head("abcdef1")));
        CHECK(!ok(facts->is_reverted("abcdef1")));
        CHECK(sha_of(facts->with_iteration_trailer("x")).empty());
    }
}

TEST_CASE("git facts: linked worktrees, a .git file, sparse checkouts and a split index are read by both") {
    Repo repo;
    repo.write("log.md", "### Iteration 0\n");
    const auto sha = repo.commit("first");
    repo.sh(
        "git worktree add -q -b other wt && git sparse-checkout set --no-cone log.md && "
        "git config core.splitIndex true && git update-index --split-index");
    CHECK(find_repository_root(repo.path() / "wt") == repo.path() / "wt");
    for (const auto reader : k_readers) {
        CAPTURE(static_cast<int>(reader));
        CHECK(sha_of(open_ok(repo.path(), reader)->introduced_line("log.md", "### Iteration 0")) == sha);
        CHECK(sha_of(open_ok(repo.path() / "wt", reader)->introduced_line("log.md", "### Iteration 0")) == sha);
    }
}

TEST_CASE("git facts: SHA-256 repositories and shallow clones go to the git program by themselves") {
    Repo sha256("--object-format=sha256");
    sha256.write("log.md", "### Iteration 0\n");
    const auto sha = sha256.commit("first");
    CHECK(sha.size() == 64);
    CHECK(sha_of(open_ok(sha256.path(), GitReader::automatic)->introduced_line("log.md", "### Iteration 0")) == sha);

    Repo repo;
    repo.write("log.md", "### Iteration 0\n");
    repo.commit("first");
    repo.write("log.md", "### Iteration 0\n### Iteration 1\n");
    repo.commit("second");
    repo.write("log.md", "### Iteration 0\n### Iteration 1\n### Iteration 2\n");
    const auto third = repo.commit("third");
    repo.sh("git clone -q --depth 2 file://$PWD shallow");
    auto facts = open_ok(repo.path() / "shallow", GitReader::automatic);
    CHECK(sha_of(facts->introduced_line("log.md", "### Iteration 2")) == third);
    const auto unknown = facts->introduced_line("log.md", "### Iteration 0");
    REQUIRE(!unknown);
    CHECK(unknown.error().hint.find("--unshallow") != std::string::npos);
    CHECK(*facts->is_shallow());
    CHECK_FALSE(*open_ok(repo.path(), GitReader::program)->is_shallow());
}

TEST_CASE("git facts: not a repository, a bare one, a damaged one") {
    char pattern[] = "/tmp/gdnctl-plain.XXXXXX";
    REQUIRE(mkdtemp(pattern) != nullptr);
    const fs::path plain = pattern;
    CHECK(!find_repository_root(plain));
    auto none = open_commit_facts(plain, system_process());
    REQUIRE(!none);
    CHECK(none.error().kind == ErrorKind::usage);
    CHECK(none.error().message == "not inside a git repository: " + plain.string());
    fs::remove_all(plain);

    Repo bare("--bare");
    auto in_bare = open_commit_facts(bare.path(), system_process());
    REQUIRE(!in_bare);
    CHECK(in_bare.error().message.find("bare repository") != std::string::npos);

    Repo damaged;
    damaged.write("log.md", "x\n");
    damaged.commit("first");
    damaged.sh("git pack-refs --all; rm -rf .git/objects/*");
    for (const auto reader : k_readers) {
        auto facts = open_commit_facts(damaged.path(), system_process(), reader);
        if (!facts) continue;
        CHECK(!(*facts)->introduced_line("log.md", "# x").value_or(std::nullopt));
    }
}

TEST_CASE("git facts: a repository of another user gets the safe.directory hint") {
    if (geteuid() != 0) {
        MESSAGE("skipped: giving a folder away needs root");
        return;
    }
    Repo repo;
    repo.write("log.md", "### Iteration 0\n");
    repo.commit("first");
    REQUIRE(chown(repo.path().c_str(), 65534, 65534) == 0);
    REQUIRE(chown((repo.path() / ".git").c_str(), 65534, 65534) == 0);
    setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    auto facts = open_commit_facts(repo.path(), system_process(), GitReader::program);
    unsetenv("GIT_CONFIG_GLOBAL");
    REQUIRE(!facts);
    CHECK(facts.error().kind == ErrorKind::config);
    CHECK(facts.error().hint == "git config --global --add safe.directory " + repo.path().string());
}

TEST_CASE("git facts: messages are parsed as git writes them") {
    using namespace gdnctl::git;
    CHECK(trailer("a\n\nKey: v\n", "Key") == "v");
    CHECK(trailer("a\n\nKey: v\r\nOther: w\r\n", "Key") == "v");
    CHECK(trailer("a\n\nKey: v\n\nlast words\n", "Key").empty());
    CHECK(trailer("a\n\nKeyed: v\n", "Key").empty());
    CHECK(trailer("", "Key").empty());
    CHECK(reverted_shas("This reverts commit 0123456, and\nThis reverts commit abcdef0123.\nThis reverts commit xyz") ==
          std::vector<std::string>{"0123456", "abcdef0123"});
}
