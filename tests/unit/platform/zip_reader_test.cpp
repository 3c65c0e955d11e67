#include <thread>

#include <doctest/doctest.h>

#include "support/temp_dir.h"
#include "unit/platform/zip_support.h"

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
