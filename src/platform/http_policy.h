// What holds for every service that is asked over HTTP: when a request is sent again and how long that waits, which
// redirect is followed and whether the token goes along, and what may be shown. A service gives its own numbers as data
// (RetryPolicy, ServiceEndpoint). All pure.
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

// How long the server asks to wait: `RateLimit: "api";r=0;t=55` (55 s plus one, only if nothing remains), else
// Retry-After. nullopt: not given.
std::optional<std::chrono::milliseconds> asked_wait(const HttpHeaders& headers, WallTime now);
// `RateLimit-Policy: "fixed window";"api";q=500;w=300` as "500 requests in 300 s"; empty: not given.
std::string shown_limit(const HttpHeaders& headers);

// Whether an answer with this status and body may be another one in a moment.
bool is_worth_retrying(const RetryPolicy& policy, std::string_view method, int status, std::string_view body = {});

// How long to wait after attempt number `attempt` (1 = the first), or what the server asked for if that is longer.
// `random`: 0..1.
std::chrono::milliseconds retry_delay(const RetryPolicy& policy, int attempt,
                                      std::optional<std::chrono::milliseconds> asked = {}, double random = 1);

struct NextAttempt {
    enum class Verdict { wait, no_attempts_left, no_time_left };
    Verdict verdict = Verdict::wait;
    std::chrono::milliseconds delay{0};
};
// Whether there is an attempt after number `attempt`, which failed `elapsed` after the first, and when.
NextAttempt next_attempt(const RetryPolicy& policy, int attempt, std::chrono::milliseconds elapsed,
                         std::optional<std::chrono::milliseconds> asked = {}, double random = 1);

struct Url {
    std::string scheme;  // "http" or "https"
    std::string host;    // lower case, including the brackets of IPv6
    int port = 0;        // the scheme's default if none is given
    std::string path;    // with the leading slash; "/" if there is none
    std::string query;   // with the leading "?"; without the fragment

    std::string host_name() const { return host.starts_with('[') ? host.substr(1, host.size() - 2) : host; }
    std::string origin() const;  // scheme://host[:port], without the scheme's default port
    std::string text() const { return origin() + path + query; }
    std::string place() const { return origin() + path; }  // safe to show
    bool same_origin(const Url& other) const {
        return scheme == other.scheme && host == other.host && port == other.port;
    }
};

// nullopt: not absolute, another scheme, a user name, control characters or blanks, an invalid port.
std::optional<Url> parse_url(std::string_view text);
// localhost, 127.0.0.0/8 with all four numbers, ::1.
bool is_loopback(std::string_view host);
// Whether nobody on the way can read what is sent there, so that a token may be.
bool is_confidential(const Url& url);

// Removes the query from every http(s) address in `text`, since it may contain a signature.
std::string without_queries(std::string_view text);
// Text from a server, for people: control characters as "\x1b", tokens masked, signatures removed from URLs.
std::string shown(std::string_view text);

// A service, and the token for it.
struct ServiceEndpoint {
    Url endpoint;
    std::vector<std::string> aliases;  // hosts by which the service may refer to itself; behind a mirror they stand for
                                       // the endpoint
    std::string authorization;         // value of the header; empty: none
    HttpHeaders headers;               // of every request
    bool log_requests = false;         // HF_DEBUG
};

// One address of a chain of redirects.
struct RedirectStep {
    Url url;
    bool with_token = false;
    int redirects = 0;
    std::vector<std::string> seen;
};

// The token goes only to the endpoint's own scheme, host and port.
RedirectStep first_step(const ServiceEndpoint& service, Url url);
// Once a chain has left the endpoint, the token stays off, even if it comes back. Errors: infrastructure (rejected:
// https to http, another scheme, a loop, more than ten).
Result<RedirectStep> next_step(const ServiceEndpoint& service, const RedirectStep& from, const std::string& location);

bool is_redirect(int status);

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

enum class TransportError {
    cut,        // refused, reset, closed early
    timed_out,  // no progress for too long
    bad_peer,   // certificate not trusted
    not_http,   // the answer is not valid HTTP
    other,
};

// "GET http://h/p: connecting to h failed: Connection refused" with a hint for that phase; redacted.
Error transport_error(const Subject& subject, Phase phase, TransportError cause, std::string_view reason);

}  // namespace gdnctl::http
