// The holder: a job that occupies a TPU while its lease is renewed. It knows no scheduler. Outside of its process it
// reads only the lease file and its machine's metadata server.
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
    std::string tpu_name, tpu_type;  // the type may be empty if none is requested
    std::string user, host, nonce;
    std::string ssh_user;  // login name for ssh
    Terms terms;
    std::map<std::string, double> resources;
    std::optional<std::string> metadata_base;  // GDNCTL_METADATA_BASE, if set
};

// The job for a cluster: `python3 -c` with only Python's standard library, in one argument below 128 KiB.
JobRequest holder_job(const HolderRequest& request);
// The same for this machine: the binary `self` is the holder, and the lease is a file of our own.
JobRequest local_holder_job(const HolderRequest& request, std::string_view self, const std::filesystem::path& lease);

// A job without resources that renews the lease on the holder's host. `record`: see run_record().
JobRequest heartbeat_job(std::string_view submission_id, std::string_view heartbeat_id, std::string_view record);

// The body of the local holder. Returns when the hold has ended, and writes to `out` what a cluster's holder prints.
// Its settings come from the environment set by local_holder_job().
int run_local_holder(const Env& env, Http& http, Clock& clock, std::ostream& out, std::stop_token stop);

}  // namespace gdnctl::devtpu
