#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/http_curl.h"
#include "platform/progress.h"
#include "platform/signals.h"

namespace gdnctl::http {

Status check_curl_version(unsigned version_number, std::string_view version_text) {
    constexpr unsigned k_oldest = 0x075500;  // 7.85.0
    if (version_number >= k_oldest) return {};
    return fail(ErrorKind::infrastructure, fmt::format("libcurl {} is too old: 7.85 or newer is needed", version_text),
                "apt-get install libcurl4");
}

Result<const CurlApi*> curl_api() {
    GDNCTL_TRY_ASSIGN(const CurlApi* api, late_api<CurlApi>());
    static std::mutex mutex;
    static bool initialised = false;
    const std::lock_guard lock(mutex);
    if (!initialised) {
        const curl_version_info_data* info = api->curl_version_info(CURLVERSION_NOW);
        GDNCTL_TRY(check_curl_version(info->version_num, info->version));
        const CURLcode rc = api->curl_global_init(CURL_GLOBAL_DEFAULT);
        if (rc != CURLE_OK) {
            return fail(ErrorKind::infrastructure,
                        fmt::format("libcurl cannot be initialised: {}", api->curl_easy_strerror(rc)));
        }
        initialised = true;
    }
    return api;
}

namespace {

bool is_success(int status) { return status >= 200 && status < 300; }

std::string reason_of(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

BodySink::~BodySink() {
    if (m_fd >= 0) ::close(m_fd);
}

bool BodySink::fail_with(ErrorKind kind, std::string message, std::string hint) {
    m_error = Error{kind, std::move(message), std::move(hint), {}};
    return false;
}

bool BodySink::open_file() {
    if (m_fd >= 0) return true;
    m_fd = ::open(m_request.to_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (m_fd >= 0) return true;
    return fail_with(ErrorKind::local_io,
                     fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                     "check that the folder exists and is writable");
}

bool BodySink::write_file(std::string_view data) {
    if (!open_file()) return false;
    while (!data.empty()) {
        const ssize_t written = ::write(m_fd, data.data(), data.size());
        if (written < 0) {
            if (errno == EINTR) continue;
            return fail_with(ErrorKind::local_io,
                             fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                             "free space on that disk, or choose another place");
        }
        data.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

bool BodySink::keep(std::string_view data, std::size_t limit, bool cut) {
    const std::size_t room = limit - std::min(limit, m_body.size());
    m_body.append(data.substr(0, room));
    if (data.size() <= room) return true;
    if (cut) return false;
    return fail_with(ErrorKind::bad_input, fmt::format("the answer is larger than {} bytes", limit),
                     "request less, or write the answer to a file");
}

bool BodySink::write(int status, std::string_view data) {
    m_received += static_cast<std::int64_t>(data.size());
    if (!is_success(status)) return keep(data, std::min(k_error_body, m_request.body_limit), true);
    if (!m_request.to_file.empty()) return write_file(data);
    if (m_request.on_chunk) {
        m_called_back = true;
        return m_request.on_chunk(data);
    }
    return keep(data, m_request.body_limit, false);
}

void BodySink::finish(int status) {
    if (is_success(status) && !m_request.to_file.empty() && !open_file()) return;
    if (m_fd >= 0 && ::close(std::exchange(m_fd, -1)) != 0) {
        fail_with(ErrorKind::local_io, fmt::format("cannot write {}: {}", m_request.to_file.string(), reason_of(errno)),
                  {});
    }
}

namespace {

std::string part_of(const CurlApi& api, CURLU* url, CURLUPart part, unsigned flags = 0) {
    char* text = nullptr;
    if (api.curl_url_get(url, part, &text, flags) != CURLUE_OK || text == nullptr) return {};
    std::string copy(text);
    api.curl_free(text);
    return copy;
}

tl::unexpected<Error> bad_url(const std::string& url, std::string_view reason) {
    return fail(ErrorKind::usage, redact(fmt::format("cannot use the URL '{}': {}", url, reason)),
                "use the form http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH");
}

}  // namespace

Result<Address> parse_address(const CurlApi& api, const std::string& url) {
    const std::unique_ptr<CURLU, void (*)(CURLU*)> handle(api.curl_url(), api.curl_url_cleanup);
    if (handle == nullptr) return fail(ErrorKind::internal, "out of memory for a URL");
    const CURLUcode rc = api.curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME);
    if (rc != CURLUE_OK) return bad_url(url, api.curl_url_strerror(rc));

    Address parsed;
    parsed.scheme = part_of(api, handle.get(), CURLUPART_SCHEME);
    if (parsed.scheme != "http" && parsed.scheme != "https") {
        return bad_url(url, fmt::format("{} is not supported, only http and https", parsed.scheme));
    }
    if (!part_of(api, handle.get(), CURLUPART_USER).empty() ||
        !part_of(api, handle.get(), CURLUPART_PASSWORD).empty()) {
        return bad_url(url, "it contains a user name or password");
    }
    parsed.host_name = part_of(api, handle.get(), CURLUPART_HOST);
    const std::string port = part_of(api, handle.get(), CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);
    parsed.host = port.empty() ? parsed.host_name : parsed.host_name + ":" + port;
    parsed.place = parsed.scheme + "://" + parsed.host + part_of(api, handle.get(), CURLUPART_PATH);
    return parsed;
}

// Turns a request into libcurl options. Every option is checked: an unknown protocol name, for example, would otherwise
// silently disable the restriction.

// Remembers the first option that libcurl refuses.
template <class V>
void Transfer::set(CURLoption option, V value) {
    static_assert(std::is_same_v<V, long> || std::is_same_v<V, curl_off_t> || std::is_pointer_v<V>,
                  "libcurl reads its argument as long, curl_off_t or a pointer");
    const CURLcode rc = (m_api.curl_easy_setopt)(m_easy, option, value);
    if (rc == CURLE_OK || !m_option_status) return;
    const curl_easyoption* known = m_api.curl_easy_option_by_id(option);
    m_option_status = fail(ErrorKind::infrastructure,
                           fmt::format("libcurl rejects the option {}: {}",
                                       known != nullptr ? known->name : std::to_string(static_cast<int>(option)),
                                       m_api.curl_easy_strerror(rc)),
                           "apt-get install libcurl4");
}

void Transfer::set_fixed_options() {
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, &m_reason[0]);
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_USERAGENT, m_settings.user_agent.c_str());
    set(CURLOPT_NOPROXY, m_settings.no_proxy.c_str());
    if (!m_settings.ca_file.empty()) set(CURLOPT_CAINFO, m_settings.ca_file.c_str());
    if (!m_settings.ca_folder.empty()) set(CURLOPT_CAPATH, m_settings.ca_folder.c_str());
    set(CURLOPT_URL, m_request.url.c_str());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(m_request.connect_timeout.count()));
    // 7.87: do not wait for a resolver thread when a transfer is given up. Older versions wait, which is only slower.
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_QUICK_EXIT, 1L);
    const bool to_memory = m_request.to_file.empty() && !m_request.on_chunk && m_receiver == nullptr;
    if (m_receiver != nullptr && !m_request.decoded) {
        // One connection per transfer: parallel streams of HTTP/2 would share one connection's window.
        set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    }
    if (to_memory || m_request.decoded)
        set(CURLOPT_ACCEPT_ENCODING, "");  // all encodings that libcurl can undo; files and callbacks get raw bytes
    if (!to_memory) set(CURLOPT_BUFFERSIZE, 256L << 10);
}

void Transfer::set_callbacks() {
    void* self = this;
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, self);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    set(CURLOPT_WRITEDATA, self);
    set(CURLOPT_READFUNCTION, &Transfer::on_send);
    set(CURLOPT_READDATA, self);
    set(CURLOPT_SEEKFUNCTION, &Transfer::on_rewind);
    set(CURLOPT_SEEKDATA, self);
    // Only to know the phase. A libcurl without OpenSSL refuses it, and the TLS phase is then reported as connecting.
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_SSL_CTX_FUNCTION, &Transfer::on_tls);
    (m_api.curl_easy_setopt)(m_easy, CURLOPT_SSL_CTX_DATA, self);
    set(CURLOPT_PREREQFUNCTION, &Transfer::on_connected);
    set(CURLOPT_PREREQDATA, self);
}

