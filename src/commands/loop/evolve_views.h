// gdnctl evolve show, log, lineage, diff and best: a run's candidates.
#pragma once

#include "commands/loop/evolve_common.h"
#include "core/exit_code.h"

namespace gdnctl::commands {

namespace evolve_show {
struct Options {
    evolve::RunChoice run;
    std::string id;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_show

namespace evolve_log {
struct Options {
    evolve::RunChoice run;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_log

namespace evolve_lineage {
struct Options {
    evolve::RunChoice run;
    std::optional<std::string> id;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_lineage

namespace evolve_diff {
struct Options {
    evolve::RunChoice run;
    std::string from, to;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_diff

namespace evolve_best {
struct Options {};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_best

}  // namespace gdnctl::commands
