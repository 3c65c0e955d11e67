#include "platform/http_curl.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/redact.h"
#include "core/time.h"
#include "platform/signals.h"

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
    GDNCTL_TRY_ASSIGN(const Address address, parse_address(m_api, exchange->request.url));
    std::optional<Clock::Monotonic> deadline;
    if (exchange->request.total_timeout.count() > 0) deadline = m_clock.monotonic() + exchange->request.total_timeout;
    exchange->transfer = std::make_unique<Transfer>(m_api, m_settings, exchange->request, address, m_clock, deadline);
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

namespace gdnctl {

std::optional<std::string> HttpResponse::header(std::string_view lower_case_name) const {
    for (const auto& [name, value] : headers) {
        if (name == lower_case_name) return value;
    }
    return std::nullopt;
}

// The default, for the Http of a test that has no pool.
Result<std::unique_ptr<HttpPool>> Http::open_pool(const HttpPoolSettings& /*settings*/) {
    return fail(ErrorKind::internal, "this HTTP client has no pool");
}

Http& system_http() {
    // Never destroyed: at exit, libcrypto may already be gone when connections that use it are closed.
    static auto* const http = new http::CurlHttp(system_clock(), http::settings_from(process_env()));
    return *http;
}

}  // namespace gdnctl

namespace gdnctl::http {

namespace {

// In libcurl's order; an empty variable means no proxy.
Proxy proxy_of(const Env& env, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const auto value = env.get(name);
        if (!value) continue;
        if (value->empty()) break;
        std::string_view place = *value;
        if (const auto scheme = place.find("://"); scheme != std::string_view::npos) place.remove_prefix(scheme + 3);
        place = place.substr(0, place.find('/', place.rfind('@') == std::string_view::npos ? 0 : place.rfind('@')));
        const std::size_t at = place.rfind('@');
        if (at == std::string_view::npos) return {name, std::string(place), false};
        const std::string_view user = place.substr(0, at);
        if (const auto colon = user.find(':'); colon != std::string_view::npos) register_secret(user.substr(colon + 1));
        return {name, std::string(place.substr(at + 1)), true};
    }
    return {};
}

}  // namespace

CurlSettings settings_from(const Env& env) {
    CurlSettings settings;
    settings.user_agent = "gdnctl/" GDNCTL_VERSION;
    settings.no_proxy = "localhost,127.0.0.1,::1";
    for (const char* name : {"no_proxy", "NO_PROXY"}) {
        const auto more = env.get(name);
        if (!more || more->empty()) continue;
        settings.no_proxy = *more == "*" ? "*" : settings.no_proxy + "," + *more;
        break;
    }
    settings.ca_folder = env.get("SSL_CERT_DIR").value_or("");
    for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
        const auto path = env.get(name);
        if (!path || path->empty()) continue;
        settings.trust(*path);
        break;
    }
    settings.http_proxy = proxy_of(env, {"http_proxy", "all_proxy", "ALL_PROXY"});
    settings.https_proxy = proxy_of(env, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
    return settings;
}

void CurlSettings::trust(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        ca_file = path;
    } else {
        ca_folder += (ca_folder.empty() ? "" : ":") + path;
    }
}

CurlHttp::~CurlHttp() {
    for (CURLM* multi : m_idle) m_api->curl_multi_cleanup(multi);
}

Result<CURLM*> CurlHttp::borrow_multi(const CurlApi& api) {
    {
        const std::lock_guard lock(m_mutex);
        m_api = &api;
        if (!m_idle.empty()) {
            CURLM* multi = m_idle.back();
            m_idle.pop_back();
            return multi;
        }
    }
    CURLM* multi = api.curl_multi_init();
    if (multi == nullptr) return fail(ErrorKind::internal, "libcurl cannot create a multi handle (out of memory)");
    return multi;
}

tl::expected<HttpResponse, TransferError> CurlHttp::send_once(const CurlApi& api, CURLM* multi,
                                                              const HttpRequest& request,
                                                              std::optional<Clock::Monotonic> deadline) {
    const auto address = parse_address(api, request.url);
    if (!address) return tl::unexpected(TransferError{address.error(), false});
    auto answer = Transfer(api, m_settings, request, *address, m_clock, deadline).run(multi);
    if (!answer) return tl::unexpected(std::move(answer).error());
    if (log::enabled(log::Level::debug)) {
        log::debug("{} {} -> {}, {} bytes", request.method, address->place, answer->status, answer->received_bytes);
    }
    HttpResponse response;
    response.status = answer->status;
    response.headers = std::move(answer->headers);
    response.body = std::move(answer->body);
    response.received_bytes = answer->received_bytes;
    response.effective_url = redact(request.url);
    return response;
}

Result<HttpResponse> CurlHttp::try_all(const CurlApi& api, CURLM* multi, const HttpRequest& request) {
    const RetryPolicy& policy = request.retry;
    const Clock::Monotonic start = m_clock.monotonic();
    std::optional<Clock::Monotonic> deadline;
    if (request.total_timeout.count() > 0) deadline = start + request.total_timeout;
    for (int attempt = 1;; ++attempt) {
        auto response = send_once(api, multi, request, deadline);
        const bool again = response ? is_worth_retrying(policy, request.method, response->status, response->body)
                                    : response.error().worth_another_try;
        const auto give = [&]() -> Result<HttpResponse> {
            if (response) {
                response->attempts = attempt;
                return std::move(*response);
            }
            Error error = std::move(response.error().error);
            if (attempt > 1) error.message += fmt::format(" ({} attempts)", attempt);
            return tl::unexpected(std::move(error));
        };
        if (!again) return give();
        const auto asked = response ? asked_wait(response->headers, m_clock.wall()) : std::nullopt;
        const Clock::Monotonic now = m_clock.monotonic();
        const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(now - start);
        const NextAttempt next = next_attempt(policy, attempt, elapsed, asked);
        if (next.verdict != NextAttempt::Verdict::wait || (deadline && now + next.delay >= *deadline)) return give();
        log::info("{}; trying again in {} (attempt {} of {})",
                  response ? fmt::format("{} answered {}", response->effective_url, response->status)
                           : response.error().error.message,
                  format_duration(next.delay), attempt + 1, policy.attempts);
        if (!m_clock.sleep_for(next.delay, request.stop)) {
            return fail(stopped_error().kind, redact(fmt::format("stopped before another try of {}", request.url)));
        }
    }
}

Result<std::unique_ptr<HttpPool>> CurlHttp::open_pool(const HttpPoolSettings& settings) {
    CurlSettings curl = m_settings;
    GDNCTL_TRY_ASSIGN(const CurlApi* api, curl_api());
    curl.user_agent += fmt::format("; libcurl/{}", api->curl_version_info(CURLVERSION_NOW)->version);
    if (!settings.origin.empty()) curl.user_agent += "; origin/" + settings.origin;
    if (!settings.ca_path.empty()) curl.trust(settings.ca_path);
    return CurlPool::open(m_clock, std::move(curl));
}

Result<HttpResponse> CurlHttp::send(const HttpRequest& request) {
    GDNCTL_TRY_ASSIGN(const CurlApi* api, curl_api());
    GDNCTL_TRY_ASSIGN(CURLM * multi, borrow_multi(*api));
    auto response = try_all(*api, multi, request);
    const std::lock_guard lock(m_mutex);
    m_idle.push_back(multi);
    return response;
}

}  // namespace gdnctl::http
