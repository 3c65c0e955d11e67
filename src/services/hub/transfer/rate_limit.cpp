#include "services/hub/transfer/rate_limit.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/http_policy.h"

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

}  // namespace gdnctl::hub
