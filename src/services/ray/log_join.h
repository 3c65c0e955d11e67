// Where a log that was read up to some byte goes on in a later look at its end. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace gdnctl::ray {

// How much of what was handed over is kept to find its end again.
inline constexpr std::size_t k_window = std::size_t{64} << 10;

enum class Joint { found, absent, ambiguous };

// Looks for `window` in `text`. Found once: `next` is the byte after it. Linear in both.
Joint find_joint(std::string_view window, std::string_view text, std::size_t& next);

// Lines as servers count them: a last one without newline is a line.
std::size_t count_lines(std::string_view text);

// Whether `piece`, the bytes with which a look at the end of a log begins, begins with one of the first lines of
// `head`, the bytes with which the log itself begins.
bool begins_in(std::string_view head, std::string_view piece);

// How far a log was handed over, and its last bytes.
class LogPosition {
public:
    void advance(std::string_view bytes);
    // From here on, without having seen what is before.
    void jump(std::uint64_t bytes) {
        m_bytes = bytes;
        m_knows_start = false;
    }

    std::uint64_t bytes() const { return m_bytes; }
    // The same where a line end of two bytes is read as one.
    std::uint64_t folded_bytes() const { return m_bytes - m_pairs; }
    const std::string& window() const { return m_window; }
    // Whether all of it was handed over; if so: its first bytes, and its lines once `fresh` comes after it.
    bool knows_start() const { return m_knows_start; }
    const std::string& head() const { return m_head; }
    std::uint64_t lines_with(std::string_view fresh) const;

private:
    std::uint64_t m_bytes = 0;
    std::uint64_t m_pairs = 0;  // "\r\n"
    std::uint64_t m_newlines = 0;
    bool m_knows_start = true;
    std::string m_window;
    std::string m_head;  // k_window bytes at most
};

// The text in {"logs": "..."}, decoded as it comes.
class LogsField {
public:
    using Out = std::function<bool(std::string_view)>;  // false: enough
    explicit LogsField(Out out) : m_out(std::move(out)) {}

    // False: no more is wanted, or this is no such object.
    bool feed(std::string_view piece);
    bool complete() const { return m_state == State::end; }
    bool malformed() const { return m_state == State::bad; }

private:
    enum class State { head, text, escape, hex, end, bad };
    void step(char c);
    void code_unit();
    void code_unit_alone();
    void put(std::uint32_t code_point);

    Out m_out;
    State m_state = State::head;
    std::string m_head;        // up to the quote that begins the text
    std::string m_decoded;     // of this piece
    std::uint32_t m_unit = 0;  // of \uXXXX
    int m_digits = 0;
    std::uint32_t m_high = 0;  // first half of a surrogate pair
};

}  // namespace gdnctl::ray
