#include "platform/compression.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <zlib.h>

#include "support/faults.h"
#include "support/temp_dir.h"

using namespace gdnctl;

namespace {

std::string compress_as(DeflateFormat format, std::string_view plain, int level = 6) {
    const int bits = format == DeflateFormat::raw ? -15 : format == DeflateFormat::zlib ? 15 : 31;
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, level, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string out(deflateBound(&stream, plain.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
    stream.avail_in = static_cast<uInt>(plain.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

// Text that compresses, noise that does not, and runs longer than any window.
std::string sample() {
    std::string text;
    unsigned state = 12345;
    for (int i = 0; i < 60000; ++i) {
        state = state * 1103515245u + 12345u;
        text += i % 7 == 0 ? "gated delta rule, chunk " : std::string(1, static_cast<char>(state >> 24));
    }
    return text + std::string(300000, 'z') + text.substr(0, 1000);
}

struct Outcome {
    Status status;
    std::string text;
};

Outcome inflate_in_pieces(DeflateFormat format, InflateBackend backend, std::string_view data, std::size_t piece,
                          std::uint64_t limit = Inflater::k_no_limit) {
    Outcome outcome;
    Inflater inflater(
        format,
        [&outcome](std::string_view bytes) {
            outcome.text += bytes;
            return true;
        },
        limit, backend);
    while (!data.empty() && outcome.status) {
        outcome.status = inflater.feed(data.substr(0, piece));
        data.remove_prefix(std::min(piece, data.size()));
    }
    if (outcome.status) outcome.status = inflater.finish();
    return outcome;
}

const std::vector<DeflateFormat> k_formats = {DeflateFormat::raw, DeflateFormat::zlib, DeflateFormat::gzip};
const std::vector<InflateBackend> k_backends = {InflateBackend::fastest, InflateBackend::zlib};

// Runs `check` for every format and backend.
template <class F>
void everywhere(F check) {
    for (const DeflateFormat format : k_formats) {
        for (const InflateBackend backend : k_backends) {
            CAPTURE(static_cast<int>(format));
            CAPTURE(static_cast<int>(backend));
            check(format, backend);
        }
    }
}

}  // namespace

TEST_CASE("inflate: isa-l is what this machine uses (it is a build dependency)") {
    CHECK(inflate_backend_name() == "isa-l");
    CHECK(make_isal_engine(DeflateFormat::gzip).has_value());
}

TEST_CASE("inflate: every format, both backends, pieces of any size") {
    const std::string plain = sample();
    everywhere([&](DeflateFormat format, InflateBackend backend) {
        for (const int level : {0, 1, 9}) {
            const std::string data = compress_as(format, plain, level);
            for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{4096}, data.size()}) {
                if (piece == 1 && level != 9) continue;
                const Outcome outcome = inflate_in_pieces(format, backend, data, piece);
                CAPTURE(piece);
                CHECK(outcome.status.has_value());
                CHECK(outcome.text == plain);
            }
        }
    });
}

TEST_CASE("inflate: an empty payload is fine, an empty input is not") {
    everywhere([](DeflateFormat format, InflateBackend backend) {
        const Outcome good = inflate_in_pieces(format, backend, compress_as(format, ""), 3);
        CHECK(good.status.has_value());
        CHECK(good.text.empty());
        const Outcome bad = inflate_in_pieces(format, backend, "", 3);
        REQUIRE_FALSE(bad.status.has_value());
        CHECK(bad.status.error().kind == ErrorKind::bad_input);
        CHECK(bad.status.error().message.find("empty") != std::string::npos);
    });
}

TEST_CASE("inflate: cut anywhere is an error, and what came before is delivered") {
    const std::string plain(2000, 'q');
    everywhere([&](DeflateFormat format, InflateBackend backend) {
        const std::string data = compress_as(format, plain + sample().substr(0, 500));
        for (std::size_t size = 1; size < data.size(); ++size) {
            CAPTURE(size);
            const Outcome outcome = inflate_in_pieces(format, backend, std::string_view(data).substr(0, size), 100);
            REQUIRE_FALSE(outcome.status.has_value());
            CHECK(outcome.status.error().kind == ErrorKind::bad_input);
            CHECK(outcome.status.error().message.find("is truncated after") != std::string::npos);
        }
    });
}

TEST_CASE("inflate: bytes behind the end are an error wherever the pieces are cut") {
    everywhere([](DeflateFormat format, InflateBackend backend) {
        const std::string data = compress_as(format, "payload of some length, payload of some length");
        for (std::size_t extra = 1; extra <= 12; ++extra) {
            for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{1000}, data.size()}) {
                CAPTURE(extra);
                CAPTURE(piece);
                const Outcome outcome = inflate_in_pieces(format, backend, data + std::string(extra, 'X'), piece);
                REQUIRE_FALSE(outcome.status.has_value());
                CHECK(outcome.status.error().message.find("bytes follow after the end") != std::string::npos);
                CHECK(outcome.text == "payload of some length, payload of some length");
            }
        }
    });
}

