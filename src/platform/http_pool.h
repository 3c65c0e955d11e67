// Many exchanges at once on one thread. Each exchange is one request and its answer, passed to a receiver as it
// arrives. Redirects and retries are up to the caller.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "platform/http.h"

namespace gdnctl {

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
    // Ignores `retry`, `max_redirects`, `to_file`, `on_chunk`, `body_limit` and `stop` of the request. Errors: usage
    // (bad URL, header), local_io. The receiver must live until on_end() or cancel().
    virtual Status start(HttpRequest request, HttpReceiver& receiver) = 0;
    // Ends the receiver's exchange, if there is one, without calling it. Must not be called from the receiver's own
    // callbacks.
    virtual void cancel(HttpReceiver& receiver) = 0;
    virtual bool idle() const = 0;
    // Does the work that is ready, and waits at most `wait` for more. Calls receivers.
    virtual Status step(std::chrono::milliseconds wait) = 0;
};

}  // namespace gdnctl
