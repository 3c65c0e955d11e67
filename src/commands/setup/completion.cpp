// gdnctl completion
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "cli/reference.h"
#include "commands/log/common.h"
#include "commands/oracle/operators.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/json.h"
#include "jobs/job_destination.h"
#include "loop/engine/prompt.h"
#include "oracle/gdn/contract/contract.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "runlog/lint/lint.h"
#include "runlog/records/record.h"
#include "services/cluster/cluster.h"
#include "target/target.h"

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

// gdnctl __complete: values for the shells' completion
namespace gdnctl::commands::complete_values {

struct Options {
    std::string kind;
    std::vector<std::string> line;  // the words before the cursor, and possibly the one at it
};

namespace {

constexpr std::array<std::string_view, 15> k_kinds = {"target",    "cluster", "local-job",    "command",  "contract",
                                                      "case",      "kernel",  "timed-kernel", "outcome",  "rule",
                                                      "iteration", "prompt",  "preset",       "document", "download"};

std::vector<std::string> clusters(const Context& context) {
    std::vector<std::string> names = {"local"};
    for (std::string& name : cluster_names(project_root(context))) names.push_back(std::move(name));
    const ConfigValue* configured = context.config.find("cluster");
    const std::string* name = configured == nullptr ? nullptr : configured->as_string();
    if (name != nullptr && std::find(names.begin(), names.end(), *name) == names.end()) names.push_back(*name);
    return names;
}

// The local backend has one folder per job.
std::vector<std::string> local_jobs(const std::filesystem::path& state) {
    std::vector<std::string> ids;
    std::error_code ignored;
    for (std::filesystem::directory_iterator it(state / "local" / "jobs", ignored), end; it != end;
         it.increment(ignored)) {
        const std::string name = it->path().filename().string();
        if (it->is_directory(ignored) && !name.starts_with('.')) ids.push_back(name);  // '.': being created or removed
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::string> command_names() {
    std::vector<std::string> names;
    for (const cli::Command& command : table()) {
        if (!command.group.empty()) names.emplace_back(command.name);
    }
    return names;
}

// The values from the row of the operator on the command line; if it has none, or no operator is named, those of the
// first row.
template <class Member>
Member of_operator(const std::vector<std::string>& line, Member Operator::* member) {
    for (const Operator* op : operators()) {
        if (op->*member != nullptr && std::find(line.begin(), line.end(), op->name) != line.end()) return op->*member;
    }
    return operators().front()->*member;
}

// Complete names, and the prefixes of spellings that continue with a path or a command.
std::vector<std::string> kernels(const std::vector<std::string>& line, bool timed) {
    std::vector<std::string> names = of_operator(line, &Operator::kernel_names)(timed);
    names.insert(names.end(), {"src:", "lib:", "cmd:"});
    return names;
}

std::vector<std::string> outcomes() {
    const auto words = log_append::outcome_words();
    return {words.begin(), words.end()};
}

std::vector<std::string> rule_settings() {
    std::vector<std::string> settings;
    for (const runlog::RuleInfo& rule : runlog::lint_rules()) {
        for (const std::string_view severity : {"off", "note", "warning", "error"}) {
            settings.push_back(fmt::format("{}={}", rule.id, severity));
        }
    }
    return settings;
}

// Empty if the log cannot be read: the command itself will say why.
std::vector<std::string> iterations(const Context& context) {
    std::vector<std::string> names;
    const auto path = log_path(std::nullopt, context);
    if (!path) return names;
    const auto loaded = load_history(*path);
    if (!loaded || loaded->history.empty()) return names;
    for (const Json& record : loaded->history) names.push_back(runlog::iteration_of(record).text());
    names.emplace_back("last");
    return names;
}

// The output folder of the download command being typed.
std::filesystem::path output_folder(const std::vector<std::string>& line) {
    constexpr std::string_view k_option = "--output-dir";
    for (std::size_t i = line.size(); i-- > 0;) {
        if (line[i] == k_option && i + 1 < line.size()) return line[i + 1];
        if (line[i].starts_with(k_option) && line[i][k_option.size()] == '=')
            return line[i].substr(k_option.size() + 1);
    }
    return ".profiles/hf";
}

// Its files and folders, as named in the repository.
std::vector<std::string> downloads(const std::filesystem::path& root) {
    constexpr std::size_t k_most = 1000;
    std::vector<std::string> paths;
    std::error_code ignored;
    for (std::filesystem::recursive_directory_iterator it(root, ignored), end; it != end && paths.size() < k_most;
         it.increment(ignored)) {
        const std::string name = it->path().filename().string();
        if (it.depth() == 0 && name.starts_with('.')) {
            it.disable_recursion_pending();  // records of downloads
            continue;
        }
        paths.push_back(it->path().lexically_relative(root).generic_string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::vector<std::string> document_names(const Context& context, std::string_view kind) {
    std::vector<std::string> names;
    for (const auto& document : loop::documents(project_root(context))) {
        if (kind == "document" || (kind == "prompt") == (document.kind == loop::DocumentKind::prompt)) {
            names.push_back(document.name);
        }
    }
    return names;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about("Prints the values that a completion script offers, one a line.");
    args.example("gdnctl __complete target");
    args.positional(options.kind, k_kinds, {.name = "KIND", .help = "what is being completed"});
    args.positional(options.line, {.name = "WORD", .help = "words of the command line so far, after `--`"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    std::vector<std::string> values;
    if (options.kind == "target") values = target_names(context.config);
    if (options.kind == "cluster") values = clusters(context);
    if (options.kind == "local-job") values = local_jobs(context.state_dir);
    if (options.kind == "command") values = command_names();
    if (options.kind == "contract") values = oracle::contract_names();
    if (options.kind == "case") values = of_operator(options.line, &Operator::case_names)();
    if (options.kind == "kernel") values = kernels(options.line, false);
    if (options.kind == "timed-kernel") values = kernels(options.line, true);
    if (options.kind == "outcome") values = outcomes();
    if (options.kind == "rule") values = rule_settings();
    if (options.kind == "iteration") values = iterations(context);
    if (options.kind == "prompt" || options.kind == "preset" || options.kind == "document") {
        values = document_names(context, options.kind);
    }
    if (options.kind == "download") values = downloads(context.cwd / output_folder(options.line));
    for (const std::string& value : values) context.terminal.out(value + "\n");
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::complete_values

namespace gdnctl::commands {

constinit const cli::Command k_complete_values_row = cli::make<&complete_values::describe, &complete_values::run>(
    "__complete", "", "print values for completion", Tier::none);

}  // namespace gdnctl::commands

// gdnctl __docs: the CLI reference and the manual pages
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
