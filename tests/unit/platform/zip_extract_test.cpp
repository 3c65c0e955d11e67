#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/scratch.h"
#include "unit/platform/zip_support.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

Result<ZipExtraction> extract(const RawArchive& archive, const std::filesystem::path& folder,
                              std::uint64_t limit = 1u << 20) {
    const std::string bytes = archive.bytes();
    GDNCTL_TRY_ASSIGN(const ZipReader reader, ZipReader::over(bytes, "a.zip"));
    return extract_zip(reader, folder, limit);
}

mode_t mode_of(const std::filesystem::path& path) {
    struct stat facts{};
    REQUIRE(::stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 07777;
}

}  // namespace

TEST_CASE("zip extract: folders, files and exec bits") {
    const Scratch scratch;
    const mode_t old_mask = ::umask(022);
    RawArchive archive;
    archive.members = {RawMember::stored("top", "t"), RawMember::deflated("a/b/run.sh", "#!/bin/sh\n"),
                       RawMember::stored("a/empty/", "")};
    archive.members[1].mode = 0104777;  // setuid is dropped
    archive.members[2].mode = 0040755;
    const auto done = extract(archive, scratch.path());
    ::umask(old_mask);
    REQUIRE(done.has_value());
    CHECK(done->files == 2);
    CHECK(done->bytes == 11);
    CHECK(read_whole(scratch / "top") == "t");
    CHECK(read_whole(scratch / "a/b/run.sh") == "#!/bin/sh\n");
    CHECK(mode_of(scratch / "top") == 0644);
    CHECK(mode_of(scratch / "a/b/run.sh") == 0755);
    CHECK(std::filesystem::is_directory(scratch / "a/empty"));
}

TEST_CASE("zip extract: a name that leads out of the folder stops everything before the first byte") {
    for (const char* name : {"/etc/x", "../x", "a/../../x", "a/..", "..", ".", "a//b", "./x", "a/./b", "//"}) {
        CAPTURE(name);
        const Scratch scratch;
        std::filesystem::create_directory(scratch / "in");
        RawArchive archive;
        archive.members = {RawMember::stored("good", "g"), RawMember::stored(name, "evil")};
        const auto done = extract(archive, scratch / "in");
        REQUIRE_FALSE(done.has_value());
        CHECK(done.error().kind == ErrorKind::local_io);
        CHECK_FALSE(done.error().hint.empty());
        CHECK(std::filesystem::is_empty(scratch / "in"));
        CHECK_FALSE(std::filesystem::exists(scratch / "x"));
    }
}

TEST_CASE("zip extract: links in the archive and links in the way are refused") {
    const Scratch scratch;
    std::filesystem::create_directories(scratch / "in");
    std::filesystem::create_directories(scratch / "outside");
    RawArchive archive;
    archive.members = {RawMember::stored("link", "../outside")};
    archive.members[0].mode = 0120777;
    CHECK(extract(archive, scratch / "in").error().kind == ErrorKind::local_io);
    CHECK(std::filesystem::is_empty(scratch / "in"));

    std::filesystem::create_symlink(scratch / "outside", scratch / "in/dir");
    std::filesystem::create_symlink(scratch / "outside/file", scratch / "in/file");
    archive.members = {RawMember::stored("dir/file", "x")};
    CHECK(extract(archive, scratch / "in").error().kind == ErrorKind::local_io);
    archive.members = {RawMember::stored("file", "x")};
    CHECK(extract(archive, scratch / "in").error().kind == ErrorKind::local_io);
    CHECK(std::filesystem::is_empty(scratch / "outside"));
}

TEST_CASE("zip extract: nothing is overwritten, a file is no folder, limits hold") {
    const Scratch scratch;
    scratch.file("here", "mine");
    RawArchive archive;
    archive.members = {RawMember::stored("here", "theirs")};
    CHECK(extract(archive, scratch.path()).error().kind == ErrorKind::local_io);
    CHECK(read_whole(scratch / "here") == "mine");
    archive.members = {RawMember::stored("here/below", "x")};
    CHECK(extract(archive, scratch.path()).error().kind == ErrorKind::local_io);
    archive.members = {RawMember::stored("one", "12345"), RawMember::stored("two", "67890")};
    CHECK(extract(archive, scratch.path(), 9).error().kind == ErrorKind::bad_input);
    CHECK_FALSE(std::filesystem::exists(scratch / "one"));
    CHECK(extract(archive, scratch.path(), 10).has_value());
    CHECK(extract(archive, scratch / "no-such-folder").error().kind == ErrorKind::local_io);
}

TEST_CASE("zip extract: damage inside a member is an error") {
    const Scratch scratch;
    RawArchive archive;
    archive.members = {RawMember::deflated("one", "content")};
    archive.members[0].crc ^= 1;
    const auto done = extract(archive, scratch.path());
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().kind == ErrorKind::bad_input);
}
