// gdnctl evolve pause, stop, fsck and gc: a run's control files, its journal and its refs.
#pragma once

#include "commands/loop/evolve_common.h"
#include "core/exit_code.h"

namespace gdnctl::commands {

namespace evolve_pause {
struct Options {
    evolve::RunChoice run;
    bool off = false;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_pause

namespace evolve_stop {
struct Options {
    evolve::RunChoice run;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_stop

namespace evolve_fsck {
struct Options {
    evolve::RunChoice run;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_fsck

namespace evolve_lint {
struct Options {
    evolve::RunChoice run;
    std::optional<std::string> file;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_lint

namespace evolve_gc {
struct Options {
    evolve::RunChoice run;
    std::string older_than;
};
void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);
}  // namespace evolve_gc

}  // namespace gdnctl::commands
