#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl::text {

namespace {

struct Step {
    std::size_t length;  // bytes to advance, at least 1
    bool valid;
};

// Reads one code point at the start of `s` (not empty). An invalid prefix covers the bytes that could still have begun
// a well-formed sequence (Unicode 15, table 3-7), so each maximal ill-formed part counts once.
Step next(std::string_view s) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
    const unsigned lead = byte(0);
    if (lead < 0x80) return {1, true};
    std::size_t want = 0;
    unsigned low = 0x80, high = 0xBF;  // allowed range of the second byte
    if (lead >= 0xC2 && lead <= 0xDF) {
        want = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        want = 3;
        if (lead == 0xE0) low = 0xA0;   // overlong
        if (lead == 0xED) high = 0x9F;  // surrogates
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        want = 4;
        if (lead == 0xF0) low = 0x90;   // overlong
        if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
    } else {
        return {1, false};
    }
    for (std::size_t i = 1; i < want; ++i) {
        if (i >= s.size() || byte(i) < low || byte(i) > high) return {i, false};
        low = 0x80;
        high = 0xBF;
    }
    return {want, true};
}

char32_t decoded(std::string_view point) {
    constexpr std::array<unsigned char, 4> k_lead_bits = {0x7F, 0x1F, 0x0F, 0x07};
    char32_t value = static_cast<unsigned char>(point[0]) & k_lead_bits[point.size() - 1];
    for (const char c : point.substr(1)) value = (value << 6U) | (static_cast<unsigned char>(c) & 0x3FU);
    return value;
}

struct Range {
    char32_t first, last;
};
// Characters that show nothing or change the order of others. U+200C and U+200D are not among them: scripts and emoji
// need them.
constexpr std::array k_unseen = {Range{0x7F, 0x9F},         // DEL and C1
                                 Range{0xAD, 0xAD},         // soft hyphen
                                 Range{0x61C, 0x61C},       // Arabic letter mark
                                 Range{0x115F, 0x1160},     // Hangul fillers
                                 Range{0x180E, 0x180E},     // Mongolian vowel separator
                                 Range{0x200B, 0x200B},     // zero-width space
                                 Range{0x200E, 0x200F},     // direction marks
                                 Range{0x2028, 0x202E},     // line separators, bidirectional embeddings and overrides
                                 Range{0x2060, 0x206F},     // word joiner, bidirectional isolates
                                 Range{0x3164, 0x3164},     // Hangul filler
                                 Range{0xFEFF, 0xFEFF},     // byte order mark
                                 Range{0xFFA0, 0xFFA0},     // Hangul filler
                                 Range{0xFFF9, 0xFFFB},     // annotations
                                 Range{0xE0000, 0xE0FFF}};  // tags, variation selectors

bool is_unseen(char32_t c) {
    if (c < 0x7F) return c < 0x20 && c != '\n' && c != '\t';
    return std::any_of(k_unseen.begin(), k_unseen.end(),
                       [c](const Range& range) { return c >= range.first && c <= range.last; });
}

std::string escaped(char32_t c) {
    const auto number = static_cast<std::uint32_t>(c);
    return c < 0x100 ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);
}

}  // namespace

std::string_view find_unseen(std::string_view s) {
    for (std::size_t at = 0; at < s.size();) {
        const auto byte = static_cast<unsigned char>(s[at]);
        if (byte >= 0x20 && byte < 0x7F) {
            ++at;
            continue;
        }
        const Step step = next(s.substr(at));
        const std::string_view point = s.substr(at, step.length);
        if (step.valid && is_unseen(decoded(point))) return point;
        at += step.length;
    }
    return {};
}

std::string replace_unseen(std::string_view s, std::string (*escape)(char32_t)) {
    std::string out;
    out.reserve(s.size());
    for (;;) {
        const std::string_view found = find_unseen(s);
        if (found.empty()) return out.append(s);
        const auto at = static_cast<std::size_t>(found.data() - s.data());
        out += s.substr(0, at);
        out += escape(decoded(found));
        s.remove_prefix(at + found.size());
    }
}

std::string visible(std::string_view s) { return replace_unseen(repair_utf8(s), escaped); }

bool is_valid_utf8(std::string_view s) {
    while (!s.empty()) {
        const Step step = next(s);
        if (!step.valid) return false;
        s.remove_prefix(step.length);
    }
    return true;
}

std::string repair_utf8(std::string_view s) {
    std::string repaired;
    repaired.reserve(s.size());
    while (!s.empty()) {
        const Step step = next(s);
        if (step.valid) {
            repaired += s.substr(0, step.length);
        } else {
            repaired += "\xEF\xBF\xBD";
        }
        s.remove_prefix(step.length);
    }
    return repaired;
}

}  // namespace gdnctl::text