Status Transfer::set_method_and_body() {
    const std::string& method = m_request.method;
    if (!is_valid_method(method)) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not an HTTP method", method));
    }
    if (!m_request.body_file.empty()) {
        m_body_fd.reset(::open(m_request.body_file.c_str(), O_RDONLY | O_CLOEXEC));
        struct stat facts{};
        if (!m_body_fd.valid() || ::fstat(m_body_fd.get(), &facts) != 0) {
            return fail(ErrorKind::local_io, fmt::format("cannot read {}: {}", m_request.body_file.string(),
                                                         std::generic_category().message(errno)));
        }
        m_body_size = facts.st_size;
    } else {
        m_body_size = static_cast<std::int64_t>(m_request.body.size());
    }
    const bool expects_body = method == "POST" || method == "PUT" || method == "PATCH";
    if (m_body_size > 0 || expects_body || m_body_fd.valid()) {
        set(CURLOPT_UPLOAD, 1L);
        set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(m_body_size));
        set(CURLOPT_CUSTOMREQUEST, method.c_str());
    } else if (method == "HEAD") {
        set(CURLOPT_NOBODY, 1L);
    } else if (method == "GET") {
        set(CURLOPT_HTTPGET, 1L);
    } else {
        set(CURLOPT_CUSTOMREQUEST, method.c_str());
    }
    return {};
}

