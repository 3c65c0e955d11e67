// How git behaves in a repository, before and after somebody changed it.
#include "services/git/settings.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/text.h"
#include "support/git_repo.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;

namespace {

struct Settled : GitRepo {
    Settled() {
        write("a.txt", "one\n");
        write("b/c.txt", "two\n");
        base = commit("base");
        sh("git config alias.old log && git config remote.origin.url https://u:secret@example.org/r");
        write(".git/hooks/pre-push", "#!/bin/sh\nexit 0\n");
        sh("chmod 755 .git/hooks/pre-push");
    }
    // Everything but objects, the index and our own folder, with modes.
    std::string shape() const {
        return sh(
            "for f in $(find .git -type f -o -type l | grep -vE "
            "'/objects/[0-9a-f][0-9a-f]/|objects/pack|/index$|gdnctl|"
            "sample|/logs/|FETCH_HEAD' | sort); do stat -c '%n %a' $f; cat $f; done; git ls-files -v; git for-each-ref "
            "refs/replace; git status --porcelain");
    }
    void remember() {
        m_checkout.emplace(open());
        setup.emplace(ok(GitSettings::take(*m_checkout)));
        before = shape();
    }
    std::vector<std::string> put_back() { return ok(setup->put_back(*m_checkout, "r1")); }
    const GitCheckout& checkout() const { return *m_checkout; }
    std::optional<GitSettings> setup;
    std::string base, before;

private:
    std::optional<GitCheckout> m_checkout;
};

}  // namespace

TEST_CASE("git setup: whatever changes what the user's git shows or runs is put back, and what was found is kept") {
    struct Harm {
        const char* command;
        const char* name;
    };
    const std::vector<Harm> harms = {
        {"git replace HEAD:a.txt $(echo x | git hash-object -w --stdin)", "refs/replace/"},
        {"git config core.worktree /nowhere", "core.worktree"},
        {"git config core.bare true", "core.bare"},
        {"git config core.hooksPath /tmp/h", "core.hookspath"},
        {"git config core.fsmonitor /tmp/f", "core.fsmonitor"},
        {"git config core.excludesFile /tmp/e", "core.excludesfile"},
        {"git config core.attributesFile /tmp/a", "core.attributesfile"},
        {"git config core.sshCommand x", "core.sshcommand"},
        {"git config core.editor x", "core.editor"},
        {"git config filter.x.clean x", "filter.x.clean"},
        {"git config diff.x.textconv x", "diff.x.textconv"},
        {"git config include.path /tmp/i", "include.path"},
        {"git config alias.st '!false'", "alias.st"},
        {"git config --unset alias.old", "alias.old"},
        {"git config url.https://u:t0psecret@evil/.insteadOf https://", "url.https://"},
        {"git config remote.origin.url https://evil/r", "remote.origin.url"},
        {"git config remote.origin.pushurl https://evil/r", "remote.origin.pushurl"},
        {"git config remote.pushDefault evil", "remote.pushdefault"},
        {"git config branch.main.remote https://evil/r", "branch.main.remote"},
        {"git config credential.helper x", "credential.helper"},
        {"git config user.email other@example.org", "user.email"},
        {"git config some.setting of-tomorrow", "some.setting"},
        {"git config status.showUntrackedFiles no", "status.showuntrackedfiles"},
        {"echo 'x diff=y' >.git/info/attributes", "info/attributes"},
        {"echo '*' >>.git/info/exclude", "info/exclude"},
        {"git rev-parse HEAD >.git/info/grafts", "info/grafts"},
        {"git rev-parse HEAD >.git/shallow", "shallow"},
        {"echo /nowhere >.git/objects/info/alternates", "objects/info/alternates"},
        {"git sparse-checkout set b", "core.sparsecheckout"},
        {"git update-index --assume-unchanged a.txt", "hidden file a.txt"},
        {"git update-index --skip-worktree a.txt; rm a.txt", "hidden file a.txt"},
        {"git config extensions.worktreeConfig true; git config --worktree core.worktree /nowhere",
         "core.worktree in "},
        {"echo x >.git/hooks/post-checkout", "hooks/post-checkout"},
        {"ln -s /bin/false .git/hooks/pre-commit", "hooks/pre-commit"},
        {"echo x >.git/hooks/pre-push", "hooks/pre-push"},
        {"chmod 644 .git/hooks/pre-push", "hooks/pre-push"},
        {"rm .git/hooks/pre-push", "hooks/pre-push"},
        {"mkdir .git/hooks/lib; echo x >.git/hooks/lib/common.sh", "hooks/lib/common.sh"},
        {"rm .git/hooks/pre-push; mkdir .git/hooks/pre-push; echo x >.git/hooks/pre-push/x", "hooks/pre-push"},
        {"mv .git/hooks ../h; ln -s $PWD/../h .git/hooks", "hooks"},
        {"echo '[broken' >>.git/config", "config"},
        {"rm .git/config", "config"},
        {"rm .git/config; mkdir .git/config", "config"},
        {"rm .git/config; ln -s /nowhere .git/config", "config"},
    };
    for (const auto& harm : harms) {
        INFO(harm.command);
        Settled repo;
        repo.remember();
        std::string command = harm.command;
        repo.sh(command);
        const auto names = repo.put_back();
        CHECK(text::join(names, " ").find(harm.name) != std::string::npos);
        CHECK(text::join(names, " ").find("t0psecret") == std::string::npos);
        CHECK(repo.shape() == repo.before);
        CHECK(repo.sh("git fsck 2>&1").empty());
        CHECK(repo.put_back().empty());
        if (std::string_view(harm.name).find("hidden") == std::string_view::npos) {
            CHECK(fs::exists(repo.path() / ".git/gdnctl-settings/r1-1/list.txt"));
        }
    }
}

