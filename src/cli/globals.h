// The options that every command has.
#pragma once

#include <optional>
#include <string>

#include "cli/args.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

struct GlobalFlags {
    GlobalOptions common;
    ColorMode color = ColorMode::automatic;
    std::optional<std::string> directory;  // -C
    bool help = false;
    bool version = false;
};

void describe_globals(Args& args, GlobalFlags& flags);

}  // namespace gdnctl::cli
