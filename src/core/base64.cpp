#include "core/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace gdnctl {

namespace {

constexpr std::string_view k_base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t k_no_digit = 64;

constexpr std::array<std::uint8_t, 256> k_base64_values = [] {
    std::array<std::uint8_t, 256> values{};
    for (std::uint8_t& value : values) value = k_no_digit;
    for (std::size_t i = 0; i < k_base64_digits.size(); ++i) {
        values[static_cast<unsigned char>(k_base64_digits[i])] = static_cast<std::uint8_t>(i);
    }
    return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
    constexpr std::uint32_t k_six_bits = 63;
    std::string text;
    text.resize((bytes.size() + 2) / 3 * 4, '=');
    std::size_t out = 0;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
        std::uint32_t group = 0;
        for (std::size_t k = 0; k < 3; ++k) {
            group = group << 8U | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0U);
        }
        for (std::size_t k = 0; k <= n; ++k) text[out + k] = k_base64_digits[group >> (18 - 6 * k) & k_six_bits];
        out += 4;
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    std::size_t padding = 0;
    while (padding < 2 && text.ends_with('=')) {
        text.remove_suffix(1);
        ++padding;
    }
    std::string bytes;
    bytes.reserve(text.size() / 4 * 3 + 2);
    std::uint32_t group = 0;
    unsigned bits = 0;
    for (const char c : text) {
        const std::uint8_t value = k_base64_values[static_cast<unsigned char>(c)];
        if (value == k_no_digit) return std::nullopt;
        group = group << 6U | value;
        bits += 6;
        if (bits < 8) continue;
        bits -= 8;
        bytes += static_cast<char>(group >> bits & 0xFFU);
    }
    return bytes;
}

}  // namespace gdnctl
