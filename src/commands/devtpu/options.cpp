#include "commands/devtpu/options.h"

#include <array>

#include "core/log.h"
#include "jobs/hold_host.h"
#include "platform/env.h"
#include "services/devtpu/names.h"

namespace gdnctl::commands::devtpu_options {

namespace {

constexpr std::array<cli::Choice<Via>, 3> k_vias = {{{"auto", Via::automatic, "ssh where it answers, else ray"},
                                                     {"ssh", Via::ssh, "over ssh"},
                                                     {"ray", Via::ray, "as a job beside the holder; needs no ssh"}}};
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
                                    .help = "folder whose files are synced: what git tracks and does not ignore",
                                    .group = "Sync",
                                    .default_text = "the repository",
                                    .complete = cli::Complete::directory});
    args.flag(options.no_sync,
              {.names = "--no-sync", .help = "leave the files on the host as they are", .group = "Sync"});
}

Result<std::filesystem::path> sync_root(const Sync& options, const Context& context) {
    if (!options.sync_path || *options.sync_path == ".") {
        const auto root = project_root(context);
        return options.sync_path ? context.cwd : root;
    }
    const auto root = (context.cwd / *options.sync_path).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_directory(root, ignored)) return root;
    return fail(ErrorKind::usage, "--sync-path " + *options.sync_path + ": there is no such folder");
}

void describe_run(cli::Args& args, Run& options) {
    args.option(options.env, {.names = "-e,--env",
                              .value = "KEY[=VALUE]",
                              .help = "environment variable of the command; without =VALUE, its value here",
                              .group = "Command"});
    args.flag(options.forward_all_env,
              {.names = "--forward-all-env", .help = "forward the whole environment", .group = "Command"});
    args.option(options.via, k_vias,
                {.names = "--via", .value = "WAY", .help = "how the command reaches the host", .group = "Command"});
    args.option(
        options.timeout_s,
        {.names = "--timeout", .value = "SECONDS", .help = "end the command after this time", .group = "Command"});
    args.option(options.idle_timeout_s, {.names = "--idle-timeout",
                                         .value = "SECONDS",
                                         .help = "end the command when it prints nothing for this time",
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

Result<std::vector<JobEnv>> extra_env(const Run& options, const Context& context) {
    std::vector<std::string> items;
    for (const std::string& item : options.env) {
        if (item.find('=') != std::string::npos) {
            items.push_back(item);
        } else if (const auto value = context.env.get(item)) {
            items.push_back(item + "=" + *value);
        } else {
            return fail(ErrorKind::usage, "-e " + item + ": there is no such variable here",
                        "write -e " + item + "=VALUE");
        }
    }
    return parse_env_items(items, "-e");
}

std::chrono::milliseconds limit_of(const std::optional<double>& seconds) {
    return std::chrono::milliseconds(seconds ? static_cast<std::int64_t>(*seconds * 1000.0) : 0);
}

Result<FoundHold> ready_hold(const Name& name, const Sync& sync, Via& via, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto root, sync_root(sync, context));
    GDNCTL_TRY_ASSIGN(FoundHold hold, find_hold(name.tpu_name, name.place, context));
    GDNCTL_TRY_ASSIGN(via, choose_via(hold.record, via));
    if (sync.no_sync || via != Via::ssh) return hold;
    Status synced = sync_to_host(hold.record, root, context);
    if (synced) return hold;
    if (synced.error().kind == ErrorKind::infrastructure) {
        if (auto over = over_now(hold, context)) {
            over->kind = ErrorKind::infrastructure;
            return tl::unexpected(std::move(*over));
        }
    }
    return tl::unexpected(std::move(synced).error());
}

}  // namespace gdnctl::commands::devtpu_options
