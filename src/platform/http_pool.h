// Many exchanges at a time on one thread. Redirects and retries are the caller's: each exchange is one request and its
// answer, told to a receiver as it comes.
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
    std::optional<Error> error;      // of the transport; as Http::send gives it
    bool worth_another_try = false;  // with an error: refused, reset, cut, silent for too long
    bool unwanted = false;           // the receiver wanted no more
    std::string redirect_url;        // absolute, where the answer redirects
};

class HttpReceiver {
public:
    virtual ~HttpReceiver() = default;
    // Once, before the first byte of the body or, without one, before on_end(). False: nothing of the body is wanted.
    virtual bool on_head(int status, const HttpHeaders& headers) = 0;
    // The body as it is on the wire. False: no more is wanted; the connection is closed.
    virtual bool on_body(std::string_view bytes) = 0;
    // Last. The receiver may start another exchange, or destroy itself.
    virtual void on_end(const HttpEnd& end) = 0;
};

struct HttpPoolSettings {
    std::string origin;   // last part of the User-Agent; empty: none
    std::string ca_file;  // empty: what the environment names, else libcurl's own
};

class HttpPool {
public:
    virtual ~HttpPool() = default;
    // Of the request, `retry`, `max_redirects`, `to_file`, `on_chunk`, `body_limit` and `stop` are not looked at.
    // Errors: usage (bad URL, header), local_io. The receiver must live until on_end() or cancel().
    virtual Status start(HttpRequest request, HttpReceiver& receiver) = 0;
    // Ends the receiver's exchange without a word, if there is one. Not from within the receiver's own calls.
    virtual void cancel(HttpReceiver& receiver) = 0;
    virtual bool idle() const = 0;
    // Does what can be done now; waits at most `wait` for more to do. Calls receivers.
    virtual Status step(std::chrono::milliseconds wait) = 0;
};

}  // namespace gdnctl
