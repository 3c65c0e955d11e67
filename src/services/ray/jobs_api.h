// Answers of the Jobs API as values. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl::ray {

// GET /api/version.
struct ServerVersion {
    std::string ray_version;  // "2.60.0"; empty: unknown
    std::string session;      // changes when the head is restarted
    int major = 0, minor = 0;
    bool at_least(int wanted_major, int wanted_minor) const {
        return major != wanted_major ? major > wanted_major : minor >= wanted_minor;
    }
};
// Error: infrastructure (not the answer of a dashboard).
Result<ServerVersion> parse_version(std::string_view body);

// {"stopped": true} and the like. Error: infrastructure.
Result<bool> parse_flag(std::string_view body, const char* key);

// What may pass: the dashboard is restarting, or a request was refused for a moment.
const RetryPolicy& retry_policy();
// Whether the server says that a job with this id already exists.
bool says_already_exists(const HttpResponse& answer);
// Whether the server rejects the size of the body.
bool says_too_large(const HttpResponse& answer);

// The error for an unexpected answer. `what` is the request for people ("GET /api/jobs/x"). 400, 405, 413: usage; 401,
// 403: authentication, with `token_hint`; 404 for a job: remote_missing; others: infrastructure.
Error refusal(std::string_view what, const HttpResponse& answer, const std::string& token_hint);

// Splits a JSON array that arrives in pieces into the texts of its objects. Ignores everything between them.
class ArraySplitter {
public:
    using Item = std::function<void(std::string_view)>;
    // Larger objects are skipped.
    static constexpr std::size_t k_item_limit = std::size_t{8} << 20;

    explicit ArraySplitter(Item item) : m_item(std::move(item)) {}
    void feed(std::string_view piece);
    // The array has ended.
    bool complete() const { return m_complete; }

private:
    void end_item();

    Item m_item;
    std::string m_text;
    std::size_t m_depth = 0;  // 1: in the array
    bool m_in_string = false, m_escaped = false, m_dropped = false, m_complete = false;
};

// Shortens the strings of a JSON text that arrives in pieces to 1 MiB, since a job's message may contain a traceback of
// any length.
class StringCutter {
public:
    // The rest of `piece` after cutting, valid until the next call.
    const std::string& feed(std::string_view piece);

private:
    void in_string(char c);

    std::string m_left;
    std::size_t m_length = 0;  // of the current string so far
    bool m_in_string = false, m_dropping = false;
    int m_escape = 0;          // of \\uXXXX: characters so far
    std::uint32_t m_unit = 0;  // XXXX
    bool m_high = false;       // the last unit was the first half of a surrogate pair
};

// Builds the body of POST /api/jobs/. Pure.

// The body of the request, without keys that a server of this version does not know (one unknown key is fatal).
// `package_uri` is the uploaded working tree; empty: none. Errors: usage (not supported by this server or by a node's
// environment).
Result<std::string> submission_body(const JobRequest& request, const std::string& package_uri,
                                    const ServerVersion& server);

// Nodes expand `$` in the values of environment variables, in the order of their names. To pass values byte for byte,
// `$` is replaced by a reference to a variable that holds it and sorts before all that need it. Errors: usage (a value
// that cannot be passed; names the variable, never its value).
Result<std::map<std::string, std::string>> escape_environment(const std::vector<JobEnv>& env);

}  // namespace gdnctl::ray
