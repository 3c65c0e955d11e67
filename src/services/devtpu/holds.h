// $STATE/holds.json: what this user holds from this machine, for other terminals and later commands.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "services/devtpu/host_info.h"
#include "services/devtpu/terms.h"

namespace gdnctl::devtpu {

struct HoldRecord {
    std::string tpu_name, cluster, address;  // cluster: "local", a name, a file; empty: only an address
    std::string ray_address;                 // as given with --ray-address; empty: not given
    std::string submission_id, nonce, user;
    std::string tpu_type;
    std::string alias;  // for ssh; empty: no block was written
    std::string state;  // "pending", "ready"
    HostInfo host;
    Terms terms;
    WallTime created{};
    std::optional<WallTime> renewed;
    std::optional<bool> ssh_ok, setup_ok;
};

std::string holds_text(const std::vector<HoldRecord>& holds);
// Skips invalid entries; a damaged file counts as empty, since it can be recreated from the clusters. Pure.
std::vector<HoldRecord> parse_holds(std::string_view text);

class HoldStore {
public:
    explicit HoldStore(std::filesystem::path state_dir) : m_state(std::move(state_dir)) {}

    // Empty if there is no file. Errors: local_io (it cannot be read).
    Result<std::vector<HoldRecord>> all() const;
    // By name, and by cluster and --ray-address if given; the newest. Errors: local_io.
    Result<std::optional<HoldRecord>> find(std::string_view name, const std::optional<std::string>& cluster,
                                           const std::optional<std::string>& ray_address) const;
    Status put(const HoldRecord& hold) const;             // by submission id
    Status forget(std::string_view submission_id) const;  // no error if there is none
    Status renewed(std::string_view submission_id, WallTime at) const;

    // The folder of a hold on this machine.
    std::filesystem::path local_folder(std::string_view name) const { return m_state / "local" / "holds" / name; }

private:
    Status change(const std::function<void(std::vector<HoldRecord>&)>& edit) const;
    std::filesystem::path m_state;
};

}  // namespace gdnctl::devtpu
