#include <map>

#include "support/fake_http.h"
#include "unit/platform/http_support.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

using Values = std::map<std::string, std::string>;

class MapEnv final : public Env {
public:
    explicit MapEnv(Values values) : m_values(std::move(values)) {}
    std::optional<std::string> get(std::string_view name) const override {
        const auto found = m_values.find(std::string(name));
        return found == m_values.end() ? std::nullopt : std::optional(found->second);
    }
    Values all() const override { return m_values; }

private:
    Values m_values;
};

}  // namespace

TEST_CASE("http setup: loopback never goes through a proxy, and the environment's CA file is honoured") {
    const auto plain = http::settings_from(MapEnv(Values{}));
    CHECK(plain.no_proxy == "localhost,127.0.0.1,::1");
    CHECK(plain.ca_file.empty());
    CHECK(plain.user_agent.starts_with("gdnctl/"));
    CHECK(plain.user_agent.size() > std::string("gdnctl/").size());
    const auto rich = http::settings_from(
        MapEnv(Values{{"NO_PROXY", "intern.example"}, {"SSL_CERT_FILE", "/b.pem"}, {"CURL_CA_BUNDLE", "/a.pem"}}));
    CHECK(rich.no_proxy == "localhost,127.0.0.1,::1,intern.example");
    CHECK(rich.ca_file == "/b.pem");  // the one that the hint names
    CHECK(http::settings_from(MapEnv(Values{{"no_proxy", "*"}})).no_proxy == "*");
}

TEST_CASE("http setup: a folder of certificates, by any of the names") {
    const auto folder = http::settings_from(MapEnv(Values{{"SSL_CERT_FILE", "/usr"}, {"SSL_CERT_DIR", "/etc:/opt"}}));
    CHECK(folder.ca_file.empty());
    CHECK(folder.ca_folder == "/etc:/opt:/usr");
    CHECK(http::settings_from(MapEnv(Values{{"REQUESTS_CA_BUNDLE", "/usr"}})).ca_folder == "/usr");
}

TEST_CASE("http setup: a proxy's name for messages never has its password") {
    const auto one = http::settings_from(MapEnv(Values{{"HTTPS_PROXY", "http://me:sec@ret/word@proxy.corp:3128/x"},
                                                       {"HTTP_PROXY", "not-used"},
                                                       {"all_proxy", "socks.corp:1080"}}));
    CHECK(one.https_proxy.variable == "HTTPS_PROXY");
    CHECK(one.https_proxy.place == "proxy.corp:3128");
    CHECK(one.https_proxy.with_user);
    CHECK(one.http_proxy.variable == "all_proxy");
    CHECK(one.http_proxy.place == "socks.corp:1080");
    CHECK_FALSE(one.http_proxy.with_user);
    CHECK(http::settings_from(MapEnv(Values{{"https_proxy", ""}, {"ALL_PROXY", "x"}})).https_proxy.variable.empty());
}

TEST_CASE("http setup: a libcurl before 7.85 is refused with the version that is needed") {
    CHECK(http::check_curl_version(0x075801, "7.88.1").has_value());
    CHECK(http::check_curl_version(0x075500, "7.85.0").has_value());
    const Status old = http::check_curl_version(0x075400, "7.84.0");
    REQUIRE_FALSE(old.has_value());
    CHECK(old.error().kind == ErrorKind::infrastructure);
    CHECK(old.error().message == "libcurl 7.84.0 is too old: 7.85 or newer is needed");
    CHECK_FALSE(old.error().hint.empty());
}

TEST_CASE("http setup: the real client is one object") { CHECK(&system_http() == &system_http()); }

TEST_CASE("fake http: answers in order and delivers where the request wants it") {
    FakeHttp http;
    http.expect("GET", "http://h/a").reply(200, "body", {{"etag", "x"}});
    http.expect("POST", "http://h/b").look([](const HttpRequest& request) { CHECK(request.body == "q"); });
    http.expect("GET", "http://h/c").fail(Error{ErrorKind::infrastructure, "down", {}, {}});
    HttpRequest request;
    request.url = "http://h/a";
    std::string got;
    request.on_chunk = [&got](std::string_view piece) {
        got += piece;
        return true;
    };
    CHECK(http.send(request)->header("etag") == "x");
    CHECK(got == "body");
    request.method = "POST";
    request.url = "http://h/b";
    request.body = "q";
    CHECK(http.send(request)->status == 200);
    request.method = "GET";
    request.url = "http://h/c";
    CHECK(http.send(request).error().message == "down");
}

TEST_CASE("fake http: complains about an unexpected request and about one that never came") {
    std::vector<std::string> complaints;
    {
        FakeHttp http([&complaints](const std::string& complaint) { complaints.push_back(complaint); });
        http.expect("GET", "http://h/a");
        http.expect("GET", "http://h/b");
        HttpRequest request;
        request.url = "http://h/b";
        CHECK_FALSE(http.send(request).has_value());
        REQUIRE(complaints.size() == 1);
        CHECK(complaints[0] == "unexpected request GET http://h/b; expected: GET http://h/a");
    }
    REQUIRE(complaints.size() == 3);
    CHECK(complaints[1] == "request never came: GET http://h/a");
    CHECK(complaints[2] == "request never came: GET http://h/b");
}
