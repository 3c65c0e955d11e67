#include "platform/http_error.h"

#include <doctest/doctest.h>

#include "core/redact.h"

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
