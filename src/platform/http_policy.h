// The parts of HTTP that need no network: Retry-After, redirects, delays, valid names. All pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "platform/http.h"

namespace gdnctl::http {

// Retry-After (RFC 9110 section 10.2.3): seconds, or one of the three HTTP date forms; a date in the past is zero.
// nullopt: neither. The result is capped at one day.
std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, WallTime now);

// How long to wait after attempt number `attempt` (1 = the first): the policy's exponential delay, or what the server
// asked for if that is longer.
std::chrono::milliseconds retry_delay(const HttpRetry& policy, int attempt,
                                      std::optional<std::chrono::milliseconds> asked);

struct Origin {
    std::string scheme;
    std::string host;
    std::string port;
    bool operator==(const Origin&) const = default;
};

bool is_redirect(int status);
// The method of the request after a redirect (RFC 9110 section 15.4): 303 turns everything but HEAD into GET, 301 and
// 302 turn POST into GET, 307 and 308 keep it.
std::string redirected_method(int status, std::string_view method);

// Header names that carry credentials; never sent to an origin other than the first.
bool is_credential_header(std::string_view name);

// "GET", "PUT": letters only. Anything else could smuggle a second request into the connection.
bool is_valid_method(std::string_view method);
bool is_valid_header(std::string_view name, std::string_view value);

// Messages for network failures. Pure.

enum class Phase { resolving, connecting, tls, sending, waiting, receiving };

std::string_view phase_name(Phase phase);  // "waiting for the answer"

// The request as messages name it: method, host and path. Without the query, which may hold a signature.
struct Subject {
    std::string method;
    std::string place;  // scheme://host[:port]/path
    std::string host;   // host[:port]
};

enum class Trouble {
    cut,        // refused, reset, closed early
    timed_out,  // no progress for too long
    bad_peer,   // certificate not trusted
    not_http,   // the answer is not valid HTTP
    other,
};

// "GET http://h/p: connecting to h failed: Connection refused" with a hint for that phase; redacted.
Error transport_error(const Subject& subject, Phase phase, Trouble trouble, std::string_view reason);

}  // namespace gdnctl::http
