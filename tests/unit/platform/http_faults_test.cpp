#include <thread>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "unit/platform/http_support.h"

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

Error failure(HttpWorld& world, const HttpRequest& request) {
    auto response = world.http.send(request);
    REQUIRE_FALSE(response.has_value());
    return response.error();
}

}  // namespace

TEST_CASE("http faults: refused names host, phase, reason and what to do") {
    HttpWorld world;
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
    HttpWorld world;
    HttpRequest request;
    request.url = "http://no-such-host.invalid/";
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "resolving no-such-host.invalid failed"));
    CHECK(has(error.hint, "DNS"));
}

TEST_CASE("http faults: https to a plain service is the TLS phase") {
    HttpWorld world;
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
    HttpWorld world;
    world.server.then([](Peer& peer) { peer.reset(); }).then([](Peer& peer) { peer.close(); });
    for (int i = 0; i < 2; ++i) {
        const Error error = failure(world, world.get());
        CHECK(error.kind == ErrorKind::infrastructure);
        CHECK(has(error.message, "waiting for the answer of " + world.server.host() + " failed"));
        CHECK(has(error.hint, "did not answer"));
    }
}

TEST_CASE("http faults: a body shorter than its length, and a cut chunked one, are no success") {
    HttpWorld world;
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
    HttpWorld world;
    world.server.then([](Peer& peer) {
        peer.send("SSH-2.0-OpenSSH_9.2\r\n\r\n");
        peer.close();
    });
    const Error error = failure(world, world.get());
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.hint, "is the right service"));
}

TEST_CASE("http faults: a silent server runs into the first-byte timeout, on the injected clock") {
    HttpWorld world;
    world.clock.tick_per_look(5s);
    world.server.then([](Peer& peer) { peer.wait_until_gone(); });
    const Error error = failure(world, world.get());
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "waiting for the answer of"));
    CHECK(has(error.message, "no data for 15 s"));
}

TEST_CASE("http faults: a trickle below the low-speed limit is given up") {
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
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
    HttpWorld world;
    world.server.then(reply(503, "", {{"Retry-After", "7"}})).then(reply(500, "final"));
    HttpRequest request = world.get();
    request.retry.attempts = 5;
    const auto response = world.http.send(request);
    REQUIRE(response.has_value());
    CHECK(response->status == 500);
    CHECK(world.clock.sleeps() == std::vector{std::chrono::milliseconds(7000)});
}

TEST_CASE("http retry: a demanded wait beyond the total ends at once with that answer") {
    HttpWorld world;
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
    HttpWorld world;
    HttpRequest request;
    request.url = "http://" + dead_host() + "/";
    request.retry.attempts = 3;
    const Error error = failure(world, request);
    CHECK(error.kind == ErrorKind::infrastructure);
    CHECK(has(error.message, "(3 attempts)"));
    CHECK(world.clock.sleeps().size() == 2);
    request.retry.on_connect_error = false;
    CHECK_FALSE(has(failure(world, request).message, "attempts"));
}

TEST_CASE("http retry: a file starts over, a callback that has seen bytes does not") {
    HttpWorld world;
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
    HttpWorld world;
    std::stop_source stop;
    world.server.then(reply(503));
    world.clock.when_asleep([&stop] { stop.request_stop(); });
    HttpRequest request = world.get();
    request.stop = stop.get_token();
    request.retry.attempts = 5;
    CHECK(failure(world, request).kind == ErrorKind::interrupted);
}
