// The files of a working tree as a job on this machine gets them.
#include "services/job/package.h"

#include <doctest/doctest.h>

#include "support/temp_dir.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;
using test::read_text;
using test::TempDir;
using test::write_text;

std::string copied(const WorkingTree& tree, const fs::path& into, std::uint64_t limit = k_package_limit) {
    const Status done = copy_tree(tree, into, {}, limit);
    return done ? "ok" : done.error().message;
}

}  // namespace

TEST_CASE("tree copy: files with their exec bits, links followed, what has gone left out") {
    const TempDir dir;
    const fs::path root = dir / "tree", work = dir / "work";
    const std::string large(std::size_t{5} << 20, 'x');
    write_text(root / "run.sh", "#!/bin/sh\n");
    fs::permissions(root / "run.sh", fs::perms(0700));
    write_text(root / "sub/deep/a.c", "a");
    write_text(root / "sub/b.c", "b");
    write_text(root / "large", large);
    write_text(root / "empty", "");
    fs::create_symlink("sub/b.c", root / "link");
    fs::create_directory_symlink("sub", root / "folder");
    fs::create_symlink("nothing", root / "broken");
    const WorkingTree tree{
        root, {"broken", "empty", "folder/b.c", "gone", "large", "link", "run.sh", "sub/b.c", "sub/deep/a.c"}};
    REQUIRE(copied(tree, work) == "ok");
    CHECK(test::list_names(work) == "empty folder large link run.sh sub");
    CHECK(read_text(work / "large") == large);
    CHECK(read_text(work / "sub/deep/a.c") == "a");
    for (const char* name : {"link", "folder"}) CHECK_FALSE(fs::is_symlink(work / name));
    CHECK(read_text(work / "link") == "b");
    CHECK(read_text(work / "folder/b.c") == "b");
    const auto executable = [&](const char* name) {
        return (fs::status(work / name).permissions() & fs::perms::owner_exec) != fs::perms::none;
    };
    CHECK(executable("run.sh"));
    CHECK_FALSE(executable("link"));
    // A job's copy is its own.
    write_text(work / "sub/b.c", "changed");
    CHECK(read_text(root / "sub/b.c") == "b");
}

TEST_CASE("tree copy: nothing from outside the tree, and nothing after a stop request") {
    const TempDir dir;
    write_text(dir / "secret", "s");
    write_text(dir / "tree/a", "a");
    fs::create_symlink("../secret", dir / "tree/out");
    CHECK(copied({dir / "tree", {"a", "out"}}, dir / "work").starts_with("unsafe path: out leads out"));
    std::stop_source stop;
    stop.request_stop();
    const Status stopped = copy_tree({dir / "tree", {"a"}}, dir / "stopped", stop.get_token());
    REQUIRE_FALSE(stopped);
    CHECK(stopped.error().kind == ErrorKind::interrupted);
}

TEST_CASE("tree copy: the limit is that of the package, whatever size the files have") {
    const TempDir dir;
    write_text(dir / "tree/zeros", std::string(100'000, '\0'));
    CHECK(copied({dir / "tree", {"zeros"}}, dir / "work", 10'000) == "ok");
    CHECK(fs::file_size(dir / "work/zeros") == 100'000);
    CHECK_FALSE(fs::exists(dir / "package.zip"));
    CHECK(copied({dir / "tree", {"zeros"}}, dir / "other", 50).find("more than 50 bytes") != std::string::npos);
}

}  // namespace gdnctl
