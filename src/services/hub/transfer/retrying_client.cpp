#include "services/hub/transfer/retrying_client.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "platform/http_policy.h"
#include "platform/signals.h"

namespace gdnctl::hub {

namespace {

using std::chrono::milliseconds;

constexpr int k_rate_limited = 429;
constexpr milliseconds k_api_time{60'000};
constexpr milliseconds k_wait_step{50};
constexpr milliseconds k_announced{1000};

// Keeps a whole answer in memory.
struct Collector final : HttpReceiver {
    explicit Collector(std::size_t most) : limit(most) {}
    ServiceAnswer answer;
    std::size_t limit;
    bool too_long = false;
    std::optional<HttpEnd> end;

    bool on_head(int status, const HttpHeaders& headers) override {
        answer.status = status;
        answer.headers = headers;
        return true;
    }
    bool on_body(std::string_view bytes) override {
        too_long = answer.body.size() + bytes.size() > limit;
        if (!too_long) answer.body += bytes;
        return !too_long;
    }
    void on_end(const HttpEnd& how) override { end = how; }
};

}  // namespace

RetryPolicy retry_policy(const TransferLimits& limits) {
    RetryPolicy policy;
    policy.attempts = limits.retries + 1;
    policy.factor = 2;
    policy.max_delay = milliseconds(30'000);
    policy.least_part = 0;
    policy.random_part = 1;
    policy.total = limits.max_time;
    policy.statuses = {408, 429, 500, 502, 503, 504};
    return policy;
}

// Resets the retries but not the time: otherwise a server that dies after each byte would be retried forever.
void Tries::progress(Clock& clock) {
    if (since) earlier += std::chrono::duration_cast<milliseconds>(clock.monotonic() - *since);
    since.reset();
    retries = 0;
}

HttpRequest RetryingClient::request_for(const RedirectStep& step, std::string method, HttpHeaders headers) const {
    HttpRequest request;
    request.method = std::move(method);
    request.url = step.url.text();
    request.headers = m_service.headers;
    request.headers.insert(request.headers.end(), headers.begin(), headers.end());
    const bool with_token = step.with_token && !m_service.authorization.empty();
    if (with_token) request.secret_headers.emplace_back("Authorization", m_service.authorization);
    request.connect_timeout = m_limits.connect_timeout;
    request.first_byte_timeout = m_limits.stall_timeout;
    request.low_speed_time =
        std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(m_limits.stall_timeout));
    if (m_service.log_requests) {
        log::info("{} {}{}", request.method, shown(request.url), with_token ? " (Authorization: <TOKEN>)" : "");
    }
    return request;
}

tl::expected<milliseconds, std::string> RetryingClient::wait_before_retry(Tries& tries, int status,
                                                                          const HttpHeaders* headers) {
    const Clock::Monotonic now = m_clock.monotonic();
    if (!tries.since) tries.since = now;
    const double random =
        static_cast<double>(m_random() - std::minstd_rand::min()) / static_cast<double>(std::minstd_rand::max());
    const auto asked = headers != nullptr ? http::asked_wait(*headers, m_clock.wall()) : std::nullopt;
    const auto elapsed = tries.earlier + std::chrono::duration_cast<milliseconds>(now - *tries.since);
    const auto next = http::next_attempt(m_policy, ++tries.retries, elapsed, asked, random);
    if (next.verdict == http::NextAttempt::Verdict::no_attempts_left) {
        const std::string_view word = retries() == 1 ? "retry" : "retries";
        return tl::unexpected(retries() > 0 ? fmt::format("given up after {} {}", retries(), word)
                                            : std::string("no retries with --retries 0"));
    }
    if (next.verdict == http::NextAttempt::Verdict::no_time_left) {
        return tl::unexpected(fmt::format("the next retry would be in {}, later than --retry-max-time allows",
                                          format_duration(next.delay)));
    }
    if (status == k_rate_limited && (!m_gate || now + next.delay > *m_gate)) m_gate = now + next.delay;
    return next.delay;
}

Status RetryingClient::sleep(milliseconds wait) {
    if (m_clock.sleep_for(wait, m_stop)) return {};
    return tl::unexpected(stopped_error());
}

Result<ServiceAnswer> RetryingClient::exchange(const RedirectStep& step, const ServiceRequest& asked, HttpEnd& end) {
    Collector collector(asked.limit);
    HttpRequest request = request_for(step, asked.method, asked.headers);
    request.body = asked.body;
    request.total_timeout = k_api_time;
    request.decoded = asked.method != "HEAD";  // a listing is long and compresses well
    GDNCTL_TRY(m_pool.start(std::move(request), collector));
    while (!collector.end) {
        if (m_stop.stop_requested()) {
            m_pool.cancel(collector);
            return tl::unexpected(stopped_error());
        }
        if (const Status worked = m_pool.step(k_wait_step); !worked) {
            m_pool.cancel(collector);
            return tl::unexpected(worked.error());
        }
    }
    end = *collector.end;
    collector.answer.url = step.url.text();
    if (collector.too_long) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("the answer of {} is larger than {} MiB", shown(step.url.place()), asked.limit >> 20U));
    }
    return std::move(collector.answer);
}

// `again`: a retry may help.
Result<ServiceAnswer> RetryingClient::ask_once(const Url& url, const ServiceRequest& asked, bool& again) {
    RedirectStep step = first_step(m_service, url);
    step.with_token = step.with_token && asked.with_token;
    again = false;
    for (;;) {
        HttpEnd end;
        auto answer = exchange(step, asked, end);
        if (!answer) return answer;
        if (end.error) {
            again = end.worth_another_try;
            return tl::unexpected(*end.error);
        }
        if (end.redirect_url.empty()) {
            again = http::is_worth_retrying(m_policy, asked.method, answer->status);
            return answer;
        }
        GDNCTL_TRY_ASSIGN(auto next, next_step(m_service, step, end.redirect_url));
        if (asked.stay && !next.url.same_origin(step.url)) return answer;
        step = std::move(next);
    }
}

Result<ServiceAnswer> RetryingClient::ask(const std::string& url, const ServiceRequest& asked) {
    const auto parsed = parse_url(url);
    if (!parsed) {
        return fail(ErrorKind::infrastructure, fmt::format("cannot use the address {}", shown(url)));
    }
    for (Tries tries;;) {
        bool again = false;
        auto answer = ask_once(*parsed, asked, again);
        if (!again) return answer;
        const auto wait = wait_before_retry(tries, answer ? answer->status : 0, answer ? &answer->headers : nullptr);
        if (!wait) {
            if (answer) {
                answer->gave_up = wait.error();
                return answer;
            }
            Error failure = std::move(answer).error();
            failure.message += fmt::format(" ({})", wait.error());
            return tl::unexpected(std::move(failure));
        }
        log::write(*wait >= k_announced ? log::Level::info : log::Level::debug,
                   fmt::format("{}; trying again in {} (retry {} of {})",
                               answer ? fmt::format("{} answered {}", shown(parsed->place()), answer->status)
                                      : shown(answer.error().text()),
                               format_duration(*wait), tries.retries, retries()));
        GDNCTL_TRY(sleep(*wait));
    }
}

}  // namespace gdnctl::hub
