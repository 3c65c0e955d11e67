// Shared by the views of a loop: which log directory to use, and the run that its journal describes.
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

// --log-dir relative to the working directory, or to the root of the repository if it exists only there; else the
// default directory of codex-loop, or the newest evolve run if that was written later. Errors: usage (the given one
// does not exist), remote_missing (exit 6: there is none in the default place).
Result<std::filesystem::path> loop_dir(const std::optional<std::string>& given, const Context& context);

// Reads the configuration for a job in some tree, with the options of this call. `context` must outlive the result.
loop::ConfigAt config_at(const Context& context);

}  // namespace gdnctl::commands
