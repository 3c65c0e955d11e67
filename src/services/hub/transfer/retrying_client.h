// A client of one service that downloads need: it follows redirects, sends the token only where it belongs, and
// retries.
#pragma once

#include <chrono>
#include <optional>
#include <random>
#include <stop_token>
#include <string>

#include "core/time.h"
#include "platform/clock.h"
#include "platform/http.h"
#include "services/hub/transfer/names.h"

namespace gdnctl::hub {

// What the user sets.
struct TransferLimits {
    int retries = 5;
    std::chrono::milliseconds max_time{900'000};  // total time without progress, for one item
    std::chrono::milliseconds connect_timeout{10'000};
    std::chrono::milliseconds stall_timeout{30'000};
};

// Retries of downloads: the waits double from 0.5 s up to 30 s, and each is a random part of that.
RetryPolicy retry_policy(const TransferLimits& limits);

// How often one item was retried, and for how long.
struct Tries {
    int retries = 0;                        // since bytes last arrived
    std::optional<Clock::Monotonic> since;  // of the first failure after that
    std::chrono::milliseconds earlier{0};   // time spent before that

    void progress(Clock& clock);
};

struct ServiceAnswer {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    std::string url;      // the last one
    std::string gave_up;  // why a status worth retrying was not retried
};

struct ServiceRequest {
    std::string method = "GET";
    std::string body;
    HttpHeaders headers;
    std::size_t limit = std::size_t{64} << 20;  // bytes of the answer
    bool with_token = true;                     // at the endpoint
    bool stay = false;                          // a redirect to another origin is returned as the answer
};

class RetryingClient {
public:
    RetryingClient(HttpPool& pool, ServiceEndpoint service, const TransferLimits& limits, Clock& clock,
                   std::stop_token stop)
        : m_pool(pool),
          m_service(std::move(service)),
          m_limits(limits),
          m_policy(retry_policy(limits)),
          m_clock(clock),
          m_stop(std::move(stop)) {}

    // The answer after redirects and retries, whatever its status. Errors: infrastructure, interrupted.
    Result<ServiceAnswer> ask(const std::string& url, const ServiceRequest& asked = {});

    HttpRequest request_for(const RedirectStep& step, std::string method, HttpHeaders headers) const;
    // How long to wait before a retry, or why there is none. `headers`: of the answer, if there was one. A `status` of
    // 429 also stops all other requests.
    tl::expected<std::chrono::milliseconds, std::string> wait_before_retry(Tries& tries, int status,
                                                                           const HttpHeaders* headers);
    // No request starts before this.
    std::optional<Clock::Monotonic> gate() const { return m_gate; }

    HttpPool& pool() { return m_pool; }
    const ServiceEndpoint& service() const { return m_service; }
    const RetryPolicy& policy() const { return m_policy; }
    int retries() const { return m_limits.retries; }
    Clock& clock() { return m_clock; }
    const std::stop_token& stop() const { return m_stop; }

private:
    Result<ServiceAnswer> ask_once(const Url& url, const ServiceRequest& asked, bool& again);
    Result<ServiceAnswer> exchange(const RedirectStep& step, const ServiceRequest& asked, HttpEnd& end);
    Status sleep(std::chrono::milliseconds wait);

    HttpPool& m_pool;
    const ServiceEndpoint m_service;
    const TransferLimits m_limits;
    const RetryPolicy m_policy;
    Clock& m_clock;
    const std::stop_token m_stop;
    std::optional<Clock::Monotonic> m_gate;
    std::minstd_rand m_random{std::random_device{}()};
};

}  // namespace gdnctl::hub
