// Cluster files, and what gcloud, dashboards, /proc and Google's login say of clusters: bytes that people and programs
// outside wrote.
#include "services/cluster/cluster.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "platform/http_policy.h"
#include "platform/yaml.h"
#include "services/cluster/login.h"
#include "services/cluster/tunnel.h"

namespace {

// What a person may give as an address is either refused or in a form that stays as it is.
void check_address(std::string_view text) {
    const auto address = gdnctl::normalize_address(text);
    if (!address) return;
    require(gdnctl::normalize_address(*address) == *address);
    const auto url = gdnctl::http::parse_url(*address);
    require(url.has_value());
    require(gdnctl::is_confidential(*address) == gdnctl::http::is_confidential(*url));
}

}  // namespace

FUZZ(cluster) {
    constexpr std::size_t k_longest = 65536;
    const std::string_view text(reinterpret_cast<const char*>(data), size < k_longest ? size : k_longest);
    if (const auto yaml = gdnctl::parse_yaml(text, "input")) (void)gdnctl::to_text(*yaml);
    if (const auto file = gdnctl::parse_cluster_file(text, "x.yaml", "/home/me")) {
        if (const auto tpu = gdnctl::infer_tpu(*file)) require(gdnctl::offers_tpu(*file, *tpu));
    }
    (void)gdnctl::parse_cluster_status(text);
    require(gdnctl::cluster::time_of_use(text, std::chrono::seconds(1)).count() >= 0);
    if (const auto client = gdnctl::cluster::client_in_source(text)) {
        require(!client->id.empty() && !client->secret.empty());
    }
    if (const auto machine = gdnctl::cluster::parse_controller(text, "c")) {
        require(!machine->name.empty() && !machine->name.starts_with('-') && !machine->zone.starts_with('-'));
    }
    (void)gdnctl::cluster::listener_of(text, 0x2049);
    if (const auto head = gdnctl::cluster::parse_head_node(text, "c")) {
        require(!head->internal_ip.starts_with('-') && !head->ssh_ip.starts_with('-') && !head->ssh_ip.empty());
    }
    check_address(text);
    return 0;
}
