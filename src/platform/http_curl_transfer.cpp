#include "platform/http_curl_transfer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/signals.h"

namespace gdnctl::http {

namespace {

// A stop request or timeout is noticed within this time.
constexpr int k_poll_ms = 50;
constexpr std::size_t k_head_limit = std::size_t{256} << 10;  // bytes of all header lines, interim answers included

Trouble trouble_of(CURLcode code) {
    switch (code) {
        case CURLE_OPERATION_TIMEDOUT: return Trouble::timed_out;
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_CACERT_BADFILE: return Trouble::bad_peer;
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_BAD_CONTENT_ENCODING: return Trouble::not_http;
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
        case CURLE_COULDNT_CONNECT:
        case CURLE_SSL_CONNECT_ERROR:
        case CURLE_GOT_NOTHING:
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_PARTIAL_FILE:
        case CURLE_HTTP2:
        case CURLE_HTTP2_STREAM: return Trouble::cut;
        default: return Trouble::other;
    }
}

}  // namespace

Transfer::Transfer(const CurlApi& api, const CurlSettings& settings, const HttpRequest& request, const Hop& hop,
                   const Clock& clock, std::optional<Clock::Monotonic> deadline)
    : m_api(api),
      m_settings(settings),
      m_request(request),
      m_hop(hop),
      m_clock(clock),
      m_deadline(deadline),
      m_sink(request),
      m_subject{hop.method, hop.parsed.place, hop.parsed.host} {}

Transfer::~Transfer() {
    if (m_easy != nullptr) m_api.curl_easy_cleanup(m_easy);
    m_api.curl_slist_free_all(m_header_list);
}

template <class V>
V Transfer::info(CURLINFO which, V otherwise) const {
    V value{};
    return (m_api.curl_easy_getinfo)(m_easy, which, &value) == CURLE_OK ? value : otherwise;
}

int Transfer::status() const { return static_cast<int>(info<long>(CURLINFO_RESPONSE_CODE, 0)); }

HttpHeaders Transfer::headers() const {
    HttpHeaders all;
    for (curl_header* one = nullptr; (one = m_api.curl_easy_nextheader(m_easy, CURLH_HEADER, -1, one)) != nullptr;) {
        all.emplace_back(text::to_lower(one->name), one->value);
    }
    return all;
}

Phase Transfer::phase() const {
    if (m_head_begun) return Phase::receiving;
    if (m_connected) return m_body_sent < m_body_size ? Phase::sending : Phase::waiting;
    if (info<curl_off_t>(CURLINFO_NAMELOOKUP_TIME_T, 0) == 0) return Phase::resolving;
    return m_tls_begun ? Phase::tls : Phase::connecting;
}

// The proxy's own answer, to CONNECT or, for plain HTTP, in place of the server's.
std::optional<Error> Transfer::refused_by_proxy() const {
    constexpr long k_error = 400, k_proxy_login = 407;
    const long connect = info<long>(CURLINFO_HTTP_CONNECTCODE, 0);
    const long code = connect >= k_error ? connect : status();
    if (code != k_proxy_login && connect < k_error) return std::nullopt;
    const Proxy& proxy = m_hop.parsed.origin.scheme == "https" ? m_settings.https_proxy : m_settings.http_proxy;
    const std::string who =
        proxy.variable.empty() ? "a proxy on the way" : fmt::format("the proxy {} ({})", proxy.place, proxy.variable);
    const std::string variable = proxy.variable.empty() ? "HTTPS_PROXY" : proxy.variable;
    if (code != k_proxy_login) {
        return Error{
            ErrorKind::infrastructure,
            redact(fmt::format("{} {}: {} refused the connection with status {}", m_subject.method, m_subject.place,
                               who, code)),
            redact(fmt::format("check that the proxy allows {}, or set NO_PROXY for that host", m_subject.host)),
            {}};
    }
    return Error{
        ErrorKind::infrastructure,
        redact(fmt::format(
            "{} {}: {} {} (status 407)", m_subject.method, m_subject.place, who,
            proxy.with_user ? "rejected the user name or password" : "requires a user name and a password")),
        fmt::format("set {} to http://USER:PASSWORD@{}", variable, proxy.place.empty() ? "HOST:PORT" : proxy.place),
        {}};
}

TransferError Transfer::broken(CURLcode code) const {
    if (auto error = refused_by_proxy()) {
        constexpr long k_server_error = 500;
        return {std::move(*error), info<long>(CURLINFO_HTTP_CONNECTCODE, 0) >= k_server_error};
    }
    Phase where = phase();
    if (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY) where = Phase::resolving;
    if (code == CURLE_COULDNT_CONNECT) where = Phase::connecting;
    if (code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION) where = Phase::tls;
    const Trouble trouble = trouble_of(code);
    std::string reason = m_reason[0] != '\0' ? &m_reason[0] : m_api.curl_easy_strerror(code);
    const long error_number = info<long>(CURLINFO_OS_ERRNO, 0);
    // libcurl's message names the address that it tried; if that is not the host's, it is a proxy's.
    const bool by_proxy = reason.find(m_hop.parsed.origin.host) == std::string::npos;
    if (where == Phase::connecting && trouble == Trouble::cut && error_number > 0 && !by_proxy) {
        reason = std::generic_category().message(static_cast<int>(error_number));
    }
    if (trouble == Trouble::bad_peer && !(m_settings.ca_file.empty() && m_settings.ca_folder.empty())) {
        const bool both = !m_settings.ca_file.empty() && !m_settings.ca_folder.empty();
        reason += fmt::format(" (CA certificates: {}{}{})", m_settings.ca_file, both ? ", " : "", m_settings.ca_folder);
    }
    const bool again = (trouble == Trouble::cut || trouble == Trouble::timed_out) && !m_sink.called_back();
    return {transport_error(m_subject, where, trouble, reason), again};
}

Error Transfer::stopped() const {
    return Error{
        stopped_error().kind,
        redact(fmt::format("stopped while {} ({} {})", phase_name(phase()), m_subject.method, m_subject.place)),
        {},
        {}};
}

// Checks our own limits; sets m_error if one is exceeded.
bool Transfer::overdue() {
    const Clock::Monotonic now = m_clock.monotonic();
    const auto late = [this](std::string_view reason) {
        m_error = transport_error(m_subject, phase(), Trouble::timed_out, reason);
        return true;
    };
    const auto seconds = [](std::chrono::milliseconds d) { return static_cast<double>(d.count()) / 1000.0; };
    if (m_deadline && now >= *m_deadline) {
        late(fmt::format("not finished within the time limit of {:g} s", seconds(m_request.total_timeout)));
        m_error->kind = ErrorKind::timeout;
        return true;
    }
    if (!m_connected) return false;  // until then, libcurl's connect timeout applies
    if (phase() == Phase::waiting) {
        if (now - m_last_sent < m_request.first_byte_timeout) return false;
        return late(fmt::format("no data for {:g} s", seconds(m_request.first_byte_timeout)));
    }
    if (m_request.low_speed_bytes_per_s <= 0 || now - m_window_start < m_request.low_speed_time) return false;
    if (m_window_bytes < m_request.low_speed_bytes_per_s * m_request.low_speed_time.count()) {
        return late(fmt::format("slower than {} bytes/s for {} s", m_request.low_speed_bytes_per_s,
                                m_request.low_speed_time.count()));
    }
    m_window_start = now;
    m_window_bytes = 0;
    return false;
}

// libcurl's result; nullopt: we gave up, and m_error says why.
std::optional<CURLcode> Transfer::drive(CURLM* multi) {
    while (true) {
        int running = 0;
        const CURLMcode rc = m_api.curl_multi_perform(multi, &running);
        if (rc != CURLM_OK) {
            m_error = Error{ErrorKind::internal, fmt::format("libcurl: {}", m_api.curl_multi_strerror(rc)), {}, {}};
            return std::nullopt;
        }
        int queued = 0;
        while (const CURLMsg* message = m_api.curl_multi_info_read(multi, &queued)) {
            if (message->msg == CURLMSG_DONE && message->easy_handle == m_easy) return message->data.result;
        }
        if (m_request.stop.stop_requested()) {
            m_error = stopped();
            return std::nullopt;
        }
        if (overdue()) return std::nullopt;
        m_api.curl_multi_poll(multi, nullptr, 0, k_poll_ms, nullptr);
    }
}

tl::expected<Answer, TransferError> Transfer::run(CURLM* multi) {
    if (m_request.stop.stop_requested()) return tl::unexpected(TransferError{stopped(), false});
    if (Status status = prepare(); !status) return tl::unexpected(TransferError{std::move(status).error(), false});
    if (const CURLMcode rc = m_api.curl_multi_add_handle(multi, m_easy); rc != CURLM_OK) {
        return tl::unexpected(TransferError{
            Error{ErrorKind::internal, fmt::format("libcurl: {}", m_api.curl_multi_strerror(rc)), {}, {}}, false});
    }
    const std::optional<CURLcode> code = drive(multi);
    m_api.curl_multi_remove_handle(multi, m_easy);

    if (m_sink.error()) return tl::unexpected(TransferError{*m_sink.error(), false});
    if (m_error) {
        const bool silence = !code && m_error->kind == ErrorKind::infrastructure && !m_sink.called_back();
        return tl::unexpected(TransferError{*m_error, silence});
    }
    // The sink stops a transfer without an error once it has all it wants.
    const bool enough = code == CURLE_WRITE_ERROR && status() != 0;
    if (code != CURLE_OK && !enough) return tl::unexpected(broken(*code));
    if (auto error = refused_by_proxy()) return tl::unexpected(TransferError{std::move(*error), false});

    m_sink.finish(status());
    if (m_sink.error()) return tl::unexpected(TransferError{*m_sink.error(), false});
    Answer answer;
    answer.status = status();
    answer.headers = headers();
    answer.received_bytes = m_sink.received();
    answer.body = m_sink.take_body();
    const char* target = info<char*>(CURLINFO_REDIRECT_URL, nullptr);
    if (is_redirect(answer.status) && target != nullptr) answer.redirect_url = target;
    return answer;
}

Status Transfer::begin(HttpReceiver& receiver) {
    m_receiver = &receiver;
    return prepare();
}

HttpEnd Transfer::end(std::optional<CURLcode> code) {
    HttpEnd end;
    end.unwanted = m_unwanted;
    if (m_unwanted) return end;
    if (m_error) {
        end.error = m_error;
        end.worth_another_try = !code && m_error->kind == ErrorKind::infrastructure;
        return end;
    }
    if (code != CURLE_OK) {
        TransferError error = broken(*code);
        end.error = std::move(error.error);
        end.worth_another_try = error.worth_another_try;
        return end;
    }
    end.error = refused_by_proxy();
    if (end.error) return end;
    end.unwanted = !deliver_head();
    const char* target = info<char*>(CURLINFO_REDIRECT_URL, nullptr);
    if (is_redirect(status()) && target != nullptr) end.redirect_url = target;
    return end;
}

bool Transfer::deliver_head() {
    if (std::exchange(m_head_delivered, true)) return true;
    return m_receiver->on_head(status(), headers());
}

bool Transfer::deliver(std::string_view bytes) {
    if (!m_head_delivered && refused_by_proxy()) return true;  // end() reports it
    if (deliver_head() && m_receiver->on_body(bytes)) return true;
    m_unwanted = true;
    return false;
}

std::size_t Transfer::on_header(char* /*data*/, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (!transfer.m_head_begun) {
        transfer.m_head_begun = true;
        transfer.m_window_start = transfer.m_clock.monotonic();
        transfer.m_window_bytes = 0;
    }
    transfer.m_window_bytes += static_cast<std::int64_t>(size * count);
    transfer.m_head_bytes += size * count;
    if (transfer.m_head_bytes <= k_head_limit) return size * count;
    transfer.m_error = transport_error(transfer.m_subject, Phase::receiving, Trouble::not_http,
                                       fmt::format("the headers are larger than {} KiB", k_head_limit >> 10));
    return 0;
}

std::size_t Transfer::on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.m_window_bytes += static_cast<std::int64_t>(size * count);
    const std::string_view bytes(data, size * count);
    const bool taken =
        transfer.m_receiver != nullptr ? transfer.deliver(bytes) : transfer.m_sink.write(transfer.status(), bytes);
    return taken ? bytes.size() : 0;
}

