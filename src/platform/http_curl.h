// HTTP on libcurl, opened on first use: its functions, where a body goes, one exchange, the pool, the client.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <curl/curl.h>

#include "core/result.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/http.h"
#include "platform/http_policy.h"
#include "platform/late_library.h"

// clang-format off: it has no stable layout for such a list
#define GDNCTL_CURL_API(X) \
    X(curl_global_init) X(curl_version_info) X(curl_easy_init) X(curl_easy_cleanup) X(curl_easy_setopt) \
    X(curl_easy_getinfo) X(curl_easy_nextheader) X(curl_easy_strerror) X(curl_easy_option_by_id) X(curl_multi_init) \
    X(curl_multi_cleanup) X(curl_multi_add_handle) X(curl_multi_remove_handle) X(curl_multi_perform) \
    X(curl_multi_poll) X(curl_multi_info_read) X(curl_multi_strerror) X(curl_slist_append) \
    X(curl_slist_free_all) X(curl_url) X(curl_url_cleanup) X(curl_url_set) X(curl_url_get) \
    X(curl_url_strerror) X(curl_free)
// clang-format on

namespace gdnctl::http {

GDNCTL_LATE_API(CurlApi, GDNCTL_CURL_API, "libcurl", "libcurl.so.4", "libcurl4")

// Opens libcurl, checks its version and initialises it, once. Thread-safe; called before any transfer.
Result<const CurlApi*> curl_api();

// CURLOPT_PROTOCOLS_STR, without which a redirect could reach file:// or smb://, came with 7.85.
Status check_curl_version(unsigned version_number, std::string_view version_text);

}  // namespace gdnctl::http

namespace gdnctl::http {

// Where the body of an answer goes: memory, a file or a callback.

// Only the body of a 2xx answer goes to the request's file or callback. The body of any other answer is kept in memory
// for the error text, cut at k_error_body bytes.
class BodySink {
public:
    static constexpr std::size_t k_error_body = 64u << 10;

    explicit BodySink(const HttpRequest& request) : m_request(request) {}
    ~BodySink();
    BodySink(const BodySink&) = delete;
    BodySink& operator=(const BodySink&) = delete;

    // False: stop the transfer. error() says why; without an error, the reader has all it wants.
    bool write(int status, std::string_view data);
    // Call after the last byte: an empty 2xx body leaves an empty file.
    void finish(int status);

    const std::optional<Error>& error() const { return m_error; }
    bool called_back() const { return m_called_back; }  // bytes reached the callback, so the request cannot be retried
    std::int64_t received() const { return m_received; }
    std::string take_body() { return std::move(m_body); }

private:
    bool open_file();
    bool write_file(std::string_view data);
    bool keep(std::string_view data, std::size_t limit, bool cut);
    bool fail_with(ErrorKind kind, std::string message, std::string hint);

    const HttpRequest& m_request;
    int m_fd = -1;
    bool m_called_back = false;
    std::int64_t m_received = 0;
    std::string m_body;
    std::optional<Error> m_error;
};

// One request and its answer over libcurl, without redirects or retries.

// A proxy of the environment, for messages; libcurl finds it by itself.
struct Proxy {
    std::string variable;  // "HTTPS_PROXY"; empty: there is none
    std::string place;     // host:port, without user name and password
    bool with_user = false;
};

// Settings that are the same for all requests.
struct CurlSettings {
    std::string user_agent;
    std::string no_proxy;   // CURLOPT_NOPROXY
    std::string ca_file;    // CURLOPT_CAINFO; empty: libcurl's own
    std::string ca_folder;  // CURLOPT_CAPATH, or several with colons between them; empty: libcurl's own
    Proxy http_proxy, https_proxy;

    // Adds a file or a folder of CA certificates.
    void trust(const std::string& path);
};

// The parts of a request's address that messages and the choice of a proxy need.
struct Address {
    std::string scheme;     // "http" or "https"
    std::string host_name;  // without port
    std::string host;       // host[:port], without the scheme's default port
    std::string place;      // scheme://host[:port]/path, without query
};

// Errors: usage. A URL with a user name or password is refused, since it would end up in logs and process lists.
Result<Address> parse_address(const CurlApi& api, const std::string& url);

struct Answer {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    std::int64_t received_bytes = 0;
};

struct TransferError {
    Error error;
    bool worth_another_try = false;
};

class Transfer {
public:
    // `deadline`: the request's total timeout, on `clock`.
    Transfer(const CurlApi& api, const CurlSettings& settings, const HttpRequest& request, const Address& address,
             const Clock& clock, std::optional<Clock::Monotonic> deadline);
    ~Transfer();
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    // Runs on `multi`, which only this thread may use until the return.
    tl::expected<Answer, TransferError> run(CURLM* multi);

