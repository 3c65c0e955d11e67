// Messages for network failures. Pure.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace gdnctl::http {

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
