// What oracle bench times for gdn: forward, backward and decode, of our kernels and of others.
#pragma once

#include <memory>
#include <string>

#include "harness/engine/bench.h"
#include "harness/gdn/read.h"
#include "platform/context.h"

namespace gdnctl::harness {

// `shape` is `dims` for people. `request` and `context` must outlive it.
std::unique_ptr<BenchPlan> gdn_plan(const oracle::GdnDims& dims, const std::string& shape, TruthOf truth_of,
                                    const BenchRequest& request, Context& context);

}  // namespace gdnctl::harness
