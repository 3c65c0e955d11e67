// Dashboards: their addresses, the direct route to one, the token for it, and what it says about its cluster.
#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/http_policy.h"
#include "services/cluster/cluster.h"
#include "services/cluster/tunnel.h"

namespace gdnctl {

namespace cluster {

bool is_own_address(std::string_view host) {
    if (http::is_loopback(host)) return true;
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

HttpHeaders bearer(const std::string& token) {
    return token.empty() ? HttpHeaders() : HttpHeaders{{"Authorization", "Bearer " + token}};
}

}  // namespace cluster

namespace {

class PlainRoute final : public JobRoute {
public:
    PlainRoute(std::string url, std::string token, bool clear_text_allowed)
        : m_url(std::move(url)), m_token(std::move(token)), m_clear_text_allowed(clear_text_allowed) {}

    Result<std::string> url() override { return m_url; }

    Result<HttpHeaders> headers(bool /*refused*/) override { return cluster::bearer(m_token); }

    std::optional<std::string> agent_url(const std::string& address) override {
        const auto agent = http::parse_url(address);
        const auto dashboard = http::parse_url(m_url);
        if (!agent || !dashboard) return std::nullopt;
        // Traffic to an address of this machine never leaves it, so a token may be sent unencrypted.
        if (cluster::is_own_address(agent->host_name())) return address;
        // A dashboard on another port of this machine is reached through someone's tunnel, which does not lead to the
        // agent.
        const bool same_host = agent->host == dashboard->host;
        return same_host && m_clear_text_allowed ? std::optional(address) : std::nullopt;
    }

private:
    std::string m_url, m_token;
    bool m_clear_text_allowed;
};

}  // namespace

Result<std::string> normalize_address(std::string_view address, PlaceKind kind) {
    const bool ray = kind == PlaceKind::ray;
    const std::string_view server = ray ? "dashboard" : "controller";
    const std::string example = ray ? "such as http://127.0.0.1:8265" : "such as http://127.0.0.1:10000";
    std::string text(text::trim(address));
    const auto is_blank = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; };
    if (std::any_of(text.begin(), text.end(), is_blank)) {
        return fail(ErrorKind::usage,
                    fmt::format("a {}'s address must not contain blanks or control characters", server), example);
    }
    if (text.find("://") == std::string::npos) text.insert(0, "http://");
    while (text.ends_with('/')) text.pop_back();
    const std::size_t host = text.find("://") + 3;
    const std::size_t user = text.find('@', host);
    const bool has_more = user < text.find('/', host) || text.find_first_of("?#") != std::string::npos;
    if (!has_more && !http::parse_url(text)) {
        return fail(ErrorKind::usage,
                    fmt::format("not the address of {} {}: {}", ray ? "a Ray" : "an Iris", server, address),
                    ray ? example + "; ray:// and the GCS port (6379) use another protocol" : example);
    }
    if (has_more) {
        return fail(ErrorKind::usage, fmt::format("a {}'s address must not contain a user, query or fragment", server),
                    example);
    }
    return text;
}

Result<std::optional<ClusterAddress>> ray_address_of(const Env& env) {
    for (const char* name : {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"}) {
        const auto value = env.get(name);
        if (!value || text::trim(*value).empty()) continue;
        const std::string lower = text::to_lower(text::trim(*value));
        if (!lower.starts_with("http://") && !lower.starts_with("https://")) {
            log::info("{}={} is not a dashboard address: ignored", name, *value);
            continue;
        }
        GDNCTL_TRY_ASSIGN(std::string url, normalize_address(*value));
        return std::optional(ClusterAddress{std::move(url), std::string("environment ") + name});
    }
    return std::optional<ClusterAddress>();
}

bool is_confidential(std::string_view url) {
    const auto parsed = http::parse_url(url);
    return parsed && http::is_confidential(*parsed);
}

std::shared_ptr<JobRoute> make_plain_route(std::string url, std::string token, bool allow_plaintext) {
    const bool clear_text_allowed = token.empty() || allow_plaintext;
    return std::make_shared<PlainRoute>(std::move(url), std::move(token), clear_text_allowed);
}

// Finds the token for a dashboard.

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_token_limit = std::size_t{64} << 10;
constexpr std::string_view k_ways =
    "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, write it to ~/.ray/auth_token, or `make get_ray_auth_token` in a Marin "
    "checkout";

// Trims what Ray itself trims.
std::string trimmed(std::string_view text) {
    constexpr std::string_view k_blank = " \t\n\r\f\v";
    const std::size_t first = text.find_first_not_of(k_blank);
    if (first == std::string_view::npos) return {};
    return std::string(text.substr(first, text.find_last_not_of(k_blank) - first + 1));
}

// A token must fit into a header: one line of plain characters.
Status check_token(const std::string& token, const std::string& origin) {
    for (const char c : token) {
        if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7f) {
            return fail(ErrorKind::authentication,
                        "the token of " + origin + " contains characters that are not valid in a token",
                        std::string(k_ways));
        }
    }
    return {};
}

Result<RayToken> accept(RayToken found, std::string value, std::string origin) {
    GDNCTL_TRY(check_token(value, origin));
    register_secret(value);
    found.value = std::move(value);
    found.looked.push_back(origin + ": found");
    found.origin = std::move(origin);
    return found;
}

Result<std::string> read_named_file(const fs::path& path) {
    auto bytes = read_file(path, {k_token_limit, ErrorKind::authentication});
    if (!bytes) {
        return fail(ErrorKind::authentication, "RAY_AUTH_TOKEN_PATH: " + bytes.error().text(), std::string(k_ways));
    }
    std::string token = trimmed(*bytes);
    if (token.empty()) {
        return fail(ErrorKind::authentication, "RAY_AUTH_TOKEN_PATH: " + path.string() + " is empty",
                    std::string(k_ways));
    }
    return token;
}

// Readable only by the user, from the moment it is created.
Status save(const fs::path& path, const std::string& token) {
    std::error_code problem;
    if (!fs::exists(path.parent_path(), problem)) GDNCTL_TRY(make_private_directory(path.parent_path()));
    if (fs::exists(path, problem)) {
        fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, problem);
    }
    return atomic_replace(path, token + "\n", 0600);
}

}  // namespace

