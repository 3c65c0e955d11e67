// gdnctl evolve noise, replay and promote: measuring outside of a run.
#pragma once

#include <cstdint>

#include "commands/loop/evolve_common.h"
#include "core/exit_code.h"

namespace gdnctl::commands {

namespace evolve_noise {
struct Options {
    std::int64_t pairs = 9;
    double target_gain_pct = 2, min_gain_pct = 0.5;
    std::optional<std::string> cluster;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_noise

namespace evolve_replay {
struct Options {
    evolve::RunChoice run;
    std::string id;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_replay

namespace evolve_promote {
struct Options {
    evolve::RunChoice run;
    std::string id;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_promote

}  // namespace gdnctl::commands
