// gdnctl completion, the hidden __complete and __docs: what is generated from the descriptions of all commands.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "cli/config.h"
#include "cli/reference.h"
#include "commands/log/common.h"
#include "commands/loop/loop_common.h"
#include "commands/oracle/operators.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/json.h"
#include "harness/child/python_kernel.h"
#include "harness/engine/operator.h"
#include "jobs/job_destination.h"
#include "jobs/submissions.h"
#include "loop/engine/prompt.h"
#include "loop/evolve/views.h"
#include "loop/memory/run_view.h"
#include "oracle/gdn/contract/contract.h"
#include "oracle/linear_ce/judge/contract.h"
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
        "Prints a script that completes commands, options and values: fixed choices, files, kernels, cases, presets, "
        "iterations, attempts, jobs, targets and clusters.");
    args.example("source <(gdnctl completion bash)", "in this shell");
    args.example("gdnctl completion bash > ~/.local/share/bash-completion/completions/gdnctl", "for all new shells");
    args.example("gdnctl completion zsh > ~/.zfunc/_gdnctl", "with ~/.zfunc in fpath");
    args.example("gdnctl completion fish > ~/.config/fish/completions/gdnctl.fish");
    args.positional(options.shell, k_shells, {"SHELL", "shell to print the script for"});
    args.see_also("doctor");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const cli::Shell shell = options.shell == "bash"  ? cli::Shell::bash
                             : options.shell == "zsh" ? cli::Shell::zsh
                                                      : cli::Shell::fish;
    context.terminal.out(std::string(cli::completion_script(shell)));
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::completion

