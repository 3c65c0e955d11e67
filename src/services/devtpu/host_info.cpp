#include "services/devtpu/host_info.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/text.h"

namespace gdnctl::devtpu {

namespace {

constexpr std::size_t k_line_limit = std::size_t{64} << 10;

using Field = std::pair<const char*, std::string HostInfo::*>;
constexpr std::array<Field, 11> k_fields = {{{"hostname", &HostInfo::hostname},
                                             {"ip_address", &HostInfo::ip_address},
                                             {"username", &HostInfo::username},
                                             {"tpu_name", &HostInfo::tpu_name},
                                             {"gcloud_tpu_name", &HostInfo::gcloud_tpu_name},
                                             {"gcloud_zone", &HostInfo::gcloud_zone},
                                             {"gcloud_region", &HostInfo::gcloud_region},
                                             {"gcloud_project", &HostInfo::gcloud_project},
                                             {"tpu_type", &HostInfo::tpu_type},
                                             {"error", &HostInfo::error},
                                             {"node_ip", &HostInfo::node_ip}}};

std::optional<Json> object_after(std::string_view line, std::string_view marker) {
    if (!line.starts_with(marker)) return std::nullopt;
    auto json = parse_json(text::trim(line.substr(marker.size())), "holder's line");
    if (!json || !json->is_object()) return std::nullopt;
    return std::move(*json);
}

}  // namespace

Json host_info_json(const HostInfo& host) {
    Json out;
    for (const auto& [key, member] : k_fields) out[key] = host.*member;
    out["pid"] = host.pid;
    out["accel_count"] = host.accel_count;
    return out;
}

HostInfo host_info_of(const Json& object) {
    HostInfo host;
    if (!object.is_object()) return host;
    for (const auto& [key, member] : k_fields) {
        if (auto word = json::maybe_text(object, key)) host.*member = std::move(*word);
    }
    host.pid = json::integer(object, "pid").value_or(0);
    host.accel_count = json::integer(object, "accel_count").value_or(0);
    return host;
}

std::optional<HostInfo> parse_host_line(std::string_view line) {
    const auto object = object_after(line, k_host_marker);
    return object ? std::optional(host_info_of(*object)) : std::nullopt;
}

std::optional<HoldEnd> parse_released_line(std::string_view line) {
    const auto object = object_after(line, k_released_marker);
    if (!object) return std::nullopt;
    const auto reason = json::maybe_text(*object, "reason");
    return reason ? parse_hold_end(*reason) : std::nullopt;
}

void HolderLog::feed(std::string_view bytes) {
    while (!bytes.empty()) {
        const std::size_t end = bytes.find('\n');
        if (m_partial.size() < k_line_limit) m_partial.append(bytes.substr(0, end));
        if (end == std::string_view::npos) return;
        if (auto host = parse_host_line(m_partial); host && !m_host) m_host = std::move(host);
        if (const auto over = parse_released_line(m_partial)) m_end = over;
        m_partial.clear();
        bytes.remove_prefix(end + 1);
    }
}

Zone parse_zone(std::string_view metadata_value) {
    const std::string_view value = text::trim(metadata_value);
    const std::size_t slash = value.rfind('/');
    if (slash == std::string_view::npos) return {};
    Zone out;
    out.zone = std::string(value.substr(slash + 1));
    const std::size_t dash = out.zone.rfind('-');
    if (dash != std::string::npos && dash > 0) out.region = out.zone.substr(0, dash);
    return out;
}

}  // namespace gdnctl::devtpu
