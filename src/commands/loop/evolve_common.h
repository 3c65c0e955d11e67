// Shared by the `evolve` commands: which run to use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/args.h"
#include "loop/evolve/views.h"
#include "platform/context.h"

namespace gdnctl::commands::evolve {

struct RunChoice {
    std::optional<std::string> run, log_dir;
};
void describe_run(cli::Args& args, RunChoice& choice);
void describe_id(cli::Args& args, std::string& id, std::string_view name);
Result<std::filesystem::path> folder_of(const RunChoice& choice, const Context& context);
Result<loop::evolve::RunView> load(const RunChoice& choice, const Context& context);

}  // namespace gdnctl::commands::evolve
