// What the tests of the HTTP client share.
#include "platform/http_curl.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log.h"
#include "platform/http.h"
#include "support/fake_clock.h"
#include "support/fake_http.h"
#include "support/loopback_server.h"

namespace gdnctl::test {

namespace {

// A client on a fake clock, and a server; at the end nothing of the script may be left.
struct HttpFixture {
    FakeClock clock;
    LoopbackServer server;
    http::CurlHttp http{clock, {"gdnctl/9.9", "localhost,127.0.0.1,::1", "", "", {}, {}}};

    HttpFixture() {
        log::set_sink([](log::Level, std::string_view) {});
    }
    ~HttpFixture() {
        log::set_sink(nullptr);
        for (const std::string& complaint : server.complaints()) FAIL_CHECK(complaint);
    }
    HttpFixture(const HttpFixture&) = delete;
    HttpFixture& operator=(const HttpFixture&) = delete;

    HttpRequest get(std::string_view path = "/") const {
        HttpRequest request;
        request.url = server.url(path);
        return request;
    }
};

inline bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

}  // namespace gdnctl::test

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;

TEST_CASE("http: status, lower-case headers, body and user agent") {
    HttpFixture world;
    world.server.then(reply(200, "hello", {{"X-Mixed-CASE", " v "}}));
    const auto response = world.http.send(world.get("/a?b=1"));
    REQUIRE(response.has_value());
    CHECK(response->status == 200);
    CHECK(response->body == "hello");
    CHECK(response->header("x-mixed-case") == "v");
    CHECK(response->received_bytes == 5);
    CHECK(response->attempts == 1);
    const auto seen = world.server.requests();
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].method == "GET");
    CHECK(seen[0].target == "/a?b=1");
    CHECK(seen[0].header("user-agent") == "gdnctl/9.9");
    for (const char* browser : {"origin", "referer", "sec-fetch-mode", "expect"})
        CHECK_FALSE(seen[0].has_header(browser));
}

TEST_CASE("http: repeated headers stay in order, folded ones are one, interim answers leave nothing behind") {
    HttpFixture world;
    world.server.then([](Peer& peer) {
        peer.send(
            "HTTP/1.1 103 Early Hints\r\nX-Interim: 1\r\n\r\n"
            "HTTP/1.1 200 OK\r\nLink: <a>\r\nX-Long: one\r\n\t two\r\nlink: <b>\r\nContent-Length: 0\r\n\r\n");
    });
    const auto response = world.http.send(world.get());
    REQUIRE(response.has_value());
    CHECK(response->headers ==
          HttpHeaders{{"link", "<a>"}, {"x-long", "one two"}, {"link", "<b>"}, {"content-length", "0"}});
    CHECK(response->header("link") == "<a>");
    CHECK_FALSE(response->header("x-interim").has_value());
}

TEST_CASE("http: headers have a limit") {
    HttpFixture world;
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "X-Filler: " + std::string(8000, 'x') + "\r\n";
    world.server.then([&](Peer& peer) { peer.send("HTTP/1.1 200 OK\r\n" + lines + "\r\n"); });
    const auto response = world.http.send(world.get());
    REQUIRE_FALSE(response.has_value());
    CHECK(has(response.error().message, "the headers are larger than 256 KiB"));
}

TEST_CASE("http: an error page is an answer") {
    HttpFixture world;
    world.server.then(reply(404, "<html>nope</html>", {{"Content-Type", "text/html"}}));
    const auto response = world.http.send(world.get());
    REQUIRE(response.has_value());
    CHECK(response->status == 404);
    CHECK(response->body == "<html>nope</html>");
    CHECK(response->header("content-type") == "text/html");
}

TEST_CASE("http: chunked and slowly dripping answers arrive whole") {
    HttpFixture world;
    world.server.then(reply_chunked({"one ", "two ", "three"}));
    world.server.then([](Peer& peer) { peer.drip(head(200, {{"Content-Length", "9"}}) + "123456789", 1); });
    CHECK(world.http.send(world.get())->body == "one two three");
    CHECK(world.http.send(world.get())->body == "123456789");
}

