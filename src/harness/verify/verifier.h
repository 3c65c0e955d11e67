// oracle verify for gdn: a kernel on all cases, forward, backward and decode, on recorded vectors, or by relations
// between its own results.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/child/process.h"
#include "harness/gdn/reference.h"
#include "harness/verify/items.h"
#include "oracle/gdn/cases/declared.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness {

struct GdnRequest {
    TruthOf truth_of;           // under what is declared
    oracle::Declared declared;  // of the kernel
    std::string kernel;
    std::vector<std::string> cases;                // empty: all
    std::optional<std::filesystem::path> vectors;  // folder of recorded inputs and outputs
    std::optional<oracle::DType> dtype;            // nullopt: as each case says
    std::string_view dtype_name;
    std::optional<std::uint64_t> seed;  // of all generated inputs, instead of each case's own
    bool unseen = false;                // other lengths than those of the cases
    bool metamorphic = false, slow = false;
    int threads = 1;
    Limits limits;
};

struct GdnVerified {
    std::vector<Item> items;
    Skipped skipped;
    std::string network;
    int not_run = 0;
};

// `said` gets the lines about each item as it is judged, then those about each distinct fault. Usage error: a case that
// is not known.
Result<GdnVerified> verify_gdn(const GdnRequest& request, Context& context,
                               const std::function<void(const std::string&)>& said);

}  // namespace gdnctl::harness