Result<RayToken> find_ray_token(const Env& env, const ClusterFile* cluster, const GcloudAccess& gcloud) {
    RayToken found;
    if (std::string token = trimmed(env.get("RAY_AUTH_TOKEN").value_or("")); !token.empty()) {
        return accept(std::move(found), std::move(token), "environment RAY_AUTH_TOKEN");
    }
    found.looked.emplace_back("RAY_AUTH_TOKEN: not set");
    if (const std::string named = env.get("RAY_AUTH_TOKEN_PATH").value_or(""); !named.empty()) {
        GDNCTL_TRY_ASSIGN(std::string token, read_named_file(named));
        return accept(std::move(found), std::move(token), "file " + named + " (RAY_AUTH_TOKEN_PATH)");
    }
    found.looked.emplace_back("RAY_AUTH_TOKEN_PATH: not set");

    const std::string home = env.get("HOME").value_or("");
    const fs::path usual = fs::path(home) / ".ray" / "auth_token";
    if (!home.empty()) {
        const auto bytes = read_file_if_exists(usual, k_token_limit);
        if (!bytes) return fail(ErrorKind::authentication, bytes.error().text(), std::string(k_ways));
        std::string token = trimmed(bytes->value_or(""));
        if (!token.empty()) return accept(std::move(found), std::move(token), "file " + usual.string());
        found.looked.push_back(usual.string() + (*bytes ? ": empty" : ": not found"));
    }

    if (cluster == nullptr || cluster->project.empty()) return found;
    const std::string place = "secret RAY_AUTH_TOKEN of project " + cluster->project;
    auto secret = cluster::run_gcloud(
        gcloud, {"secrets", "versions", "access", "latest", "--secret=RAY_AUTH_TOKEN", "--project=" + cluster->project},
        "get the " + place);
    if (!secret && secret.error().kind == ErrorKind::remote_missing) {
        found.looked.push_back(place + ": not found");
        return found;
    }
    if (!secret) return tl::unexpected(std::move(secret).error());
    std::string token = trimmed(*secret);
    if (token.empty()) {
        return fail(ErrorKind::authentication, "Secret RAY_AUTH_TOKEN returned empty token", std::string(k_ways));
    }
    GDNCTL_TRY_ASSIGN(found, accept(std::move(found), std::move(token), place));
    if (home.empty()) return found;
    if (const Status saved = save(usual, found.value); !saved) {
        log::warning("the token could not be saved: {}", saved.error().text());
    } else {
        log::info("saved the cluster's token in {}", usual.string());
    }
    return found;
}

