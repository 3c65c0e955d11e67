#include "cli/globals.h"

#include <array>

namespace gdnctl::cli {

namespace {

constexpr std::array k_color_modes = {
    Choice<ColorMode>{"auto", ColorMode::automatic, "when the stream is a terminal"},
    Choice<ColorMode>{"always", ColorMode::always, "even when the stream is a pipe or a file"},
    Choice<ColorMode>{"never", ColorMode::never, "never"},
};

constexpr std::string_view k_group = "Global options";

}  // namespace

void describe_globals(Args& args, GlobalFlags& flags) {
    args.flag(flags.common.json, {.names = "--json", .help = "write one JSON object to stdout", .group = k_group});
    args.flag(flags.common.quiet, {.names = "-q,--quiet", .help = "show warnings and errors only", .group = k_group});
    args.count(flags.common.verbose, {.names = "-v,--verbose", .help = "show more detail", .group = k_group});
    args.option<ColorMode>(flags.color, k_color_modes,
                           {.names = "--color",
                            .value = "WHEN",
                            .help = "colour the output; NO_COLOR in the environment means never",
                            .group = k_group});
    args.option(flags.common.config_file,
                {.names = "--config",
                 .value = "FILE",
                 .help = "read this configuration file instead of the gdnctl.toml found upward",
                 .group = k_group,
                 .env = "GDNCTL_CONFIG",
                 .complete = Complete::file});
    args.option(flags.common.target, {.names = "--target",
                                      .value = "NAME",
                                      .help = "target to optimise: a [targets.NAME] table, or a built-in one",
                                      .group = k_group,
                                      .default_text = "from the configuration, or detected",
                                      .complete = Complete::target});
    args.option(flags.directory, {.names = "-C",
                                  .value = "DIR",
                                  .help = "run as if started in DIR",
                                  .group = k_group,
                                  .complete = Complete::directory});
    args.flag(flags.help, {.names = "-h,--help", .help = "show this help", .group = k_group});
    args.flag(flags.version, {.names = "--version", .help = "show the version", .group = k_group});
}

}  // namespace gdnctl::cli
