#include "platform/gzip.h"

#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>

#include "support/faults.h"
#include "support/temp_dir.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace gdnctl::test;

TEST_CASE("gzip: a file becomes what gunzip reads, and may be packed twice") {
    const TempDir folder;
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "line " + std::to_string(i * 7919) + "\n";
    for (const std::string& content : {text, std::string()}) {
        write_text(folder / "a.log", content);
        REQUIRE(gzip_in_place(folder / "a.log"));
        CHECK_FALSE(fs::exists(folder / "a.log"));
        REQUIRE(
            std::system(("gunzip -c '" + (folder / "a.log.gz").string() + "' > '" + (folder / "back").string() + "'")
                            .c_str()) == 0);
        CHECK(read_text(folder / "back") == content);
        CHECK(gzip_in_place(folder / "a.log"));
    }
    CHECK(list_names(folder.path()) == "a.log.gz back");
}

TEST_CASE("gzip: on a full disk, or without the file, nothing is lost and nothing is left") {
    const TempDir folder;
    std::string noise;
    for (unsigned i = 1; noise.size() < 200'000; i = i * 1664525U + 1013904223U) noise += static_cast<char>(i >> 24U);
    write_text(folder / "a.log", noise);
    {
        const FileSizeLimit limit(4096);
        const auto refused = gzip_in_place(folder / "a.log");
        REQUIRE_FALSE(refused);
        CHECK(refused.error().kind == ErrorKind::local_io);
    }
    CHECK(list_names(folder.path()) == "a.log");
    CHECK(read_text(folder / "a.log") == noise);
    CHECK_FALSE(gzip_in_place(folder / "none"));
}