TEST_CASE("git setup: what was found can be had again") {
    Settled repo;
    repo.remember();
    const std::string other = repo.sh("echo x | git hash-object -w --stdin");
    repo.sh("git config alias.mine status; echo mine >.git/hooks/pre-commit; git replace HEAD:a.txt " + other);
    repo.put_back();
    const std::string kept = ".git/gdnctl-settings/r1-1/";
    CHECK(repo.sh("git config --file " + kept + "config alias.mine") == "status");
    CHECK(repo.read(kept + "hooks%pre-commit") == "mine\n");
    CHECK(repo.sh("git for-each-ref --format='%(objectname)' refs/gdnctl-others/r1/replace") == other);
    CHECK(repo.sh("stat -c %a .git/gdnctl-settings " + kept + "config") == "700\n600");
    repo.sh("git config alias.mine status");
    repo.put_back();
    CHECK(fs::exists(repo.path() / ".git/gdnctl-settings/r1-2/config"));
}

TEST_CASE("git setup: values, marks and replacements that the user had are there again") {
    Settled repo;
    const std::string other = repo.sh("echo x | git hash-object -w --stdin");
    repo.sh("git replace HEAD:a.txt " + other + "; git update-index --assume-unchanged a.txt");
    repo.sh("git update-index --skip-worktree b/c.txt; git config --add alias.old two");
    repo.remember();
    repo.sh("git replace -d $(git rev-parse HEAD:a.txt) >/dev/null; git update-index --no-assume-unchanged a.txt");
    repo.sh("git update-index --no-skip-worktree b/c.txt; git config --unset-all alias.old");
    repo.put_back();
    CHECK(repo.shape() == repo.before);
}

TEST_CASE("git setup: hooks in subfolders, and where core.hooksPath is, are looked at") {
    Settled repo;
    const fs::path theirs = repo.outside("their-hooks");
    repo.sh(
        "mkdir -p .git/hooks/lib .git/mine ../their-hooks/lib; echo 1 >.git/hooks/lib/a; echo 1 >../their-hooks/lib/b");
    repo.sh("git config core.hooksPath .git/mine; echo 1 >.git/mine/pre-commit");
    repo.remember();
    repo.sh("echo 2 >.git/hooks/lib/a; echo 2 >.git/mine/pre-commit; echo 2 >.git/mine/post-commit");
    CHECK(text::join(repo.put_back(), " ") == "hooks/lib/a mine/post-commit mine/pre-commit");
    CHECK(repo.shape() == repo.before);
    repo.sh("git config core.hooksPath " + theirs.string());
    repo.remember();
    write_text(theirs / "lib/b", "2\n");
    write_text(theirs / "pre-push", "2\n");
    CHECK(repo.put_back().empty());
    CHECK(read_text(theirs / "lib/b") == "2\n");
    const std::string list = repo.sh("cat .git/gdnctl-settings/r1-*/list.txt");
    CHECK(list.find("before-" + std::string("%")) != std::string::npos);
    CHECK(list.find("missing before, and not removed: " + (theirs / "pre-push").string()) != std::string::npos);
    const std::string before = repo.sh("cat .git/gdnctl-settings/r1-2/before-*lib%b");
    CHECK(before == "1");
    CHECK(repo.put_back().empty());
    CHECK_FALSE(fs::exists(repo.path() / ".git/gdnctl-settings/r1-3"));  // it is told once
}

