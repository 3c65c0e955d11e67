// Branches, tags and stashes, and the commit that keeps what they lead to.
#include <algorithm>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "core/text.h"
#include "services/git/checkout.h"
#include "support/git_repo.h"

namespace gdnctl {

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
