#include "commands/jobs/local_supervisor.h"

#include "services/local/local_jobs.h"

namespace gdnctl::commands::local_supervisor {

void describe(cli::Args& args, Options& options) {
    args.about("Looks after one job of the local backend. Started by the commands that submit jobs.");
    args.positional(options.folder, {.name = "FOLDER", .help = "the job's folder in the state directory"});
}

Result<ExitCode> run(const Options& options, Context& /*context*/) {
    return run_local_supervisor(options.folder) == 0 ? ExitCode::ok : ExitCode::infrastructure;
}

}  // namespace gdnctl::commands::local_supervisor
