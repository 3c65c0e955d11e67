// The HttpPool on libcurl: one multi handle.
#pragma once

#include <map>
#include <memory>

#include "platform/clock.h"
#include "platform/http_curl_transfer.h"
#include "platform/http_pool.h"

namespace gdnctl::http {

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
        Hop hop;
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

}  // namespace gdnctl::http
