// gdnctl prompts render
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "platform/context.h"

namespace gdnctl::commands::prompts_render {

struct Options {
    std::optional<std::string> name;
    std::int64_t iteration = 1, total = 1;
    std::optional<std::string> head_sha;
    std::vector<std::string> directives, directive_files, directive_presets;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::prompts_render
