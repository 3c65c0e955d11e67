// HTTP as values. Only platform/http_curl*.cpp know libcurl, which is opened on the first request.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl {

// When a request is sent again. Each service is one value of this type; http::next_attempt() decides by it.
struct RetryPolicy {
    int attempts = 1;  // of one request, the first included; 0: no limit
    // Delays: first_delay × factor^n, at most max_delay, of which a random part is waited. What the server asks for is
    // the least.
    std::chrono::milliseconds first_delay{500};
    double factor = 1.5;
    std::chrono::milliseconds max_delay{5000};
    double least_part = 1, random_part = 0;            // the wait is delay × (least_part + random × random_part)
    std::chrono::milliseconds total{30000};            // no attempt starts later than this after the first
    std::vector<int> statuses = {429, 502, 503, 504};  // answers that may be others in a moment
    // So may be an answer with status 500 whose body contains one of these.
    std::vector<std::string_view> words_of_500 = {};
    std::vector<std::string_view> words_of_500_to_get = {};  // only if the request was a GET
};

struct HttpRequest {
    std::string method = "GET";
    std::string url;  // http or https
    std::vector<std::pair<std::string, std::string>> headers;
    // Sent like the others, but never in an error or a log.
    std::vector<std::pair<std::string, std::string>> secret_headers;
    std::string body;
    std::filesystem::path body_file;  // streamed; wins over body
    // At most one of these receives the body of a 2xx answer, as it is on the wire. Without either, it goes to
    // HttpResponse::body, with content encodings undone. The body of any other answer goes to HttpResponse::body, cut
    // at 64 KiB.
    std::filesystem::path to_file;                   // written as it arrives (not atomic; the caller renames)
    std::function<bool(std::string_view)> on_chunk;  // false: stop reading; the answer counts as complete
    std::size_t body_limit = 8u << 20;               // for HttpResponse::body; a longer one is bad_input
    bool decoded = false;                            // HttpPool only: offers compression, and undoes it
    std::chrono::milliseconds connect_timeout{5000};
    std::chrono::milliseconds first_byte_timeout{15000};  // from the end of the request to the first byte
    std::chrono::milliseconds total_timeout{0};           // 0: none
    std::int64_t low_speed_bytes_per_s = 1;               // a slower rate over low_speed_time is a stall; 0: no limit
    std::chrono::seconds low_speed_time{30};
    RetryPolicy retry;
    std::stop_token stop;
};

// Whether a request failed with this error because nothing listened at its address.
bool is_connection_refused(const Error& error);
// Whether the error means that the other side is unreachable, perhaps for a moment only.
bool is_out_of_reach(const Error& error);

struct HttpResponse {
    int status = 0;
    std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
    std::string body;
    std::string effective_url;  // redacted
    std::int64_t received_bytes = 0;
    int attempts = 1;
    std::optional<std::string> header(std::string_view lower_case_name) const;
};

class HttpPool;
struct HttpPoolSettings;

class Http {
public:
    virtual ~Http() = default;
    // An answer with any status is a success, a redirect too: none is followed. Errors: infrastructure (names host,
    // phase and what to do), timeout, usage (bad URL), local_io (to_file), interrupted (stop requested), bad_input
    // (body over its limit). Blocks, but notices a stop request within 100 ms. Thread-safe.
    virtual Result<HttpResponse> send(const HttpRequest& request) = 0;
    // For many exchanges at once (HttpPool below). Error: infrastructure (no libcurl).
    virtual Result<std::unique_ptr<HttpPool>> open_pool(const HttpPoolSettings& settings);
};

// The client on libcurl, opened on the first request.
Http& system_http();

namespace http {
// An HTTP date: "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT" or "Sun Nov  6 08:49:37 1994".
std::optional<WallTime> parse_http_date(std::string_view value, WallTime now);
}  // namespace http

// Many exchanges at once on one thread. Each exchange is one request and its answer, passed to a receiver as it
// arrives. Redirects and retries are up to the caller.

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;  // names in lower case

std::optional<std::string> find_header(const HttpHeaders& headers, std::string_view lower_case_name);

// How an exchange ended.
struct HttpEnd {
    std::optional<Error> error;      // transport error, as Http::send returns it
    bool worth_another_try = false;  // set with an error: refused, reset, cut off, or silent for too long
    bool unwanted = false;           // the receiver stopped the exchange
    std::string redirect_url;        // absolute; empty: no redirect
};

class HttpReceiver {
public:
    virtual ~HttpReceiver() = default;
    // Called once, before the first byte of the body or, if there is none, before on_end(). False: skip the body.
    virtual bool on_head(int status, const HttpHeaders& headers) = 0;
    // The body as it is on the wire. False: stop; the connection is closed.
    virtual bool on_body(std::string_view bytes) = 0;
    // Called last. The receiver may start another exchange, or destroy itself.
    virtual void on_end(const HttpEnd& end) = 0;
};

struct HttpPoolSettings {
    std::string origin;   // last part of the User-Agent; empty: none
    std::string ca_path;  // file or folder of CA certificates; empty: as the environment says, else libcurl's own
};

class HttpPool {
public:
    virtual ~HttpPool() = default;
    // Ignores `retry`, `to_file`, `on_chunk`, `body_limit` and `stop` of the request. Errors: usage (bad URL, header),
    // local_io. The receiver must live until on_end() or cancel().
    virtual Status start(HttpRequest request, HttpReceiver& receiver) = 0;
    // Ends the receiver's exchange, if there is one, without calling it. Must not be called from the receiver's own
    // callbacks.
    virtual void cancel(HttpReceiver& receiver) = 0;
    virtual bool idle() const = 0;
    // Does the work that is ready, and waits at most `wait` for more. Calls receivers.
    virtual Status step(std::chrono::milliseconds wait) = 0;
};

}  // namespace gdnctl
