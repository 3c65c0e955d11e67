// Settings and variables of users and agents: what our calls see and do does not depend on them.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "core/text.h"
#include "services/git/checkout.h"
#include "services/git/git.h"
#include "support/git_repo.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;

namespace {

// For each fixed setting a value that makes git see or do something else, as a user may have it.
constexpr std::array k_other_values = {
    "core.hooksPath hooks",
    "core.fsmonitor true",
    "core.pager less",
    "commit.gpgSign true",
    "log.showSignature true",
    "merge.verifySignatures true",
    "gc.auto 1",
    "maintenance.auto true",
    "fetch.writeCommitGraph true",
    "status.showUntrackedFiles no",
    "core.ignoreStat true",
    "core.checkStat minimal",
    "core.trustctime false",
    "add.ignoreErrors true",
    "diff.autoRefreshIndex false",
    "core.commitGraph true",
    "merge.autoStash true",
    "rebase.autoStash true",
    "rebase.updateRefs true",
    "rebase.autoSquash true",
    "rebase.backend apply",
    "rebase.forkPoint true",
    "rebase.missingCommitsCheck error",
    "rerere.enabled true",
    "rerere.autoUpdate true",
    "submodule.recurse true",
    "fetch.prune true",
    "fetch.pruneTags true",
    "clone.rejectShallow true",
    "apply.whitespace error",
    "apply.ignoreWhitespace change",
    "commit.cleanup strip",
    "i18n.commitEncoding ISO-8859-1",
    "core.filesRefLockTimeout -1",
    "core.packedRefsTimeout -1",
    "i18n.logOutputEncoding ISO-8859-1",
    "core.quotePath true",
    "core.safecrlf true",
    "core.warnAmbiguousRefs true",
    "advice.addEmbeddedRepo true",
    "advice.objectNameWarning true",
    "color.ui always",
    "color.diff always",
    "color.status always",
    "color.branch always",
    "color.grep always",
    "color.advice always",
    "color.remote always",
    "column.ui always",
    "column.status always",
    "status.branch true",
    "status.showStash true",
    "status.relativePaths true",
    "status.submoduleSummary true",
    "merge.stat true",
    "merge.verbosity 0",
    "rebase.stat true",
    "grep.fullName true",
    "log.showRoot false",
    "log.diffMerges off",
    "log.follow true",
    "log.mailmap true",
    "diff.noprefix true",
    "diff.mnemonicPrefix true",
    "diff.suppressBlankEmpty true",
    "diff.context 0",
    "diff.interHunkContext 9",
    "diff.algorithm patience",
    "diff.indentHeuristic false",
    "diff.relative true",
    "diff.submodule log",
    // These stay the user's, and must not harm either.
    "core.untrackedCache true",
    "core.splitIndex true",
    "feature.manyFiles true",
    "index.sparse true",
    "diff.renames copies",
    "status.renames copies",
    "diff.orderFile nowhere",
    "merge.conflictStyle diff3",
    "merge.ff false",
    "alias.status !false",
    "alias.stash !false",
    "alias.rev-parse !false",
    "core.abbrev 4",
    "format.pretty oneline",
    "log.date relative",
    "log.decorate full",
    "stash.showPatch true",
    "core.commentChar X",
};

// What a run does with a checkout, as text.
std::string story(const GitRepo& repo, const std::string& base) {
    const auto checkout = repo.open();
    std::string said;
    const auto tell = [&](std::string_view what, const std::string& result) {
        said.append(what).append(": ").append(result).append("\n");
    };
    const auto paths_of = [&] { return text::join(ok(checkout.dirty_paths()), " "); };
    repo.write("a.txt", "one \nmine \n");               // white space that `git apply` may complain about
    repo.sh("git -c core.ignoreStat=false add a.txt");  // true would mark it as unchanged for good
    repo.write("a.txt", "one \nmine \nmore\n");
    repo.write("new/\xc3\xa4.txt", "n\n");
    repo.write("odd", "o\n");
    tell("dirty", paths_of());
    tell("snapshot", ok(checkout.snapshot(base, "all\n")).tree);
    const auto stash = ok(GitStashes(checkout).make("mine"));
    REQUIRE(stash);
    tell("after stash", paths_of());
    tell("stash", stash->message);
    const std::string next =
        ok(checkout.commit_files(base, {{"b/c.txt", "1\n2\n3\nfour\n5\n6\n7\n8\n9\nten\n"}}, "# one\n\n\xc3\xa4\n"));
    tell("landed",
         std::to_string(static_cast<int>(ok(BranchMover(checkout).land("refs/heads/main", base, next, false)).kind)));
    tell("patch", ok(checkout.patch(base, next, {})));
    tell("patch id", ok(checkout.patch_id(base, next)));
    tell("restored", std::to_string(static_cast<int>(ok(GitStashes(checkout).restore(stash->commit)))));
    ok(GitStashes(checkout).drop(stash->commit));
    tell("back", paths_of() + repo.read("a.txt") + repo.sh("git diff-index -O/dev/null --cached --name-only HEAD"));
    tell("message", ok(checkout.objects(std::array{next}))[0].value_or("").substr(47));
    const auto slot_at = repo.outside("slot");
    auto worktree = ok(PrivateWorktree::open(checkout, slot_at, true, system_process(), repo.clock));
    const std::string other = ok(checkout.commit_files(base, {{"d.txt", "d\n"}}, "# other\n"));
    ok(worktree.move_to(other, {}));
    const auto rebased = ok(BranchMover(worktree.checkout()).rebase(base, other, next));
    REQUIRE(rebased);
    tell("rebased", repo.sh("git cat-file commit " + *rebased + " | sed '1,/^$/d'") + ok(checkout.head()).branch);
    const std::string clash = ok(checkout.commit_files(base, {{"b/c.txt", "clash\n"}}, "clash\n"));
    ok(worktree.move_to(clash, {}));
    tell("conflict", ok(BranchMover(worktree.checkout()).rebase(base, clash, next)) ? "no" : "yes");
    tell("missing", ok(checkout.resolve("nothing")) ? "no" : "yes");
    tell("rr-cache", fs::exists(repo.path() / ".git/rr-cache/x") ? "yes" : "no");
    return said;
}

struct Plain : GitRepo {
    Plain() {
        write("a.txt", "one \n");
        write("b/c.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
        write(".gitignore", "*.o\n");
        base = commit("base");
    }
    std::string base;
};

// The setting of a line of the table, in lower case.
std::string key_of(std::string_view setting, char end) { return text::to_lower(setting.substr(0, setting.find(end))); }

}  // namespace

TEST_CASE("git settings: nothing that a user configures changes what our calls see or do") {
    const Plain plain;
    const std::string expected = story(plain, plain.base);
    CHECK(expected.find("dirty: a.txt new/ odd\n") != std::string::npos);
    for (const bool together : {true, false}) {
        // Together first; if that fails, one by one tells which.
        std::string failed;
        if (together) {
            const Plain all;
            for (const std::string_view one : k_other_values) {
                const auto at = one.find(' ');
                all.sh("git config " + std::string(one.substr(0, at)) + " '" + std::string(one.substr(at + 1)) + "'");
            }
            if (story(all, all.base) == expected) break;
            continue;
        }
        for (const std::string_view one : k_other_values) {
            const Plain single;
            const auto at = one.find(' ');
            single.sh("git config " + std::string(one.substr(0, at)) + " '" + std::string(one.substr(at + 1)) + "'");
            INFO(one);
            CHECK(story(single, single.base) == expected);
        }
        CHECK_MESSAGE(false, "the settings together");
    }
}

TEST_CASE("git settings: every setting that is fixed is tried with another value") {
    const auto argv = git_command({"status"});
    std::set<std::string> tried;
    for (const std::string_view one : k_other_values) tried.insert(key_of(one, ' '));
    CHECK(argv.size() > 100);
    for (std::size_t i = 2; i + 1 < argv.size(); i += 2) {
        INFO(argv[i]);
        CHECK(argv[i - 1] == "-c");
        CHECK(tried.contains(key_of(argv[i], '=')));
    }
    CHECK(argv.back() == "status");
}

TEST_CASE("git settings: no variable of the caller changes what our calls see or do") {
    const Plain plain;
    const std::string expected = story(plain, plain.base);
    const std::vector<std::pair<const char*, const char*>> variables = {{"GIT_TRACE", "1"},
                                                                        {"GIT_TRACE2", "1"},
                                                                        {"GIT_TRACE_SETUP", "1"},
                                                                        {"GIT_CONFIG", "/nowhere"},
                                                                        {"GIT_MERGE_VERBOSITY", "0"},
                                                                        {"GIT_DIFF_OPTS", "-u0"},
                                                                        {"GIT_NOTES_REF", "refs/x"},
                                                                        {"GIT_LITERAL_PATHSPECS", "1"},
                                                                        {"GIT_INDEX_FILE", "/nowhere/index"},
                                                                        {"GIT_DIR", "/nowhere"},
                                                                        {"GIT_EXTERNAL_DIFF", "false"},
                                                                        {"GIT_DEFAULT_HASH", "sha256"}};
    const Plain other;
    const auto checkout = other.open();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    other.write("odd", "o\n");
    const auto dirty = checkout.dirty_paths();
    const auto missing = checkout.resolve("nothing");
    const auto patch = checkout.patch(other.base, ok(checkout.commit_files(other.base, {{"a.txt", "2\n"}}, "m\n")), {});
    const auto again = GitCheckout::open(other.path(), system_process(), other.clock);
    for (const auto& [name, value] : variables) unsetenv(name);
    CHECK(ok(dirty) == std::vector<std::string>{"odd"});
    CHECK_FALSE(ok(missing));
    CHECK(ok(patch).find("@@ -1 +1 @@") != std::string::npos);
    CHECK(again);
}

TEST_CASE("git settings: grafts, replaced objects and a commit graph that an agent writes change nothing for us") {
    const Plain repo;
    repo.write("a.txt", "two\n");
    const std::string second = repo.commit("second");
    const auto checkout = repo.open();
    repo.write(".git/info/grafts", second + "\n");
    repo.sh("git replace " + repo.base + " " + repo.sh("git rev-parse HEAD"));
    CHECK(ok(checkout.is_ancestor(repo.base, second)));
    CHECK(ok(checkout.commits(repo.base, second)).size() == 1);
    CHECK_FALSE(ok(checkout.resolve("nothing")));
}
