// gdnctl prompts list
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/log/common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/text.h"
#include "jobs/place.h"
#include "loop/prompt/presets.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands::prompts_list {

struct Options {};

namespace fs = std::filesystem;

void describe(cli::Args& args, Options&) {
    args.about(
        "Lists the iteration prompts and directive presets: those of the repository, then the copies in gdnctl. `*` "
        "marks the default prompt of a loop.");
    args.example("gdnctl prompts list");
    args.example("gdnctl prompts list --json | jq -r '.documents[] | select(.slot == \"H\").name'");
    args.see_also("prompts show");
    args.see_also("prompts render");
    args.see_also("docs/prompts.md");
}

namespace {

std::string line_of(const loop::Document& document, bool is_default, const fs::path& root) {
    const std::string sorted_by = document.kind == loop::DocumentKind::prompt
                                      ? std::string()
                                      : fmt::format("{:<6} {:<9} ", document.slot, text::join(document.applies, ","));
    std::string line =
        fmt::format("{} {:<28} {}{}\n", is_default ? '*' : ' ', document.name, sorted_by, document.title);
    if (!document.file.empty()) line += fmt::format("    in {}\n", document.file.lexically_relative(root).string());
    return line;
}

}  // namespace

Result<ExitCode> run(const Options&, Context& context) {
    const fs::path root = project_root(context);
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    const auto chosen = loop::default_prompt(target, root);
    const auto all = loop::documents(root);
    const auto is_default = [&](const loop::Document& document) {
        return chosen && document.kind == loop::DocumentKind::prompt && document.name == chosen->name &&
               document.file == chosen->file;
    };
    if (context.global.json) {
        Json list = Json::array();
        for (const auto& document : all) {
            list.push_back({{"kind", to_text(document.kind)},
                            {"name", document.name},
                            {"title", document.title},
                            {"slot", document.slot.empty() ? Json() : Json(document.slot)},
                            {"applies", document.applies},
                            {"file", document.file.empty() ? Json() : Json(document.file.string())},
                            {"default", is_default(document)}});
        }
        print_json({{"schema", "gdnctl.prompts-list/1"}, {"target", target.name}, {"documents", std::move(list)}},
                   context);
        return ExitCode::ok;
    }
    context.terminal.out("prompts\n");
    bool directives = false;
    for (const auto& document : all) {
        if (document.kind == loop::DocumentKind::directive && !directives) {
            context.terminal.out(fmt::format("\ndirectives {:<19} {:<6} {}\n", "", "slot", "for"));
            directives = true;
        }
        context.terminal.out(line_of(document, is_default(document), root));
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::prompts_list

namespace gdnctl::commands {

constinit const cli::Command k_prompts_list_row = cli::make<&prompts_list::describe, &prompts_list::run>(
    "prompts list", "Loop", "list iteration prompts and directive presets", Tier::none);

}  // namespace gdnctl::commands
