// An Http that knows its script: requests come in this order, each exactly once. A request that is not next in the
// script, and one that never came, both fail the test.
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
    // What to do with a complaint. Default: fail the running test.
    using Complain = std::function<void(const std::string&)>;

    class Expected {
    public:
        // The answer; without one it is 200 with an empty body.
        Expected& reply(int status, std::string body = {},
                        std::vector<std::pair<std::string, std::string>> headers = {});
        Expected& fail(Error error);
        // Looks at the request before it is answered; makes its own CHECKs.
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
    // Delivers a 2xx body where the request wants it, as the real client does.
    Result<HttpResponse> send(const HttpRequest& request) override;
    // Complains about what was not asked for, once. The destructor does it too.
    void verify();

private:
    Complain m_complain;
    std::mutex m_mutex;
    std::deque<Expected> m_script;
};

}  // namespace gdnctl::test
