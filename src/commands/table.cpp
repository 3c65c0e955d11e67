#include "gdnctl/commands/table.h"

#include "commands/complete_values.h"
#include "commands/completion.h"
#include "commands/config_init.h"
#include "commands/config_show.h"
#include "commands/docs.h"
#include "commands/doctor.h"
#include "commands/lint_log.h"
#include "commands/local_supervisor.h"
#include "commands/oracle_cases.h"
#include "commands/oracle_compare.h"
#include "commands/oracle_run.h"
#include "commands/oracle_verify.h"
#include "commands/ray_list.h"
#include "commands/ray_logs.h"
#include "commands/ray_profile.h"
#include "commands/ray_stop.h"
#include "commands/ray_test.h"
#include "commands/ray_wait.h"

namespace gdnctl::commands {

namespace {

// The order is that of the overview page; a row with an empty heading is hidden. Headings in use: "Running log",
// "Jobs", "Oracle", "Setup".
constexpr cli::Command k_table[] = {
    cli::make<&ray_test::describe, &ray_test::run>("ray-test", "Jobs", "run the target's correctness test as a job",
                                                   Tier::process),
    cli::make<&ray_profile::describe, &ray_profile::run>("ray-profile", "Jobs", "run the target's profile as a job",
                                                         Tier::process),
    cli::make<&ray_wait::describe, &ray_wait::run>("ray-wait", "Jobs", "wait for a job and return its verdict",
                                                   Tier::process),
    cli::make<&ray_logs::describe, &ray_logs::run>("ray-logs", "Jobs", "print or follow a job's log", Tier::process),
    cli::make<&ray_stop::describe, &ray_stop::run>("ray-stop", "Jobs", "ask a job to stop", Tier::process),
    cli::make<&ray_list::describe, &ray_list::run>("ray-list", "Jobs", "list jobs", Tier::process),
    cli::make<&oracle_verify::describe, &oracle_verify::run>("oracle verify", "Oracle",
                                                             "judge a kernel on generated cases", Tier::none),
    cli::make<&oracle_compare::describe, &oracle_compare::run>("oracle compare", "Oracle",
                                                               "judge tensors dumped from a run", Tier::none),
    cli::make<&oracle_run::describe, &oracle_run::run>("oracle run", "Oracle", "write inputs and the exact result",
                                                       Tier::none),
    cli::make<&oracle_cases::describe, &oracle_cases::run>("oracle cases", "Oracle", "list the generated cases",
                                                           Tier::none),
    cli::make<&lint_log::describe, &lint_log::run>("lint-log", "Running log", "check the running log", Tier::git),
    cli::make<&config_show::describe, &config_show::run>("config show", "Setup",
                                                         "print each setting and where it comes from", Tier::none),
    cli::make<&config_init::describe, &config_init::run>("config init", "Setup", "write a commented gdnctl.toml",
                                                         Tier::none)
        .without_config(),
    cli::make<&doctor::describe, &doctor::run>("doctor", "Setup", "show what is missing and the command that mends it",
                                               Tier::process)
        .without_config(),
    cli::make<&completion::describe, &completion::run>("completion", "Setup", "print a completion script for a shell",
                                                       Tier::none)
        .without_config(),
    cli::make<&complete_values::describe, &complete_values::run>("__complete", "", "print values for completion",
                                                                 Tier::none),
    cli::make<&docs::describe, &docs::run>("__docs", "", "write the generated pages", Tier::none).without_config(),
    cli::make<&local_supervisor::describe, &local_supervisor::run>("__local-supervisor", "", "look after one local job",
                                                                   Tier::none)
        .without_config(),
};

}  // namespace

std::span<const cli::Command> table() { return k_table; }

}  // namespace gdnctl::commands
