#include "runlog/parse/block.h"

#include "core/sha256.h"
#include "core/text.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

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
    hash.update(bytes);
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
