// Generated parts of a running log: text between markers, protected by a digest.
//
//   <!-- gdnctl:begin <record id> sha256=<hex> -->
//   ...
//   <!-- gdnctl:end -->
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gdnctl::runlog {

struct GeneratedBlock {
    std::string_view id;
    std::string_view digest;  // as written, hex
    std::string_view body;    // between the marker lines, final newline included
    std::string_view whole;   // begin line to end line, without the end line's newline
    std::uint32_t line = 0;   // of the begin marker
    bool closed = false;      // the end marker was found
    bool intact() const;      // whether the digest is block_digest(body)
};

std::vector<GeneratedBlock> find_blocks(std::string_view text, std::uint32_t first_line = 1);

// First 16 hex digits of the SHA-256 of the text with all line endings as \n, so that a checkout
// with other line endings does not invalidate the block.
std::string block_digest(std::string_view body);

// Lower-case hex SHA-256. Pure and self-contained, so that the linter need not open a crypto library.
std::string sha256_hex(std::string_view bytes);

}  // namespace gdnctl::runlog
