// gdnctl prompts show
#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/text.h"
#include "jobs/place.h"
#include "loop/prompt/presets.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands::prompts_show {

struct Options {
    std::string name;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints one prompt or directive preset as an agent gets it: a prompt with its placeholders, a directive "
        "without its front matter. --json adds the front matter and the origin of the text.");
    args.positional(options.name,
                    {.name = "NAME", .help = "name from `prompts list`", .complete = cli::Complete::document});
    args.example("gdnctl prompts show triangular-inversion");
    args.example("gdnctl prompts show marin >scripts/gdn/codex_iteration_prompt.md", "make a copy to change");
    args.exit_code(static_cast<int>(ExitCode::usage), "no prompt or directive has that name");
    args.see_also("prompts list");
    args.see_also("prompts render");
    args.see_also("docs/prompts.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const auto all = loop::documents(project_root(context));
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const loop::Document& one) { return one.name == options.name; });
    if (found == all.end()) {
        std::vector<std::string> names;
        for (const auto& document : all) names.push_back(document.name);
        const auto near = text::nearest(options.name, names);
        return fail(
            ErrorKind::usage, fmt::format("no prompt or directive is called `{}`", options.name),
            near ? fmt::format("did you mean `{}`?", *near) : fmt::format("there are: {}", text::join(names, ", ")));
    }
    if (context.global.json) {
        print_json({{"schema", "gdnctl.prompts-show/1"},
                    {"kind", to_text(found->kind)},
                    {"name", found->name},
                    {"title", found->title},
                    {"slot", found->slot.empty() ? Json() : Json(found->slot)},
                    {"applies", found->applies},
                    {"file", found->file.empty() ? Json() : Json(found->file.string())},
                    {"text", text::repair_utf8(found->text)}},
                   context);
        return ExitCode::ok;
    }
    context.terminal.out(found->text);
    if (!found->text.ends_with('\n')) context.terminal.out("\n");
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::prompts_show

namespace gdnctl::commands {

constinit const cli::Command k_prompts_show_row = cli::make<&prompts_show::describe, &prompts_show::run>(
    "prompts show", "Loop", "print a prompt or a directive", Tier::none);

}  // namespace gdnctl::commands
