// What the views of a loop share: which log directory is meant, what its journal says, and how it stands.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"
#include "core/json.h"
#include "loop/gates/own_jobs.h"
#include "loop/report/report.h"
#include "platform/context.h"

namespace gdnctl::commands {

void describe_loop_dir(cli::Args& args, std::optional<std::string>& log_dir);

// --log-dir against the working directory, or against the root of the repository when it is there and not here; else
// codex-loop's default place, or the newest evolve run where that was written later. Errors: usage (the one that was
// given does not exist), remote_missing (exit 6: there is none in the default place).
Result<std::filesystem::path> loop_dir(const std::optional<std::string>& given, const Context& context);

// Reads the configuration with the options of this call, for a job of a tree. `context` must outlive it.
loop::ConfigAt config_at(const Context& context);

}  // namespace gdnctl::commands
