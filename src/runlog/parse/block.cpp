// SHA-256 as in FIPS 180-4. The linter hashes a few kilobytes, and opening a crypto library would cost more.
#include "runlog/parse/block.h"

#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "core/text.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> k_round = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

class Sha256 {
public:
    void block(const unsigned char* bytes) {
        std::array<std::uint32_t, 64> w{};
        for (std::size_t i = 0; i < 16; ++i) {
            w[i] = static_cast<std::uint32_t>(bytes[4 * i]) << 24 | static_cast<std::uint32_t>(bytes[4 * i + 1]) << 16 |
                   static_cast<std::uint32_t>(bytes[4 * i + 2]) << 8 | static_cast<std::uint32_t>(bytes[4 * i + 3]);
        }
        for (std::size_t i = 16; i < 64; ++i) {
            const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
            const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16] + s0 + w[i - 7] + s1;
        }
        auto [a, b, c, d, e, f, g, h] = m_state;
        for (std::size_t i = 0; i < 64; ++i) {
            const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
            const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k_round[i] + w[i];
            const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
            const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g;
            g = f;
            f = e;
            e = d + t1;
            d = c;
            c = b;
            b = a;
            a = t1 + t2;
        }
        const std::array<std::uint32_t, 8> add = {a, b, c, d, e, f, g, h};
        for (std::size_t i = 0; i < 8; ++i) m_state[i] += add[i];
    }

    std::string hex() const {
        std::string out;
        for (const std::uint32_t word : m_state) out += fmt::format("{:08x}", word);
        return out;
    }

private:
    std::array<std::uint32_t, 8> m_state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
};

constexpr std::string_view k_begin = "<!-- gdnctl:begin ";
constexpr std::string_view k_end = "<!-- gdnctl:end -->";

// `<!-- gdnctl:begin ID sha256=HEX -->`
bool read_begin(std::string_view line, GeneratedBlock& block) {
    line = text::trim(line);
    if (!line.starts_with(k_begin) || !line.ends_with("-->")) return false;
    std::string_view rest = text::trim(line.substr(k_begin.size(), line.size() - k_begin.size() - 3));
    const std::size_t blank = rest.find(' ');
    block.id = rest.substr(0, blank);
    rest = blank == std::string_view::npos ? std::string_view{} : text::trim(rest.substr(blank));
    if (rest.starts_with("sha256=")) block.digest = rest.substr(7);
    return !block.id.empty();
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
    Sha256 hash;
    const auto bits = static_cast<std::uint64_t>(bytes.size()) * 8;
    while (bytes.size() >= 64) {
        hash.block(reinterpret_cast<const unsigned char*>(bytes.data()));
        bytes.remove_prefix(64);
    }
    std::array<unsigned char, 128> tail{};
    std::memcpy(tail.data(), bytes.data(), bytes.size());
    tail[bytes.size()] = 0x80;
    const std::size_t length = bytes.size() < 56 ? 64 : 128;
    for (std::size_t i = 0; i < 8; ++i) tail[length - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
    hash.block(tail.data());
    if (length == 128) hash.block(tail.data() + 64);
    return hash.hex();
}

std::vector<GeneratedBlock> find_blocks(std::string_view text, std::uint32_t first_line) {
    std::vector<GeneratedBlock> blocks;
    if (text.find(k_begin) == std::string_view::npos) return blocks;
    LineCursor cursor(text, first_line);
    BlockTracker tracker;
    Line line;
    const char* body = nullptr;
    while (cursor.next(line)) {
        const bool open = !blocks.empty() && !blocks.back().closed;
        if (open && text::trim(line.text) == k_end) {
            GeneratedBlock& block = blocks.back();
            block.body = std::string_view(body, static_cast<std::size_t>(line.text.data() - body));
            block.whole = std::string_view(
                block.whole.data(), static_cast<std::size_t>(line.text.data() + line.text.size() - block.whole.data()));
            block.closed = true;
            continue;
        }
        // A marker inside fenced code is an example, but the end of an open block counts everywhere.
        const bool fenced = tracker.inside(line.text);
        GeneratedBlock block;
        if (fenced || !read_begin(line.text, block)) continue;
        block.line = line.number;
        block.whole = line.text;
        blocks.push_back(block);
        body = cursor.rest().data();
    }
    return blocks;
}

bool GeneratedBlock::intact() const {
    if (!closed || digest.size() < 12) return false;
    const std::string lower_case = text::to_lower(digest);
    return sha256_hex(std::string_view(body)).starts_with(lower_case) || block_digest(body) == lower_case;
}

std::string block_digest(std::string_view body) {
    if (body.find('\r') == std::string_view::npos) return sha256_hex(body).substr(0, 16);
    std::string plain;
    plain.reserve(body.size());
    LineCursor cursor(body);
    Line line;
    while (cursor.next(line)) {
        plain += line.text;
        if (!cursor.ending().empty()) plain += '\n';
    }
    return sha256_hex(plain).substr(0, 16);
}

}  // namespace gdnctl::runlog
