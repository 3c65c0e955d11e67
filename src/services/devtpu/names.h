// Names of held TPUs, and names derived from them.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

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

}  // namespace gdnctl::devtpu
