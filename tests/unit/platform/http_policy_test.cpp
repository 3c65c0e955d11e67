#include "platform/http_policy.h"

#include <doctest/doctest.h>

#include "core/redact.h"
#include "core/time.h"

using namespace gdnctl;
using namespace std::chrono_literals;

namespace {

WallTime at(const char* text) { return parse_iso8601(text).value(); }

}  // namespace

TEST_CASE("http policy: Retry-After in seconds and in the three date forms") {
    const WallTime now = at("1994-11-06T08:49:00Z");
    CHECK(http::parse_retry_after("0", now) == 0ms);
    CHECK(http::parse_retry_after(" 120 ", now) == 120000ms);
    CHECK(http::parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now) == 37000ms);
    CHECK(http::parse_retry_after("Sunday, 06-Nov-94 08:49:37 GMT", now) == 37000ms);
    CHECK(http::parse_retry_after("Sun Nov  6 08:49:37 1994", now) == 37000ms);
    CHECK(http::parse_retry_after("Sun, 06 Nov 1994 08:48:00 GMT", now) == 0ms);  // already past
}

TEST_CASE("http policy: an absurd Retry-After is capped at a day, nonsense is none") {
    const WallTime now = at("2026-03-10T16:53:07Z");
    CHECK(http::parse_retry_after("86401", now) == 24h);
    CHECK(http::parse_retry_after("99999999999999999999999999", now) == 24h);
    CHECK(http::parse_retry_after("Sun, 06 Nov 2094 08:49:37 GMT", now) == 24h);
    for (const char* bad :
         {"", "soon", "-1", "1.5", "0x10", "Sun, 31 Feb 2027 08:49:37 GMT", "Sun, 06 Nov 2026 25:00:00 GMT",
          "Sun, 06 Nov 2026 08:49:37 CET", "Someday Nov  6 08:49:37 2026", "6 Nov 2026"}) {
        CAPTURE(bad);
        CHECK_FALSE(http::parse_retry_after(bad, now).has_value());
    }
}

TEST_CASE("http policy: a year has four digits, but for the form of RFC 850") {
    const WallTime now = at("2026-01-01T00:00:00Z");
    for (const char* short_year :
         {"Sun, 06 Nov 26 08:49:37 GMT", "Sun, 06 Nov 0026 08:49:37 GMT", "Sun Nov  6 08:49:37 94"}) {
        CAPTURE(short_year);
        CHECK_FALSE(http::parse_http_date(short_year, now));
    }
}

