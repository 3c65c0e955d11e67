// What the tests of the HTTP client share.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include "core/log.h"
#include "platform/http_curl.h"
#include "support/fake_clock.h"
#include "support/loopback_server.h"

namespace gdnctl::test {

// A client on a fake clock, and a server; at the end nothing of the script may be left.
struct HttpWorld {
    FakeClock clock;
    LoopbackServer server;
    http::CurlHttp http{clock, {"gdnctl/9.9", "localhost,127.0.0.1,::1", "", "", {}, {}}};

    HttpWorld() {
        log::set_sink([](log::Level, std::string_view) {});
    }
    ~HttpWorld() {
        log::set_sink(nullptr);
        for (const std::string& complaint : server.complaints()) FAIL_CHECK(complaint);
    }
    HttpWorld(const HttpWorld&) = delete;
    HttpWorld& operator=(const HttpWorld&) = delete;

    HttpRequest get(std::string_view path = "/") const {
        HttpRequest request;
        request.url = server.url(path);
        return request;
    }
};

inline bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace gdnctl::test
