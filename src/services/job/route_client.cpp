#include "services/job/route_client.h"

#include <algorithm>

#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/time.h"
#include "platform/http_policy.h"
#include "platform/signals.h"

namespace gdnctl {

using std::chrono::milliseconds;

Patience::Patience(RetryPolicy policy, Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline)
    : m_clock(clock), m_stop(std::move(stop)), m_start(clock.monotonic()), m_policy(std::move(policy)) {
    if (deadline) {
        m_policy.total = std::min(m_policy.total, std::chrono::duration_cast<milliseconds>(*deadline - m_start));
    }
}

bool Patience::wait(std::string_view reason, std::optional<milliseconds> limit) {
    RetryPolicy policy = m_policy;
    if (limit) policy.total = std::min(policy.total, *limit);
    const auto elapsed = std::chrono::duration_cast<milliseconds>(m_clock.monotonic() - m_start);
    const auto next = http::next_attempt(policy, ++m_attempts, elapsed);
    if (next.verdict != http::NextAttempt::Verdict::wait) return false;
    log::info("{}; trying again in {}", reason, format_duration(next.delay));
    m_stopped = !m_clock.sleep_for(next.delay, m_stop);
    return !m_stopped;
}

bool RouteClient::wait(Patience& patience, const Error& error) const {
    // For a server that has not answered yet, or that gets few requests.
    constexpr milliseconds k_refused{3000};
    const bool brief = is_connection_refused(error) && (!m_answered || m_config.one_shot);
    return patience.wait(error.text(), brief ? std::optional(k_refused) : std::nullopt);
}

void RouteClient::set_deadline(std::optional<Clock::Monotonic> deadline) {
    m_deadline = deadline;
    m_config.route->set_deadline(deadline);
}

Result<HttpResponse> RouteClient::send(HttpRequest request) {
    GDNCTL_TRY_ASSIGN(const std::string base, m_config.route->url());
    request.url.insert(0, base);
    auto answer = send_to(std::move(request));
    m_answered = m_answered || answer.has_value();
    return answer;
}

Result<HttpResponse> RouteClient::send_to(HttpRequest request) {
    constexpr milliseconds k_shortest{1000};  // however little time is left
    request.stop = m_config.stop;
    if (m_deadline) {
        const auto left = std::chrono::ceil<milliseconds>(*m_deadline - m_config.clock->monotonic());
        const milliseconds most = std::max(left, k_shortest);
        for (milliseconds* limit : {&request.connect_timeout, &request.first_byte_timeout, &request.total_timeout}) {
            if (limit->count() == 0 || *limit > most) *limit = most;
        }
    }
    auto answer = m_config.http->send(request);
    if (answer) return answer;
    Error error = std::move(answer).error();
    if (error.kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    // Our own limit for one request is not the user's time limit.
    if (error.kind == ErrorKind::timeout) error.kind = ErrorKind::infrastructure;
    return tl::unexpected(std::move(error));
}

namespace {

bool is_page(std::string_view body) {
    const std::string start = text::to_lower(text::trim(body).substr(0, 64));
    return start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<head");
}

std::string page_title(std::string_view body) {
    const std::string lower = text::to_lower(body.substr(0, std::min<std::size_t>(body.size(), 8192)));
    const std::size_t begin = lower.find("<title>");
    const std::size_t end = lower.find("</title>");
    if (begin == std::string::npos || end == std::string::npos || end < begin + 7) return "an HTML page";
    return "an HTML page: " + std::string(text::trim(body.substr(begin + 7, end - begin - 7)));
}

}  // namespace

std::string gist(std::string_view body) {
    constexpr std::size_t k_most = 300;
    body = text::trim(body);
    if (body.empty()) return "nothing";
    if (is_page(body)) return text::repair_utf8(page_title(body).substr(0, k_most));
    // A traceback ends with the actual error. Servers wrap the first one in a traceback of their own, and add a period.
    std::string_view last;
    for (const std::string_view line : text::split(body, '\n')) {
        const std::string_view trimmed = text::trim(line);
        if (trimmed.size() > 1 || last.empty()) last = trimmed;
    }
    return redact(text::repair_utf8(last.substr(0, k_most)));
}

}  // namespace gdnctl
