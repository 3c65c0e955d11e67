// gdnctl config init
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "cli/config.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/log.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::config_init {

struct Options {
    bool force = false;
    bool user = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a gdnctl.toml to the working directory, with every key explained and commented out. Nothing changes "
        "until you uncomment a line.");
    args.example("gdnctl config init");
    args.example("gdnctl -C ~/kernels config init --force", "replace the existing file");
    args.flag(options.force, {.names = "--force", .help = "replace an existing file"});
    args.flag(options.user, {.names = "--user", .help = "write the user's config.toml instead"});
    args.exit_code(static_cast<int>(ExitCode::conflict), "the file exists and --force is not given");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the file cannot be written");
    args.see_also("config show");
    args.see_also("docs/configuration.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const auto path = options.user ? cli::user_config_path(context.env) : context.cwd / "gdnctl.toml";
    if (path.empty()) return fail(ErrorKind::config, "no home directory", "set HOME or XDG_CONFIG_HOME");
    std::error_code problem;
    if (std::filesystem::is_directory(path, problem)) {
        return fail(ErrorKind::local_io, fmt::format("{} is a directory", path.string()),
                    "remove it, or choose another folder with -C DIR");
    }
    if (!options.force && std::filesystem::exists(path, problem)) {
        return fail(ErrorKind::conflict, fmt::format("{} already exists", path.string()), "--force replaces it");
    }
    if (options.user) {
        std::filesystem::create_directories(path.parent_path(), problem);
        if (problem) {
            return tl::unexpected(file_error(ErrorKind::local_io, "create", path.parent_path(), problem.value()));
        }
    }
    GDNCTL_TRY(atomic_replace(path, cli::config_template()));
    if (context.global.json) {
        const Json report = {{"schema", "gdnctl.config-init/1"}, {"path", path.string()}};
        print_json(report, context);
    } else {
        log::info("wrote {}", path.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::config_init

namespace gdnctl::commands {

constinit const cli::Command k_config_init_row =
    cli::make<&config_init::describe, &config_init::run>("config init", "Setup", "write a commented gdnctl.toml",
                                                         Tier::none)
        .without_config();

}  // namespace gdnctl::commands