TEST_CASE("http: POST and PUT send their body with a length and without Expect") {
    HttpFixture world;
    world.server.then(reply(200)).then(reply(200)).then(reply(200));
    HttpRequest request = world.get("/jobs");
    request.method = "POST";
    request.body = std::string(3u << 20, 'b');
    request.headers = {{"Content-Type", "application/json"}, {"X-Empty", ""}};
    REQUIRE(world.http.send(request).has_value());
    request.method = "PUT";
    request.body = "x";
    REQUIRE(world.http.send(request).has_value());
    request.method = "POST";
    request.body.clear();
    REQUIRE(world.http.send(request).has_value());
    const auto seen = world.server.requests();
    REQUIRE(seen.size() == 3);
    CHECK(seen[0].body == std::string(3u << 20, 'b'));
    CHECK(seen[0].header("content-type") == "application/json");
    CHECK(seen[0].has_header("x-empty"));
    CHECK(seen[1].method == "PUT");
    CHECK(seen[1].body == "x");
    CHECK(seen[2].header("content-length") == "0");
    for (const auto& one : seen) CHECK_FALSE(one.has_header("expect"));
}

TEST_CASE("http: a body comes from a file, a missing one is local i/o") {
    HttpFixture world;
    const std::string path = "/tmp/gdnctl-http-body-" + std::to_string(::getpid());
    std::ofstream(path, std::ios::binary) << std::string(200000, 'f');
    world.server.then(reply(201));
    HttpRequest request = world.get();
    request.method = "PUT";
    request.body_file = path;
    CHECK(world.http.send(request)->status == 201);
    CHECK(world.server.requests()[0].body == std::string(200000, 'f'));
    std::filesystem::remove(path);
    const auto gone = world.http.send(request);
    REQUIRE_FALSE(gone.has_value());
    CHECK(gone.error().kind == ErrorKind::local_io);
    CHECK(has(gone.error().message, path));
}

TEST_CASE("http: HEAD and DELETE") {
    HttpFixture world;
    world.server.then(reply(200, "unseen")).then(reply(204));
    HttpRequest request = world.get();
    request.method = "HEAD";
    const auto answer = world.http.send(request);
    REQUIRE(answer.has_value());
    CHECK(answer->header("content-length") == "6");
    CHECK(answer->body.empty());
    request.method = "DELETE";
    CHECK(world.http.send(request)->status == 204);
}

TEST_CASE("http: connections are kept for the next request") {
    HttpFixture world;
    world.server.then(reply(200, "a")).then(reply(200, "b"));
    CHECK(world.http.send(world.get())->body == "a");
    CHECK(world.http.send(world.get())->body == "b");
    CHECK(world.server.connections() == 1);
}

TEST_CASE("http: a 2xx body goes to the file, an error body does not") {
    HttpFixture world;
    const std::filesystem::path path = "/tmp/gdnctl-http-file-" + std::to_string(::getpid());
    std::filesystem::remove(path);
    HttpRequest request = world.get();
    request.to_file = path;
    world.server.then(reply(500, "broken")).then(reply(200, "data")).then(reply(200, ""));
    const auto broken = world.http.send(request);
    REQUIRE(broken.has_value());
    CHECK(broken->body == "broken");
    CHECK_FALSE(std::filesystem::exists(path));
    const auto good = world.http.send(request);
    REQUIRE(good.has_value());
    CHECK(good->body.empty());
    CHECK(good->received_bytes == 4);
    std::ifstream in(path);
    CHECK(std::string(std::istreambuf_iterator<char>(in), {}) == "data");
    REQUIRE(world.http.send(request).has_value());
    CHECK(std::filesystem::file_size(path) == 0);
    std::filesystem::remove(path);
}

