// What options say about an inputs file, in addition to its own metadata.
#pragma once

#include <optional>

#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce_compare.h"
#include "harness/gdn/read.h"

namespace gdnctl::commands {

struct ReadOptions {
    const oracle_gdn::ContractOptions& contract;
    const linear_ce::CompareOptions& ce;
    std::optional<std::int64_t> chunk = {};
    harness::FixedRule rule = {};
};

}  // namespace gdnctl::commands
