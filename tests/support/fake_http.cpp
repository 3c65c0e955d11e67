#include "support/fake_http.h"

#include <fstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

namespace gdnctl::test {

namespace {

Result<HttpResponse> deliver(const HttpRequest& request, HttpResponse response) {
    response.received_bytes = static_cast<std::int64_t>(response.body.size());
    response.effective_url = request.url;
    const bool to_caller = response.status >= 200 && response.status < 300;
    if (to_caller && !request.to_file.empty()) {
        std::ofstream(request.to_file, std::ios::binary) << response.body;
        response.body.clear();
    } else if (to_caller && request.on_chunk) {
        if (!response.body.empty()) request.on_chunk(response.body);
        response.body.clear();
    }
    return response;
}

}  // namespace

FakeHttp::Expected& FakeHttp::Expected::reply(int status, std::string body,
                                              std::vector<std::pair<std::string, std::string>> headers) {
    m_response.status = status;
    m_response.body = std::move(body);
    m_response.headers = std::move(headers);
    return *this;
}

FakeHttp::Expected& FakeHttp::Expected::fail(Error error) {
    m_error = std::move(error);
    return *this;
}

FakeHttp::Expected& FakeHttp::Expected::look(std::function<void(const HttpRequest&)> look) {
    m_look = std::move(look);
    return *this;
}

FakeHttp::FakeHttp() : FakeHttp([](const std::string& complaint) { FAIL_CHECK(complaint); }) {}

FakeHttp::Expected& FakeHttp::expect(std::string method, std::string url) {
    const std::lock_guard lock(m_mutex);
    Expected& expected = m_script.emplace_back();
    expected.m_method = std::move(method);
    expected.m_url = std::move(url);
    expected.m_response.status = 200;
    return expected;
}

Result<HttpResponse> FakeHttp::send(const HttpRequest& request) {
    Expected expected;
    {
        const std::lock_guard lock(m_mutex);
        if (m_script.empty() || m_script.front().m_method != request.method || m_script.front().m_url != request.url) {
            const std::string next = m_script.empty()
                                         ? "nothing more"
                                         : fmt::format("{} {}", m_script.front().m_method, m_script.front().m_url);
            const std::string complaint =
                fmt::format("unexpected request {} {}; expected: {}", request.method, request.url, next);
            m_complain(complaint);
            return gdnctl::fail(ErrorKind::internal, complaint);
        }
        expected = std::move(m_script.front());
        m_script.pop_front();
    }
    if (expected.m_look) expected.m_look(request);
    if (expected.m_error) return tl::unexpected(*expected.m_error);
    return deliver(request, std::move(expected.m_response));
}

void FakeHttp::verify() {
    const std::lock_guard lock(m_mutex);
    for (const Expected& unused : m_script) {
        m_complain(fmt::format("request never came: {} {}", unused.m_method, unused.m_url));
    }
    m_script.clear();
}

}  // namespace gdnctl::test
