#include "platform/hash.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "core/sha256.h"

using namespace gdnctl;

TEST_CASE("hash: the published vectors") {
    CHECK(hash_hex(HashKind::sha1, "abc").value() == "a9993e364706816aba3e25717850c26c9cd0d89d");
    CHECK(hash_hex(HashKind::sha1, "").value() == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    CHECK(hash_hex(HashKind::sha256, "abc").value() ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hash_hex(HashKind::sha256, std::string(1'000'000, 'a')).value() ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("hash: pieces give the same as the whole, and a file too") {
    Hasher hasher = Hasher::create(HashKind::sha256).value();
    for (int i = 0; i < 1000; ++i) CHECK(hasher.update(std::string(1000, 'a')).has_value());
    const std::string expected = hash_hex(HashKind::sha256, std::string(1'000'000, 'a')).value();
    CHECK(hasher.hex().value() == expected);
    const std::filesystem::path path = "/tmp/gdnctl-hash-" + std::to_string(::getpid());
    std::ofstream(path, std::ios::binary) << std::string(1'000'000, 'a');
    CHECK(hash_file_hex(HashKind::sha256, path).value() == expected);
    std::filesystem::remove(path);
    const auto missing = hash_file_hex(HashKind::sha256, path);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().kind == ErrorKind::local_io);
    CHECK(missing.error().message.find(path.string()) != std::string::npos);
    CHECK(hash_file_hex(HashKind::sha1, "/tmp").error().kind == ErrorKind::local_io);  // a folder
}

TEST_CASE("the hash of a machine without libcrypto is the same, in whatever pieces the bytes arrive") {
    std::string bytes;
    for (int size = 0; size <= 200; ++size) {
        const std::string expected = hash_hex(HashKind::sha256, bytes).value();
        for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1000}}) {
            Sha256 hash;
            for (std::size_t at = 0; at < bytes.size(); at += piece) {
                hash.update(std::string_view(bytes).substr(at, piece));
            }
            CHECK(hash.hex() == expected);
        }
        bytes += static_cast<char>(size * 37);
    }
}
