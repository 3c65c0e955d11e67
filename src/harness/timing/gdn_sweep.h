// oracle bench --sweep: the same kernels on many shapes, each on one thread and on all, compared with the goals.
#pragma once

#include <string>
#include <vector>

#include "core/exit_code.h"
#include "harness/timing/gdn_bench.h"

namespace gdnctl::harness {

struct SweepDone {
    std::string text, json;
    // check_failed when a kernel is wrong on some shape; a cell that is slow is only named.
    ExitCode code = ExitCode::ok;
};

// `shapes` as parse_shape() takes them; none: twelve of ours. Those of the request say nothing.
Result<SweepDone> sweep_gdn(const GdnBenchRequest& request, std::vector<std::string> shapes, Context& context);

}  // namespace gdnctl::harness
