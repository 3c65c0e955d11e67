// gdnctl codex-loop: unattended iterations of a coding agent.
#pragma once

#include <optional>
#include <string>

#include "gdnctl/cli/args.h"
#include "gdnctl/core/exit_code.h"
#include "gdnctl/core/result.h"
#include "gdnctl/loop/options.h"
#include "gdnctl/loop/validation_options.h"
#include "gdnctl/platform/context.h"

namespace gdnctl::commands::codex_loop {

struct Options {
    loop::LoopOptions loop;
    std::optional<std::string> model, max_wall, allocator;
    loop::GateChoices gates;
    bool dry_run = false;
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
void never_ran(const Error& error);

// "90", "90s", "15m", "8h", "7d" in seconds; nullopt: neither.
std::optional<std::int64_t> parse_span(std::string_view text);

}  // namespace gdnctl::commands::codex_loop