TEST_CASE("git setup: after a kill, what changed later than the session lived is the user's") {
    const auto now = fs::file_time_type::clock::now();
    for (const bool late : {false, true}) {
        Settled repo;
        repo.remember();
        ok(repo.setup->save(repo.checkout(), "r1"));
        const std::string other = repo.sh("echo x | git hash-object -w --stdin");
        repo.sh("git config alias.st x; echo x >.git/hooks/post-merge; rm .git/hooks/pre-push");
        repo.sh("git update-index --assume-unchanged a.txt; git replace HEAD:a.txt " + other);
        const std::string changed = repo.shape();
        const auto alive = now + (late ? -std::chrono::hours(1) : std::chrono::hours(1));
        const auto names = ok(GitSettings::recover(repo.checkout(), "r1", alive));
        CHECK(names.empty() == late);
        CHECK(repo.shape() == (late ? changed : repo.before));
        CHECK_FALSE(ok(GitSettings::load(repo.checkout(), "r1")));
        if (late) CHECK(repo.sh("cat .git/gdnctl-settings/r1-1/before-config").find("alias") != std::string::npos);
    }
}

TEST_CASE("git setup: a worktree that the user moves stays where it is") {
    Settled repo;
    repo.sh("git worktree add -q ../linked -b linked");
    repo.remember();
    repo.sh("git worktree move ../linked ../moved");
    CHECK(repo.put_back().empty());
    CHECK(repo.sh("git -C ../moved rev-parse --abbrev-ref HEAD") == "linked");
    CHECK(repo.sh("git worktree list --porcelain").find("prunable") == std::string::npos);
    repo.sh("echo /nowhere/.git >.git/worktrees/linked/gitdir");
    CHECK(text::join(repo.put_back(), " ") == "worktrees/linked/gitdir");
    CHECK(repo.sh("git worktree list --porcelain").find("prunable") == std::string::npos);
}

TEST_CASE("git setup: a shallow clone stays one where what is before its end was never fetched") {
    const Settled from;
    from.write("a.txt", "two\n");
    from.commit("second");
    for (const char* harm : {"rm .git/shallow", ": >.git/shallow"}) {
        INFO(harm);
        const auto at = from.outside("clone");
        from.sh("rm -rf ../clone; git clone -q --depth 1 file://$PWD ../clone");
        auto clone = ok(GitCheckout::open(at, system_process(), from.clock));
        auto setup = ok(GitSettings::take(clone));
        from.sh(harm, at);
        CHECK(text::join(ok(setup.put_back(clone, "r1")), " ") == "shallow");
        CHECK(from.sh("git fsck 2>&1 && git log --format=%s", at) == "second");
        CHECK(ok(setup.put_back(clone, "r1")).empty());
    }
}

TEST_CASE("git setup: what another process remembered is put back, too") {
    Settled repo;
    repo.remember();
    ok(repo.setup->save(repo.checkout(), "r1"));
    repo.sh("git config alias.st x; echo x >.git/hooks/post-merge; git update-index --assume-unchanged a.txt");
    auto known = ok(GitSettings::load(repo.checkout(), "r1"));
    REQUIRE(known);
    CHECK(text::join(ok(known->put_back(repo.checkout(), "r1")), " ") == "alias.st hooks/post-merge hidden file a.txt");
    CHECK(repo.shape() == repo.before);
    GitSettings::forget(repo.checkout(), "r1");
    CHECK_FALSE(ok(GitSettings::load(repo.checkout(), "r1")));
    repo.write(".git/gdnctl-settings/before-r2", "3:abc9");
    CHECK_FALSE(ok(GitSettings::load(repo.checkout(), "r2")));
}

TEST_CASE("git setup: a branch that follows a known remote, comments and fetched history stay") {
    Settled repo;
    repo.remember();
    repo.sh("git branch topic; git config branch.topic.remote origin; git config branch.topic.merge refs/heads/topic");
    repo.sh("echo '# mine' >>.git/config");
    CHECK(repo.put_back().empty());
    repo.sh("git config branch.main.remote elsewhere; git config branch.main.merge refs/heads/main");
    CHECK(text::join(repo.put_back(), " ") == "branch.main.merge branch.main.remote");
    CHECK(repo.sh("git config branch.topic.merge") == "refs/heads/topic");
    CHECK_FALSE(fs::exists(repo.path() / ".git/gdnctl-settings/r1-2"));

    const Settled from;
    from.write("a.txt", "two\n");
    from.commit("second");
    from.sh("git clone -q --depth 1 file://$PWD ../shallow");
    auto clone = ok(GitCheckout::open(from.outside("shallow"), system_process(), from.clock));
    auto setup = ok(GitSettings::take(clone));
    from.sh("git fetch -q --unshallow", from.outside("shallow"));
    CHECK(ok(setup.put_back(clone, "r1")).empty());
    CHECK(from.sh("git rev-list --count HEAD", from.outside("shallow")) == "2");
}

