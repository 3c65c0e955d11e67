#include "platform/http_curl_pool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace gdnctl {

std::optional<std::string> find_header(const HttpHeaders& headers, std::string_view lower_case_name) {
    for (const auto& [name, value] : headers) {
        if (name == lower_case_name) return value;
    }
    return std::nullopt;
}

}  // namespace gdnctl

namespace gdnctl::http {

namespace {

// A timeout is noticed within this time.
constexpr std::chrono::milliseconds k_longest_poll{50};

}  // namespace

Result<std::unique_ptr<HttpPool>> CurlPool::open(const Clock& clock, CurlSettings settings) {
    GDNCTL_TRY_ASSIGN(const CurlApi* api, curl_api());
    CURLM* multi = api->curl_multi_init();
    if (multi == nullptr) return fail(ErrorKind::internal, "libcurl cannot create a multi handle (out of memory)");
    return std::make_unique<CurlPool>(*api, multi, clock, std::move(settings));
}

CurlPool::~CurlPool() {
    for (const auto& [easy, exchange] : m_running) m_api.curl_multi_remove_handle(m_multi, easy);
    m_running.clear();
    m_api.curl_multi_cleanup(m_multi);
}

Status CurlPool::start(HttpRequest request, HttpReceiver& receiver) {
    auto exchange = std::make_unique<Exchange>();
    exchange->request = std::move(request);
    exchange->receiver = &receiver;
    exchange->hop.method = exchange->request.method;
    exchange->hop.url = exchange->request.url;
    GDNCTL_TRY_ASSIGN(exchange->hop.parsed, parse_url(m_api, exchange->request.url));
    std::optional<Clock::Monotonic> deadline;
    if (exchange->request.total_timeout.count() > 0) deadline = m_clock.monotonic() + exchange->request.total_timeout;
    exchange->transfer =
        std::make_unique<Transfer>(m_api, m_settings, exchange->request, exchange->hop, m_clock, deadline);
    GDNCTL_TRY(exchange->transfer->begin(receiver));
    CURL* easy = exchange->transfer->handle();
    if (const CURLMcode rc = m_api.curl_multi_add_handle(m_multi, easy); rc != CURLM_OK) {
        return fail(ErrorKind::internal, fmt::format("libcurl: {}", m_api.curl_multi_strerror(rc)));
    }
    m_running.emplace(easy, std::move(exchange));
    return {};
}

void CurlPool::cancel(HttpReceiver& receiver) {
    const auto found = std::find_if(m_running.begin(), m_running.end(),
                                    [&](const auto& running) { return running.second->receiver == &receiver; });
    if (found == m_running.end()) return;
    m_api.curl_multi_remove_handle(m_multi, found->first);
    m_running.erase(found);
}

// Removes the exchange from the table before its receiver hears of the end, so that the receiver can start another.
void CurlPool::end(Running::iterator running, std::optional<CURLcode> code) {
    m_api.curl_multi_remove_handle(m_multi, running->first);
    const std::unique_ptr<Exchange> exchange = std::move(running->second);
    m_running.erase(running);
    exchange->receiver->on_end(exchange->transfer->end(code));
}

// Whether one has ended.
bool CurlPool::collect() {
    bool any = false;
    int queued = 0;
    while (const CURLMsg* message = m_api.curl_multi_info_read(m_multi, &queued)) {
        if (message->msg != CURLMSG_DONE) continue;
        const auto running = m_running.find(message->easy_handle);
        const CURLcode code = message->data.result;  // invalid once the handle is removed
        if (running == m_running.end()) continue;
        end(running, code);
        any = true;
    }
    for (auto it = m_running.begin(); it != m_running.end();) {
        const auto next = std::next(it);
        if (it->second->transfer->overdue()) {
            CURL* following = next == m_running.end() ? nullptr : next->first;
            end(it, std::nullopt);
            any = true;
            it = following == nullptr ? m_running.end() : m_running.find(following);
            continue;
        }
        it = next;
    }
    return any;
}

Status CurlPool::perform() {
    int running = 0;
    const CURLMcode rc = m_api.curl_multi_perform(m_multi, &running);
    if (rc == CURLM_OK) return {};
    return fail(ErrorKind::internal, fmt::format("libcurl: {}", m_api.curl_multi_strerror(rc)));
}

Status CurlPool::step(std::chrono::milliseconds wait) {
    GDNCTL_TRY(perform());
    if (collect()) return {};
    const auto poll = std::clamp(wait, std::chrono::milliseconds(0), k_longest_poll);
    if (poll.count() == 0) return {};
    m_api.curl_multi_poll(m_multi, nullptr, 0, static_cast<int>(poll.count()), nullptr);
    GDNCTL_TRY(perform());
    collect();
    return {};
}

}  // namespace gdnctl::http
