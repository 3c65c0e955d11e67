// Archives for tests: written by hand, so that any field can be wrong.
#include "platform/zip.h"

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "platform/hash.h"
#include "platform/zip_format.h"
#include "support/scratch.h"
#include "support/temp_dir.h"

namespace gdnctl::test {

namespace {

inline std::uint32_t crc_of(std::string_view text) {
    return static_cast<std::uint32_t>(
        crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

inline std::string raw_deflate(std::string_view plain) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, plain.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
    stream.avail_in = static_cast<uInt>(plain.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

// A member as the archive will claim it to be; the defaults are the truth.
struct RawMember {
    std::string name;
    std::string data;  // as it lies in the file
    std::uint16_t method = zip::k_stored;
    std::uint16_t flags = 0;
    std::uint32_t crc = 0;
    std::uint64_t size = 0;
    std::uint64_t compressed_size = 0;
    std::uint32_t mode = 0100644;
    bool zip64 = false;
    std::uint64_t offset_shift = 0;  // added to the true offset
    std::string local_name;          // where it differs from `name`

    static RawMember stored(std::string member_name, std::string_view content) {
        return {std::move(member_name),
                std::string(content),
                zip::k_stored,
                0,
                crc_of(content),
                content.size(),
                content.size(),
                0100644,
                false,
                0,
                {}};
    }
    static RawMember deflated(std::string member_name, std::string_view content) {
        RawMember member = stored(std::move(member_name), content);
        member.data = raw_deflate(content);
        member.method = zip::k_deflate;
        member.compressed_size = member.data.size();
        return member;
    }
};

struct RawArchive {
    std::vector<RawMember> members;
    std::string comment;
    std::string before_directory;
    bool zip64_end = false;
    std::int64_t count_error = 0;

    std::string bytes() const {
        std::string out;
        std::string directory;
        for (const RawMember& m : members) {
            const std::uint64_t offset = out.size() + m.offset_shift;
            const std::string& local = m.local_name.empty() ? m.name : m.local_name;
            zip::put(out, zip::k_local_signature, 4);
            zip::put(out, 20, 2);
            zip::put(out, m.flags, 2);
            zip::put(out, m.method, 2);
            zip::put(out, 0x00210000, 4);
            zip::put(out, m.crc, 4);
            // As NumPy writes it: placeholders here, the truth in the directory.
            zip::put(out, m.zip64 ? zip::k_max32 : m.compressed_size, 4);
            zip::put(out, m.zip64 ? zip::k_max32 : m.size, 4);
            zip::put(out, local.size(), 2);
            zip::put(out, m.zip64 ? 20 : 0, 2);
            out += local;
            if (m.zip64) out += std::string("\x01\x00\x10\x00", 4) + std::string(16, '\xee');
            out += m.data;

            zip::put(directory, zip::k_central_signature, 4);
            zip::put(directory, 3 << 8 | 20, 2);
            zip::put(directory, 20, 2);
            zip::put(directory, m.flags, 2);
            zip::put(directory, m.method, 2);
            zip::put(directory, 0x00210000, 4);
            zip::put(directory, m.crc, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : m.compressed_size, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : m.size, 4);
            zip::put(directory, m.name.size(), 2);
            zip::put(directory, m.zip64 ? 28 : 0, 2);
            zip::put(directory, 0, 6);
            zip::put(directory, std::uint64_t{m.mode} << 16, 4);
            zip::put(directory, m.zip64 ? zip::k_max32 : offset, 4);
            directory += m.name;
            if (m.zip64) {
                zip::put(directory, zip::k_zip64_extra, 2);
                zip::put(directory, 24, 2);
                zip::put(directory, m.size, 8);
                zip::put(directory, m.compressed_size, 8);
                zip::put(directory, offset, 8);
            }
        }
        out += before_directory;
        const std::uint64_t directory_offset = out.size();
        out += directory;
        const auto count = static_cast<std::uint64_t>(static_cast<std::int64_t>(members.size()) + count_error);
        if (zip64_end) {
            const std::uint64_t at = out.size();
            zip::put(out, zip::k_end64_signature, 4);
            zip::put(out, 44, 8);
            zip::put(out, 45 | 45 << 16, 4);
            zip::put(out, 0, 8);
            zip::put(out, count, 8);
            zip::put(out, count, 8);
            zip::put(out, directory.size(), 8);
            zip::put(out, directory_offset, 8);
            zip::put(out, zip::k_locator64_signature, 4);
            zip::put(out, 0, 4);
            zip::put(out, at, 8);
            zip::put(out, 1, 4);
        }
        zip::put(out, zip::k_end_signature, 4);
        zip::put(out, 0, 4);
        zip::put(out, zip64_end ? zip::k_max16 : count, 2);
        zip::put(out, zip64_end ? zip::k_max16 : count, 2);
        zip::put(out, zip64_end ? zip::k_max32 : directory.size(), 4);
        zip::put(out, zip64_end ? zip::k_max32 : directory_offset, 4);
        zip::put(out, comment.size(), 2);
        return out + comment;
    }
};

}  // namespace

}  // namespace gdnctl::test

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

Result<std::string> read_first(const std::string& bytes) {
    GDNCTL_TRY_ASSIGN(const ZipReader reader, ZipReader::over(bytes, "a.zip"));
    if (reader.members().empty()) return fail(ErrorKind::nothing_done, "empty");
    return reader.read(reader.members()[0], 10u << 20);
}

// The message of what must be refused as bad input, when it is opened or when its first member is read.
std::string refusal(const std::string& bytes) {
    const auto result = read_first(bytes);
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().kind == ErrorKind::bad_input);
    CHECK(result.error().text().find("a.zip") != std::string::npos);
    return result.error().text();
}

const ZipMember* find(const ZipReader& reader, std::string_view name) {
    for (const ZipMember& member : reader.members()) {
        if (member.name == name) return &member;
    }
    return nullptr;
}

bool speaks_of(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("zip reader: stored and deflated members, names, modes, order") {
    RawArchive archive;
    archive.members = {RawMember::stored("b.txt", "bee"), RawMember::deflated("dir/a.sh", std::string(5000, 'a')),
                       RawMember::stored("empty", "")};
    archive.members[1].mode = 0100755;
    archive.comment = "made by hand";
    const std::string bytes = archive.bytes();
    const auto reader = ZipReader::over(bytes, "a.zip");
    REQUIRE(reader.has_value());
    REQUIRE(reader->members().size() == 3);
    CHECK(reader->members()[0].name == "b.txt");
    CHECK((reader->members()[0].unix_mode & 0111u) == 0);
    CHECK((reader->members()[1].unix_mode & 0111u) != 0);
    CHECK(reader->members()[1].size == 5000);
    CHECK(reader->read(*find(*reader, "b.txt"), 100).value() == "bee");
    CHECK(reader->read(*find(*reader, "dir/a.sh"), 5000).value() == std::string(5000, 'a'));
    CHECK(reader->read(*find(*reader, "empty"), 0).value().empty());
    CHECK(find(*reader, "B.TXT") == nullptr);
    const auto over = reader->read(*find(*reader, "dir/a.sh"), 4999);
    REQUIRE_FALSE(over.has_value());
    CHECK(speaks_of(over.error().message, "more than the limit of 4999"));
    const Status stopped = reader->read(reader->members()[0], [](std::string_view) { return false; });
    CHECK(stopped.error().kind == ErrorKind::nothing_done);
}

TEST_CASE("zip reader: zip64 placeholders in local headers, the central directory is trusted") {
    RawArchive archive;
    archive.members = {RawMember::deflated("q.npy", "tensor"), RawMember::stored("g.npy", "gate")};
    archive.members[0].zip64 = archive.members[1].zip64 = true;
    for (const bool zip64_end : {false, true}) {
        archive.zip64_end = zip64_end;
        const std::string bytes = archive.bytes();
        const auto reader = ZipReader::over(bytes, "a.zip");
        REQUIRE(reader.has_value());
        CHECK(reader->read(*find(*reader, "q.npy"), 100).value() == "tensor");
        CHECK(reader->read(*find(*reader, "g.npy"), 100).value() == "gate");
    }
}

TEST_CASE("zip reader: archives that NumPy wrote") {
    const std::filesystem::path folder = std::filesystem::path(GDNCTL_FIXTURES) / "platform";
    const std::string stored_bytes = read_text(folder / "numpy_stored.npz");
    const auto stored = ZipReader::over(stored_bytes, "stored.npz");
    REQUIRE(stored.has_value());
    REQUIRE(find(*stored, "q.npy") != nullptr);
    CHECK(stored->read(*find(*stored, "q.npy"), 1000).value().size() == 128 + 24);
    CHECK(stored->read(*find(*stored, "g.npy"), 1000).value().starts_with("\x93NUMPY"));
    const std::string deflated_bytes = read_text(folder / "numpy_deflated.npz");
    const auto deflated = ZipReader::over(deflated_bytes, "deflated.npz");
    REQUIRE(deflated.has_value());
    CHECK(deflated->read(deflated->members()[0], 100000).value().size() == 128 + 64 * 64 * 4);
}

TEST_CASE("zip reader: threads may read at once") {
    RawArchive archive;
    const std::string content(3'000'000, 'm');
    archive.members = {RawMember::deflated("big", content), RawMember::stored("small", "s")};
    const std::string bytes = archive.bytes();
    const auto reader = ZipReader::over(bytes, "a.zip");
    REQUIRE(reader.has_value());
    std::vector<int> good(4, 0);
    {
        std::vector<std::jthread> threads;
        for (int& mine : good) {
            threads.emplace_back([&] {
                const auto big = reader->read(*find(*reader, "big"), content.size());
                const auto small = reader->read(*find(*reader, "small"), 10);
                if (big && small && *big == content && *small == "s") mine = 1;
            });
        }
    }
    for (const int one : good) CHECK(one == 1);
}

TEST_CASE("zip reader: what is no archive is named") {
    CHECK(speaks_of(refusal("<html>not found</html>"), "a.zip: not a ZIP archive, or truncated"));
    CHECK(speaks_of(refusal(""), "not a ZIP archive"));
}

TEST_CASE("zip reader: cut anywhere is bad input") {
    RawArchive archive;
    archive.members = {RawMember::deflated("one", std::string(300, '1')), RawMember::stored("two", "22")};
    for (const bool zip64_end : {false, true}) {
        archive.zip64_end = zip64_end;
        const std::string bytes = archive.bytes();
        for (std::size_t size = 0; size < bytes.size(); ++size) {
            CAPTURE(size);
            refusal(bytes.substr(0, size));
        }
        // Cut at the front: the directory's offset no longer fits.
        refusal(bytes.substr(1));
    }
}

TEST_CASE("zip reader: a wrong CRC-32, wrong sizes and damage are found") {
    RawArchive archive;
    archive.members = {RawMember::deflated("one", std::string(300, '1'))};
    RawMember& member = archive.members[0];
    const RawMember good = member;
    member.crc ^= 1;
    CHECK(speaks_of(refusal(archive.bytes()), "member 'one': a.zip: CRC-32 does not match"));
    member = good;
    member.size = 299;
    CHECK(speaks_of(refusal(archive.bytes()), "inflates to more than 299 bytes"));
    member.size = 301;
    CHECK(speaks_of(refusal(archive.bytes()), "300 bytes instead of 301"));
    member = good;
    member.compressed_size -= 1;
    CHECK(speaks_of(refusal(archive.bytes()), "is truncated after"));
    member = good;
    member.data[0] = '\x07';
    CHECK(speaks_of(refusal(archive.bytes()), "damaged deflate data"));
    member = RawMember::stored("one", "content");
    member.data[0] = 'X';
    CHECK(speaks_of(refusal(archive.bytes()), "CRC-32 does not match"));
    member = RawMember::stored("one", "content");
    member.size = 8;
    CHECK(speaks_of(refusal(archive.bytes()), "stored with two sizes"));
}

TEST_CASE("zip reader: absurd sizes are refused before anything is allocated") {
    RawArchive archive;
    archive.members = {RawMember::deflated("bomb", "x")};
    archive.members[0].size = 0xfffffffe;
    CHECK(speaks_of(refusal(archive.bytes()), "cannot come from"));
    archive.members[0].zip64 = true;
    archive.members[0].size = archive.members[0].compressed_size = 1ull << 60;
    CHECK_FALSE(refusal(archive.bytes()).empty());
    archive.members = {RawMember::stored("a", "123"), RawMember::stored("b", "456")};
    const std::string bytes = archive.bytes();
    CHECK(speaks_of(ZipReader::over(bytes, "a", {.members = 1}).error().message, "more than the limit of 1"));
    CHECK(speaks_of(ZipReader::over(bytes, "a", {.member_bytes = 2}).error().message, "more than the limit of 2"));
    CHECK(speaks_of(ZipReader::over(bytes, "a", {.total_bytes = 5}).error().message, "more than 5 bytes in all"));
    CHECK(ZipReader::over(bytes, "a", {.members = 2, .member_bytes = 3, .total_bytes = 6}).has_value());
}

TEST_CASE("zip reader: overlapping and duplicate members are refused") {
    RawArchive archive;
    archive.members = {RawMember::stored("one", "1111"), RawMember::stored("two", "2222")};
    archive.members[1].offset_shift = static_cast<std::uint64_t>(-5);
    CHECK(speaks_of(refusal(archive.bytes()), "overlap"));
    archive.members[1] = RawMember::stored("one", "2222");
    CHECK(speaks_of(refusal(archive.bytes()), "two members have the name 'one'"));
    archive.members = {RawMember::stored("one", "1111")};
    archive.members[0].offset_shift = 1000;
    CHECK(speaks_of(refusal(archive.bytes()), "reaches beyond"));
}

TEST_CASE("zip reader: header and directory must name the same member") {
    RawArchive archive;
    archive.members = {RawMember::stored("one", "1111")};
    archive.members[0].local_name = "two";
    CHECK(speaks_of(refusal(archive.bytes()), "differ"));
    archive.members[0].local_name.clear();
    archive.members[0].offset_shift = 1;
    archive.before_directory = "12345678";
    CHECK(speaks_of(refusal(archive.bytes()), "differ"));
}

TEST_CASE("zip reader: counts, encryption, unknown methods, impossible names") {
    RawArchive archive;
    archive.members = {RawMember::stored("one", "1111")};
    for (const std::int64_t error : {-1, 1, 100}) {
        archive.count_error = error;
        CHECK(speaks_of(refusal(archive.bytes()), "damaged central directory"));
    }
    archive.count_error = 0;
    archive.members[0].flags = zip::k_flag_encrypted;
    CHECK(speaks_of(refusal(archive.bytes()), "encrypted"));
    archive.members[0].flags = 0;
    archive.members[0].method = 12;
    CHECK(speaks_of(refusal(archive.bytes()), "compression method 12"));
    archive.members[0] = RawMember::stored(std::string("a\0b", 3), "x");
    CHECK(speaks_of(refusal(archive.bytes()), "impossible name"));
    archive.members[0] = RawMember::stored("", "x");
    CHECK(speaks_of(refusal(archive.bytes()), "impossible name"));
}

TEST_CASE("zip reader: names that climb are reported as they are") {
    RawArchive archive;
    archive.members = {RawMember::stored("../../etc/passwd", "x"), RawMember::stored("/abs", "y")};
    const std::string bytes = archive.bytes();
    const auto reader = ZipReader::over(bytes, "a.zip");
    REQUIRE(reader.has_value());
    CHECK(reader->members()[0].name == "../../etc/passwd");
    CHECK(reader->members()[1].name == "/abs");
}

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
