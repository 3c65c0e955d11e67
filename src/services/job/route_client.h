// Requests through a route to a cluster's server: what the backends for clusters have in common.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "platform/clock.h"
#include "platform/http.h"
#include "services/job/job.h"

namespace gdnctl {

// The waits between the attempts of one request.
class Patience {
public:
    // Ends at `deadline`, if any.
    Patience(RetryPolicy policy, Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline);
    // Sleeps before retrying what failed with `reason`. False: no more retries, because the policy's time or `limit` is
    // over; see stopped().
    bool wait(std::string_view reason, std::optional<std::chrono::milliseconds> limit = std::nullopt);
    bool stopped() const { return m_stopped; }

private:
    Clock& m_clock;
    std::stop_token m_stop;
    Clock::Monotonic m_start;
    RetryPolicy m_policy;
    int m_attempts = 0;
    bool m_stopped = false;
};

struct RouteClientConfig {
    std::shared_ptr<JobRoute> route;  // never null
    Http* http = nullptr;
    Clock* clock = nullptr;
    std::stop_token stop;
    bool one_shot = false;  // the caller waits for a single answer: a refused connection is retried for 3 s at any time
};

class RouteClient {
public:
    explicit RouteClient(RouteClientConfig config) : m_config(std::move(config)) {}

    // Sends the request once, to the route's base with `request.url` as the path. Returns the answer, whatever its
    // status. Errors: infrastructure (our own limit for one request, too), interrupted, those of the route.
    Result<HttpResponse> send(HttpRequest request);
    // The same to a complete address.
    Result<HttpResponse> send_to(HttpRequest request);

    JobRoute& route() const { return *m_config.route; }
    Clock& clock() const { return *m_config.clock; }
    const std::stop_token& stop() const { return m_config.stop; }
    void ignore_stop_requests() { m_config.stop = {}; }
    // Limits each request to this moment, or to one second if it has passed; nullopt: no limit.
    void set_deadline(std::optional<Clock::Monotonic> deadline);
    bool has_answered() const { return m_answered; }
    Patience patience(const RetryPolicy& policy) const { return {policy, clock(), m_config.stop, m_deadline}; }
    // Waits before retrying a request that failed with this error. Waits less if nothing listens there.
    bool wait(Patience& patience, const Error& error) const;

private:
    RouteClientConfig m_config;
    std::optional<Clock::Monotonic> m_deadline;
    bool m_answered = false;  // the server has answered some request
};

// A server's complaint on one line, for people: the last line of a traceback, or the title of a page; at most 300
// bytes.
std::string gist(std::string_view body);

}  // namespace gdnctl
