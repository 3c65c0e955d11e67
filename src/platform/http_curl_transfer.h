// One request and its answer over libcurl, without redirects or retries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "platform/clock.h"
#include "platform/fd.h"
#include "platform/http.h"
#include "platform/http_curl_api.h"
#include "platform/http_error.h"
#include "platform/http_policy.h"
#include "platform/http_pool.h"
#include "platform/http_sink.h"

namespace gdnctl::http {

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

struct Url {
    Origin origin;
    std::string host;   // host[:port], without the scheme's default port
    std::string place;  // scheme://host[:port]/path, without query
};

// Errors: usage. A URL with a user name or password is refused, since it would end up in logs and process lists.
Result<Url> parse_url(const CurlApi& api, const std::string& url);

// One step of a request: the original request, or the one that a redirect asks for.
struct Hop {
    std::string method;
    std::string url;
    Url parsed;
    bool with_body = true;
    bool with_credentials = true;
};

struct Answer {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    std::optional<std::string> redirect_url;  // absolute
    std::int64_t received_bytes = 0;
};

struct TransferError {
    Error error;
    bool worth_another_try = false;
};

class Transfer {
public:
    // `deadline`: the request's total timeout, on `clock`.
    Transfer(const CurlApi& api, const CurlSettings& settings, const HttpRequest& request, const Hop& hop,
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
    const Hop& m_hop;
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

}  // namespace gdnctl::http
