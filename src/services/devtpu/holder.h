// The holder: the job that occupies a TPU for as long as its lease is renewed. It knows no scheduler; of the outside
// world it reads the lease file and the metadata server of its machine.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <stop_token>
#include <string>

#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "services/devtpu/terms.h"
#include "services/job/job.h"

namespace gdnctl::devtpu {

inline constexpr std::string_view k_metadata_variable = "GDNCTL_METADATA_BASE";
inline constexpr std::string_view k_hold_kind = "hold";
inline constexpr const char* k_local_holder_word = "__dev-tpu-holder";

struct HolderRequest {
    std::string submission_id;
    std::string tpu_name, tpu_type;  // the type may be empty where nothing is asked for
    std::string user, host, nonce;
    std::string ssh_user;  // whom ssh logs in as
    Terms terms;
    std::map<std::string, double> resources;
    std::optional<std::string> metadata_base;  // GDNCTL_METADATA_BASE, when set
};

// The job for a cluster: `python3 -c` with nothing but Python's own library, in one argument below 128 KiB.
JobRequest holder_job(const HolderRequest& request);
// The same for this machine: the binary `self` as its own holder, with the lease in a file of our own.
JobRequest local_holder_job(const HolderRequest& request, std::string_view self, const std::filesystem::path& lease);

// A job of no resources that renews the lease from beside the holder.
// `record`: see run_record().
JobRequest heartbeat_job(std::string_view submission_id, std::string_view heartbeat_id, std::string_view record);

// Body of the local holder; returns when the hold is over, and says on `out` what a cluster's holder would. Its
// settings come from the environment that local_holder_job() gives it.
int run_local_holder(const Env& env, Http& http, Clock& clock, std::ostream& out, std::stop_token stop);

}  // namespace gdnctl::devtpu