TEST_CASE("http: a file that cannot be written is local i/o and names the reason, not libcurl's number") {
    HttpFixture world;
    world.server.then(reply(200, "data")).then(reply(200, "data"));
    HttpRequest request = world.get();
    request.to_file = "/tmp/gdnctl-no-such-folder/x";
    request.retry.attempts = 3;
    const auto missing = world.http.send(request);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().kind == ErrorKind::local_io);
    CHECK(has(missing.error().message, "No such file or directory"));
    request.to_file = "/dev/full";
    const auto full = world.http.send(request);
    REQUIRE_FALSE(full.has_value());
    CHECK(full.error().kind == ErrorKind::local_io);
    CHECK(has(full.error().message, "No space left on device"));
    CHECK_FALSE(full.error().hint.empty());
}

TEST_CASE("http: a callback gets the bytes and may have had enough") {
    HttpFixture world;
    world.server.then(reply_chunked({"abc", "def"}));
    world.server.then([](Peer& peer) {
        peer.send(head(200, {}) + "endless");
        peer.wait_until_gone();
    });
    HttpRequest request = world.get();
    std::string got;
    request.on_chunk = [&got](std::string_view piece) {
        got += piece;
        return true;
    };
    REQUIRE(world.http.send(request).has_value());
    CHECK(got == "abcdef");
    request.on_chunk = [](std::string_view) { return false; };
    const auto enough = world.http.send(request);
    REQUIRE(enough.has_value());
    CHECK(enough->status == 200);
}

TEST_CASE("http: a body in memory has a limit, an error body is cut instead") {
    HttpFixture world;
    world.server.then(reply(200, std::string(1001, 'x'))).then(reply(503, std::string(1001, 'x')));
    HttpRequest request = world.get();
    request.body_limit = 1000;
    const auto large = world.http.send(request);
    REQUIRE_FALSE(large.has_value());
    CHECK(large.error().kind == ErrorKind::bad_input);
    CHECK(has(large.error().message, "1000"));
    const auto cut = world.http.send(request);
    REQUIRE(cut.has_value());
    CHECK(cut->status == 503);
    CHECK(cut->body.size() == 1000);
}

TEST_CASE("http: huge headers are refused") {
    HttpFixture world;
    world.server.then([](Peer& peer) {
        std::string many = "HTTP/1.1 200 OK\r\n";
        for (int i = 0; i < 80; ++i) many += "X-Filler: " + std::string(8000, 'h') + "\r\n";
        peer.send(many + "\r\n");
        peer.close();
    });
    const auto response = world.http.send(world.get());
    REQUIRE_FALSE(response.has_value());
    CHECK(response.error().kind == ErrorKind::infrastructure);
    CHECK(has(response.error().message, world.server.host()));
}

TEST_CASE("http: bad URLs, methods and headers are usage errors with a message") {
    HttpFixture world;
    for (const char* url : {"", "no scheme", "http://", "http://a b/", "file:///etc/passwd", "ftp://h/", "ws://h/",
                            "http://user:hunter22@h/", "http://h:99999/"}) {
        CAPTURE(url);
        HttpRequest request;
        request.url = url;
        const auto response = world.http.send(request);
        REQUIRE_FALSE(response.has_value());
        CHECK(response.error().kind == ErrorKind::usage);
        CHECK(response.error().message.size() > 25);
        CHECK_FALSE(response.error().hint.empty());
        CHECK_FALSE(has(response.error().message, "hunter22"));
    }
    HttpRequest request = world.get();
    request.method = "GET / HTTP/1.1\r\nX: y\r\n\r\nGET";
    CHECK(world.http.send(request).error().kind == ErrorKind::usage);
    request.method = "GET";
    request.secret_headers = {{"Authorization", "Bearer s3cr3t-value\r\nX-Evil: 1"}};
    const auto smuggled = world.http.send(request);
    REQUIRE_FALSE(smuggled.has_value());
    CHECK(smuggled.error().kind == ErrorKind::usage);
    CHECK_FALSE(has(smuggled.error().message, "s3cr3t"));
}