// gdnctl __complete: what the completion scripts offer
namespace gdnctl::commands::complete_words {

struct Options {
    std::vector<std::string> words;
};

namespace {

using cli::Complete;

std::vector<std::string> clusters(const Context& context) {
    std::vector<std::string> names = {"local"};
    for (std::string& name : cluster_names(cluster_places(context))) names.push_back(std::move(name));
    const ConfigValue* configured = context.config.find("cluster");
    const std::string* name = configured == nullptr ? nullptr : configured->as_string();
    if (name != nullptr && std::find(names.begin(), names.end(), *name) == names.end()) names.push_back(*name);
    return names;
}

// Newest first: the jobs that this machine submitted, then those of the local backend, which has one folder per job.
std::vector<std::string> jobs(const Context& context) {
    std::vector<std::string> ids;
    for (Submission& one : own_submissions(context.state_dir)) ids.push_back(std::move(one.id));
    std::vector<std::pair<std::filesystem::file_time_type, std::string>> local;
    std::error_code ignored;
    for (std::filesystem::directory_iterator it(context.state_dir / "local" / "jobs", ignored), end; it != end;
         it.increment(ignored)) {
        std::string name = it->path().filename().string();
        const bool known = std::find(ids.begin(), ids.end(), name) != ids.end();
        // '.': being created or removed
        if (!it->is_directory(ignored) || name.starts_with('.') || known || is_of_loop(name)) continue;
        local.emplace_back(it->last_write_time(ignored), std::move(name));
    }
    std::sort(local.rbegin(), local.rend());
    for (auto& [time, name] : local) ids.push_back(std::move(name));
    if (!ids.empty()) ids.emplace_back("last");
    return ids;
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

// What the path in `typed` can be: folders, and files whose names end so. Each follows `prefix`, as typed.
std::vector<std::string> paths(const std::string& prefix, const std::string& typed, std::string_view ending,
                               const Context& context) {
    const std::size_t slash = typed.rfind('/');
    const std::string folder = slash == std::string::npos ? std::string() : typed.substr(0, slash + 1);
    std::vector<std::string> found;
    std::error_code ignored;
    for (std::filesystem::directory_iterator it(context.cwd / folder, ignored), end; it != end; it.increment(ignored)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with('.')) continue;
        if (it->is_directory(ignored)) {
            found.push_back(prefix + folder + name + "/");
        } else if (name.ends_with(ending)) {
            found.push_back(prefix + folder + name);
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::string> adapter_names() {
    std::vector<std::string> names;
    for (const harness::Adapter& adapter : harness::python_adapters()) names.emplace_back(adapter.name);
    return names;
}

// Names, and the prefixes of spellings that continue; after a prefix, the files that it may name.
std::vector<std::string> kernels(const std::vector<std::string>& line, const std::string& typed, bool timed,
                                 const Context& context) {
    constexpr std::pair<std::string_view, std::string_view> k_forms[] = {
        {"src:", ".c"}, {"lib:", ".so"}, {"py:", ".py"}};
    for (const auto& [prefix, ending] : k_forms) {
        if (!typed.starts_with(prefix)) continue;
        auto found = paths(std::string(prefix), typed.substr(prefix.size()), ending, context);
        if (prefix != "py:") return found;
        for (const std::string& name : adapter_names()) found.push_back("py:" + name);
        return found;
    }
    std::vector<std::string> names = of_operator(line, &Operator::kernel_names)(timed);
    names.insert(names.end(), {"src:", "lib:", "cmd:", "py:"});
    return names;
}

std::vector<std::string> cases_and_sets(const std::vector<std::string>& line) {
    std::vector<std::string> names = of_operator(line, &Operator::case_names)();
    std::vector<std::string> sets;
    const harness::CaseList cases = of_operator(line, &Operator::plain)().cases();
    for (const harness::CaseRow& row : cases.rows) {
        if (std::find(sets.begin(), sets.end(), row.set) == sets.end()) sets.push_back(row.set);
    }
    names.insert(names.begin(), sets.begin(), sets.end());
    return names;
}

// "head_map=tiled", and "chunk=" where a number follows.
std::vector<std::string> contract_sets(const std::vector<std::string>& line) {
    std::vector<std::string> sets;
    if (std::find(line.begin(), line.end(), "linear-ce") != line.end()) {
        for (const std::string& field : oracle::linear_ce::contract_field_names()) sets.push_back(field + "=");
        return sets;
    }
    for (const std::string& field : oracle::contract_field_names()) {
        const auto values = oracle::contract_field_values(field);
        for (const std::string& value : values) sets.push_back(field + "=" + value);
        if (values.empty()) sets.push_back(field + "=");
    }
    return sets;
}

// Value of an option that was typed earlier, as --name VALUE or --name=VALUE.
std::optional<std::string> typed_value(const std::vector<std::string>& line, std::string_view option) {
    for (std::size_t i = line.size(); i-- > 0;) {
        if (line[i] == option && i + 1 < line.size()) return line[i + 1];
        if (line[i].starts_with(option) && line[i][option.size()] == '=') return line[i].substr(option.size() + 1);
    }
    return std::nullopt;
}

std::vector<std::string> attempts(const std::filesystem::path& log_dir) {
    const auto view = loop::evolve::load_evolve(log_dir);
    if (!view) return {};
    std::vector<std::string> names = {"best", "last"};
    for (std::size_t i = view->state.attempts.size(); i-- > 1;) names.push_back(std::to_string(i));
    return names;
}

std::vector<std::string> evolve_attempts(const std::vector<std::string>& line, const Context& context) {
    const auto folder = evolve::folder_of({typed_value(line, "--run"), typed_value(line, "--log-dir")}, context);
    return folder ? attempts(*folder) : std::vector<std::string>();
}

// Newest first, as their names begin with their start.
std::vector<std::string> evolve_runs(const Context& context) {
    std::vector<std::string> names;
    const auto newest = evolve::folder_of({}, context);
    if (!newest) return names;
    std::error_code ignored;
    for (std::filesystem::directory_iterator it(newest->parent_path(), ignored), end; it != end;
         it.increment(ignored)) {
        if (std::filesystem::exists(it->path() / "journal.jsonl", ignored)) {
            names.push_back(it->path().filename().string());
        }
    }
    std::sort(names.rbegin(), names.rend());
    names.emplace_back("last");
    return names;
}

std::vector<std::string> loop_iterations(const std::vector<std::string>& line, const Context& context) {
    const auto folder = loop_dir(typed_value(line, "--log-dir"), context);
    if (!folder) return {};
    if (loop::evolve::is_evolve_run(*folder)) return attempts(*folder);
    const auto run = loop::load_run(*folder);
    if (!run || run->view.iterations.empty()) return {};
    std::vector<std::string> names = {"last"};
    for (auto it = run->view.iterations.rbegin(); it != run->view.iterations.rend(); ++it) {
        names.push_back(std::to_string(it->number));
    }
    return names;
}

std::vector<std::string> rule_ids() {
    std::vector<std::string> ids;
    for (const runlog::RuleInfo& rule : runlog::lint_rules()) ids.emplace_back(rule.id);
    return ids;
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
    return typed_value(line, "--output-dir").value_or(".profiles/hf");
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

std::vector<std::string> document_names(const Context& context, Complete kind) {
    std::vector<std::string> names;
    for (const auto& document : loop::documents(project_root(context))) {
        const bool is_prompt = document.kind == loop::DocumentKind::prompt;
        if (kind == Complete::document || (kind == Complete::prompt) == is_prompt) {
            names.push_back(document.name);
        }
    }
    return names;
}

// `typed`: what of the value is there already.
std::vector<std::string> values_of(Complete kind, const std::vector<std::string>& line, const std::string& typed,
                                   const Context& context) {
    switch (kind) {
        case Complete::nothing: return {};
        case Complete::file: return {":file"};
        case Complete::directory: return {":directory"};
        case Complete::target: return target_names(context.config);
        case Complete::cluster: return clusters(context);
        case Complete::job: return jobs(context);
        case Complete::contract: return oracle::contract_names();
        case Complete::oracle_case: return of_operator(line, &Operator::case_names)();
        case Complete::case_or_set: return cases_and_sets(line);
        case Complete::contract_set: return contract_sets(line);
        case Complete::kernel: return kernels(line, typed, false, context);
        case Complete::timed_kernel: return kernels(line, typed, true, context);
        case Complete::adapter: return adapter_names();
        case Complete::outcome: return outcomes();
        case Complete::lint_rule: return rule_settings();
        case Complete::lint_rule_id: return rule_ids();
        case Complete::iteration: return iterations(context);
        case Complete::loop_iteration: return loop_iterations(line, context);
        case Complete::attempt: return evolve_attempts(line, context);
        case Complete::evolve_run: return evolve_runs(context);
        case Complete::prompt:
        case Complete::preset:
        case Complete::document: return document_names(context, kind);
        case Complete::download: return downloads(context.cwd / output_folder(line));
    }
    return {};
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints what can stand in place of the last word, a line each, with its help after a tab. `:file` and "
        "`:directory` stand for paths, which the shell completes.");
    args.example("gdnctl __complete -- config sh");
    args.trailing(options.words, true, {"WORD", "words of the command line up to the cursor, without `gdnctl`"});
}

// Also with a broken configuration, which then has no values.
Result<ExitCode> run(const Options& options, Context& context) {
    const auto loaded = cli::load_config(context.env, {context.cwd, {}, {}});
    const Config none;
    const Context configured{context.env,       context.clock,   context.terminal, loaded ? loaded->config : none,
                             context.process,   context.http,    context.stop,     context.cwd,
                             context.state_dir, context.program, context.global};
    const cli::Completions found = cli::complete(table(), options.words);
    const std::string& last = options.words.back();
    bool fits = false;
    for (const auto& [word, help] : found.words) {
        if (!word.starts_with(last)) continue;
        fits = true;
        context.terminal.out(help.empty() ? word + "\n" : word + "\t" + help + "\n");
    }
    for (const auto& [word, help] : found.instead) {
        if (!fits) context.terminal.out(word + "\t" + help + "\n");
    }
    const std::string typed = last.substr(std::min(found.head.size(), last.size()));
    for (const std::string& value : values_of(found.values, options.words, typed, configured)) {
        const bool is_path = value.starts_with(':');
        const std::string word = is_path ? value : found.head + value;
        if (is_path || word.starts_with(last)) context.terminal.out(word + "\n");
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::complete_words

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
    args.positional(options.format, k_formats, {"FORMAT", "what to write"});
    args.option(options.out, "--out DIR", "where to write; without it everything goes to stdout",
                {.complete = cli::Complete::directory});
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

Rows completion_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&completion::describe, &completion::run>("completion", "Setup",
                                                           "print a completion script for a shell", Tier::none)
            .without_config(),
        cli::make<&complete_words::describe, &complete_words::run>("__complete", "",
                                                                   "print what a completion script offers", Tier::none)
            .without_config(),
        cli::make<&docs::describe, &docs::run>("__docs", "", "write the generated pages", Tier::none).without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
