#include "services/ray/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/log.h"
#include "core/time.h"
#include "platform/signals.h"

namespace gdnctl::ray {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds k_total{30000};
constexpr milliseconds k_refused{3000};  // for a server that has not answered yet, or that gets few requests
constexpr milliseconds k_longest{5000};
constexpr milliseconds k_shortest{1000};       // minimum for a request, however little time is left
constexpr milliseconds k_agent_connect{1500};  // the agent may be unreachable

}  // namespace

Patience::Patience(Clock& clock, std::stop_token stop, std::optional<Clock::Monotonic> deadline)
    : m_clock(clock), m_stop(std::move(stop)), m_start(clock.monotonic()), m_end(m_start + k_total) {
    if (deadline) m_end = std::min(m_end, *deadline);
}

bool Patience::wait(std::string_view reason, std::optional<milliseconds> limit) {
    const Clock::Monotonic end = limit ? std::min(m_end, m_start + *limit) : m_end;
    if (m_clock.monotonic() + m_delay > end) return false;
    log::info("{}; trying again in {}", reason, format_duration(m_delay));
    if (!m_clock.sleep_for(m_delay, m_stop)) {
        m_stopped = true;
        return false;
    }
    m_delay = std::min(k_longest, m_delay * 3 / 2);
    return true;
}

bool is_out_of_reach(const Error& error) {
    return error.kind == ErrorKind::infrastructure || error.kind == ErrorKind::timeout;
}

bool Client::wait(Patience& patience, const Error& error) const {
    const bool brief = is_connection_refused(error) && (!m_answered || m_config.one_shot);
    return patience.wait(error.text(), brief ? std::optional(k_refused) : std::nullopt);
}

void Client::authorize(HttpRequest& request) const {
    if (!m_config.token.empty()) request.secret_headers.emplace_back("Authorization", "Bearer " + m_config.token);
}

void Client::set_deadline(std::optional<Clock::Monotonic> deadline) {
    m_deadline = deadline;
    m_config.route->set_deadline(deadline);
}

void Client::shorten(HttpRequest& request) const {
    if (!m_deadline) return;
    const auto left = std::chrono::ceil<milliseconds>(*m_deadline - m_config.clock->monotonic());
    const milliseconds most = std::max(left, k_shortest);
    for (milliseconds* limit : {&request.connect_timeout, &request.first_byte_timeout, &request.total_timeout}) {
        if (limit->count() == 0 || *limit > most) *limit = most;
    }
}

Result<HttpResponse> Client::try_once(const Call& call) {
    if (call.on_begin) call.on_begin();
    HttpRequest request;
    GDNCTL_TRY_ASSIGN(const std::string base, m_config.route->url());
    request.method = call.method;
    request.url = base + call.path;
    if (!call.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    if (!call.body_file.empty()) request.headers.emplace_back("Content-Type", "application/octet-stream");
    authorize(request);
    request.body = call.body;
    request.body_file = call.body_file;
    request.on_chunk = call.on_chunk;
    request.body_limit = call.body_limit;
    request.first_byte_timeout = call.first_byte;
    request.total_timeout = call.total;
    request.stop = m_config.stop;
    shorten(request);
    auto answer = m_config.http->send(request);
    m_answered = m_answered || answer.has_value();
    if (answer) return answer;
    Error error = std::move(answer).error();
    if (error.kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    // Our own limit for one request is not the user's time limit.
    if (error.kind == ErrorKind::timeout) error.kind = ErrorKind::infrastructure;
    return tl::unexpected(std::move(error));
}

Result<HttpResponse> Client::send(const Call& call, Tries tries) {
    Patience patience = this->patience();
    for (;;) {
        auto answer = try_once(call);
        const bool passing =
            answer ? is_passing(call.method, answer->status, answer->body) : is_out_of_reach(answer.error());
        if (!passing || tries == Tries::one) return answer;
        const bool again =
            answer ? patience.wait(fmt::format("{} returned {}: {}", call.name(), answer->status, gist(answer->body)))
                   : wait(patience, answer.error());
        if (again) continue;
        if (patience.stopped()) return tl::unexpected(stopped_error());
        return answer;
    }
}

Result<HttpResponse> Client::send_ok(const Call& call, Tries tries) {
    GDNCTL_TRY_ASSIGN(HttpResponse answer, send(call, tries));
    if (answer.status != 200) return tl::unexpected(refuse(call, answer));
    return answer;
}

Result<HttpResponse> Client::get_range(const std::string& url, const std::string& range, std::size_t limit) {
    HttpRequest request;
    request.url = url;
    request.headers.emplace_back("Range", "bytes=" + range);
    request.headers.emplace_back("Accept-Encoding", "identity");  // offsets count the file's own bytes
    authorize(request);
    request.body_limit = limit;
    request.connect_timeout = k_agent_connect;
    request.stop = m_config.stop;
    shorten(request);
    auto answer = m_config.http->send(request);
    if (!answer && answer.error().kind == ErrorKind::interrupted) return tl::unexpected(stopped_error());
    return answer;
}

Error Client::refuse(const Call& call, const HttpResponse& answer) const {
    return refusal(call.name(), answer, m_config.token_hint);
}

}  // namespace gdnctl::ray
