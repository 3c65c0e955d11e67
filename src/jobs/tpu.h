// What --tpu means at a place.
#pragma once

#include <map>
#include <string>

#include "jobs/place.h"
#include "target/target.h"

namespace gdnctl {

struct TpuChoice {
    std::string type;                         // "v5p-8"; empty: no accelerator
    std::map<std::string, double> resources;  // of one host of that type
};

// `auto` is the cluster's own worker type; on this machine, and for a target that runs as it is written where the
// cluster names no type, it is none. Warns when the cluster's file offers no such type. Errors: usage (`TPU
// auto-detection requires --cluster to be set.`, a type that does not parse, several hosts, a number of chips that Ray
// does not give).
Result<TpuChoice> choose_tpu(const std::string& wanted, const Place& place, const Target& target);

}  // namespace gdnctl