TEST_CASE("inflate: gzip members one after another are one stream") {
    for (const InflateBackend backend : k_backends) {
        const std::string data = compress_as(DeflateFormat::gzip, "one ") + compress_as(DeflateFormat::gzip, "") +
                                 compress_as(DeflateFormat::gzip, "two") + compress_as(DeflateFormat::gzip, sample());
        for (const std::size_t piece : {std::size_t{1}, std::size_t{3}, std::size_t{20}, data.size()}) {
            CAPTURE(piece);
            const Outcome outcome = inflate_in_pieces(DeflateFormat::gzip, backend, data, piece);
            CHECK(outcome.status.has_value());
            CHECK(outcome.text == "one two" + sample());
        }
    }
}

TEST_CASE("inflate: a wrong checksum and a wrong length are found") {
    for (const InflateBackend backend : k_backends) {
        for (const std::size_t from_end : {std::size_t{1}, std::size_t{6}}) {
            std::string data = compress_as(DeflateFormat::gzip, sample());
            data[data.size() - from_end] = static_cast<char>(data[data.size() - from_end] ^ 0x40);
            const Outcome outcome = inflate_in_pieces(DeflateFormat::gzip, backend, data, 4096);
            REQUIRE_FALSE(outcome.status.has_value());
            CHECK(outcome.status.error().message.find("checksum") != std::string::npos);
        }
        std::string data = compress_as(DeflateFormat::zlib, "text");
        data.back() = static_cast<char>(data.back() ^ 1);
        CHECK_FALSE(inflate_in_pieces(DeflateFormat::zlib, backend, data, 4096).status.has_value());
    }
}

TEST_CASE("inflate: other data is named as such, damage is found") {
    for (const InflateBackend backend : k_backends) {
        const Outcome html = inflate_in_pieces(DeflateFormat::gzip, backend, "<html>not found</html>", 4096);
        REQUIRE_FALSE(html.status.has_value());
        CHECK(html.status.error().message == "not gzip data");
        const Outcome raw = inflate_in_pieces(DeflateFormat::raw, backend, "\x07\xff\xff\xff", 4096);
        REQUIRE_FALSE(raw.status.has_value());
        CHECK(raw.status.error().message.find("damaged deflate data") != std::string::npos);
    }
}

TEST_CASE("inflate: output has a limit, exact to the byte") {
    everywhere([](DeflateFormat format, InflateBackend backend) {
        const std::string data = compress_as(format, std::string(1'000'000, 'x'));
        CHECK(inflate_in_pieces(format, backend, data, 100, 1'000'000).status.has_value());
        const Outcome outcome = inflate_in_pieces(format, backend, data, 100, 999'999);
        REQUIRE_FALSE(outcome.status.has_value());
        CHECK(outcome.status.error().kind == ErrorKind::bad_input);
        CHECK(outcome.status.error().message == "inflates to more than 999999 bytes");
    });
}

TEST_CASE("inflate: the reader may stop, and an error stays") {
    const std::string data = compress_as(DeflateFormat::gzip, "text");
    Inflater inflater(DeflateFormat::gzip, [](std::string_view) { return false; });
    CHECK(inflater.feed(data).error().kind == ErrorKind::nothing_done);
    CHECK(inflater.feed(data).error().kind == ErrorKind::nothing_done);
    CHECK(inflater.finish().error().kind == ErrorKind::nothing_done);
}

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
