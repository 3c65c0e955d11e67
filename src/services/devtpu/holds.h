// Held TPUs as this machine knows them: their names, names derived from these, and a record of each.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/place_kind.h"
#include "core/result.h"
#include "core/time.h"
#include "services/devtpu/holder.h"

namespace gdnctl::devtpu {

// [A-Za-z0-9][A-Za-z0-9_.-]{0,62}: it becomes part of a host alias and of file names. Error: usage.
Status check_tpu_name(std::string_view name);

std::string ssh_alias(std::string_view name);  // "dev-tpu-alice-gdn"

// The error of every command for a name that is not held (exit code 4).
Error not_held(std::string_view name);

// The lease file on the TPU's host.
std::string lease_path(std::string_view submission_id);

// The bucket for the data of a run near a TPU: "gs://marin-us-east5" for us-east5-a; empty: no such region.
std::string marin_prefix(std::string_view cluster_or_zone);

// $STATE/holds.json: what this user holds from this machine, for other terminals and later commands.

struct HoldRecord {
    PlaceKind kind = PlaceKind::ray;
    std::string tpu_name, cluster, address;  // cluster: "local", a name, a file; empty: only an address
    std::string ray_address, iris_url;       // as given with these options; empty: not given
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
    // By name, and by cluster and by --ray-address or --iris-url if given; the newest. Errors: local_io.
    Result<std::optional<HoldRecord>> find(std::string_view name, const std::optional<std::string>& cluster,
                                           const std::optional<std::string>& url) const;
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
