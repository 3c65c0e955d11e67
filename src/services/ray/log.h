// The log of a Ray job, as it grows: from the node's agent, from the dashboard, or whole, and the last lines of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "services/ray/client.h"

namespace gdnctl::ray {

class LastLines {
public:
    // Keeps the last `lines` lines, about `bytes` in total at most.
    LastLines(std::size_t lines, std::size_t bytes) : m_lines(lines), m_bytes(bytes) {}

    void feed(std::string_view piece);
    // The lines kept; a last one without newline counts.
    std::string take();

private:
    std::size_t m_lines, m_bytes;
    std::deque<std::string> m_held;  // the last one may still grow
    std::size_t m_held_bytes = 0;
};

// Finds where to continue a partly read log in a later look at its end. Pure.

// How much of the output is kept to find its end again.
inline constexpr std::size_t k_window = std::size_t{64} << 10;

enum class Joint { found, absent, ambiguous };

// Searches `text` for `window`. If it occurs exactly once, `next` is the byte after it. Linear in both.
Joint find_joint(std::string_view window, std::string_view text, std::size_t& next);

// Counts lines as servers do: a last one without newline counts.
std::size_t count_lines(std::string_view text);

// Whether `piece` (the first bytes of a look at the end of a log) begins with one of the first lines of `head` (the
// first bytes of the log itself).
bool begins_in(std::string_view head, std::string_view piece);

// How much of a log was passed on, and its last bytes.
class LogPosition {
public:
    void advance(std::string_view bytes);
    // Continues here without having seen what is before.
    void jump(std::uint64_t bytes) {
        m_bytes = bytes;
        m_knows_start = false;
    }

    std::uint64_t bytes() const { return m_bytes; }
    // The same, counting a two-byte line end as one byte.
    std::uint64_t folded_bytes() const { return m_bytes - m_pairs; }
    const std::string& window() const { return m_window; }
    // Whether the log was passed on from its start; if so, its first bytes, and its number of lines once `fresh` is
    // appended.
    bool knows_start() const { return m_knows_start; }
    const std::string& head() const { return m_head; }
    std::uint64_t lines_with(std::string_view fresh) const;

private:
    std::uint64_t m_bytes = 0;
    std::uint64_t m_pairs = 0;  // "\r\n"
    std::uint64_t m_newlines = 0;
    bool m_knows_start = true;
    std::string m_window;
    std::string m_head;  // at most k_window bytes
};

// Decodes the text in {"logs": "..."} as it arrives.
class LogsField {
public:
    using Out = std::function<bool(std::string_view)>;  // false: stop
    explicit LogsField(Out out) : m_out(std::move(out)) {}

    // False: the reader wants no more, or this is not such an object.
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
    std::string m_head;        // up to the quote that starts the text
    std::string m_decoded;     // from this piece
    std::uint32_t m_unit = 0;  // of \uXXXX
    int m_digits = 0;
    std::uint32_t m_high = 0;  // first half of a surrogate pair
};

// A log served as a file with byte ranges.

// "bytes 100-289/290", "bytes */290".
struct ContentRange {
    std::optional<std::uint64_t> first;  // nullopt: nothing of the file in the range
    std::uint64_t size = 0;              // of the whole file
};
std::optional<ContentRange> parse_content_range(std::string_view value);

class AgentFile {
public:
    using Out = std::function<bool(std::string_view)>;  // false: stop

    AgentFile(Client& client, std::string url) : m_client(client), m_url(std::move(url)) {}

    // Passes on the bytes from `offset`, in pieces. Errors: infrastructure (no such file, no support for ranges).
    Status read_from(std::uint64_t offset, const Out& out);
    // Where the last `lines` lines of the current file begin. Memory use does not depend on their length.
    Result<std::uint64_t> tail_offset(std::size_t lines);

private:
    struct Piece {
        std::uint64_t first = 0, size = 0;
        std::string bytes;
    };
    // nullopt: the file ends before the range.
    Result<std::optional<Piece>> get(const std::string& range);

    Client& m_client;
    std::string m_url;
};

// Reads a job's log in the best way that works.

// Tries three ways in order:
//  1. the file from the agent of the job's node, by byte ranges;
//  2. its last lines through the dashboard, in which it searches for the end of the previous output;
//  3. all of it as JSON.
// It never uses the dashboard's stream, which never forgets a reader and in the end serves none.
// The job's state comes from `dashboard`, where a caller that follows a job updates it now and then.
std::unique_ptr<JobLog> make_log_reader(std::shared_ptr<Dashboard> dashboard, std::string id, const LogStart& start);

}  // namespace gdnctl::ray
