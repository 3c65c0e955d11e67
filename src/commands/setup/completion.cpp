// gdnctl completion
#include <array>
#include <string>

#include "cli/args.h"
#include "cli/reference.h"
#include "commands/rows.h"
#include "commands/table.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::commands::completion {

struct Options {
    std::string shell;
};

namespace {

constexpr std::array<std::string_view, 3> k_shells = {"bash", "zsh", "fish"};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints a script that completes commands, options and values: fixed choices, files, targets, clusters and "
        "local jobs.");
    args.example("source <(gdnctl completion bash)", "in this shell");
    args.example("gdnctl completion bash > ~/.local/share/bash-completion/completions/gdnctl", "for all new shells");
    args.example("gdnctl completion zsh > ~/.zfunc/_gdnctl", "with ~/.zfunc in fpath");
    args.example("gdnctl completion fish > ~/.config/fish/completions/gdnctl.fish");
    args.positional(options.shell, k_shells, {.name = "SHELL", .help = "shell to print the script for"});
    args.see_also("doctor");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const cli::Shell shell = options.shell == "bash"  ? cli::Shell::bash
                             : options.shell == "zsh" ? cli::Shell::zsh
                                                      : cli::Shell::fish;
    context.terminal.out(cli::completion_script(table(), shell));
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::completion

namespace gdnctl::commands {

constinit const cli::Command k_completion_row =
    cli::make<&completion::describe, &completion::run>("completion", "Setup", "print a completion script for a shell",
                                                       Tier::none)
        .without_config();

}  // namespace gdnctl::commands
