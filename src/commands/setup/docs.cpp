// gdnctl __docs: the CLI reference and the manual pages
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/args.h"
#include "cli/reference.h"
#include "commands/rows.h"
#include "commands/table.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::docs {

struct Options {
    std::string format;
    std::optional<std::string> out;
};

namespace {

constexpr std::array<std::string_view, 2> k_formats = {"markdown", "man"};

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Writes the pages that are generated from the commands' own descriptions.");
    args.example("gdnctl __docs markdown --out docs/reference", "writes docs/reference/cli-reference.md");
    args.example("gdnctl __docs man --out build/man", "one page a command");
    args.positional(options.format, k_formats, {.name = "FORMAT", .help = "what to write"});
    args.option(options.out, {.names = "--out",
                              .value = "DIR",
                              .help = "where to write; without it everything goes to stdout",
                              .complete = cli::Complete::directory});
}

Result<ExitCode> run(const Options& options, Context& context) {
    const auto files = options.format == "man" ? cli::man_pages(table())
                                               : std::vector<cli::ReferenceFile>{cli::markdown_reference(table())};
    for (const cli::ReferenceFile& file : files) {
        if (!options.out) {
            context.terminal.out(file.text);
            continue;
        }
        const auto folder = context.cwd / *options.out;
        std::error_code problem;
        std::filesystem::create_directories(folder, problem);
        if (problem) return tl::unexpected(file_error(ErrorKind::local_io, "create", folder, problem.value()));
        GDNCTL_TRY(atomic_replace(folder / file.name, file.text));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::docs

namespace gdnctl::commands {

constinit const cli::Command k_docs_row =
    cli::make<&docs::describe, &docs::run>("__docs", "", "write the generated pages", Tier::none).without_config();

}  // namespace gdnctl::commands
