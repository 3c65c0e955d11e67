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
    HttpRetry policy;
    CHECK(http::retry_delay(policy, 1, {}) == 500ms);
    CHECK(http::retry_delay(policy, 2, {}) == 750ms);
    CHECK(http::retry_delay(policy, 3, {}) == 1125ms);
    CHECK(http::retry_delay(policy, 50, {}) == 5000ms);
    CHECK(http::retry_delay(policy, 1, 7000ms) == 7000ms);
    CHECK(http::retry_delay(policy, 50, 7ms) == 5000ms);
}

TEST_CASE("http policy: the method after a redirect") {
    CHECK(http::redirected_method(301, "POST") == "GET");
    CHECK(http::redirected_method(302, "POST") == "GET");
    CHECK(http::redirected_method(302, "PUT") == "PUT");
    CHECK(http::redirected_method(303, "PUT") == "GET");
    CHECK(http::redirected_method(303, "HEAD") == "HEAD");
    CHECK(http::redirected_method(307, "POST") == "POST");
    CHECK(http::redirected_method(308, "DELETE") == "DELETE");
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
    CHECK(http::is_credential_header("AuthoriZation"));
    CHECK_FALSE(http::is_credential_header("Accept"));
}

using namespace gdnctl;
using namespace gdnctl::http;

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
        for (const Trouble trouble : {Trouble::cut, Trouble::timed_out, Trouble::other}) {
            const Error error = transport_error(k_subject, phase, trouble, "why");
            CHECK(error.kind == ErrorKind::infrastructure);
            CHECK(error.message == "PUT https://h:8443/api/x: " + std::string(text));
            CHECK_FALSE(error.hint.empty());
        }
        CHECK_FALSE(phase_name(phase).empty());
    }
}

TEST_CASE("http error: an untrusted certificate and a peer that speaks no HTTP have their own hints") {
    CHECK(transport_error(k_subject, Phase::tls, Trouble::bad_peer, "self-signed certificate")
              .hint.find("SSL_CERT_FILE") != std::string::npos);
    CHECK(transport_error(k_subject, Phase::receiving, Trouble::not_http, "x").hint.find("is the right service") !=
          std::string::npos);
    CHECK(transport_error(k_subject, Phase::connecting, Trouble::timed_out, "x").hint.find("firewall") !=
          std::string::npos);
}

TEST_CASE("http error: the reason loses its final period, and secrets are masked") {
    CHECK(transport_error(k_subject, Phase::receiving, Trouble::cut, "Connection reset.\n")
              .message.ends_with("Connection reset"));
    register_secret("opensesame-123");
    const Error error = transport_error(k_subject, Phase::sending, Trouble::cut, "bad header opensesame-123");
    CHECK(error.message.find("opensesame-123") == std::string::npos);
}
