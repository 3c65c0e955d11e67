// When to retry. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/time.h"
#include "platform/clock.h"
#include "platform/http.h"
#include "services/hub/transfer/failure.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

bool is_worth_retrying(int status);  // 408 429 500 502 503 504

// How long the server asks to wait: `RateLimit: "api";r=0;t=55` (55 s plus one, only if nothing remains), else
// Retry-After. nullopt: not given.
std::optional<std::chrono::milliseconds> asked_wait(const HttpHeaders& headers, WallTime now);

// `RateLimit-Policy: "fixed window";"api";q=500;w=300` as "500 requests in 300 s"; empty: not given.
std::string shown_limit(const HttpHeaders& headers);

// The wait before retry number `retry` (1-based): a `random` (0..1) fraction of a limit that doubles from 0.5 s up to
// 30 s.
std::chrono::milliseconds jittered_wait(int retry, double random);

// Requests to a service and the places it redirects to. Sends the token only where it belongs, and retries.

// The service that the token is for.
struct Realm {
    Url endpoint;
    std::vector<std::string> aliases;  // hosts by which the service may refer to itself; behind a mirror they stand for
                                       // the endpoint
    std::string authorization;         // value of the header; empty: none
    HttpHeaders headers;               // of every request
    bool log_requests = false;         // HF_DEBUG
};

// One address of a chain of redirects.
struct Hop {
    Url url;
    bool with_token = false;
    int redirects = 0;
    std::vector<std::string> seen;
};

// Sends the token only to the endpoint's own scheme, host and port.
Hop first_hop(const Realm& realm, Url url);
// Errors: infrastructure (rejected: https to http, another scheme, a loop, more than ten).
Outcome<Hop> next_hop(const Realm& realm, const Hop& from, const std::string& location);

struct RetryPolicy {
    int retries = 5;
    std::chrono::milliseconds max_time{900'000};  // total time without progress, for one item
    std::chrono::milliseconds connect_timeout{10'000};
    std::chrono::milliseconds stall_timeout{30'000};
};

// How often one item was retried, and for how long.
struct Tries {
    int retries = 0;                        // since bytes last arrived
    std::optional<Clock::Monotonic> since;  // of the first failure after that
    std::chrono::milliseconds earlier{0};   // time spent before that

    void progress(Clock& clock);
};

struct WireAnswer {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    std::string url;      // the last one
    std::string gave_up;  // why a status worth retrying was not retried
};

struct Question {
    std::string method = "GET";
    std::string body;
    HttpHeaders headers;
    std::size_t limit = std::size_t{64} << 20;  // bytes of the answer
    bool with_token = true;                     // at the endpoint
    bool stay = false;                          // a redirect to another origin is returned as the answer
};

class Wire {
public:
    Wire(HttpPool& pool, Realm realm, RetryPolicy policy, Clock& clock, std::stop_token stop)
        : m_pool(pool), m_realm(std::move(realm)), m_policy(policy), m_clock(clock), m_stop(std::move(stop)) {}

    // The answer after redirects and retries, whatever its status. Errors: infrastructure, interrupted.
    Outcome<WireAnswer> ask(const std::string& url, const Question& question = {});

    HttpRequest request_for(const Hop& hop, std::string method, HttpHeaders headers) const;
    // How long to wait before a retry, or why there is none. `headers`: of the answer, if there was one. A `status` of
    // 429 also stops all other requests.
    tl::expected<std::chrono::milliseconds, std::string> wait_before_retry(Tries& tries, int status,
                                                                           const HttpHeaders* headers);
    // No request starts before this.
    std::optional<Clock::Monotonic> gate() const { return m_gate; }

    HttpPool& pool() { return m_pool; }
    const Realm& realm() const { return m_realm; }
    const RetryPolicy& policy() const { return m_policy; }
    Clock& clock() { return m_clock; }
    const std::stop_token& stop() const { return m_stop; }

private:
    Outcome<WireAnswer> ask_once(const Url& url, const Question& question, bool& again);
    Outcome<WireAnswer> exchange(const Hop& hop, const Question& question, HttpEnd& end);
    Status sleep(std::chrono::milliseconds wait);

    HttpPool& m_pool;
    const Realm m_realm;
    const RetryPolicy m_policy;
    Clock& m_clock;
    const std::stop_token m_stop;
    std::optional<Clock::Monotonic> m_gate;
    std::minstd_rand m_random{std::random_device{}()};
};

}  // namespace gdnctl::hub
