// gdnctl dev-tpu-allocate: hold a development TPU until Ctrl-C, the end of its lease, or its cap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/devtpu/options.h"

namespace gdnctl::commands::dev_tpu_allocate {

struct Options {
    devtpu_options::Name name;
    std::optional<std::string> tpu_type;
    devtpu_options::Sync sync;
    std::optional<std::string> username;
    bool no_setup = false, detach = false;
    std::optional<std::int64_t> lease_s;  // nullopt: 600, or 3600 with --detach
    std::int64_t grace_s = 1200, max_hold_s = 28800;
    std::int64_t ready_timeout_s = 900, attempts = 1, retry_sleep_s = 30;
    std::vector<std::string> fallback_clusters;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::dev_tpu_allocate
