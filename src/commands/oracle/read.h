// What options say of a file of inputs besides what it says itself.
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
