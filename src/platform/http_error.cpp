#include "platform/http_error.h"

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "core/redact.h"
#include "platform/http.h"

namespace gdnctl::http {

namespace {

std::string hint_for(const Subject& subject, Phase phase, Trouble trouble) {
    if (trouble == Trouble::bad_peer) {
        return "if this host is meant to be trusted, set SSL_CERT_FILE to the file with its CA certificates";
    }
    if (trouble == Trouble::not_http) {
        return fmt::format("check that {} is the right service, and whether it expects http or https", subject.host);
    }
    switch (phase) {
        case Phase::resolving: return "check the spelling of the host name, and DNS or the VPN";
        case Phase::connecting:
            return trouble == Trouble::timed_out
                       ? fmt::format("check that this machine can reach {} (VPN, tunnel, firewall)", subject.host)
                       : fmt::format("check that the service runs and listens on {} (address, port, tunnel)",
                                     subject.host);
        case Phase::tls: return fmt::format("check that {} speaks https; a plain service needs http://", subject.host);
        case Phase::sending: return "try again; if it fails again, check whether a proxy limits the size of requests";
        case Phase::waiting:
            return "the service accepted the request but did not answer: try again, or look at its log";
        case Phase::receiving: return "the answer was truncated: try again";
    }
    return {};
}

std::string phase_of_host(Phase phase, const std::string& host) {
    switch (phase) {
        case Phase::resolving: return "resolving " + host;
        case Phase::connecting: return "connecting to " + host;
        case Phase::tls: return "TLS with " + host;
        case Phase::sending: return "sending to " + host;
        case Phase::waiting: return "waiting for the answer of " + host;
        case Phase::receiving: return "receiving from " + host;
    }
    return host;
}

}  // namespace

std::string_view phase_name(Phase phase) {
    switch (phase) {
        case Phase::resolving: return "resolving";
        case Phase::connecting: return "connecting";
        case Phase::tls: return "TLS";
        case Phase::sending: return "sending";
        case Phase::waiting: return "waiting for the answer";
        case Phase::receiving: return "receiving";
    }
    return "";
}

Error transport_error(const Subject& subject, Phase phase, Trouble trouble, std::string_view reason) {
    while (!reason.empty() && (reason.back() == '\n' || reason.back() == '.')) reason.remove_suffix(1);
    return Error{ErrorKind::infrastructure,
                 redact(fmt::format("{} {}: {} failed: {}", subject.method, subject.place,
                                    phase_of_host(phase, subject.host), reason)),
                 redact(hint_for(subject, phase, trouble)),
                 {}};
}

}  // namespace gdnctl::http

namespace gdnctl {

bool is_connection_refused(const Error& error) {
    return error.message.ends_with(std::generic_category().message(ECONNREFUSED));
}

}  // namespace gdnctl
