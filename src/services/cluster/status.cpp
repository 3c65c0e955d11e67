// What a dashboard reports about itself and its cluster.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"
#include "services/cluster/cluster.h"

namespace gdnctl {

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