std::size_t Transfer::on_send(char* buffer, std::size_t size, std::size_t count, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const auto left = static_cast<std::size_t>(transfer.m_body_size - transfer.m_body_sent);
    const std::size_t wanted = std::min(size * count, left);
    transfer.m_last_sent = transfer.m_clock.monotonic();
    if (wanted == 0) return 0;
    std::size_t given = wanted;
    if (transfer.m_body_fd.valid()) {
        const ssize_t got = ::pread(transfer.m_body_fd.get(), buffer, wanted, transfer.m_body_sent);
        if (got <= 0) {
            const std::string reason =
                got == 0 ? "it shrank while it was being sent" : std::generic_category().message(errno);
            transfer.m_error = Error{ErrorKind::local_io,
                                     fmt::format("cannot read {}: {}", transfer.m_request.body_file.string(), reason),
                                     {},
                                     {}};
            return CURL_READFUNC_ABORT;
        }
        given = static_cast<std::size_t>(got);
    } else {
        std::memcpy(buffer, transfer.m_request.body.data() + transfer.m_body_sent, given);
    }
    transfer.m_body_sent += static_cast<std::int64_t>(given);
    transfer.m_window_bytes += static_cast<std::int64_t>(given);
    return given;
}

// libcurl sends the body again when a kept-alive connection turns out to be dead.
int Transfer::on_rewind(void* self, curl_off_t offset, int origin) {
    auto& transfer = *static_cast<Transfer*>(self);
    if (origin != SEEK_SET || offset < 0 || offset > transfer.m_body_size) return CURL_SEEKFUNC_CANTSEEK;
    transfer.m_body_sent = offset;
    return CURL_SEEKFUNC_OK;
}

CURLcode Transfer::on_tls(CURL* /*easy*/, void* /*ssl_context*/, void* self) {
    static_cast<Transfer*>(self)->m_tls_begun = true;
    return CURLE_OK;
}

int Transfer::on_connected(void* self, char* /*primary_ip*/, char* /*local_ip*/, int /*primary_port*/,
                           int /*local_port*/) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.m_connected = true;
    transfer.m_last_sent = transfer.m_clock.monotonic();
    transfer.m_window_start = transfer.m_last_sent;
    transfer.m_window_bytes = 0;
    return CURL_PREREQFUNC_OK;
}

}  // namespace gdnctl::http
