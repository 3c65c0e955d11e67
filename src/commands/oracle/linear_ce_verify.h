// gdnctl oracle verify linear-ce
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "commands/oracle/linear_ce.h"
#include "harness/child/process.h"

namespace gdnctl::commands::linear_ce {

// What `oracle verify` was told of a kernel.
struct VerifyOptions {
    std::string kernel;
    std::vector<std::string> cases;  // empty: all
    std::optional<std::uint64_t> seed;
    bool bf16 = false;  // x and w of every case in bf16
    std::int64_t threads = 0;
    harness::Limits limits;
};

// A usage error where options are given that are GDN's alone.
Status check_verify(std::string_view op, bool others);
Result<ExitCode> verify(const VerifyOptions& options, Context& context);

}  // namespace gdnctl::commands::linear_ce