TEST_CASE("http: many threads share one client") {
    HttpFixture world;
    world.server.always([](Peer& peer) { reply(200, peer.request().target)(peer); });
    std::vector<int> good(8, 0);
    {
        std::vector<std::jthread> threads;
        threads.reserve(good.size());
        for (std::size_t t = 0; t < good.size(); ++t) {
            threads.emplace_back([&world, &good, t] {
                for (int i = 0; i < 10; ++i) {
                    const std::string path = "/" + std::to_string(t) + "/" + std::to_string(i);
                    const auto response = world.http.send(world.get(path));
                    if (response && response->body == path) ++good[t];
                }
            });
        }
    }
    for (const int count : good) CHECK(count == 10);
    CHECK(world.server.connections() <= 8);
}

using namespace gdnctl;
using namespace gdnctl::test;

TEST_CASE("http redirect: an answer like any other") {
    HttpFixture world;
    world.server.then(reply(302, "", {{"Location", "/next"}}));
    const auto response = world.http.send(world.get());
    REQUIRE(response.has_value());
    CHECK(response->status == 302);
    CHECK(response->header("location") == "/next");
}

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

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;

namespace {

// A port of this machine on which nothing listens.
std::string dead_host() {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    ::close(fd);
    return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

Error failure(HttpFixture& world, const HttpRequest& request) {
    auto response = world.http.send(request);
    REQUIRE_FALSE(response.has_value());
    return response.error();
}

}  // namespace

TEST_CASE("http faults: refused names host, phase, reason and what to do") {
    HttpFixture world;
    HttpRequest request;
    const std::string host = dead_host();
    request.url = "http://" + host + "/api/version?X-Amz-Signature=abcdef0123456789";
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(error.message ==
          "GET http://" + host + "/api/version: connecting to " + host + " failed: Connection refused");
    CHECK(error.hint == "check that the service runs and listens on " + host + " (address, port, tunnel)");
}

TEST_CASE("http faults: an unknown host is the resolving phase") {
    HttpFixture world;
    HttpRequest request;
    request.url = "http://no-such-host.invalid/";
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "resolving no-such-host.invalid failed"));
    CHECK(has(error.hint, "DNS"));
}

TEST_CASE("http faults: https to a plain service is the TLS phase") {
    HttpFixture world;
    HttpRequest request;
    request.url = "https://" + world.server.host() + "/";
    world.server.on_connect([](Peer& peer) {
        peer.send(head(400, {}));
        peer.wait_until_gone();
    });
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "TLS with " + world.server.host() + " failed"));
    CHECK(has(error.hint, "https"));
    request.connect_timeout = 100ms;
    world.server.on_connect([](Peer& peer) { peer.wait_until_gone(); });
    const Error silent = failure(world, request);
    CHECK(has(silent.message, "TLS with " + world.server.host() + " failed"));
}

TEST_CASE("http faults: reset and silent close while waiting for the answer") {
    HttpFixture world;
    world.server.then([](Peer& peer) { peer.reset(); }).then([](Peer& peer) { peer.close(); });
    for (int i = 0; i < 2; ++i) {
        const Error error = failure(world, world.get());
        CHECK(error.kind == ErrorKind::infrastructure);
        CHECK(has(error.message, "waiting for the answer of " + world.server.host() + " failed"));
        CHECK(has(error.hint, "did not answer"));
    }
}

TEST_CASE("http faults: a body shorter than its length, and a cut chunked one, are no success") {
    HttpFixture world;
    world.server.then([](Peer& peer) {
        peer.send(head(200, {{"Content-Length", "100"}}) + "short");
        peer.half_close();
        peer.wait_until_gone();
    });
    world.server.then([](Peer& peer) {
        peer.send(head(200, {{"Transfer-Encoding", "chunked"}}) + "5\r\nhello\r\n");
        peer.close();
    });
    for (int i = 0; i < 2; ++i) {
        const Error error = failure(world, world.get());
        CHECK(error.kind == ErrorKind::infrastructure);
        CHECK(has(error.message, "receiving from " + world.server.host() + " failed"));
    }
}

