// gdnctl codex-loop: unattended iterations of a coding agent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "core/result.h"
#include "loop/codex_loop.h"
#include "loop/engine/options.h"
#include "loop/evolve/run.h"
#include "loop/gates/validation_options.h"
#include "platform/context.h"

namespace gdnctl::commands::codex_loop {

struct Options {
    loop::LoopOptions loop;
    std::optional<std::int64_t> iterations;
    std::optional<std::string> model, max_wall, allocator;
    bool evolves = false;  // --mode evolve
    loop::evolve::EvolveOptions evolve;
    std::optional<std::string> seed, reserve_final, infra_max_wait;
    loop::GateChoices gates;
    bool dry_run = false;
    std::vector<cli::GivenOption> given;  // from the command line and the configuration
};

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
void never_ran(const Error& error);

// Seconds of "90", "90s", "15m", "8h" or "7d"; nullopt: anything else.
std::optional<std::int64_t> parse_span(std::string_view text);

// codex-loop --mode evolve: checks its options and runs it.

void describe_evolve(cli::Args& args, Options& options);
// Rejects options that conflict with the mode. Error usage.
Status check_mode(const Options& options);
// `common`: the options that both modes share.
Result<ExitCode> run_evolve_mode(const Options& options, const loop::CodexLoopRequest& common, Context& context);

}  // namespace gdnctl::commands::codex_loop

namespace gdnctl::commands {

// The options --validation-*, --perf-* and --hold-dev-tpu of codex-loop.

// Describes all of them, and checks the numbers.
void describe_gates(cli::Args& args, loop::GateChoices& choices);

// Only those of the policy: thresholds and the file.
// `evolve`: the command has --mode evolve, which has a default of its own.
void describe_perf_policy(cli::Args& args, loop::PerfOptions& options, bool evolve = false);
// --hold-dev-tpu and related options.
void describe_hold(cli::Args& args, loop::HoldOptions& hold, std::optional<std::string>& allocator);

}  // namespace gdnctl::commands