    // The same in steps, for one of many transfers on a multi handle; the answer goes to `receiver`. After begin(), add
    // handle() to the multi handle. Then call end() with libcurl's result or, if overdue() returned true, without one.
    Status begin(HttpReceiver& receiver);
    CURL* handle() const { return m_easy; }
    bool overdue();
    HttpEnd end(std::optional<CURLcode> code);

private:
    template <class V>
    void set(CURLoption option, V value);
    template <class V>
    V info(CURLINFO which, V otherwise) const;
    Status prepare();
    void set_fixed_options();
    void set_callbacks();
    Status set_method_and_body();
    Status set_headers();
    Status add_header(const std::string& name, const std::string& value);
    std::optional<CURLcode> drive(CURLM* multi);
    int status() const;  // 0: no status line yet
    HttpHeaders headers() const;
    Phase phase() const;
    bool deliver(std::string_view bytes);
    bool deliver_head();
    TransferError broken(CURLcode code) const;
    std::optional<Error> refused_by_proxy() const;
    Error stopped() const;

    static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self);
    static std::size_t on_send(char* buffer, std::size_t size, std::size_t count, void* self);
    static int on_rewind(void* self, curl_off_t offset, int origin);
    static CURLcode on_tls(CURL* easy, void* ssl_context, void* self);
    static int on_connected(void* self, char* primary_ip, char* local_ip, int primary_port, int local_port);

    const CurlApi& m_api;
    const CurlSettings& m_settings;
    const HttpRequest& m_request;
    const Address m_address;
    const Clock& m_clock;
    std::optional<Clock::Monotonic> m_deadline;
    BodySink m_sink;
    HttpReceiver* m_receiver = nullptr;  // replaces the sink
    bool m_head_delivered = false;
    bool m_unwanted = false;
    std::size_t m_head_bytes = 0;
    Subject m_subject;

    CURL* m_easy = nullptr;
    curl_slist* m_header_list = nullptr;
    Status m_option_status;        // the first option that libcurl refused
    std::optional<Error> m_error;  // our own error; takes precedence over libcurl's
    char m_reason[CURL_ERROR_SIZE] = {};

    UniqueFd m_body_fd;
    std::int64_t m_body_size = 0;
    std::int64_t m_body_sent = 0;
    bool m_tls_begun = false;
    bool m_connected = false;  // TLS included
    bool m_head_begun = false;
    Clock::Monotonic m_last_sent{};     // when the connection was made, or the last byte of the body was handed over
    Clock::Monotonic m_window_start{};  // low-speed limit: start of the current window
    std::int64_t m_window_bytes = 0;
};

// The HttpPool on libcurl: one multi handle.

class CurlPool final : public HttpPool {
public:
    static Result<std::unique_ptr<HttpPool>> open(const Clock& clock, CurlSettings settings);
    CurlPool(const CurlApi& api, CURLM* multi, const Clock& clock, CurlSettings settings)
        : m_api(api), m_multi(multi), m_clock(clock), m_settings(std::move(settings)) {}
    ~CurlPool() override;
    CurlPool(const CurlPool&) = delete;
    CurlPool& operator=(const CurlPool&) = delete;

    Status start(HttpRequest request, HttpReceiver& receiver) override;
    void cancel(HttpReceiver& receiver) override;
    bool idle() const override { return m_running.empty(); }
    Status step(std::chrono::milliseconds wait) override;

private:
    // A transfer refers to these members, so they must not move while it lives.
    struct Exchange {
        HttpRequest request;
        HttpReceiver* receiver = nullptr;
        std::unique_ptr<Transfer> transfer;
    };
    using Running = std::map<CURL*, std::unique_ptr<Exchange>>;

    void end(Running::iterator running, std::optional<CURLcode> code);
    bool collect();
    Status perform();

    const CurlApi& m_api;
    CURLM* m_multi;
    const Clock& m_clock;
    const CurlSettings m_settings;
    Running m_running;
};

// The Http on libcurl.

// NO_PROXY and the CA certificates, from the environment. Loopback never goes through a proxy. SSL_CERT_DIR and the
// first of SSL_CERT_FILE, CURL_CA_BUNDLE and REQUESTS_CA_BUNDLE, a file or a folder, are honoured; libcurl itself
// ignores them.
CurlSettings settings_from(const Env& env);

class CurlHttp final : public Http {
public:
    CurlHttp(Clock& clock, CurlSettings settings) : m_clock(clock), m_settings(std::move(settings)) {}
    ~CurlHttp() override;
    CurlHttp(const CurlHttp&) = delete;
    CurlHttp& operator=(const CurlHttp&) = delete;

    Result<HttpResponse> send(const HttpRequest& request) override;
    Result<std::unique_ptr<HttpPool>> open_pool(const HttpPoolSettings& settings) override;

private:
    tl::expected<HttpResponse, TransferError> send_once(const CurlApi& api, CURLM* multi, const HttpRequest& request,
                                                        std::optional<Clock::Monotonic> deadline);
    Result<HttpResponse> try_all(const CurlApi& api, CURLM* multi, const HttpRequest& request);
    Result<CURLM*> borrow_multi(const CurlApi& api);

    Clock& m_clock;
    const CurlSettings m_settings;
    std::mutex m_mutex;
    const CurlApi* m_api = nullptr;
    std::vector<CURLM*> m_idle;  // multi handles keep connections open; only one thread at a time uses one
};

}  // namespace gdnctl::http
