// The Http on libcurl.
#pragma once

#include <mutex>
#include <vector>

#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "platform/http_curl_transfer.h"

namespace gdnctl::http {

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
    tl::expected<HttpResponse, TransferError> follow(const CurlApi& api, CURLM* multi, const HttpRequest& request,
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
