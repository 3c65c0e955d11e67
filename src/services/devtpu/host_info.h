// What the holder of a TPU reports about its host, and the two significant lines of its log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "services/devtpu/terms.h"

namespace gdnctl::devtpu {

inline constexpr std::string_view k_host_marker = "GDNCTL_HOST_INFO ";
inline constexpr std::string_view k_released_marker = "GDNCTL_RELEASED ";

// Facts that the holder could not determine are empty, and `error` says why.
struct HostInfo {
    std::string hostname, ip_address, username, tpu_name, gcloud_tpu_name, gcloud_zone, gcloud_region, gcloud_project,
        tpu_type, error, node_ip;
    std::int64_t pid = 0, accel_count = 0;

    bool operator==(const HostInfo&) const = default;
    // The address for ssh; empty: none.
    const std::string& reachable_ip() const { return ip_address.empty() ? node_ip : ip_address; }
};

Json host_info_json(const HostInfo& host);
HostInfo host_info_of(const Json& object);

// Both markers must be at the start of the line, since a scheduler may repeat the holder's text within a line. Pure.
std::optional<HostInfo> parse_host_line(std::string_view line);
std::optional<HoldEnd> parse_released_line(std::string_view line);

// Reads a holder's log from pieces of any size.
class HolderLog {
public:
    void feed(std::string_view bytes);
    const std::optional<HostInfo>& host() const { return m_host; }
    const std::optional<HoldEnd>& end() const { return m_end; }

private:
    std::string m_partial;  // cut at 64 KiB
    std::optional<HostInfo> m_host;
    std::optional<HoldEnd> m_end;
};

// "0" to "projects/1/zones/us-central1-a", split into the parts that gcloud needs; empty for other text. Pure.
struct Zone {
    std::string zone, region;
};
Zone parse_zone(std::string_view metadata_value);

}  // namespace gdnctl::devtpu
