// Resolves --tpu for a place.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "jobs/place.h"
#include "platform/env.h"
#include "target/target.h"

namespace gdnctl {

struct TpuChoice {
    std::string type;                         // "v5p-8"; empty: no accelerator
    std::map<std::string, double> resources;  // of one host of that type
};

// `auto` is the cluster's own worker type. It is none on this machine, and for a target with a fixed command line if
// the cluster names no type. Warns if the cluster's file offers no such type. Errors: usage (`TPU auto-detection
// requires --cluster to be set.`, an invalid type, several hosts, a number of chips that Ray does not offer); hints
// name `option`.
Result<TpuChoice> choose_tpu(const std::string& wanted, const Place& place, const Target& target,
                             std::string_view option = "--tpu");

// Type and resources of a hold. On this machine: what GDNCTL_LOCAL_RESOURCES declares; reports it if the TPU is
// simulated.
Result<TpuChoice> choose_hold_tpu(const Place& place, const std::string& wanted, const Env& env);

}  // namespace gdnctl
