#include "trace/readers/json_scanner.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/text.h"

namespace gdnctl::trace {

namespace {

__extension__ using WideDigits = unsigned __int128;

constexpr int k_depth_limit = 2000;

constexpr bool is_json_digit(char c) { return c >= '0' && c <= '9'; }
// The characters of numbers and of the literals.
constexpr bool is_token_char(char c) {
    return is_json_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

// The value of four hexadecimal digits; -1: there are none.
int four_hex_digits(std::string_view digits) {
    if (digits.size() < 4) return -1;
    int value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
        const int digit = text::hex_value(digits[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

void append_utf8(std::string& out, std::uint32_t code) {
    const auto byte = [&out](std::uint32_t value) { out += static_cast<char>(value); };
    if (code < 0x80) return byte(code);
    if (code < 0x800) {
        byte(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            byte(0xe0 | code >> 12);
        } else {
            byte(0xf0 | code >> 18);
            byte(0x80 | (code >> 12 & 0x3f));
        }
        byte(0x80 | (code >> 6 & 0x3f));
    }
    byte(0x80 | (code & 0x3f));
}

// Appends the character of the escape at the start of `rest` and returns the escape's length. A surrogate without its
// partner becomes U+FFFD, and an unknown escape the character after the backslash.
std::size_t append_escape(std::string& out, std::string_view rest) {
    if (rest.size() < 2) return rest.size();
    constexpr std::string_view k_letters = "bfnrt";
    constexpr std::string_view k_meanings = "\b\f\n\r\t";
    const std::size_t letter = k_letters.find(rest[1]);
    const int code = rest[1] == 'u' ? four_hex_digits(rest.substr(2)) : -1;
    if (code < 0) {
        out += letter == std::string_view::npos ? rest[1] : k_meanings[letter];
        return 2;
    }
    if (code >= 0xd800 && code < 0xdc00 && rest.substr(6, 2) == "\\u") {
        const int low = four_hex_digits(rest.substr(8));
        if (low >= 0xdc00 && low < 0xe000) {
            append_utf8(out, static_cast<std::uint32_t>(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)));
            return 12;
        }
    }
    append_utf8(out, code >= 0xd800 && code < 0xe000 ? 0xfffd : static_cast<std::uint32_t>(code));
    return 6;
}

}  // namespace

std::string decoded(const JsonText& value) {
    if (!value.is_scalar()) return {};
    std::string_view raw = value.raw();
    std::string out;
    if (!value.escaped) {
        out = raw;
    } else {
        out.reserve(raw.size());
        while (!raw.empty()) {
            const std::size_t plain = std::min(raw.find('\\'), raw.size());
            out += raw.substr(0, plain);
            raw.remove_prefix(plain);
            if (!raw.empty()) raw.remove_prefix(append_escape(out, raw));
        }
    }
    return text::is_valid_utf8(out) ? out : text::repair_utf8(out);
}

bool JsonScanner::skip_space() {
    while (m_at != m_end && is_json_space(*m_at)) ++m_at;
    return m_at != m_end;
}

bool JsonScanner::nested() {
    int depth = 0;
    while (m_at != m_end) {
        const char c = *m_at;
        if (c == '"') {
            JsonText ignored;
            if (!string(ignored)) return false;
            continue;
        }
        if ((c == '{' || c == '[') && ++depth > k_depth_limit) return fail("values are nested over 2,000 deep");
        ++m_at;
        if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
}

bool JsonScanner::token(JsonText& out) {
    while (m_at != m_end && is_token_char(*m_at)) ++m_at;
    if (m_at == m_end) return false;
    out.size = static_cast<std::uint32_t>(m_at - out.data);
    const std::string_view word = out.raw();
    if (!word.empty() && (is_json_digit(word[0]) || word[0] == '-')) {
        out.kind = JsonText::Kind::number;
        return true;
    }
    // Python writes the last two.
    for (const std::string_view known : {"true", "false", "null", "NaN", "Infinity"}) {
        if (word == known) return true;
    }
    return fail_at(out.data, "expected a value");
}

namespace {

constexpr auto k_powers_of_ten = [] {
    std::array<WideDigits, 37> powers{};
    powers[0] = 1;
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
    return powers;
}();

// The digits of a decimal number without its point: value = digits * 10^exponent.
struct DecimalNumber {
    WideDigits digits = 0;
    std::int64_t exponent = 0;
    bool negative = false;
};

// Returns the number of digits taken. Those beyond 36 significant ones only move the exponent: they are far below a ps.
std::size_t take_digits(std::string_view& s, DecimalNumber& number, bool fraction) {
    std::size_t taken = 0;
    for (; taken < s.size() && is_json_digit(s[taken]); ++taken) {
        const bool counts = number.digits < k_powers_of_ten[35];
        if (counts) number.digits = number.digits * 10 + static_cast<unsigned>(s[taken] - '0');
        if (counts && fraction) --number.exponent;
        if (!counts && !fraction) ++number.exponent;
    }
    s.remove_prefix(taken);
    return taken;
}

// JSON's grammar of numbers, but for leading zeros, which do not matter. nullopt: not a finite decimal number.
std::optional<DecimalNumber> parse_decimal_number(std::string_view s) {
    DecimalNumber number;
    number.negative = s.starts_with('-');
    if (number.negative) s.remove_prefix(1);
    if (take_digits(s, number, false) == 0) return std::nullopt;
    if (s.starts_with('.')) {
        s.remove_prefix(1);
        if (take_digits(s, number, true) == 0) return std::nullopt;
    }
    if (s.starts_with('e') || s.starts_with('E')) {
        s.remove_prefix(1);
        const bool negative = s.starts_with('-');
        if (negative || s.starts_with('+')) s.remove_prefix(1);
        if (s.empty()) return std::nullopt;
        std::int64_t exponent = 0;
        for (; !s.empty() && is_json_digit(s[0]); s.remove_prefix(1)) {
            exponent = std::min<std::int64_t>(exponent * 10 + (s[0] - '0'), std::int64_t{1} << 40);
        }
        number.exponent += negative ? -exponent : exponent;
    }
    if (!s.empty()) return std::nullopt;
    return number;
}

// The usual case of parse_microseconds(), in 64 bits: a number without sign and exponent, of at most 18 digits.
// nullopt: it is another.
std::optional<WidePs> parse_plain_microseconds(std::string_view s) {
    if (s.empty() || s.size() > 19 || !is_json_digit(s.front()) || !is_json_digit(s.back())) return std::nullopt;
    std::uint64_t digits = 0;
    std::size_t point = s.size();
    for (std::size_t i = 0; i < s.size(); ++i) {
        if (is_json_digit(s[i])) {
            digits = digits * 10 + static_cast<unsigned>(s[i] - '0');
        } else {
            if (s[i] != '.' || point != s.size()) return std::nullopt;
            point = i;
        }
    }
    if (point == s.size()) {
        if (point > 18) return std::nullopt;
        return WidePs{digits} * k_ps_per_us;
    }
    const std::size_t decimals = s.size() - point - 1;
    if (decimals <= 6) return WidePs{digits} * static_cast<WidePs>(k_powers_of_ten[6 - decimals]);
    const auto divisor = static_cast<std::uint64_t>(k_powers_of_ten[decimals - 6]);
    return WidePs{digits / divisor} + (2 * (digits % divisor) >= divisor ? 1 : 0);
}

}  // namespace

std::optional<WidePs> parse_microseconds(std::string_view s) {
    if (const std::optional<WidePs> plain = parse_plain_microseconds(s)) return plain;
    const std::optional<DecimalNumber> number = parse_decimal_number(s);
    if (!number) return std::nullopt;
    WideDigits ps = number->digits;
    const std::int64_t exponent = number->exponent + 6;
    if (ps == 0) return 0;
    if (exponent >= 0) {
        if (exponent > 30) return std::nullopt;
        const WideDigits factor = k_powers_of_ten[static_cast<std::size_t>(exponent)];
        if (ps >= k_powers_of_ten[30] / factor) return std::nullopt;
        ps *= factor;
    } else if (exponent < -36) {
        ps = 0;  // fewer than 37 digits: below half a ps
    } else {
        const WideDigits divisor = k_powers_of_ten[static_cast<std::size_t>(-exponent)];
        const WideDigits rest = ps % divisor;
        ps /= divisor;
        if (2 * rest >= divisor) ++ps;
    }
    if (ps >= k_powers_of_ten[30]) return std::nullopt;
    return number->negative ? -static_cast<WidePs>(ps) : static_cast<WidePs>(ps);
}

}  // namespace gdnctl::trace
