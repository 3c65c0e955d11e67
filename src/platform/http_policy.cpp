#include "platform/http_policy.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <system_error>

#include <arpa/inet.h>
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

namespace {

// The number after "name=" among ';'-separated parameters.
std::optional<std::int64_t> parameter(std::string_view value, std::string_view name) {
    for (std::string_view part : text::split(value, ';')) {
        part = text::trim(part);
        if (!part.starts_with(name) || part.size() <= name.size() || part[name.size()] != '=') continue;
        return text::parse_int(part.substr(name.size() + 1));
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::chrono::milliseconds> asked_wait(const HttpHeaders& headers, WallTime now) {
    if (const auto limit = find_header(headers, "ratelimit")) {
        const auto left = parameter(*limit, "r");
        const auto seconds = parameter(*limit, "t");
        if (left == 0 && seconds && *seconds >= 0) {
            return std::chrono::seconds(std::min(*seconds, std::int64_t{86400}) + 1);
        }
    }
    if (const auto after = find_header(headers, "retry-after")) return parse_retry_after(*after, now);
    return std::nullopt;
}

std::string shown_limit(const HttpHeaders& headers) {
    const auto policy = find_header(headers, "ratelimit-policy");
    if (!policy) return {};
    const auto requests = parameter(*policy, "q");
    const auto window = parameter(*policy, "w");
    return requests && window ? fmt::format("{} requests in {} s", *requests, *window) : std::string();
}

bool is_worth_retrying(const RetryPolicy& policy, std::string_view method, int status, std::string_view body) {
    const auto has_one_of = [&](const std::vector<std::string_view>& words) {
        return std::any_of(words.begin(), words.end(),
                           [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
    };
    if (std::find(policy.statuses.begin(), policy.statuses.end(), status) != policy.statuses.end()) return true;
    if (status != 500) return false;
    return has_one_of(policy.words_of_500) || (method == "GET" && has_one_of(policy.words_of_500_to_get));
}

std::chrono::milliseconds retry_delay(const RetryPolicy& policy, int attempt,
                                      std::optional<std::chrono::milliseconds> asked, double random) {
    const double growth = std::pow(std::max(1.0, policy.factor), std::max(0, attempt - 1));
    const double wanted = static_cast<double>(policy.first_delay.count()) * growth;
    const double delay = std::floor(std::min(wanted, static_cast<double>(policy.max_delay.count())));
    const double part = policy.least_part + policy.random_part * std::clamp(random, 0.0, 1.0);
    const std::chrono::milliseconds wait(static_cast<std::int64_t>(delay * part));
    return std::max(wait, asked.value_or(std::chrono::milliseconds(0)));
}

NextAttempt next_attempt(const RetryPolicy& policy, int attempt, std::chrono::milliseconds elapsed,
                         std::optional<std::chrono::milliseconds> asked, double random) {
    const std::chrono::milliseconds delay = retry_delay(policy, attempt, asked, random);
    using enum NextAttempt::Verdict;
    if (policy.attempts > 0 && attempt >= policy.attempts) return {no_attempts_left, delay};
    return {elapsed + delay > policy.total ? no_time_left : wait, delay};
}

namespace {

constexpr int k_http_port = 80;
constexpr int k_https_port = 443;
constexpr int k_last_port = 65535;

int usual_port(std::string_view scheme) { return scheme == "https" ? k_https_port : k_http_port; }

// "host[:port]" or "[v6][:port]". False: malformed.
bool split_authority(std::string_view authority, Url& url) {
    if (authority.empty() || authority.find('@') != std::string_view::npos) return false;
    const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
    if (bracket == std::string_view::npos) return false;
    const std::size_t colon = authority.find(':', bracket);
    const std::size_t end = bracket == 0 ? colon : bracket + 1;
    if (std::min(end, authority.size()) != std::min(colon, authority.size())) return false;
    url.host = text::to_lower(authority.substr(0, colon));
    url.port = usual_port(url.scheme);
    if (colon != std::string_view::npos && colon + 1 < authority.size()) {
        const auto port = text::parse_int(authority.substr(colon + 1));
        if (!port || *port < 1 || *port > k_last_port) return false;
        url.port = static_cast<int>(*port);
    }
    return !url.host.empty() && url.host.find_first_of("\"<>^`{|}") == std::string::npos;
}

}  // namespace

std::string Url::origin() const {
    return port == usual_port(scheme) ? fmt::format("{}://{}", scheme, host)
                                      : fmt::format("{}://{}:{}", scheme, host, port);
}

std::optional<Url> parse_url(std::string_view text) {
    const bool clean = std::none_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == '\x7f' || c == '\\';
    });
    const std::size_t colon = text.find("://");
    if (!clean || colon == std::string_view::npos) return std::nullopt;
    Url url;
    url.scheme = text::to_lower(text.substr(0, colon));
    if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
    std::string_view rest = text.substr(colon + 3);
    rest = rest.substr(0, rest.find('#'));
    const std::size_t end = rest.find_first_of("/?");
    if (!split_authority(rest.substr(0, end), url)) return std::nullopt;
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
    const std::size_t query = rest.find('?');
    url.path = rest.substr(0, query);
    if (url.path.empty()) url.path = "/";
    if (query != std::string_view::npos) url.query = rest.substr(query);
    return url;
}

bool is_loopback(std::string_view host) {
    std::string name = text::to_lower(host);
    if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
    if (name == "localhost" || name == "::1") return true;
    in_addr v4{};
    return inet_pton(AF_INET, name.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24U) == 127;
}

bool is_confidential(const Url& url) { return url.scheme == "https" || is_loopback(url.host); }

std::string without_queries(std::string_view text) {
    std::string kept;
    while (true) {
        const std::size_t at = std::min(text.find("http://"), text.find("https://"));
        if (at == std::string_view::npos) break;
        const std::size_t end = std::min(text.size(), text.find_first_of(" \t\r\n\"'<>`", at));
        std::string_view url = text.substr(at, end - at);
        while (url.ends_with(':') || url.ends_with(','))
            url.remove_suffix(1);  // punctuation of the surrounding sentence
        const std::size_t query = url.find('?');
        kept += text.substr(0, at);
        kept += url.substr(0, query);
        if (query != std::string_view::npos) kept += "?...";
        text.remove_prefix(at + url.size());
    }
    kept += text;
    return kept;
}

std::string shown(std::string_view text) {
    std::string safe = text::visible(redact(without_queries(text)));
    std::replace(safe.begin(), safe.end(), '\n', ' ');
    return safe;
}

RedirectStep first_step(const ServiceEndpoint& service, Url url) {
    RedirectStep step;
    step.with_token = url.same_origin(service.endpoint);
    step.url = std::move(url);
    return step;
}

Result<RedirectStep> next_step(const ServiceEndpoint& service, const RedirectStep& from, const std::string& location) {
    const auto refuse = [&](std::string_view why) {
        return fail(
            ErrorKind::infrastructure,
            fmt::format("{} redirects to {}, which is not allowed: {}", shown(from.url.place()), shown(location), why),
            "check the endpoint, and whether a proxy answers in its place");
    };
    auto url = parse_url(location);
    if (!url) return refuse("it is not an http or https address");
    const bool named_by_alias =
        std::find(service.aliases.begin(), service.aliases.end(), url->host) != service.aliases.end();
    if (named_by_alias && url->host != service.endpoint.host) {
        std::string below = service.endpoint.path;
        while (below.ends_with('/')) below.pop_back();
        url->scheme = service.endpoint.scheme;
        url->host = service.endpoint.host;
        url->port = service.endpoint.port;
        url->path = below + url->path;
    }
    if (from.url.scheme == "https" && url->scheme == "http") return refuse("it would leave https");
    RedirectStep step = from;
    step.seen.push_back(from.url.text());
    if (std::find(step.seen.begin(), step.seen.end(), url->text()) != step.seen.end())
        return refuse("it is a redirect loop");
    if (++step.redirects > 10) return refuse("it is more than the tenth redirect");
    step.with_token = from.with_token && url->same_origin(service.endpoint);
    step.url = std::move(*url);
    return step;
}

bool is_redirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_valid_method(std::string_view method) {
    return !method.empty() && std::all_of(method.begin(), method.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}

bool is_valid_header(std::string_view name, std::string_view value) {
    const bool value_ok =
        std::none_of(value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n' || c == '\0'; });
    return is_token(name) && value_ok;
}

namespace {

std::string hint_for(const Subject& subject, Phase phase, TransportError cause) {
    if (cause == TransportError::bad_peer) {
        return "if this host is meant to be trusted, set SSL_CERT_FILE to the file with its CA certificates";
    }
    if (cause == TransportError::not_http) {
        return fmt::format("check that {} is the right service, and whether it expects http or https", subject.host);
    }
    switch (phase) {
        case Phase::resolving: return "check the spelling of the host name, and DNS or the VPN";
        case Phase::connecting:
            return cause == TransportError::timed_out
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

Error transport_error(const Subject& subject, Phase phase, TransportError cause, std::string_view reason) {
    while (!reason.empty() && (reason.back() == '\n' || reason.back() == '.')) reason.remove_suffix(1);
    return Error{ErrorKind::infrastructure,
                 redact(fmt::format("{} {}: {} failed: {}", subject.method, subject.place,
                                    phase_of_host(phase, subject.host), reason)),
                 redact(hint_for(subject, phase, cause)),
                 {}};
}

}  // namespace gdnctl::http

namespace gdnctl {

bool is_connection_refused(const Error& error) {
    return error.message.ends_with(std::generic_category().message(ECONNREFUSED));
}

bool is_out_of_reach(const Error& error) {
    return error.kind == ErrorKind::infrastructure || error.kind == ErrorKind::timeout;
}

}  // namespace gdnctl
