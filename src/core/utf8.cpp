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

}  // namespace

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