TEST_CASE("http faults: what is not HTTP is said to be so") {
    HttpFixture world;
    world.server.then([](Peer& peer) {
        peer.send("SSH-2.0-OpenSSH_9.2\r\n\r\n");
        peer.close();
    });
    const Error error = failure(world, world.get());
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.hint, "is the right service"));
}

TEST_CASE("http faults: a silent server runs into the first-byte timeout, on the injected clock") {
    HttpFixture world;
    world.clock.tick_per_look(5s);
    world.server.then([](Peer& peer) { peer.wait_until_gone(); });
    const Error error = failure(world, world.get());
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "waiting for the answer of"));
    CHECK(has(error.message, "no data for 15 s"));
}

TEST_CASE("http faults: a trickle below the low-speed limit is given up") {
    HttpFixture world;
    world.clock.tick_per_look(4s);
    world.server.then([](Peer& peer) {
        peer.send(head(200, {{"Content-Length", "1000"}}) + "x");
        peer.wait_until_gone();
    });
    HttpRequest request = world.get();
    request.low_speed_bytes_per_s = 100;
    request.low_speed_time = 30s;
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "receiving from"));
    CHECK(has(error.message, "slower than 100 bytes/s for 30 s"));
}

TEST_CASE("http faults: the total timeout is ours and is not tried again") {
    HttpFixture world;
    world.clock.tick_per_look(3s);
    world.server.then([](Peer& peer) { peer.wait_until_gone(); });
    HttpRequest request = world.get();
    request.total_timeout = 10s;
    request.retry.attempts = 5;
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::timeout);
    CHECK(has(error.message, "time limit of 10 s"));
}

TEST_CASE("http faults: a stop request ends a transfer, threads") {
    HttpFixture world;
    std::stop_source stop;
    world.server.then([&stop](Peer& peer) {
        stop.request_stop();
        peer.wait_until_gone();
    });
    HttpRequest request = world.get();
    request.stop = stop.get_token();
    request.retry.attempts = 5;
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::interrupted);
    CHECK(has(error.message, "waiting for the answer"));
    CHECK(failure(world, request).kind == ErrorKind::interrupted);  // asked before it begins: nothing is sent
    CHECK(world.server.requests().size() == 1);
}

TEST_CASE("http retry: listed statuses are tried again with growing delays") {
    HttpFixture world;
    world.server.then(reply(503)).then(reply(429)).then(reply(200, "at last"));
    HttpRequest request = world.get();
    request.retry.attempts = 5;
    const auto response = world.http.send(request);
    REQUIRE(response.has_value());
    CHECK(response->body == "at last");
    CHECK(response->attempts == 3);
    CHECK(world.clock.sleeps() == std::vector{500ms, 750ms});
}

TEST_CASE("http retry: Retry-After wins over a shorter delay, other statuses are final") {
    HttpFixture world;
    world.server.then(reply(503, "", {{"Retry-After", "7"}})).then(reply(500, "final"));
    HttpRequest request = world.get();
    request.retry.attempts = 5;
    const auto response = world.http.send(request);
    REQUIRE(response.has_value());
    CHECK(response->status == 500);
    CHECK(world.clock.sleeps() == std::vector{std::chrono::milliseconds(7000)});
}

TEST_CASE("http retry: a demanded wait beyond the total ends at once with that answer") {
    HttpFixture world;
    world.server.then(reply(503, "busy", {{"Retry-After", "3600"}}));
    HttpRequest request = world.get();
    request.retry.attempts = 5;
    const auto response = world.http.send(request);
    REQUIRE(response.has_value());
    CHECK(response->status == 503);
    CHECK(response->body == "busy");
    CHECK(world.clock.sleeps().empty());
}

TEST_CASE("http retry: a refused connection is tried again as often as the policy says") {
    HttpFixture world;
    HttpRequest request;
    request.url = "http://" + dead_host() + "/";
    request.retry.attempts = 3;
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "(3 attempts)"));
    CHECK(world.clock.sleeps().size() == 2);
}

