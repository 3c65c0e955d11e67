#include "gdnctl/commands/table.h"

#include "commands/config_init.h"
#include "commands/config_show.h"

namespace gdnctl::commands {

namespace {

// The order is that of the overview page; a row with an empty heading is hidden. Headings in use: "Running log",
// "Jobs", "Oracle", "Setup".
constexpr cli::Command k_table[] = {
    cli::make<&config_show::describe, &config_show::run>("config show", "Setup",
                                                         "print each setting and where it comes from", Tier::none),
    cli::make<&config_init::describe, &config_init::run>("config init", "Setup", "write a commented gdnctl.toml",
                                                         Tier::none)
        .without_config(),
};

}  // namespace

std::span<const cli::Command> table() { return k_table; }

}  // namespace gdnctl::commands
