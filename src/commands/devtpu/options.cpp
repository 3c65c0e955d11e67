#include "commands/devtpu/options.h"

#include <array>

#include "services/devtpu/names.h"

namespace gdnctl::commands::devtpu_options {

namespace {

constexpr std::array<cli::Choice<Via>, 3> k_vias = {{{"auto", Via::automatic, "ssh if the host answers, otherwise ray"},
                                                     {"ssh", Via::ssh, "over ssh"},
                                                     {"ray", Via::ray, "as a job on the holder's host; needs no ssh"}}};
constexpr double k_longest_s = 1e9;

}  // namespace

void describe_name(cli::Args& args, Name& options) {
    args.option(options.tpu_name,
                {.names = "--tpu-name", .value = "NAME", .help = "name of the held TPU", .required = true});
    describe_place(args, options.place);
    args.check([&options]() -> Status { return devtpu::check_tpu_name(options.tpu_name); });
}

void describe_sync(cli::Args& args, Sync& options) {
    args.option(options.sync_path, {.names = "--sync-path",
                                    .value = "PATH",
                                    .help = "folder to sync: all files that git does not ignore",
                                    .group = "Sync",
                                    .default_text = "the repository",
                                    .complete = cli::Complete::directory});
    args.flag(options.no_sync,
              {.names = "--no-sync", .help = "leave the files on the host as they are", .group = "Sync"});
    args.exit_code(7, "another command has used the TPU's tree for half an hour");
}

void describe_run(cli::Args& args, Run& options) {
    args.option(options.env, {.names = "-e,--env",
                              .value = "KEY[=VALUE]",
                              .help = "environment variable for the command; without =VALUE, its local value",
                              .group = "Command"});
    args.flag(options.forward_all_env,
              {.names = "--forward-all-env", .help = "forward the whole environment", .group = "Command"});
    args.option(options.via, k_vias,
                {.names = "--via", .value = "WAY", .help = "how the command reaches the host", .group = "Command"});
    args.option(
        options.timeout_s,
        {.names = "--timeout", .value = "SECONDS", .help = "stop the command after this time", .group = "Command"});
    args.option(options.idle_timeout_s, {.names = "--idle-timeout",
                                         .value = "SECONDS",
                                         .help = "stop the command after this long without output",
                                         .group = "Command"});
    args.exit_code(124, "--timeout or --idle-timeout: the command was ended");
    args.check([&options]() -> Status {
        for (const auto& [name, value] :
             {std::pair{"--timeout", options.timeout_s}, std::pair{"--idle-timeout", options.idle_timeout_s}}) {
            if (value && !(*value > 0 && *value <= k_longest_s)) {
                return fail(ErrorKind::usage, std::string(name) + ": expected a number of seconds above 0");
            }
        }
        return {};
    });
}

}  // namespace gdnctl::commands::devtpu_options
