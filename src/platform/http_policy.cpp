#include "platform/http_policy.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <system_error>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"
#include "platform/http.h"

namespace gdnctl::http {

namespace {

constexpr std::chrono::milliseconds k_longest_wait = std::chrono::hours(24);

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_token_char(char c) {
    const bool alphanumeric = (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
    return alphanumeric || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

// A header's name (RFC 9110 section 5.6.2).
bool is_token(std::string_view name) { return !name.empty() && std::all_of(name.begin(), name.end(), is_token_char); }

}  // namespace

std::optional<WallTime> parse_http_date(std::string_view value, WallTime now) {
    constexpr std::size_t k_longest = 40;  // the longest form has 33 characters
    const std::string words(text::trim(value));
    if (words.size() > k_longest) return std::nullopt;
    using namespace std::chrono;
    // The names are those of the C locale: nothing here calls setlocale.
    for (const char* form : {"%a, %d %b %Y %H:%M:%S GMT", "%a, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"}) {
        std::tm parts{};
        if (::strptime(words.c_str(), form, &parts) != words.c_str() + words.size()) continue;
        constexpr int k_first_year = 1900;
        year in{parts.tm_year + k_first_year};
        if (std::string_view(form).find("%y") != std::string_view::npos) {
            // RFC 9110: two digits that mean more than 50 years ahead are of the past century.
            const int today = static_cast<int>(year_month_day{floor<days>(now)}.year());
            in = year{today - today % 100 + parts.tm_year % 100};
            if (static_cast<int>(in) > today + 50) in -= years(100);
        }
        constexpr year k_first{1000};  // strptime takes years of fewer digits too
        if (in < k_first) return std::nullopt;
        const year_month_day date{in, month(static_cast<unsigned>(parts.tm_mon) + 1),
                                  day(static_cast<unsigned>(parts.tm_mday))};
        if (!date.ok()) return std::nullopt;
        return sys_days(date) + hours(parts.tm_hour) + minutes(parts.tm_min) + seconds(parts.tm_sec);
    }
    return std::nullopt;
}

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, WallTime now) {
    value = text::trim(value);
    const bool digits =
        !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits) {
        const auto seconds = text::parse_int(value);  // nullopt: does not fit in 64 bits
        if (!seconds || *seconds >= std::chrono::duration_cast<std::chrono::seconds>(k_longest_wait).count()) {
            return k_longest_wait;
        }
        return std::chrono::seconds(*seconds);
    }
    const auto date = parse_http_date(value, now);
    if (!date) return std::nullopt;
    if (*date <= now) return std::chrono::milliseconds(0);
    return std::min(k_longest_wait, std::chrono::duration_cast<std::chrono::milliseconds>(*date - now));
}

std::chrono::milliseconds retry_delay(const HttpRetry& policy, int attempt,
                                      std::optional<std::chrono::milliseconds> asked) {
    const double growth = std::pow(std::max(1.0, policy.factor), std::max(0, attempt - 1));
    const double wanted = static_cast<double>(policy.first_delay.count()) * growth;
    const auto longest = static_cast<double>(policy.max_delay.count());
    const std::chrono::milliseconds delay(static_cast<std::int64_t>(std::min(wanted, longest)));
    return std::max(delay, asked.value_or(std::chrono::milliseconds(0)));
}

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string redirected_method(int status, std::string_view method) {
    const bool to_get = (status == 303 && method != "HEAD") || ((status == 301 || status == 302) && method == "POST");
    return std::string(to_get ? "GET" : method);
}

bool is_credential_header(std::string_view name) {
    const std::string lowered = text::to_lower(name);
    return lowered == "authorization" || lowered == "proxy-authorization" || lowered == "cookie" ||
           lowered == "x-api-key";
}

bool is_valid_method(std::string_view method) {
    return !method.empty() && std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_valid_header(std::string_view name, std::string_view value) {
    const bool value_ok =
        std::none_of(value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
    return is_token(name) && value_ok;
}

}  // namespace gdnctl::http

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
