#include <csignal>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "platform/hash.h"
#include "support/scratch.h"
#include "support/temp_dir.h"
#include "unit/platform/zip_support.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

std::string noise(std::size_t bytes) {
    std::string out;
    std::uint64_t state = 88172645463325252ull;
    while (out.size() < bytes) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push_back(static_cast<char>(state >> 33));
    }
    return out;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("zip writer: what is written can be read: text, noise, nothing, exec bits, UTF-8 names") {
    const Scratch scratch;
    const std::string random = noise(700'000);
    auto writer = ZipWriter::create(scratch / "a.zip");
    REQUIRE(writer.has_value());
    CHECK(writer->add("lib/text.py", std::string(100'000, 't'), false).has_value());
    CHECK(writer->add_file("noise.bin", scratch.file("noise", random), false).has_value());
    CHECK(writer->add("run.sh", "#!/bin/sh\n", true).has_value());
    CHECK(writer->add("größe/空", "", false).has_value());
    const auto size = writer->finish();
    REQUIRE(size.has_value());
    CHECK(*size == std::filesystem::file_size(scratch / "a.zip"));
    const std::string bytes = read_text(scratch / "a.zip");
    const auto reader = ZipReader::over(bytes, "a.zip");
    REQUIRE(reader.has_value());
    REQUIRE(reader->members().size() == 4);
    CHECK(reader->read(reader->members()[0], 1 << 20).value() == std::string(100'000, 't'));
    CHECK(reader->members()[0].method == zip::k_deflate);
    CHECK(reader->read(reader->members()[1], 1 << 20).value() == random);
    CHECK(reader->members()[1].method == zip::k_stored);
    CHECK(reader->members()[2].unix_mode == 0100755);
    CHECK(reader->members()[0].unix_mode == 0100644);
    CHECK(reader->members()[3].name == "größe/空");
    CHECK(reader->read(reader->members()[3], 0).value().empty());
}

TEST_CASE("zip writer: stored members in memory") {
    StoredZip archive;
    CHECK(archive.add("q.npy", "tensor"));
    CHECK(archive.add("empty", ""));
    CHECK_FALSE(archive.add(std::string(70'000, 'n'), "x"));
    const std::string bytes = archive.finish();
    const auto reader = ZipReader::over(bytes, "a.npz");
    REQUIRE(reader.has_value());
    REQUIRE(reader->members().size() == 2);
    CHECK(reader->members()[0].name == "q.npy");
    CHECK(reader->members()[0].method == zip::k_stored);
    CHECK(reader->read(reader->members()[0], 100).value() == "tensor");
    CHECK(reader->read(reader->members()[1], 100).value().empty());
}

TEST_CASE("zip writer: the same members give the same bytes, whatever their dates") {
    const Scratch scratch;
    const auto old = scratch.file("old", "kernel\n");
    const timespec times[2] = {{1000000000, 0}, {1000000000, 0}};
    REQUIRE(::utimensat(AT_FDCWD, old.c_str(), times, 0) == 0);
    std::vector<std::string> hashes;
    for (const auto& [name, file] : {std::pair{"1.zip", old}, std::pair{"2.zip", scratch.file("new", "kernel\n")}}) {
        auto writer = ZipWriter::create(scratch / name);
        REQUIRE(writer.has_value());
        CHECK(writer->add_file("kernel.c", file, false).has_value());
        CHECK(writer->add("run.sh", "x", true).has_value());
        REQUIRE(writer->finish().has_value());
        hashes.push_back(hash_file_hex(HashKind::sha1, scratch / name).value());
    }
    CHECK(hashes[0] == hashes[1]);
    // Packages are named by their hash: it may not change from one version of gdnctl to the next.
    CHECK(hashes[0] == "f67275befbaa7efd20ea1f103576b58038a8f2ba");
}

TEST_CASE("zip writer: names that do not belong in an archive are refused") {
    const Scratch scratch;
    auto writer = ZipWriter::create(scratch / "a.zip");
    REQUIRE(writer.has_value());
    for (const std::string& name :
         {std::string(), std::string("/abs"), std::string("a/../b"), std::string("./a"), std::string("a//b"),
          std::string("dir/"), std::string("\xff"), std::string("a\0b", 3), std::string(70'000, 'n')}) {
        CAPTURE(name.substr(0, 20));
        CHECK(writer->add(name, "x", false).error().kind == ErrorKind::usage);
    }
    CHECK(writer->add("twice", "x", false).has_value());
    CHECK(holds(writer->add("twice", "x", false).error().message, "already contains 'twice'"));
    REQUIRE(writer->finish().has_value());
    const std::string bytes = read_text(scratch / "a.zip");
    CHECK(ZipReader::over(bytes, "a.zip")->members().size() == 1);
}

TEST_CASE("zip writer: missing files and folders are local i/o, and the archive stays good") {
    const Scratch scratch;
    CHECK(ZipWriter::create(scratch / "no/such/a.zip").error().kind == ErrorKind::local_io);
    auto writer = ZipWriter::create(scratch / "a.zip");
    REQUIRE(writer.has_value());
    CHECK(writer->add_file("x", scratch / "missing", false).error().kind == ErrorKind::local_io);
    CHECK(writer->add_file("y", scratch.path(), false).error().kind == ErrorKind::local_io);
    CHECK(writer->add("z", "good", false).has_value());
    REQUIRE(writer->finish().has_value());
    const std::string bytes = read_text(scratch / "a.zip");
    CHECK(ZipReader::over(bytes, "a.zip")->members().size() == 1);
}

TEST_CASE("zip writer: a full disk is an error that names the file") {
    const Scratch scratch;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{100'000, before.rlim_max};
    auto writer = ZipWriter::create(scratch / "a.zip");
    REQUIRE(writer.has_value());
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const Status status = writer->add("noise", noise(300'000), false);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, old_handler);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().kind == ErrorKind::local_io);
    CHECK(holds(status.error().message, "a.zip"));
}

TEST_CASE("zip writer: 4 GiB is refused, not wrapped around") {
    const Scratch scratch;
    const auto file = scratch.file("hole", "");
    std::filesystem::resize_file(file, 0xffffffffull);
    auto writer = ZipWriter::create(scratch / "a.zip");
    REQUIRE(writer.has_value());
    const Status status = writer->add_file("hole", file, false);
    REQUIRE_FALSE(status.has_value());
    CHECK(status.error().kind == ErrorKind::bad_input);
    CHECK_FALSE(status.error().hint.empty());
}
