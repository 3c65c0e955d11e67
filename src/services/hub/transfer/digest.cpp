#include "services/hub/transfer/digest.h"

#include <algorithm>

#include <fmt/format.h>

namespace gdnctl::hub {

namespace {

constexpr std::string_view k_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

bool is_hex(std::string_view text, std::size_t digits) {
    return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

Result<Digester> Digester::create(Digest::Kind kind, std::int64_t size) {
    Digester digester;
    if (kind == Digest::Kind::none) return digester;
    const HashKind hash = kind == Digest::Kind::sha256     ? HashKind::sha256
                          : kind == Digest::Kind::git_sha1 ? HashKind::sha1
                                                           : HashKind::md5;
    GDNCTL_TRY_ASSIGN(digester.m_hasher, Hasher::create(hash));
    if (kind == Digest::Kind::git_sha1) {
        const std::string head = fmt::format("blob {}", size);
        GDNCTL_TRY(digester.m_hasher->update(std::string_view(head.c_str(), head.size() + 1)));  // including its NUL
    }
    return digester;
}

Status Digester::update(std::string_view bytes) { return m_hasher ? m_hasher->update(bytes) : Status(); }

Result<std::string> Digester::hex() { return m_hasher ? m_hasher->hex() : Result<std::string>(std::string()); }

std::string hex_of_base64(std::string_view text) {
    std::string hex;
    unsigned bits = 0;
    int held = 0;
    for (const char c : text.substr(0, text.find('='))) {
        const std::size_t value = k_digits.find(c);
        if (value == std::string_view::npos) return {};
        bits = (bits << 6U) | static_cast<unsigned>(value);
        for (held += 6; held >= 8; held -= 8)
            hex += fmt::format("{:02x}", (bits >> static_cast<unsigned>(held - 8)) & 0xFFU);
        bits &= (1U << static_cast<unsigned>(held)) - 1;
    }
    return hex;
}

std::string base64_of_hex(std::string_view hex) {
    std::string bits;
    for (const char c : hex) bits += fmt::format("{:04b}", c <= '9' ? c - '0' : c - 'a' + 10);
    std::string text;
    for (std::size_t i = 0; i < bits.size(); i += 6) {
        std::string group = bits.substr(i, 6);
        group.resize(6, '0');
        std::size_t value = 0;
        for (const char bit : group) value = value * 2 + (bit == '1' ? 1 : 0);
        text += k_digits[value];
    }
    while (text.size() % 4 != 0) text += '=';
    return text;
}

}  // namespace gdnctl::hub