TEST_CASE("http policy: a two-digit year is at most fifty years ahead") {
    const WallTime now = at("2026-01-01T00:00:00Z");
    CHECK_FALSE(http::parse_http_date("Sun Nov " + std::string(100, '0') + "6 08:49:37 1994", now));
    CHECK(http::parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", now) == at("1994-11-06T08:49:37Z"));
    CHECK(http::parse_http_date("Tuesday, 10-Mar-26 00:00:00 GMT", now) == at("2026-03-10T00:00:00Z"));
}

TEST_CASE("http policy: delays grow to the limit and never undercut what the server asks for") {
    RetryPolicy policy;
    CHECK(http::retry_delay(policy, 1) == 500ms);
    CHECK(http::retry_delay(policy, 2) == 750ms);
    CHECK(http::retry_delay(policy, 3) == 1125ms);
    CHECK(http::retry_delay(policy, 50) == 5000ms);
    CHECK(http::retry_delay(policy, 1, 7000ms) == 7000ms);
    CHECK(http::retry_delay(policy, 50, 7ms) == 5000ms);
}

TEST_CASE("http policy: which statuses are redirects") {
    CHECK_FALSE(http::is_redirect(300));
    CHECK_FALSE(http::is_redirect(304));
    CHECK(http::is_redirect(308));
}

TEST_CASE("http policy: methods and headers cannot smuggle a second request") {
    CHECK(http::is_valid_method("PATCH"));
    CHECK_FALSE(http::is_valid_method(""));
    CHECK_FALSE(http::is_valid_method("GET / HTTP/1.1\r\nX"));
    CHECK(http::is_valid_header("X-A", "v"));
    CHECK_FALSE(http::is_valid_header("X A", "v"));
    CHECK_FALSE(http::is_valid_header("", "v"));
    CHECK_FALSE(http::is_valid_header("X-A", "v\r\nX-B: w"));
    CHECK_FALSE(http::is_valid_header("X-A", std::string("v\0w", 3)));
}

using namespace gdnctl;
using namespace gdnctl::http;

TEST_CASE("http policy: an attempt follows while attempts and time are left") {
    RetryPolicy policy;
    policy.attempts = 3;
    policy.total = 10s;
    using enum NextAttempt::Verdict;
    CHECK(next_attempt(policy, 1, 0ms).verdict == wait);
    CHECK(next_attempt(policy, 1, 0ms).delay == 500ms);
    CHECK(next_attempt(policy, 2, 9250ms).verdict == wait);
    CHECK(next_attempt(policy, 2, 9251ms).verdict == no_time_left);
    CHECK(next_attempt(policy, 3, 0ms).verdict == no_attempts_left);
    const NextAttempt asked = next_attempt(policy, 1, 0ms, 11s);
    CHECK(asked.verdict == no_time_left);
    CHECK(asked.delay == 11s);
    policy.attempts = 0;
    CHECK(next_attempt(policy, 1000, 0ms).verdict == wait);
    CHECK(next_attempt(policy, 1000, 0ms).delay == 5s);
}

TEST_CASE("http policy: the body of a 500 may say that it passes") {
    RetryPolicy policy;
    policy.words_of_500 = {"busy"};
    policy.words_of_500_to_get = {"in trouble"};
    CHECK(is_worth_retrying(policy, "POST", 500, "so busy"));
    CHECK(is_worth_retrying(policy, "GET", 500, "in trouble"));
    CHECK_FALSE(is_worth_retrying(policy, "POST", 500, "in trouble"));
    CHECK_FALSE(is_worth_retrying(policy, "GET", 501, "busy"));
    CHECK(is_worth_retrying(policy, "POST", 429));
    CHECK_FALSE(is_worth_retrying({}, "GET", 500, "busy"));
}

TEST_CASE("http policy: rate limit, how long to wait") {
    const WallTime now(std::chrono::milliseconds(1'773'161'587'000));
    using std::chrono::seconds;
    CHECK(http::asked_wait({{"ratelimit", "\"api\";r=0;t=55"}}, now) == seconds(56));
    CHECK_FALSE(http::asked_wait({{"ratelimit", "\"api\";r=499;t=55"}}, now));
    CHECK(http::asked_wait({{"ratelimit", "\"api\";r=499;t=55"}, {"retry-after", "7"}}, now) == seconds(7));
    CHECK(http::shown_limit({{"ratelimit-policy", "\"fixed window\";\"api\";q=500;w=300"}}) == "500 requests in 300 s");
}

TEST_CASE("http policy: redirects, where the token goes") {
    http::ServiceEndpoint service;
    service.endpoint = *http::parse_url("https://mirror.example/hub");
    service.aliases = {"huggingface.co", "hf.co"};
    const http::RedirectStep first =
        http::first_step(service, *http::parse_url("https://mirror.example/hub/o/r/resolve/main/x"));
    CHECK(first.with_token);
    CHECK_FALSE(http::first_step(service, *http::parse_url("https://mirror.example:8443/x")).with_token);
    const auto same = http::next_step(service, first, "https://mirror.example/y?etag=1");
    REQUIRE(same);
    CHECK(same->with_token);
    CHECK(same->url.query == "?etag=1");
    const auto hub = http::next_step(service, first, "https://huggingface.co/api/x");
    REQUIRE(hub);
    CHECK(hub->url.text() == "https://mirror.example/hub/api/x");
    CHECK(hub->with_token);
    const auto cdn = http::next_step(service, first, "https://cdn.example/z?Signature=1");
    REQUIRE(cdn);
    CHECK_FALSE(cdn->with_token);
    CHECK_FALSE(http::next_step(service, *cdn, "https://mirror.example/hub/x")->with_token);
    for (const char* refused : {"http://mirror.example/y", "file:///etc/passwd",
                                "https://mirror.example/hub/o/r/resolve/main/x", "https://u:p@h/"}) {
        CAPTURE(refused);
        CHECK_FALSE(http::next_step(service, first, refused));
    }
    http::RedirectStep step = first;
    int followed = 0;
    for (; followed < 20; ++followed) {
        auto next = http::next_step(service, step, "https://cdn.example/" + std::to_string(followed));
        if (!next) break;
        step = std::move(*next);
    }
    CHECK(followed == 10);
}

TEST_CASE("http policy: url, parts, encoding, and what may be shown") {
    const auto url = parse_url("HTTPS://Example.org:443/a?b#c");
    REQUIRE(url);
    CHECK(url->text() == "https://example.org/a?b");
    CHECK(parse_url("http://[::1]:80/x")->origin() == "http://[::1]");
    for (const char* bad : {"http://", "http://u@h/", "file:///x", "http://h:0/", "http://h:99999/", "http://h/a b",
                            "h/x", "http:/h", "http://[::1", "http://[::1]x/", "http://a<b/"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_url(bad));
    }
    for (const char* host : {"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"})
        CHECK(is_loopback(host));
    for (const char* host : {"127.evil.org", "127.1", "0x7f000001", "128.0.0.1", "[::2]", "", "localhost.evil.org"})
        CHECK_FALSE(is_loopback(host));
    CHECK(is_confidential(*parse_url("https://h/")));
    CHECK(is_confidential(*parse_url("http://127.0.0.1:8/")));
    CHECK_FALSE(is_confidential(*parse_url("http://127.evil.org/")));
    CHECK(without_queries("see https://h/p?sig=1&x=2 and http://g?y") == "see https://h/p?... and http://g?...");
    CHECK(without_queries("https://h/p?sig=1, which is not allowed: https://h, no") ==
          "https://h/p?..., which is not allowed: https://h, no");
}

namespace {

const Subject k_subject{"PUT", "https://h:8443/api/x", "h:8443"};

}  // namespace

TEST_CASE("http error: every phase is named with its host and has a hint") {
    const std::pair<Phase, std::string_view> phases[] = {
        {Phase::resolving, "resolving h:8443 failed: why"},
        {Phase::connecting, "connecting to h:8443 failed: why"},
        {Phase::tls, "TLS with h:8443 failed: why"},
        {Phase::sending, "sending to h:8443 failed: why"},
        {Phase::waiting, "waiting for the answer of h:8443 failed: why"},
        {Phase::receiving, "receiving from h:8443 failed: why"},
    };
    for (const auto& [phase, text] : phases) {
        for (const TransportError cause : {TransportError::cut, TransportError::timed_out, TransportError::other}) {
            const Error error = transport_error(k_subject, phase, cause, "why");
            CHECK(error.kind == ErrorKind::infrastructure);
            CHECK(error.message == "PUT https://h:8443/api/x: " + std::string(text));
            CHECK_FALSE(error.hint.empty());
        }
        CHECK_FALSE(phase_name(phase).empty());
    }
}

TEST_CASE("http error: an untrusted certificate and a peer that speaks no HTTP have their own hints") {
    CHECK(transport_error(k_subject, Phase::tls, TransportError::bad_peer, "self-signed certificate")
              .hint.find("SSL_CERT_FILE") != std::string::npos);
    CHECK(
        transport_error(k_subject, Phase::receiving, TransportError::not_http, "x").hint.find("is the right service") !=
        std::string::npos);
    CHECK(transport_error(k_subject, Phase::connecting, TransportError::timed_out, "x").hint.find("firewall") !=
          std::string::npos);
}

TEST_CASE("http error: the reason loses its final period, and secrets are masked") {
    CHECK(transport_error(k_subject, Phase::receiving, TransportError::cut, "Connection reset.\n")
              .message.ends_with("Connection reset"));
    register_secret("opensesame-123");
    const Error error = transport_error(k_subject, Phase::sending, TransportError::cut, "bad header opensesame-123");
    CHECK(error.message.find("opensesame-123") == std::string::npos);
}