TEST_CASE("http retry: a file starts over, a callback that has seen bytes does not") {
    HttpFixture world;
    const auto cut = [](Peer& peer) {
        peer.send(head(200, {{"Content-Length", "10"}}) + "01234");
        peer.close();
    };
    const std::filesystem::path path = "/tmp/gdnctl-http-again-" + std::to_string(::getpid());
    world.server.then(cut).then(reply(200, "0123456789")).then(cut);
    HttpRequest request = world.get();
    request.retry.attempts = 2;
    request.to_file = path;
    CHECK(world.http.send(request).has_value());
    CHECK(std::filesystem::file_size(path) == 10);
    std::filesystem::remove(path);
    request.to_file.clear();
    request.on_chunk = [](std::string_view) { return true; };
    CHECK(failure(world, request).kind == ErrorKind::infrastructure);
}

TEST_CASE("http retry: a stop during the wait ends it") {
    HttpFixture world;
    std::stop_source stop;
    world.server.then(reply(503));
    world.clock.when_asleep([&stop] { stop.request_stop(); });
    HttpRequest request = world.get();
    request.stop = stop.get_token();
    request.retry.attempts = 5;
    CHECK(failure(world, request).kind == ErrorKind::interrupted);
}

namespace gdnctl::test {

namespace {

// Writes down what it is told.
struct Notes final : HttpReceiver {
    int status = 0;
    HttpHeaders headers;
    std::string body;
    bool head_first = true, want_head = true, want_body = true;
    std::optional<HttpEnd> end;
    std::function<void()> then;

    bool on_head(int got, const HttpHeaders& lines) override {
        status = got;
        headers = lines;
        return want_head;
    }
    bool on_body(std::string_view bytes) override {
        head_first = head_first && status != 0;
        body += bytes;
        return want_body;
    }
    void on_end(const HttpEnd& how) override {
        end = how;
        if (then) then();
    }
};

struct PoolFixture : HttpFixture {
    std::unique_ptr<HttpPool> pool;
    PoolFixture() {
        auto opened = http.open_pool({"tests", ""});
        REQUIRE(opened);
        pool = std::move(*opened);
    }
    void run_until_asked() {
        while (server.requests().empty()) REQUIRE(pool->step(std::chrono::milliseconds(20)));
    }
    void run() {
        while (!pool->idle()) REQUIRE(pool->step(std::chrono::milliseconds(20)));
    }
};

}  // namespace

TEST_CASE_FIXTURE(PoolFixture, "pool: the head comes before the body, at its place the redirect") {
    server.then(reply(307, "ignored", {{"Location", "/there?x=1"}, {"X-Repo-Commit", "abc"}}));
    server.then(reply(200, "hello"));
    Notes first, second;
    REQUIRE(pool->start(get("/here"), first));
    run();
    REQUIRE(first.end);
    CHECK(first.status == 307);
    CHECK(find_header(first.headers, "x-repo-commit") == "abc");
    CHECK(first.end->redirect_url == server.url("/there?x=1"));
    HttpRequest next = get();
    next.url = first.end->redirect_url;
    REQUIRE(pool->start(next, second));
    run();
    CHECK(second.status == 200);
    CHECK(second.head_first);
    CHECK(second.body == "hello");
    CHECK_FALSE(second.end->error);
    CHECK(server.connections() == 1);  // kept for the second
    CHECK(has(server.requests()[1].header("user-agent"), "gdnctl/9.9; libcurl/"));
    CHECK(has(server.requests()[1].header("user-agent"), "; origin/tests"));
}

TEST_CASE_FIXTURE(PoolFixture, "pool: many at a time, one started from the end of another") {
    server.always([](Peer& peer) { reply(200, "of " + peer.request().target)(peer); });
    std::vector<Notes> notes(9);
    notes[0].then = [&] { REQUIRE(pool->start(get("/8"), notes[8])); };
    for (std::size_t i = 0; i < 8; ++i) REQUIRE(pool->start(get(fmt::format("/{}", i)), notes[i]));
    CHECK_FALSE(pool->idle());
    run();
    for (std::size_t i = 0; i < 9; ++i) CHECK(notes[i].body == fmt::format("of /{}", i));
}

TEST_CASE_FIXTURE(PoolFixture, "pool: a body that is cut is worth another try, with what came of it kept") {
    server.then([](Peer& peer) {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234");
        peer.close();
    });
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.body == "01234");
    REQUIRE(notes.end->error);
    CHECK(notes.end->error->kind == ErrorKind::infrastructure);
    CHECK(notes.end->worth_another_try);
}