std::string token_hint(const RayToken& token, bool withheld) {
    if (withheld) {
        return fmt::format(
            "there is a token ({}), but it is not sent in clear text to another machine: use https or a "
            "tunnel, or allow it with --allow-plaintext-token",
            token.origin);
    }
    if (!token.value.empty()) return fmt::format("the token is that of {}; {}", token.origin, k_ways);
    return fmt::format("no token found ({}); {}", text::join(token.looked, ", "), k_ways);
}

// What a dashboard reports about itself and its cluster.

namespace {

// [[{"TPU": 4.0, ...}, 2], ...]
std::vector<ClusterDemand> demands(const Json& list) {
    std::vector<ClusterDemand> out;
    if (!list.is_array()) return out;
    for (const Json& item : list) {
        if (!item.is_array() || item.size() != 2 || !item[0].is_object() || !item[1].is_number()) continue;
        ClusterDemand demand;
        for (const auto& [name, amount] : item[0].items()) {
            if (amount.is_number()) demand.resources[name] = amount.get<double>();
        }
        demand.count = item[1].get<std::int64_t>();
        out.push_back(std::move(demand));
    }
    return out;
}

HttpRequest get(const std::string& url, const std::string& token, std::stop_token stop) {
    using std::chrono::milliseconds;
    HttpRequest request;
    request.url = url;
    if (!token.empty()) request.secret_headers.emplace_back("Authorization", "Bearer " + token);
    request.connect_timeout = request.first_byte_timeout = milliseconds(3000);
    request.total_timeout = milliseconds(10'000);
    request.retry.attempts = 3;
    request.retry.first_delay = request.retry.max_delay = milliseconds(1000);
    request.stop = std::move(stop);
    return request;
}

}  // namespace

std::optional<ClusterLoad> parse_cluster_status(std::string_view text) {
    const auto json = parse_json(text, "cluster status");
    if (!json) return std::nullopt;
    const Json* report = json::object_at(*json, "/data/clusterStatus/loadMetricsReport");
    if (report == nullptr) return std::nullopt;
    ClusterLoad load;
    const Json* tpu = json::array_at(*report, "/usage/TPU");
    if (tpu != nullptr && tpu->size() == 2 && (*tpu)[0].is_number() && (*tpu)[1].is_number()) {
        load.tpu_used = (*tpu)[0].get<double>();
        load.tpu_total = (*tpu)[1].get<double>();
    }
    if (const Json* queued = json::find(*report, "resourceDemand")) load.queued = demands(*queued);
    return load;
}

Result<DashboardFacts> ask_dashboard(Http& http, const std::string& url, const std::string& token,
                                     std::stop_token stop) {
    GDNCTL_TRY_ASSIGN(const HttpResponse version, http.send(get(url + "/api/version", token, stop)));
    const std::string said = text::repair_utf8(text::trim(std::string_view(version.body).substr(0, 200)));
    if (version.status == 401 || version.status == 403) {
        return fail(ErrorKind::authentication, fmt::format("{}: HTTP status {}: {}", url, version.status, said));
    }
    const auto facts = version.status == 200 ? parse_json(version.body, "/api/version") : Result<Json>(Json());
    if (!facts || json::text(*facts, "ray_version").empty()) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("{} is not a Ray dashboard: /api/version returns status {}", url, version.status),
                    "the dashboard's port is usually 8265");
    }
    DashboardFacts out;
    out.ray_version = json::text(*facts, "ray_version");
    out.session = json::text(*facts, "session_name");
    if (const auto mode = http.send(get(url + "/api/authentication_mode", {}, stop)); mode && mode->status == 200) {
        if (const auto json = parse_json(mode->body, "authentication mode"))
            out.auth_mode = json::text(*json, "authentication_mode");
    }
    if (const auto load = http.send(get(url + "/api/cluster_status", token, stop)); load && load->status == 200) {
        out.load = parse_cluster_status(load->body);
    }
    return out;
}

}  // namespace gdnctl
