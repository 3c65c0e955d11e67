#include "services/hub/transfer/retrying_client.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "platform/http_policy.h"
#include "platform/signals.h"

namespace gdnctl::hub {

namespace {

using std::chrono::milliseconds;

constexpr std::int64_t k_longest_s = 86400;
constexpr milliseconds k_first_wait{500};
constexpr milliseconds k_longest_wait{30000};

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

bool is_worth_retrying(int status) {
    constexpr std::array<int, 6> k_statuses = {408, 429, 500, 502, 503, 504};
    return std::find(k_statuses.begin(), k_statuses.end(), status) != k_statuses.end();
}

std::optional<milliseconds> asked_wait(const HttpHeaders& headers, WallTime now) {
    if (const auto limit = find_header(headers, "ratelimit")) {
        const auto left = parameter(*limit, "r");
        const auto seconds = parameter(*limit, "t");
        if (left == 0 && seconds && *seconds >= 0) {
            return std::chrono::seconds(std::min(*seconds, k_longest_s) + 1);
        }
    }
    if (const auto after = find_header(headers, "retry-after")) return http::parse_retry_after(*after, now);
    return std::nullopt;
}

std::string shown_limit(const HttpHeaders& headers) {
    const auto policy = find_header(headers, "ratelimit-policy");
    if (!policy) return {};
    const auto requests = parameter(*policy, "q");
    const auto window = parameter(*policy, "w");
    return requests && window ? fmt::format("{} requests in {} s", *requests, *window) : std::string();
}

milliseconds jittered_wait(int retry, double random) {
    const int doublings = std::clamp(retry - 1, 0, 10);
    const milliseconds most = std::min(k_longest_wait, k_first_wait * (1 << doublings));
    return milliseconds(static_cast<std::int64_t>(static_cast<double>(most.count()) * std::clamp(random, 0.0, 1.0)));
}

namespace {

using std::chrono::milliseconds;

constexpr int k_most_redirects = 10;
constexpr int k_rate_limited = 429;
constexpr milliseconds k_api_time{60'000};
constexpr milliseconds k_step{50};
constexpr milliseconds k_announced{1000};

// Keeps a whole answer in memory.
struct Collector final : HttpReceiver {
    explicit Collector(std::size_t most) : limit(most) {}
    WireAnswer answer;
    std::size_t limit;
    bool too_long = false;
    std::optional<HttpEnd> end;

    bool on_head(int status, const HttpHeaders& headers) override {
        answer.status = status;
        answer.headers = headers;
        return true;
    }
    bool on_body(std::string_view bytes) override {
        too_long = answer.body.size() + bytes.size() > limit;
        if (!too_long) answer.body += bytes;
        return !too_long;
    }
    void on_end(const HttpEnd& how) override { end = how; }
};

}  // namespace

Hop first_hop(const Realm& realm, Url url) {
    Hop hop;
    hop.with_token = url.same_origin(realm.endpoint);
    hop.url = std::move(url);
    return hop;
}

Outcome<Hop> next_hop(const Realm& realm, const Hop& from, const std::string& location) {
    const auto refuse = [&](std::string_view why) {
        Failure failure;
        failure.message =
            fmt::format("{} redirects to {}, which is not allowed: {}", shown(from.url.place()), shown(location), why);
        failure.hint = "check the endpoint, and whether a proxy answers in its place";
        return tl::unexpected(std::move(failure));
    };
    auto url = parse_url(location);
    if (!url) return refuse("it is not an http or https address");
    const bool named_by_alias = std::find(realm.aliases.begin(), realm.aliases.end(), url->host) != realm.aliases.end();
    if (named_by_alias && url->host != realm.endpoint.host) {
        std::string below = realm.endpoint.path;
        while (below.ends_with('/')) below.pop_back();
        url->scheme = realm.endpoint.scheme;
        url->host = realm.endpoint.host;
        url->port = realm.endpoint.port;
        url->path = below + url->path;
    }
    if (from.url.scheme == "https" && url->scheme == "http") return refuse("it would leave https");
    Hop hop = from;
    hop.seen.push_back(from.url.text());
    if (std::find(hop.seen.begin(), hop.seen.end(), url->text()) != hop.seen.end())
        return refuse("it is a redirect loop");
    if (++hop.redirects > k_most_redirects) return refuse("it is more than the tenth redirect");
    hop.with_token = from.with_token && url->same_origin(realm.endpoint);
    hop.url = std::move(*url);
    return hop;
}

// Resets the retries but not the time: otherwise a server that dies after each byte would be retried forever.
void Tries::progress(Clock& clock) {
    if (since) earlier += std::chrono::duration_cast<milliseconds>(clock.monotonic() - *since);
    since.reset();
    retries = 0;
}

HttpRequest Wire::request_for(const Hop& hop, std::string method, HttpHeaders headers) const {
    HttpRequest request;
    request.method = std::move(method);
    request.url = hop.url.text();
    request.headers = m_realm.headers;
    request.headers.insert(request.headers.end(), headers.begin(), headers.end());
    const bool with_token = hop.with_token && !m_realm.authorization.empty();
    if (with_token) request.secret_headers.emplace_back("Authorization", m_realm.authorization);
    request.connect_timeout = m_policy.connect_timeout;
    request.first_byte_timeout = m_policy.stall_timeout;
    request.low_speed_time =
        std::max(std::chrono::seconds(1), std::chrono::ceil<std::chrono::seconds>(m_policy.stall_timeout));
    if (m_realm.log_requests) {
        log::info("{} {}{}", request.method, shown(request.url), with_token ? " (Authorization: <TOKEN>)" : "");
    }
    return request;
}

tl::expected<milliseconds, std::string> Wire::wait_before_retry(Tries& tries, int status, const HttpHeaders* headers) {
    const Clock::Monotonic now = m_clock.monotonic();
    if (!tries.since) tries.since = now;
    if (++tries.retries > m_policy.retries) {
        const std::string_view word = m_policy.retries == 1 ? "retry" : "retries";
        return tl::unexpected(m_policy.retries > 0 ? fmt::format("given up after {} {}", m_policy.retries, word)
                                                   : std::string("no retries with --retries 0"));
    }
    const double random =
        static_cast<double>(m_random() - std::minstd_rand::min()) / static_cast<double>(std::minstd_rand::max());
    milliseconds wait = jittered_wait(tries.retries, random);
    if (headers != nullptr) {
        if (const auto asked = asked_wait(*headers, m_clock.wall())) wait = std::max(wait, *asked);
    }
    const auto left = m_policy.max_time - tries.earlier - std::chrono::duration_cast<milliseconds>(now - *tries.since);
    if (wait > left) {
        return tl::unexpected(
            fmt::format("the next retry would be in {}, later than --retry-max-time allows", format_duration(wait)));
    }
    if (status == k_rate_limited && (!m_gate || now + wait > *m_gate)) m_gate = now + wait;
    return wait;
}

Status Wire::sleep(milliseconds wait) {
    if (m_clock.sleep_for(wait, m_stop)) return {};
    return tl::unexpected(stopped_error());
}

Outcome<WireAnswer> Wire::exchange(const Hop& hop, const Question& question, HttpEnd& end) {
    Collector collector(question.limit);
    HttpRequest request = request_for(hop, question.method, question.headers);
    request.body = question.body;
    request.total_timeout = k_api_time;
    request.decoded = question.method != "HEAD";  // a listing is long and compresses well
    if (const Status started = m_pool.start(std::move(request), collector); !started) {
        return tl::unexpected(failure_of(started.error()));
    }
    while (!collector.end) {
        if (m_stop.stop_requested()) {
            m_pool.cancel(collector);
            return tl::unexpected(failure_of(stopped_error()));
        }
        if (const Status step = m_pool.step(k_step); !step) {
            m_pool.cancel(collector);
            return tl::unexpected(failure_of(step.error()));
        }
    }
    end = *collector.end;
    collector.answer.url = hop.url.text();
    if (collector.too_long) {
        Failure failure;
        failure.message =
            fmt::format("the answer of {} is larger than {} MiB", shown(hop.url.place()), question.limit >> 20U);
        return tl::unexpected(std::move(failure));
    }
    return std::move(collector.answer);
}

// `again`: a retry may help.
Outcome<WireAnswer> Wire::ask_once(const Url& url, const Question& question, bool& again) {
    Hop hop = first_hop(m_realm, url);
    hop.with_token = hop.with_token && question.with_token;
    again = false;
    for (;;) {
        HttpEnd end;
        auto answer = exchange(hop, question, end);
        if (!answer) return answer;
        if (end.error) {
            again = end.worth_another_try;
            return tl::unexpected(failure_of(*end.error));
        }
        if (end.redirect_url.empty()) {
            again = is_worth_retrying(answer->status);
            return answer;
        }
        auto next = next_hop(m_realm, hop, end.redirect_url);
        if (!next) return tl::unexpected(std::move(next).error());
        if (question.stay && !next->url.same_origin(hop.url)) return answer;
        hop = std::move(*next);
    }
}

Outcome<WireAnswer> Wire::ask(const std::string& url, const Question& question) {
    const auto parsed = parse_url(url);
    if (!parsed) {
        return tl::unexpected(
            Failure{ErrorKind::infrastructure, fmt::format("cannot use the address {}", shown(url)), {}, 0, {}});
    }
    for (Tries tries;;) {
        bool again = false;
        auto answer = ask_once(*parsed, question, again);
        if (!again) return answer;
        const auto wait = wait_before_retry(tries, answer ? answer->status : 0, answer ? &answer->headers : nullptr);
        if (!wait) {
            if (answer) {
                answer->gave_up = wait.error();
                return answer;
            }
            Failure failure = std::move(answer).error();
            failure.message += fmt::format(" ({})", wait.error());
            return tl::unexpected(std::move(failure));
        }
        log::write(*wait >= k_announced ? log::Level::info : log::Level::debug,
                   fmt::format("{}; trying again in {} (retry {} of {})",
                               answer ? fmt::format("{} answered {}", shown(parsed->place()), answer->status)
                                      : shown(answer.error().message),
                               format_duration(*wait), tries.retries, m_policy.retries));
        if (const Status slept = sleep(*wait); !slept) return tl::unexpected(failure_of(slept.error()));
    }
}

}  // namespace gdnctl::hub
