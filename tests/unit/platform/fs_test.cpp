#include "platform/fs.h"

#include <csignal>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/faults.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using test::TempDir;
namespace fs = std::filesystem;

namespace {

template <class T>
Error error_of(const Result<T>& result) {
    REQUIRE_FALSE(result);
    return result.error();
}

mode_t mode_of(const fs::path& path) {
    struct stat facts{};
    REQUIRE(stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 07777U;
}

}  // namespace

TEST_CASE("fs: a file is read whole, up to its limit") {
    const TempDir dir;
    const std::string bytes("a\0b\n", 4);
    test::write_text(dir / "f", bytes);
    CHECK(read_file(dir / "f").value() == bytes);
    CHECK(read_file(dir / "f", {.limit = 4}).value() == bytes);
    const Error error = error_of(read_file(dir / "f", {.limit = 3}));
    CHECK(error.kind == ErrorKind::bad_input);
    CHECK(error.message == fmt::format("{} is larger than the limit of 3 bytes", (dir / "f").string()));
    test::write_text(dir / "empty", "");
    CHECK(read_file(dir / "empty").value().empty());
    test::write_text(dir / "big", std::string(1000000, 'x'));
    CHECK(read_file(dir / "big").value().size() == 1000000);
}

TEST_CASE("fs: missing files and folders are told apart") {
    const TempDir dir;
    Error error = error_of(read_file(dir / "none"));
    CHECK(error.kind == ErrorKind::usage);
    CHECK(error.message == fmt::format("cannot read {}: No such file or directory", (dir / "none").string()));
    CHECK(error_of(read_file(dir / "none", {.missing = ErrorKind::config})).kind == ErrorKind::config);
    error = error_of(read_file(dir.path()));
    CHECK(error.message == fmt::format("cannot read {}: Is a directory", dir.path().string()));
    CHECK(read_file_if_exists(dir / "none").value() == std::nullopt);
    test::write_text(dir / "f", "x");
    CHECK(read_file_if_exists(dir / "f").value() == "x");
    CHECK(error_of(read_file_if_exists(dir.path())).kind == ErrorKind::local_io);
    CHECK(read_file_if_exists(dir / "f" / "below").value() == std::nullopt);
}

TEST_CASE("fs: an unreadable file is a local I/O error with a hint") {
    const TempDir dir;
    test::write_text(dir / "secret", "x");
    fs::permissions(dir / "secret", fs::perms::none);
    fs::permissions(dir.path(), fs::perms::all);
    const auto end = test::as_nobody([&] {
        const auto result = read_file(dir / "secret");
        if (result) return 1;
        if (result.error().kind != ErrorKind::local_io) return 2;
        return result.error().hint.empty() ? 3 : 0;
    });
    CHECK(end.exit_code == 0);
}

TEST_CASE("fs: a pipe is read to its end") {
    const TempDir dir;
    REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
    std::jthread writer([&] { test::write_text(dir / "pipe", "through"); });
    CHECK(read_file(dir / "pipe").value() == "through");
}

TEST_CASE("fs: replacing keeps mode, link and everything beside it") {
    const TempDir dir;
    test::write_text(dir / "real/f", "old");
    fs::permissions(dir / "real/f", static_cast<fs::perms>(0640));
    fs::create_symlink("real/f", dir / "link");
    REQUIRE(atomic_replace(dir / "link", "new"));
    CHECK(fs::is_symlink(dir / "link"));
    CHECK(test::read_text(dir / "real/f") == "new");
    CHECK(mode_of(dir / "real/f") == 0640);
    CHECK(test::list_names(dir / "real") == "f");
}

TEST_CASE("fs: a new file gets the wanted mode less umask") {
    const TempDir dir;
    const mode_t before = umask(027);
    REQUIRE(atomic_replace(dir / "a", "x"));
    REQUIRE(atomic_replace(dir / "b", "x", 0600));
    umask(before);
    CHECK(mode_of(dir / "a") == 0640);
    CHECK(mode_of(dir / "b") == 0600);
}

TEST_CASE("fs: a broken link creates its target, a circle is an error") {
    const TempDir dir;
    fs::create_symlink("target", dir / "link");
    REQUIRE(atomic_replace(dir / "link", "x"));
    CHECK(test::read_text(dir / "target") == "x");
    fs::create_symlink("b", dir / "a");
    fs::create_symlink("a", dir / "b");
    CHECK(error_of(atomic_replace(dir / "a", "x")).kind == ErrorKind::local_io);
}

TEST_CASE("fs: devices are written to, not replaced") {
    struct stat facts{};
    REQUIRE(atomic_replace("/dev/null", "x"));
    REQUIRE(stat("/dev/null", &facts) == 0);
    CHECK(S_ISCHR(facts.st_mode));
    const Error error = error_of(atomic_replace("/dev/full", "x"));
    CHECK(error.message == "cannot write /dev/full: No space left on device");
    CHECK(error.hint == "free space there, then run the command again");
}

TEST_CASE("fs: a full disk leaves the old file and nothing else") {
    const TempDir dir;
    test::write_text(dir / "f", "old");
    {
        const test::FileSizeLimit limit(1000);
        const Error error = error_of(atomic_replace(dir / "f", std::string(5000, 'x')));
        CHECK(error.kind == ErrorKind::local_io);
        CHECK(error.message == fmt::format("cannot write {}: File too large", (dir / "f").string()));
        CHECK_FALSE(error.hint.empty());
    }
    CHECK(test::read_text(dir / "f") == "old");
    CHECK(test::list_names(dir.path()) == "f");
}

TEST_CASE("fs: a really full disk leaves the old file and nothing else") {
    const TempDir dir;
    fs::create_directory(dir / "small");
    if (mount("none", (dir / "small").c_str(), "tmpfs", 0, "size=64k") != 0) {
        MESSAGE("skipped: mounting a small tmpfs needs root");
        return;
    }
    test::write_text(dir / "small/f", "old");
    const auto result = atomic_replace(dir / "small/f", std::string(100000, 'x'));
    const std::string kept = test::read_text(dir / "small/f");
    const std::string names = test::list_names(dir / "small");
    umount((dir / "small").c_str());
    CHECK(error_of(result).message ==
          fmt::format("cannot write {}: No space left on device", (dir / "small/f").string()));
    CHECK(kept == "old");
    CHECK(names == "f");
}

TEST_CASE("fs: a read-only folder or file is refused") {
    const TempDir dir;
    test::write_text(dir / "folder/f", "old");
    test::write_text(dir / "file", "old");
    fs::permissions(dir.path(), static_cast<fs::perms>(0777));
    fs::permissions(dir / "folder", static_cast<fs::perms>(0555));
    fs::permissions(dir / "folder/f", static_cast<fs::perms>(0666));
    fs::permissions(dir / "file", static_cast<fs::perms>(0444));
    const auto end = test::as_nobody([&] {
        for (const auto& path : {dir / "folder/f", dir / "file", dir / "folder/new"}) {
            const auto result = atomic_replace(path, "new");
            if (result || result.error().kind != ErrorKind::local_io || result.error().hint.empty()) return 1;
        }
        return 0;
    });
    CHECK(end.exit_code == 0);
    CHECK(test::read_text(dir / "folder/f") == "old");
    CHECK(test::read_text(dir / "file") == "old");
}

TEST_CASE("fs: replacing a folder or in a missing folder fails") {
    const TempDir dir;
    CHECK(error_of(atomic_replace(dir.path(), "x")).message ==
          fmt::format("cannot write {}: Is a directory", dir.path().string()));
    CHECK(error_of(atomic_replace(dir / "no/where", "x")).kind == ErrorKind::local_io);
}

TEST_CASE("fs: what a killed writer left is cleared, what a living one writes is not") {
    const TempDir dir;
    test::write_text(dir / ".f.gdnctl-tmp0", "left over");
    REQUIRE(atomic_replace(dir / "f", "1"));
    CHECK(test::list_names(dir.path()) == "f");
    const UniqueFd living(open((dir / ".f.gdnctl-tmp0").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(flock(living.get(), LOCK_EX) == 0);
    REQUIRE(atomic_replace(dir / "f", "2"));
    CHECK(test::read_text(dir / "f") == "2");
    CHECK(test::list_names(dir.path()) == ".f.gdnctl-tmp0 f");
}

TEST_CASE("fs: killed at each step of a replacement, old or new is there and nothing between") {
    const TempDir dir;
    const std::string before(3000, 'a');
    const std::string wanted(200000, 'b');
    bool seen_old = false;
    bool seen_new = false;
    test::write_text(dir / "f", before);
    const int kills = test::kill_at_each_step([&] { (void)atomic_replace(dir / "f", wanted); },
                                              [&](std::string_view) {
                                                  const std::string found = test::read_text(dir / "f");
                                                  CHECK((found == before || found == wanted));
                                                  seen_old = seen_old || found == before;
                                                  seen_new = seen_new || found == wanted;
                                                  REQUIRE(atomic_replace(dir / "f", before));
                                                  CHECK(test::list_names(dir.path()) == "f");
                                              });
    if (kills == 0) {
        MESSAGE("skipped: the system does not allow tracing");
        return;
    }
    CHECK(kills > 10);
    CHECK(seen_old);
    CHECK(seen_new);
}

TEST_CASE("fs: two writers in threads never mix") {
    const TempDir dir;
    const std::string a(100000, 'a');
    const std::string b(50000, 'b');
    const auto write_often = [&](const std::string& text) {
        for (int i = 0; i < 30; ++i) {
            if (!atomic_replace(dir / "f", text)) return false;
        }
        return true;
    };
    bool ok_a = false;
    {
        const std::jthread other([&] { ok_a = write_often(a); });
        CHECK(write_often(b));
        const std::string found = test::read_text(dir / "f");
        CHECK((found == a || found == b));
    }
    CHECK(ok_a);
    const std::string found = test::read_text(dir / "f");
    CHECK((found == a || found == b));
    CHECK(test::list_names(dir.path()) == "f");
}

TEST_CASE("fs: what may not be done names what is there") {
    const TempDir dir;
    const auto hint_of = [](const fs::path& path) {
        return file_error(ErrorKind::local_io, "create", path, EACCES).hint;
    };
    CHECK(hint_of(dir / "a/b/c") == fmt::format("check owner and mode: ls -ld '{}'", dir.path().string()));
    CHECK(hint_of(dir.path()) == fmt::format("check owner and mode: ls -ld '{}'", dir.path().string()));
    CHECK(hint_of("/no/such/folder") == "check owner and mode: ls -ld '/'");
    CHECK(hint_of("no-such-folder/file") == "check owner and mode: ls -ld '.'");
}

TEST_CASE("fs: private folders") {
    const TempDir dir;
    REQUIRE(make_private_directory(dir / "a/b/"));
    CHECK(mode_of(dir / "a") == 0700);
    CHECK(mode_of(dir / "a/b") == 0700);
    REQUIRE(make_private_directory(dir / "a/b"));

    fs::permissions(dir / "a/b", static_cast<fs::perms>(0720));
    Error error = error_of(make_private_directory(dir / "a/b"));
    CHECK(error.kind == ErrorKind::local_io);
    CHECK(error.message ==
          fmt::format("will not use the folder {}: others may write to it (mode 0720)", (dir / "a/b").string()));
    CHECK(error.hint == fmt::format("chmod go-w '{}'", (dir / "a/b").string()));
    fs::permissions(dir / "a/b", static_cast<fs::perms>(0702));
    CHECK_FALSE(make_private_directory(dir / "a/b"));
    fs::permissions(dir / "a/b", static_cast<fs::perms>(0755));
    CHECK(make_private_directory(dir / "a/b"));

    test::write_text(dir / "file", "");
    CHECK(error_of(make_private_directory(dir / "file")).message ==
          fmt::format("cannot use the folder {}: Not a directory", (dir / "file").string()));
    CHECK_FALSE(make_private_directory(dir / "file/below"));
}

TEST_CASE("fs: someone else's folder is refused") {
    if (geteuid() != 0) {
        MESSAGE("skipped: giving a folder away needs root");
        return;
    }
    const TempDir dir;
    fs::create_directory(dir / "theirs");
    REQUIRE(chown((dir / "theirs").c_str(), 65534, 65534) == 0);
    const Error error = error_of(make_private_directory(dir / "theirs"));
    CHECK(error.kind == ErrorKind::local_io);
    CHECK(error.message == fmt::format("will not use the folder {}: it belongs to user 65534, not to user 0",
                                       (dir / "theirs").string()));
    CHECK(error.hint == "choose another state directory with GDNCTL_STATE_DIR");
    CHECK(error_of(make_private_directory(dir / "theirs", "another one")).hint == "another one");
}

TEST_CASE("fs: inside by words") {
    CHECK(is_inside("/a", "/a"));
    CHECK(is_inside("/a/", "/a/b/../c"));
    CHECK(is_inside("/a", "/a/..b"));
    CHECK_FALSE(is_inside("/a", "/ab"));
    CHECK_FALSE(is_inside("/a", "/a/../b"));
    CHECK_FALSE(is_inside("/a", "b"));
    CHECK(is_inside("a", "a/b"));
}

TEST_CASE("fs: joining refuses every way out") {
    const TempDir dir;
    fs::create_directory(dir / "root");
    test::write_text(dir / "root/d/f", "");
    fs::create_symlink("..", dir / "root/out");
    fs::create_symlink("d", dir / "root/in");
    fs::create_symlink("/etc/passwd", dir / "root/file");
    const fs::path root = dir / "root";
    CHECK(join_inside(root, "d/f").value() == root / "d/f");
    CHECK(join_inside(root, "new/x").value() == root / "new/x");
    CHECK(join_inside(root, "in/f").value() == root / "in/f");
    for (const std::string_view bad :
         {std::string_view(""), std::string_view("/etc/passwd"), std::string_view("../x"),
          std::string_view("d/../../x"), std::string_view("d/.."), std::string_view("out/x"), std::string_view("file"),
          std::string_view("a\0b", 3)}) {
        CAPTURE(std::string(bad));
        CHECK(error_of(join_inside(root, bad)).kind == ErrorKind::local_io);
    }
    CHECK(error_of(join_inside(root, "../x")).message == "unsafe path '../x': it contains '..'");
}

TEST_CASE("fs: finding upward") {
    const TempDir dir;
    test::write_text(dir / "a/mark", "");
    fs::create_directories(dir / "a/b/c");
    CHECK(find_upward(dir / "a/b/c", "mark") == dir / "a/mark");
    CHECK(find_upward(dir / "a/b/c/", "mark") == dir / "a/mark");
    CHECK(find_upward(dir.path(), "no-such-file-anywhere") == std::nullopt);
}
