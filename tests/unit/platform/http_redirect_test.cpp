#include "unit/platform/http_support.h"

using namespace gdnctl;
using namespace gdnctl::test;

namespace {

HttpRequest with_secrets(HttpRequest request) {
    request.secret_headers = {{"Authorization", "Bearer s3cr3t-value"}};
    request.headers = {{"Cookie", "session=1"}, {"X-Plain", "p"}};
    request.max_redirects = 5;
    return request;
}

}  // namespace

TEST_CASE("http redirect: not followed unless asked for") {
    HttpWorld world;
    world.server.then(reply(302, "", {{"Location", "/next"}}));
    const auto response = world.http.send(world.get());
    REQUIRE(response.has_value());
    CHECK(response->status == 302);
    CHECK(response->header("location") == "/next");
}

TEST_CASE("http redirect: on the same host credentials go along") {
    HttpWorld world;
    world.server.then(reply(307, "", {{"Location", "/next"}})).then(reply(200, "there"));
    const auto response = world.http.send(with_secrets(world.get("/first")));
    REQUIRE(response.has_value());
    CHECK(response->body == "there");
    CHECK(response->effective_url == world.server.url("/next"));
    const auto seen = world.server.requests();
    REQUIRE(seen.size() == 2);
    CHECK(seen[1].target == "/next");
    CHECK(seen[1].header("authorization") == "Bearer s3cr3t-value");
}

TEST_CASE("http redirect: another host gets no credentials, nor does the first one when the chain comes back") {
    HttpWorld world;
    LoopbackServer other;
    world.server.then(reply(302, "", {{"Location", other.url("/there")}}));
    other.then(reply(302, "", {{"Location", world.server.url("/back")}}));
    world.server.then(reply(200, "done"));
    REQUIRE(world.http.send(with_secrets(world.get()))->body == "done");
    const auto there = other.requests();
    REQUIRE(there.size() == 1);
    CHECK_FALSE(there[0].has_header("authorization"));
    CHECK_FALSE(there[0].has_header("cookie"));
    CHECK(there[0].header("x-plain") == "p");
    const auto here = world.server.requests();
    REQUIRE(here.size() == 2);
    CHECK(here[0].has_header("authorization"));
    CHECK_FALSE(here[1].has_header("authorization"));
    CHECK(other.complaints().empty());
}

TEST_CASE("http redirect: a request's body is not carried to another host") {
    HttpWorld world;
    LoopbackServer other;
    world.server.then(reply(307, "", {{"Location", other.url("/steal")}}));
    HttpRequest request = with_secrets(world.get());
    request.method = "POST";
    request.body = "{\"env_vars\": {}}";
    const auto response = world.http.send(request);
    REQUIRE_FALSE(response.has_value());
    CHECK(response.error().kind == ErrorKind::infrastructure);
    CHECK(has(response.error().message, "body must not be sent to another host"));
    CHECK(other.requests().empty());
}

TEST_CASE("http redirect: 303 turns a POST into a GET without its body, 308 keeps both") {
    HttpWorld world;
    world.server.then(reply(303, "", {{"Location", "/see"}})).then(reply(200));
    world.server.then(reply(308, "", {{"Location", "/moved"}})).then(reply(200));
    HttpRequest request = world.get();
    request.method = "POST";
    request.body = "payload";
    request.max_redirects = 1;
    REQUIRE(world.http.send(request).has_value());
    REQUIRE(world.http.send(request).has_value());
    const auto seen = world.server.requests();
    REQUIRE(seen.size() == 4);
    CHECK(seen[1].method == "GET");
    CHECK(seen[1].body.empty());
    CHECK(seen[3].method == "POST");
    CHECK(seen[3].body == "payload");
}

TEST_CASE("http redirect: circles end, and other schemes and user names are refused") {
    HttpWorld world;
    HttpRequest request = world.get("/circle");
    request.max_redirects = 3;
    for (int i = 0; i < 4; ++i) world.server.then(reply(302, "", {{"Location", "/circle"}}));
    const auto circle = world.http.send(request);
    REQUIRE_FALSE(circle.has_value());
    CHECK(circle.error().kind == ErrorKind::infrastructure);
    CHECK(has(circle.error().message, "more than 3 redirects"));
    for (const std::string& target : {std::string("file:///etc/passwd"), std::string("ftp://127.0.0.1/x"),
                                      "http://name:hunter22@" + world.server.host() + "/"}) {
        CAPTURE(target);
        world.server.then(reply(302, "", {{"Location", target}}));
        const auto refused = world.http.send(request);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().kind == ErrorKind::infrastructure);
        CHECK_FALSE(has(refused.error().message, "hunter22"));
    }
}

TEST_CASE("http redirect: signed query parameters are in no text") {
    HttpWorld world;
    world.server.then(reply(302, "", {{"Location", "/file?X-Amz-Signature=0123456789abcdef0123456789abcdef"}}));
    world.server.then(reply(200, "ok"));
    HttpRequest request = world.get();
    request.max_redirects = 1;
    const auto response = world.http.send(request);
    REQUIRE(response.has_value());
    CHECK_FALSE(has(response->effective_url, "0123456789abcdef0123456789abcdef"));
}