Status Transfer::add_header(const std::string& name, const std::string& value) {
    if (!is_valid_header(name, value)) {
        return fail(ErrorKind::usage, "a header name or value contains characters that HTTP does not allow",
                    "check the value for line breaks, for example in a token read from a file");
    }
    // In libcurl's syntax, a header without a value ends in a semicolon.
    const std::string line = value.empty() ? name + ";" : name + ": " + value;
    curl_slist* longer = m_api.curl_slist_append(m_header_list, line.c_str());
    if (longer == nullptr) return fail(ErrorKind::internal, "out of memory for a header");
    m_header_list = longer;
    return {};
}

Status Transfer::set_headers() {
    // Without this a PUT waits up to a second for "100 Continue", which the job server never sends.
    m_header_list = m_api.curl_slist_append(nullptr, "Expect:");
    for (const auto& [name, value] : m_request.headers) {
        GDNCTL_TRY(add_header(name, value));
    }
    if (m_receiver != nullptr && !m_request.decoded) GDNCTL_TRY(add_header("Accept-Encoding", "identity"));
    for (const auto& [name, value] : m_request.secret_headers) GDNCTL_TRY(add_header(name, value));
    set(CURLOPT_HTTPHEADER, m_header_list);
    return {};
}

Status Transfer::prepare() {
    m_easy = m_api.curl_easy_init();
    if (m_easy == nullptr) return fail(ErrorKind::internal, "libcurl cannot create a handle (out of memory)");
    set_fixed_options();
    set_callbacks();
    GDNCTL_TRY(set_method_and_body());
    GDNCTL_TRY(set_headers());
    return m_option_status;
}

namespace {

// A stop request or timeout is noticed within this time.
constexpr int k_poll_ms = 50;
constexpr std::size_t k_head_limit = std::size_t{256} << 10;  // bytes of all header lines, interim answers included

TransportError transport_error_of(CURLcode code) {
    switch (code) {
        case CURLE_OPERATION_TIMEDOUT: return TransportError::timed_out;
        case CURLE_PEER_FAILED_VERIFICATION:
        case CURLE_SSL_ISSUER_ERROR:
        case CURLE_SSL_CACERT_BADFILE: return TransportError::bad_peer;
        case CURLE_WEIRD_SERVER_REPLY:
        case CURLE_UNSUPPORTED_PROTOCOL:
        case CURLE_BAD_CONTENT_ENCODING: return TransportError::not_http;
        case CURLE_COULDNT_RESOLVE_HOST:
        case CURLE_COULDNT_RESOLVE_PROXY:
        case CURLE_COULDNT_CONNECT:
        case CURLE_SSL_CONNECT_ERROR:
        case CURLE_GOT_NOTHING:
        case CURLE_SEND_ERROR:
        case CURLE_RECV_ERROR:
        case CURLE_PARTIAL_FILE:
        case CURLE_HTTP2:
        case CURLE_HTTP2_STREAM: return TransportError::cut;
        default: return TransportError::other;
    }
}

}  // namespace

Transfer::Transfer(const CurlApi& api, const CurlSettings& settings, const HttpRequest& request, const Address& address,
                   const Clock& clock, std::optional<Clock::Monotonic> deadline)
    : m_api(api),
      m_settings(settings),
      m_request(request),
      m_address(address),
      m_clock(clock),
      m_deadline(deadline),
      m_sink(request),
      m_subject{request.method, address.place, address.host} {}

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
    const Proxy& proxy = m_address.scheme == "https" ? m_settings.https_proxy : m_settings.http_proxy;
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
    const TransportError cause = transport_error_of(code);
    std::string reason = m_reason[0] != '\0' ? &m_reason[0] : m_api.curl_easy_strerror(code);
    const long error_number = info<long>(CURLINFO_OS_ERRNO, 0);
    // libcurl's message names the address that it tried; if that is not the host's, it is a proxy's.
    const bool by_proxy = reason.find(m_address.host_name) == std::string::npos;
    if (where == Phase::connecting && cause == TransportError::cut && error_number > 0 && !by_proxy) {
        reason = std::generic_category().message(static_cast<int>(error_number));
    }
    if (cause == TransportError::bad_peer && !(m_settings.ca_file.empty() && m_settings.ca_folder.empty())) {
        const bool both = !m_settings.ca_file.empty() && !m_settings.ca_folder.empty();
        reason += fmt::format(" (CA certificates: {}{}{})", m_settings.ca_file, both ? ", " : "", m_settings.ca_folder);
    }
    const bool again = (cause == TransportError::cut || cause == TransportError::timed_out) && !m_sink.called_back();
    return {transport_error(m_subject, where, cause, reason), again};
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
        m_error = transport_error(m_subject, phase(), TransportError::timed_out, reason);
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
        Progress::keep_ticking();
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
    transfer.m_error = transport_error(transfer.m_subject, Phase::receiving, TransportError::not_http,
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
