// gdnctl prompts list, show and render.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/log/common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "loop/engine/prompt.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "services/git/checkout.h"
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
    args.see_also({"prompts show", "prompts render", "docs/prompts.md"});
}

namespace {

void print_line(const loop::Document& document, bool is_default, const fs::path& root, Context& context) {
    const std::string sorted_by = document.kind == loop::DocumentKind::prompt
                                      ? std::string()
                                      : fmt::format("{:<6} {:<9} ", document.slot, text::join(document.applies, ","));
    const std::string start = fmt::format("{} {:<28} {}", is_default ? '*' : ' ', document.name, sorted_by);
    print_lines(start + document.title + "\n", context, static_cast<int>(start.size()));
    if (document.file.empty()) return;
    print_lines(fmt::format("    in {}\n", document.file.lexically_relative(root).string()), context);
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
        print_line(document, is_default(document), root, context);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::prompts_list

// gdnctl prompts show
namespace gdnctl::commands::prompts_show {

struct Options {
    std::string name;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints one prompt or directive preset as an agent gets it: a prompt with its placeholders, a directive "
        "without its front matter. --json adds the front matter and the origin of the text.");
    args.positional(options.name, "NAME", "name from `prompts list`", {.complete = cli::Complete::document});
    args.example("gdnctl prompts show triangular-inversion");
    args.example("gdnctl prompts show marin >scripts/gdn/codex_iteration_prompt.md", "make a copy to change");
    args.exit_code(static_cast<int>(ExitCode::usage), "no prompt or directive has that name");
    args.see_also({"prompts list", "prompts render", "docs/prompts.md"});
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

// gdnctl prompts render
namespace gdnctl::commands::prompts_render {

struct Options {
    std::optional<std::string> name;
    std::int64_t iteration = 1;
    std::optional<std::int64_t> total;
    std::optional<std::string> head_sha;
    std::vector<std::string> directives, directive_files, directive_presets;
};

namespace fs = std::filesystem;

namespace {

// 40 hex digits, 64 in a repository of SHA-256.
bool is_commit_id(std::string_view word) {
    return (word.size() == 40 || word.size() == 64) &&
           word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Status check(const Options& options) {
    if (options.iteration < 1 || options.total.value_or(1) < 1) {
        return fail(ErrorKind::usage, "--iteration and --total start at 1");
    }
    if (options.total && options.iteration > *options.total) {
        return fail(ErrorKind::usage, fmt::format("--iteration {}: the run has {} iterations (--total)",
                                                  options.iteration, *options.total));
    }
    if (options.head_sha && !is_commit_id(*options.head_sha)) {
        return fail(ErrorKind::usage, fmt::format("--head-sha: not a full commit id: {}", *options.head_sha),
                    "`git rev-parse HEAD` prints one");
    }
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints the exact prompt that codex-loop writes for an iteration: the template with its placeholders replaced, "
        "then the session directives in order: the target's presets, --directive-preset, --directive-file, "
        "--directive. Directives that the loop itself adds (a held dev TPU, the progress summary) are not included.");
    args.positional(options.name, "NAME", "name from `prompts list`, or a file (default: the loop's own prompt)",
                    {.complete = cli::Complete::prompt});
    args.option(options.iteration, "--iteration N", "iteration number");
    args.option(options.total, "--total N", "iterations of the run", {.default_text = "the value of --iteration"});
    args.option(options.head_sha, "--head-sha SHA", "commit that the iteration starts from",
                {.default_text = "HEAD of the repository"});
    args.option(options.directive_presets, "--directive-preset NAME", "add a preset",
                {.complete = cli::Complete::preset});
    args.option(options.directive_files, "--directive-file PATH", "add a file, relative to the repository root",
                {.complete = cli::Complete::file});
    args.option(options.directives, "--directive TEXT", "add a text");
    args.example("gdnctl prompts render --iteration 2 --total 5", "the prompt of the second of five iterations");
    args.example("gdnctl prompts render marin --directive-preset triangular-inversion >prompt.txt");
    args.check([&options] { return check(options); });
    args.exit_code(static_cast<int>(ExitCode::usage), "no such prompt, preset or file; or an empty directive file");
    args.exit_code(static_cast<int>(ExitCode::local_io), "a file cannot be read");
    args.see_also({"prompts list", "prompts show", "docs/prompts.md"});
}

namespace {

Result<loop::Document> prompt_of(const Options& options, const Target& target, const fs::path& root,
                                 const Context& context) {
    if (!options.name) return loop::default_prompt(target, root);
    const bool is_path = options.name->find('/') != std::string::npos || options.name->ends_with(".md");
    if (is_path) return loop::prompt_from_file(context.cwd / *options.name);
    return loop::find_document(loop::DocumentKind::prompt, *options.name, root);
}

Result<std::string> head_of(const Options& options, const fs::path& root, Context& context) {
    if (options.head_sha) return *options.head_sha;
    auto checkout = GitCheckout::open(root, context.process, context.clock);
    if (!checkout) {
        Error error = std::move(checkout).error();
        error.hint = "pass the commit with --head-sha";
        return tl::unexpected(std::move(error));
    }
    GDNCTL_TRY_ASSIGN(const GitHead head, checkout->head());
    return head.sha;
}

}  // namespace

Result<ExitCode> run(const Options& options, Context& context) {
    const fs::path root = project_root(context);
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const loop::Document prompt, prompt_of(options, target, root, context));
    std::vector<std::string> presets = target.presets;
    presets.insert(presets.end(), options.directive_presets.begin(), options.directive_presets.end());
    GDNCTL_TRY_ASSIGN(const auto directives,
                      loop::session_directives({presets, options.directive_files, options.directives}, root));
    const std::int64_t total = options.total.value_or(options.iteration);
    loop::PromptFacts facts{options.iteration, total, {}};
    if (prompt.text.find("{{HEAD_SHA}}") != std::string::npos) {
        GDNCTL_TRY_ASSIGN(facts.head_sha, head_of(options, root, context));
    }
    for (const auto& left : loop::unknown_placeholders(prompt.text)) {
        log::warning("unknown placeholder {} in the prompt", left);
    }
    const std::string text = loop::assemble_prompt(prompt.text, facts, directives);
    if (context.global.json) {
        print_json({{"schema", "gdnctl.prompts-render/1"},
                    {"prompt", prompt.name},
                    {"file", prompt.file.empty() ? Json() : Json(prompt.file.string())},
                    {"iteration", options.iteration},
                    {"total", total},
                    {"head_sha", facts.head_sha.empty() ? Json() : Json(facts.head_sha)},
                    {"directives", directives.size()},
                    {"text", text::repair_utf8(text)}},
                   context);
    } else {
        context.terminal.out(text);
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::prompts_render

namespace gdnctl::commands {

Rows prompt_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&prompts_list::describe, &prompts_list::run>(
            "prompts list", "Loop", "list iteration prompts and directive presets", Tier::none),
        cli::make<&prompts_show::describe, &prompts_show::run>("prompts show", "Loop", "print a prompt or a directive",
                                                               Tier::none),
        cli::make<&prompts_render::describe, &prompts_render::run>("prompts render", "Loop",
                                                                   "print the prompt of an iteration", Tier::git)};
    return k_rows;
}

}  // namespace gdnctl::commands
