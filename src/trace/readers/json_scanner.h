// JSON from contiguous bytes, without a tree: the readers of Chrome traces see every value where it lies.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gdnctl::trace {

constexpr bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// A value as the file spells it. A string is without its quotes.
struct JsonText {
    enum class Kind : std::uint8_t { missing, string, number, other };

    const char* data = nullptr;
    std::uint32_t size = 0;
    Kind kind = Kind::missing;
    bool escaped = false;

    std::string_view raw() const { return {data, size}; }
    bool is_scalar() const { return kind == Kind::string || kind == Kind::number; }
    bool has_text() const { return is_scalar() && size > 0; }
};

// The characters that a string or number stands for, as valid UTF-8: a surrogate without its partner becomes U+FFFD,
// and so do invalid bytes. Empty for other values.
std::string decoded(const JsonText& value);

__extension__ using WidePs = __int128;  // ps, as kineto's epoch values need more than 64 bits

constexpr WidePs k_ps_per_us = 1'000'000;

// Microseconds as decimal text, in ps, rounded to the nearest (halves away from zero). Never through a double, which
// could not hold kineto's times to the ps. nullopt: not a finite number, or of 10^30 ps and more.
std::optional<WidePs> parse_microseconds(std::string_view s);

// The first quote or backslash in [at, end), or `end`.
inline const char* find_string_end(const char* at, const char* end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"');
    const __m128i backslash = _mm_set1_epi8('\\');
    for (; end - at >= 32; at += 32) {
        unsigned hits = 0;  // a bit a byte
        for (int half = 0; half < 2; ++half) {
            const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + half);
            const __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
            hits |= static_cast<unsigned>(_mm_movemask_epi8(found)) << (16 * half);
        }
        if (hits != 0) return at + std::countr_zero(hits);
    }
#endif
    while (at != end && *at != '"' && *at != '\\') ++at;
    return at;
}

// Reads JSON from contiguous bytes. Every function returns false either with a problem(), at `position()`, or without
// one if the bytes end too early; then the element is to be read again from its start once there are more.
class JsonScanner {
public:
    explicit JsonScanner(std::string_view text) : m_start(text.data()), m_at(m_start), m_end(m_start + text.size()) {}

    const char* problem() const { return m_problem; }
    std::size_t position() const { return static_cast<std::size_t>(m_at - m_start); }
    std::string_view rest() const { return {m_at, static_cast<std::size_t>(m_end - m_at)}; }
    char peek() const { return *m_at; }  // needs a character: after space()
    void skip(std::size_t count) { m_at += count; }

    bool fail(const char* problem) {
        m_problem = problem;
        return false;
    }
    // `place` is in the text, or nullptr for the present position.
    bool fail_at(const char* place, const char* problem) {
        if (place != nullptr) m_at = place;
        return fail(problem);
    }

    // Skips white space. False: nothing else is left.
    bool space() { return (m_at != m_end && static_cast<unsigned char>(*m_at) > ' ') || skip_space(); }

    // At a quote.
    bool string(JsonText& out) {
        const char* const first = ++m_at;
        bool escaped = false;
        for (;;) {
            m_at = find_string_end(m_at, m_end);
            if (m_at == m_end) return false;
            if (*m_at == '"') break;
            escaped = true;
            if (m_end - m_at < 2) return false;
            m_at += 2;
        }
        out = {first, static_cast<std::uint32_t>(m_at - first), JsonText::Kind::string, escaped};
        ++m_at;
        return true;
    }

    // Any value, at its first character. What arrays and objects hold is skipped.
    bool value(JsonText& out) {
        if (*m_at == '"') return string(out);
        out = {m_at, 0, JsonText::Kind::other, false};
        return *m_at == '{' || *m_at == '[' ? nested() : token(out);
    }

    // At "{". Calls `on_member(key)` at the start of each value; it has to read the value and return whether that went
    // well.
    template <class OnMember>
    bool object(OnMember&& on_member) {
        ++m_at;
        if (!space()) return false;
        if (*m_at == '}') {
            ++m_at;
            return true;
        }
        for (;;) {
            JsonText key;
            if (!member_key(key)) return false;
            // Escapes in a key are legal, and nobody writes them.
            const std::string plain = key.escaped ? decoded(key) : std::string();
            if (!on_member(key.escaped ? std::string_view(plain) : key.raw())) return false;
            if (!space()) return false;
            const char next = *m_at;
            if (next != ',' && next != '}') return fail("expected ',' or '}'");
            ++m_at;
            if (next == '}') return true;
            if (!space()) return false;
        }
    }

    // At a key: reads it and the colon, up to the value.
    bool member_key(JsonText& key) {
        if (*m_at != '"') return fail("expected a key in double quotes");
        if (!string(key) || !space()) return false;
        if (*m_at != ':') return fail("expected ':' after a key");
        ++m_at;
        return space();
    }

    // At "[". Calls `on_item()` at the start of each item, as object() does.
    template <class OnItem>
    bool array(OnItem&& on_item) {
        ++m_at;
        if (!space()) return false;
        if (*m_at == ']') {
            ++m_at;
            return true;
        }
        for (;;) {
            if (!on_item() || !space()) return false;
            const char next = *m_at;
            if (next != ',' && next != ']') return fail("expected ',' or ']'");
            ++m_at;
            if (next == ']') return true;
            if (!space()) return false;
        }
    }

private:
    bool skip_space();
    bool nested();
    bool token(JsonText& out);

    const char* m_start;
    const char* m_at;
    const char* m_end;
    const char* m_problem = nullptr;
};

}  // namespace gdnctl::trace
