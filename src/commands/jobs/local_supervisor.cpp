// The hidden command with which the local backend starts a job's supervisor; not for people.
#include <string>

#include "cli/args.h"
#include "commands/rows.h"
#include "core/exit_code.h"
#include "platform/context.h"
#include "services/local/local_jobs.h"

namespace gdnctl::commands::local_supervisor {

struct Options {
    std::string folder;
};

void describe(cli::Args& args, Options& options) {
    args.about("Supervises one local job. Started by the commands that submit jobs.");
    args.positional(options.folder, {.name = "FOLDER", .help = "the job's folder in the state directory"});
}

Result<ExitCode> run(const Options& options, Context& /*context*/) {
    return run_local_supervisor(options.folder) == 0 ? ExitCode::ok : ExitCode::infrastructure;
}

}  // namespace gdnctl::commands::local_supervisor

namespace gdnctl::commands {

constinit const cli::Command k_local_supervisor_row =
    cli::make<&local_supervisor::describe, &local_supervisor::run>("__local-supervisor", "", "supervise one local job",
                                                                   Tier::none)
        .without_config();

}  // namespace gdnctl::commands
