// Dashboard addresses, and what may be sent where.
#include <doctest/doctest.h>

#include "services/cluster/cluster.h"
#include "services/cluster/url.h"
#include "support/fake_env.h"

using namespace gdnctl;
using gdnctl::test::FakeEnv;

TEST_CASE("address: scheme, slashes and prefix") {
    CHECK(*normalize_ray_address("http://h:8265") == "http://h:8265");
    CHECK(*normalize_ray_address("http://h:8265///") == "http://h:8265");
    CHECK(*normalize_ray_address("h:8265") == "http://h:8265");
    CHECK(*normalize_ray_address(" h ") == "http://h");
    CHECK_FALSE(normalize_ray_address("http://h/a\n/"));
    CHECK_FALSE(normalize_ray_address("http://h/a b"));
    CHECK(*normalize_ray_address("localhost:9999/us-central1/") == "http://localhost:9999/us-central1");
    CHECK(*normalize_ray_address("https://x.example.org/ray/a/") == "https://x.example.org/ray/a");
    CHECK(*normalize_ray_address("http://[::1]:8265") == "http://[::1]:8265");
    for (const char* bad :
         {"ray://h:10001", "", "  ", "http://", "http://h:0", "http://h:65536", "http://h:x", "http://u:p@h",
          "http://h?x=1", "http://h/#/jobs", "http://a b", "ftp://h", "http://[::1"}) {
        CHECK_MESSAGE(!normalize_ray_address(bad), bad);
        CHECK(normalize_ray_address(bad).error().kind == ErrorKind::usage);
    }
}

TEST_CASE("address: out of the environment, dashboards only") {
    CHECK(!*ray_address_of(FakeEnv()));
    const auto both = *ray_address_of(FakeEnv{{"RAY_ADDRESS", "http://a"}, {"RAY_API_SERVER_ADDRESS", "https://b/"}});
    REQUIRE(both);
    CHECK(both->url == "https://b");
    CHECK(both->origin == "environment RAY_API_SERVER_ADDRESS");
    const auto skipped =
        *ray_address_of(FakeEnv{{"RAY_API_SERVER_ADDRESS", "ray://h:10001"}, {"RAY_ADDRESS", "HTTP://a:1/p/"}});
    REQUIRE(skipped);
    CHECK(skipped->url == "HTTP://a:1/p");
    CHECK(skipped->origin == "environment RAY_ADDRESS");
    for (const char* other : {"ray://h:10001", "10.0.0.7:6379", "auto", "local", " "}) {
        CHECK_MESSAGE(!*ray_address_of(FakeEnv{{"RAY_ADDRESS", other}}), other);
    }
    CHECK(!ray_address_of(FakeEnv{{"RAY_ADDRESS", "http://u@h"}}));
}

TEST_CASE("address: where a token may go in clear text") {
    for (const char* yes : {"http://127.0.0.1:8265", "http://127.8.9.1", "http://localhost:1/p", "http://[::1]:1",
                            "https://anywhere.example.org", "http://LOCALHOST"}) {
        CHECK_MESSAGE(is_confidential(yes), yes);
    }
    for (const char* no : {"http://10.0.0.7:8265", "http://localhost.example.org", "http://127.0.0.1.example.org",
                           "http://127.1", "http://0x7f000001", "http://2130706433", "http://[::2]", "", "127.0.0.1"}) {
        CHECK_MESSAGE(!is_confidential(no), no);
    }
}

TEST_CASE("address: agents that a plain address leads to") {
    const auto agent = [](const char* dashboard, const char* address, bool token, bool plaintext) {
        return make_plain_route(dashboard, token, plaintext)->agent_url(address).value_or("-");
    };
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", false, false) == "http://10.9.9.9:52365");
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", true, false) == "-");
    CHECK(agent("http://10.9.9.9:8265", "http://10.9.9.9:52365", true, true) == "http://10.9.9.9:52365");
    // Behind somebody's tunnel or proxy the node is out of reach.
    CHECK(agent("http://127.0.0.1:8265", "http://10.9.9.9:52365", false, false) == "-");
    CHECK(agent("https://proxy/us-central1", "http://10.9.9.9:52365", true, true) == "-");
    CHECK(agent("http://127.0.0.1:8265", "http://127.0.0.1:52365", true, false) == "http://127.0.0.1:52365");
    CHECK(agent("http://127.0.0.1:8265", "nonsense", false, false) == "-");
    CHECK(*make_plain_route("http://h/p", true, false)->url() == "http://h/p");
}

TEST_CASE("address: parts of a URL") {
    const auto url = cluster::parse_url("HTTPS://[fe80::1]:99/a?b");
    REQUIRE(url);
    CHECK(url->scheme == "https");
    CHECK(url->host == "fe80::1");
    CHECK(url->port == 99);
    CHECK(url->path == "/a?b");
    CHECK(cluster::parse_url("https://h")->port == 443);
    CHECK(cluster::is_own_address("127.0.0.1"));
    CHECK(!cluster::is_own_address("203.0.113.7"));
    CHECK(!cluster::is_own_address("example.org"));
}
