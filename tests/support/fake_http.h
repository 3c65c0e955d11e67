// An Http with a script: requests must come in its order, each exactly once. An unexpected request and a missing one
// both fail the test.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "platform/http.h"

namespace gdnctl::test {

class FakeHttp final : public Http {
public:
    // How to report a problem. Default: fails the running test.
    using Complain = std::function<void(const std::string&)>;

    class Expected {
    public:
        // The answer; by default 200 with an empty body.
        Expected& reply(int status, std::string body = {},
                        std::vector<std::pair<std::string, std::string>> headers = {});
        Expected& fail(Error error);
        // Inspects the request before it is answered; makes its own CHECKs.
        Expected& look(std::function<void(const HttpRequest&)> look);

    private:
        friend class FakeHttp;
        std::string m_method;
        std::string m_url;
        HttpResponse m_response;
        std::optional<Error> m_error;
        std::function<void(const HttpRequest&)> m_look;
    };

    FakeHttp();
    explicit FakeHttp(Complain complain) : m_complain(std::move(complain)) {}
    ~FakeHttp() override { verify(); }
    FakeHttp(const FakeHttp&) = delete;
    FakeHttp& operator=(const FakeHttp&) = delete;

    Expected& expect(std::string method, std::string url);
    // Delivers a 2xx body to where the request wants it, like the real client.
    Result<HttpResponse> send(const HttpRequest& request) override;
    // Reports missing requests, once. The destructor calls it too.
    void verify();

private:
    Complain m_complain;
    std::mutex m_mutex;
    std::deque<Expected> m_script;
};

}  // namespace gdnctl::test