TEST_CASE("git setup: a new end of the history stays where what is before it was never fetched") {
    const Settled from;
    const auto at = from.outside("clone");
    from.sh("git clone -q file://$PWD ../clone");
    auto clone = ok(GitCheckout::open(at, system_process(), from.clock));
    auto setup = ok(GitSettings::take(clone));
    from.write("a.txt", "two\n");
    from.commit("second");
    from.write("a.txt", "three\n");
    from.commit("third");
    from.sh("git fetch -q --depth 1", at);
    ok(setup.put_back(clone, "r1"));
    CHECK(from.sh("git fsck 2>&1 && git log --format=%s origin/main", at) == "third");
    CHECK(from.sh("git log --format=%s main", at) == "base");
}

TEST_CASE("git setup: objects that were borrowed meanwhile are copied before the loan ends") {
    const Settled lender;
    lender.write("big.txt", "lent\n");
    lender.commit("lent");
    Settled repo;
    repo.remember();
    repo.write(".git/objects/info/alternates", (lender.path() / ".git/objects").string() + "\n");
    repo.sh("git branch borrowed " + lender.head());
    CHECK(text::join(repo.put_back(), " ") == "objects/info/alternates");
    CHECK(repo.sh("git fsck 2>&1 && git show borrowed:big.txt") == "lent");
}

TEST_CASE("git setup: the user's own files, those that are named there, other checkouts and submodules are looked at") {
    Settled repo;
    const fs::path home = repo.outside("home");
    repo.sh("mkdir -p ../home/.config/git && git config include.path " + (home / "more").string());
    write_text(home / "more", "[alias]\n\tx = log\n");
    write_text(home / ".gitconfig", "[alias]\n\ty = log\n");
    repo.sh(
        "git worktree add -q ../linked -b linked; git init -q ../sub && git -C ../sub -c user.name=T -c "
        "user.email=t@example.org commit -q --allow-empty -m s");
    repo.sh("git -c protocol.file.allow=always submodule add -q $PWD/../sub a/sub 2>/dev/null && git commit -qm sub");
    const char* old = std::getenv("HOME");
    const std::string users = old == nullptr ? "" : old;
    setenv("HOME", home.c_str(), 1);
    unsetenv("GIT_CONFIG_GLOBAL");
    repo.remember();
    repo.sh(
        "git config --global alias.z log; git config --file ../home/more alias.x false; echo '*' "
        ">../home/.config/git/ignore");
    repo.sh("echo '* x' >../home/.config/git/attributes; git -C ../linked sparse-checkout set b");
    repo.sh("echo x >.git/modules/a/sub/hooks/post-checkout; git -C a/sub config alias.w false");
    const std::string names = text::join(repo.put_back(), "; ");
    setenv("GIT_CONFIG_GLOBAL", "/dev/null", 1);
    setenv("HOME", users.c_str(), 1);
    INFO(names);
    for (const char* part :
         {"hooks/post-checkout", "alias.w in modules/a/sub/config", "worktrees/linked/config.worktree"}) {
        CHECK(names.find(part) != std::string::npos);
    }
    CHECK(repo.shape() == repo.before);
    // Files outside the repository are only reported, with a copy of how they were.
    CHECK(names.find("alias.z") == std::string::npos);
    CHECK(read_text(home / ".gitconfig").find("z = log") != std::string::npos);
    CHECK(read_text(home / "more") == "[alias]\n\tx = false\n");
    CHECK(fs::exists(home / ".config/git/ignore"));
    CHECK(repo.sh("cat .git/gdnctl-settings/r1-1/before-*.gitconfig") == "[alias]\n\ty = log");
    CHECK(repo.sh("cat .git/gdnctl-settings/r1-1/before-*more") == "[alias]\n\tx = log");
    const std::string list = repo.sh("cat .git/gdnctl-settings/r1-1/list.txt");
    CHECK(list.find("missing before, and not removed: " + (home / ".config/git/ignore").string()) != std::string::npos);
}
