// The options of the commands that run a kernel under test.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/args.h"
#include "harness/child/kernel.h"

namespace gdnctl::commands {

// Limits as options.
struct LimitOptions {
    double time_limit_s = 60;
    std::int64_t memory_limit_mib = 4096;
};
void describe_limits(cli::Args& args, LimitOptions& options);
harness::Limits limits_of(const LimitOptions& options);

// The option --seed: a number, or `random` for an unpredictable one.
Status check_seed(const std::optional<std::string>& given);
std::optional<std::uint64_t> seed_of(const std::optional<std::string>& given);

// What --kernel takes, for help.
const std::string& kernel_help();

}  // namespace gdnctl::commands
