#include <fstream>
#include <iterator>
#include <thread>

#include "unit/platform/http_support.h"

using namespace gdnctl;
using namespace gdnctl::test;
using namespace std::chrono_literals;

TEST_CASE("http: status, lower-case headers, body and user agent") {
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "X-Filler: " + std::string(8000, 'x') + "\r\n";
    world.server.then([&](Peer& peer) { peer.send("HTTP/1.1 200 OK\r\n" + lines + "\r\n"); });
    const auto response = world.http.send(world.get());
    REQUIRE_FALSE(response.has_value());
    CHECK(has(response.error().message, "the headers are larger than 256 KiB"));
}

TEST_CASE("http: an error page is an answer") {
    HttpWorld world;
    world.server.then(reply(404, "<html>nope</html>", {{"Content-Type", "text/html"}}));
    const auto response = world.http.send(world.get());
    REQUIRE(response.has_value());
    CHECK(response->status == 404);
    CHECK(response->body == "<html>nope</html>");
    CHECK(response->header("content-type") == "text/html");
}

TEST_CASE("http: chunked and slowly dripping answers arrive whole") {
    HttpWorld world;
    world.server.then(reply_chunked({"one ", "two ", "three"}));
    world.server.then([](Peer& peer) { peer.drip(head(200, {{"Content-Length", "9"}}) + "123456789", 1); });
    CHECK(world.http.send(world.get())->body == "one two three");
    CHECK(world.http.send(world.get())->body == "123456789");
}

TEST_CASE("http: POST and PUT send their body with a length and without Expect") {
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
    world.server.then(reply(200, "a")).then(reply(200, "b"));
    CHECK(world.http.send(world.get())->body == "a");
    CHECK(world.http.send(world.get())->body == "b");
    CHECK(world.server.connections() == 1);
}

TEST_CASE("http: a 2xx body goes to the file, an error body does not") {
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
