// Dashboard addresses, and the direct route to one.
#include <algorithm>
#include <array>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "core/log.h"
#include "core/text.h"
#include "services/cluster/cluster.h"
#include "services/cluster/url.h"

namespace gdnctl {

namespace cluster {

std::optional<Url> parse_url(std::string_view text) {
    const std::size_t colon = text.find("://");
    if (colon == std::string_view::npos) return std::nullopt;
    Url url;
    url.scheme = text::to_lower(text.substr(0, colon));
    std::string_view rest = text.substr(colon + 3);
    const std::size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
    std::string_view authority = rest.substr(0, slash);
    url.path = rest.substr(slash);
    if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
        url.has_user = true;
        authority.remove_prefix(at + 1);
    }
    std::string_view port;
    if (authority.starts_with('[')) {
        const std::size_t end = authority.find(']');
        if (end == std::string_view::npos) return std::nullopt;
        url.host = authority.substr(1, end - 1);
        port = authority.substr(end + 1);
        if (!port.empty() && !port.starts_with(':')) return std::nullopt;
    } else {
        const std::size_t at = std::min(authority.find(':'), authority.size());
        url.host = authority.substr(0, at);
        port = authority.substr(at);
    }
    url.port = url.scheme == "https" ? 443 : 80;
    if (!port.empty()) {
        const auto number = text::parse_int(port.substr(1));
        if (!number || *number < 1 || *number > 65535) return std::nullopt;
        url.port = static_cast<int>(*number);
    }
    if (url.host.empty() || url.host.find_first_of(" \t\r\n\"<>\\^`{|}") != std::string::npos) return std::nullopt;
    return url;
}

bool is_loopback(std::string_view host) {
    const std::string name = text::to_lower(host);
    if (name == "localhost" || name == "::1") return true;
    in_addr v4{};
    return inet_pton(AF_INET, name.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24U) == 127;
}

bool is_own_address(std::string_view host) {
    if (is_loopback(host)) return true;
    const std::string name(host);
    in_addr v4{};
    in6_addr v6{};
    const bool is_v4 = inet_pton(AF_INET, name.c_str(), &v4) == 1;
    if (!is_v4 && inet_pton(AF_INET6, name.c_str(), &v6) != 1) return false;
    ifaddrs* first = nullptr;
    if (getifaddrs(&first) != 0) return false;
    bool found = false;
    for (const ifaddrs* at = first; at != nullptr && !found; at = at->ifa_next) {
        if (at->ifa_addr == nullptr) continue;
        if (is_v4 && at->ifa_addr->sa_family == AF_INET) {
            const auto* own = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
            found = own->sin_addr.s_addr == v4.s_addr;
        } else if (!is_v4 && at->ifa_addr->sa_family == AF_INET6) {
            const auto* own = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
            found = std::equal(std::begin(v6.s6_addr), std::end(v6.s6_addr), std::begin(own->sin6_addr.s6_addr));
        }
    }
    freeifaddrs(first);
    return found;
}

}  // namespace cluster

namespace {

constexpr std::string_view k_example = "such as http://127.0.0.1:8265";

class PlainRoute final : public RayRoute {
public:
    PlainRoute(std::string url, bool clear_text_allowed)
        : m_url(std::move(url)), m_clear_text_allowed(clear_text_allowed) {}

    Result<std::string> url() override { return m_url; }

    std::optional<std::string> agent_url(const std::string& address) override {
        const auto agent = cluster::parse_url(address);
        const auto dashboard = cluster::parse_url(m_url);
        if (!agent || !dashboard) return std::nullopt;
        // Traffic to an address of this machine never leaves it, so a token may be sent unencrypted.
        if (cluster::is_own_address(agent->host)) return address;
        // A dashboard on another port of this machine is reached through someone's tunnel, which does not lead to the
        // agent.
        const bool same_host = agent->host == dashboard->host;
        return same_host && m_clear_text_allowed ? std::optional(address) : std::nullopt;
    }

private:
    std::string m_url;
    bool m_clear_text_allowed;
};

}  // namespace

Result<std::string> normalize_ray_address(std::string_view address) {
    std::string text(text::trim(address));
    const auto is_blank = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; };
    if (std::any_of(text.begin(), text.end(), is_blank)) {
        return fail(ErrorKind::usage, "a dashboard's address must not contain blanks or control characters",
                    std::string(k_example));
    }
    if (text.find("://") == std::string::npos) text.insert(0, "http://");
    while (text.ends_with('/')) text.pop_back();
    const auto url = cluster::parse_url(text);
    if (!url || (url->scheme != "http" && url->scheme != "https")) {
        return fail(ErrorKind::usage, "not the address of a Ray dashboard: " + std::string(address),
                    std::string(k_example) + "; ray:// and the GCS port (6379) use another protocol");
    }
    if (url->has_user || url->path.find_first_of("?#") != std::string::npos) {
        return fail(ErrorKind::usage, "a dashboard's address must not contain a user, query or fragment",
                    std::string(k_example));
    }
    return text;
}

Result<std::optional<RayAddress>> ray_address_of(const Env& env) {
    for (const char* name : {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"}) {
        const auto value = env.get(name);
        if (!value || text::trim(*value).empty()) continue;
        const std::string lower = text::to_lower(text::trim(*value));
        if (!lower.starts_with("http://") && !lower.starts_with("https://")) {
            log::info("{}={} is not a dashboard address: ignored", name, *value);
            continue;
        }
        GDNCTL_TRY_ASSIGN(std::string url, normalize_ray_address(*value));
        return std::optional(RayAddress{std::move(url), std::string("environment ") + name});
    }
    return std::optional<RayAddress>();
}

bool is_confidential(std::string_view url) {
    const auto parsed = cluster::parse_url(url);
    return parsed && (parsed->scheme == "https" || cluster::is_loopback(parsed->host));
}

std::shared_ptr<RayRoute> make_plain_route(std::string url, bool has_token, bool allow_plaintext) {
    return std::make_shared<PlainRoute>(std::move(url), !has_token || allow_plaintext);
}

}  // namespace gdnctl