TEST_CASE_FIXTURE(PoolFixture, "pool: a range is asked for and its status told apart") {
    for (const int status : {206, 200, 416}) {
        server.then(reply(status, "tail", {{"Content-Range", "bytes 5-8/9"}}));
        HttpRequest request = get();
        request.headers.emplace_back("Range", "bytes=5-");
        Notes notes;
        REQUIRE(pool->start(request, notes));
        run();
        CHECK(notes.status == status);
        CHECK(find_header(notes.headers, "content-range") == "bytes 5-8/9");
        CHECK_FALSE(notes.end->error);
    }
    CHECK(server.requests()[0].header("range") == "bytes=5-");
}

TEST_CASE_FIXTURE(PoolFixture, "pool: who wants no body gets none, nor an error") {
    for (const bool at_head : {true, false}) {
        server.then(reply(200, "unwanted"));
        Notes notes;
        notes.want_head = !at_head;
        notes.want_body = false;
        REQUIRE(pool->start(get(), notes));
        run();
        CHECK(notes.end->unwanted);
        CHECK_FALSE(notes.end->error);
        CHECK(notes.body.empty() == at_head);
    }
}

TEST_CASE_FIXTURE(PoolFixture, "pool: an answer without a body still has its head") {
    server.then(reply(204));
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.status == 204);
    CHECK_FALSE(notes.end->error);
}

TEST_CASE_FIXTURE(PoolFixture, "pool: a body stays as it is on the wire") {
    server.then(reply(200, "not gzip at all", {{"Content-Encoding", "gzip"}}));
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run();
    CHECK(notes.body == "not gzip at all");
    CHECK_FALSE(notes.end->error);
}

TEST_CASE_FIXTURE(PoolFixture, "pool: cancelled means not a word more") {
    server.then([](Peer& peer) { peer.wait_until_gone(); });
    Notes notes;
    REQUIRE(pool->start(get(), notes));
    run_until_asked();
    pool->cancel(notes);
    CHECK(pool->idle());
    CHECK_FALSE(notes.end);
}

TEST_CASE_FIXTURE(PoolFixture, "pool: nobody there, and a bad URL") {
    Notes notes;
    HttpRequest request = get();
    request.url = "http://127.0.0.1:1/";
    REQUIRE(pool->start(request, notes));
    run();
    REQUIRE(notes.end->error);
    CHECK(notes.end->worth_another_try);
    CHECK(notes.status == 0);
    request.url = "ftp://127.0.0.1/";
    const Status bad = pool->start(request, notes);
    REQUIRE_FALSE(bad);
    CHECK(bad.error().kind == ErrorKind::usage);
}

TEST_CASE_FIXTURE(PoolFixture, "pool: a silent server is given up") {
    server.then([](Peer& peer) { peer.wait_until_gone(); });
    HttpRequest request = get();
    request.first_byte_timeout = std::chrono::milliseconds(100);
    Notes notes;
    REQUIRE(pool->start(request, notes));
    run_until_asked();
    for (int i = 0; i < 200 && !pool->idle(); ++i) {
        REQUIRE(pool->step(std::chrono::milliseconds(10)));
        clock.advance(std::chrono::milliseconds(5));
    }
    REQUIRE(notes.end);
    REQUIRE(notes.end->error);
    CHECK(notes.end->worth_another_try);
}

}  // namespace gdnctl::test
