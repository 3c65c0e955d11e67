// What the Jobs API answers, as values. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "platform/http.h"

namespace gdnctl::ray {

// GET /api/version.
struct ServerVersion {
    std::string ray_version;  // "2.60.0"; empty: not said
    std::string session;      // changes when the head is restarted
    int major = 0, minor = 0;
    bool at_least(int wanted_major, int wanted_minor) const {
        return major != wanted_major ? major > wanted_major : minor >= wanted_minor;
    }
};
// Error: infrastructure (no dashboard answers like this).
Result<ServerVersion> parse_version(std::string_view body);

// For one segment of a path.
std::string percent_escape(std::string_view segment);

// {"stopped": true} and its like. Error: infrastructure.
Result<bool> parse_flag(std::string_view body, const char* key);

// Whether the same request may well be served a moment later.
bool is_passing(std::string_view method, int status, std::string_view body);
// The server says that a job of this id is there already.
bool says_already_exists(const HttpResponse& answer);
// The server takes no body of this size.
bool says_too_large(const HttpResponse& answer);

// What the server complains about, on one line: the last line of a traceback, the title of a page; at most 300 bytes.
std::string gist(std::string_view body);

// The error for an answer that is none of the expected. `what` is the request for people ("GET /api/jobs/x").
// 400, 405, 413: usage; 401, 403: authentication, with `token_hint`; 404 for a job: remote_missing; others:
// infrastructure.
Error refusal(std::string_view what, const HttpResponse& answer, const std::string& token_hint);

// Splits a JSON array that comes in pieces into the texts of its objects. What is between them is not looked at.
class ArraySplitter {
public:
    using Item = std::function<void(std::string_view)>;
    // An object larger than this is left out.
    static constexpr std::size_t k_item_limit = std::size_t{8} << 20;

    explicit ArraySplitter(Item item) : m_item(std::move(item)) {}
    void feed(std::string_view piece);
    // The array has come to its end.
    bool complete() const { return m_complete; }

private:
    void end_item();

    Item m_item;
    std::string m_text;
    std::size_t m_depth = 0;  // 1: in the array
    bool m_in_string = false, m_escaped = false, m_dropped = false, m_complete = false;
};

// Shortens the strings of a JSON text that comes in pieces to 1 MiB: a job's message may hold a traceback of any
// length.
class StringCutter {
public:
    // What is left of `piece`, valid until the next call.
    const std::string& feed(std::string_view piece);

private:
    void in_string(char c);

    std::string m_left;
    std::size_t m_length = 0;  // of this string so far
    bool m_in_string = false, m_dropping = false;
    int m_escape = 0;          // of \\uXXXX: characters so far
    std::uint32_t m_unit = 0;  // XXXX
    bool m_high = false;       // the first half of a surrogate pair was last
};

}  // namespace gdnctl::ray
