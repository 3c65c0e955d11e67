// gdnctl config show
#include "cli/config.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/loop/codex_loop.h"
#include "commands/table.h"
#include "core/config.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "jobs/submit.h"
#include "loop/perf/gates.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/terminal.h"
#include "target/target.h"

namespace gdnctl::commands::config_show {

struct Options {};

namespace {

Json to_json(const ConfigValue& value) {
    return std::visit(
        [](const auto& held) -> Json {
            using T = std::decay_t<decltype(held)>;
            if constexpr (std::is_same_v<T, ConfigArray>) {
                Json items = Json::array();
                for (const ConfigValue& item : held) items.push_back(to_json(item));
                return items;
            } else if constexpr (std::is_same_v<T, ConfigTable>) {
                Json table = Json::object();
                for (const auto& [key, item] : held) table[key] = to_json(item);
                return table;
            } else {
                return Json(held);
            }
        },
        value.value);
}

struct Row {
    std::string key;
    Json value;
    std::string origin;
};

// A secret is recognised by its form, or by the name of its variable.
Json shown(const std::string& key, Json value) {
    if (value.is_array()) {
        for (Json& item : value) item = shown({}, std::move(item));
    }
    if (!value.is_string()) return value;
    const std::string masked = redact(key + "=" + value.get<std::string>());
    return masked.substr(std::min(key.size() + 1, masked.size()));
}

// One row for each value that is not a table. Secrets in an `env` table show only their names.
void collect(const ConfigTable& table, const std::string& prefix, std::vector<Row>& rows) {
    const bool is_env = prefix == "env" || prefix.ends_with(".env");
    for (const auto& [key, value] : table) {
        const std::string path = prefix.empty() ? key : prefix + "." + key;
        if (const ConfigTable* inner = value.as_table()) {
            collect(*inner, path, rows);
        } else {
            const bool hidden = is_env && names_a_secret(key);
            rows.push_back({path, hidden ? Json("***") : shown(key, to_json(value)), value.origin.text()});
        }
    }
}

void print_text(const std::vector<Row>& rows, const std::string& target, bool target_is_set, Terminal& terminal) {
    std::vector<std::string> lines;
    std::size_t widest = 0;
    for (const Row& row : rows) {
        lines.push_back(fmt::format("{} = {}", row.key, to_text(row.value)));
        if (lines.back().size() <= 60) widest = std::max(widest, lines.back().size());
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
        terminal.out(fmt::format("{:<{}}  # {}\n", lines[i], widest, rows[i].origin));
    }
    if (!target_is_set) terminal.out(fmt::format("# target is not set; detected here: {}\n", target));
}

Status check_loop_options(const Config& config) {
    const ConfigValue* table = config.find("codex-loop");
    if (table == nullptr || table->as_table() == nullptr) return {};
    codex_loop::Options options;
    cli::Args args;
    codex_loop::describe(args, options);
    return cli::assign_option_table(args, *table->as_table(), "codex-loop", {}, [](const auto&) { return false; });
}

}  // namespace

void describe(cli::Args& args, Options& /*options*/) {
    args.about(
        "Prints each setting and where it comes from: an option, an environment variable, a file and its line, or the "
        "built-in default. Options win over the environment. After that come the gdnctl.toml found upward from the "
        "working directory and the user's config.toml.");
    args.about("All [targets.NAME] tables are checked, even those that are not selected, and so is [codex-loop].");
    args.example("gdnctl config show", "which settings are in force here, and why");
    args.example("gdnctl --target cpu-gdn config show --json", "the same as gdnctl.config-show/1");
    args.exit_code(static_cast<int>(ExitCode::local_io), "a configuration file cannot be read");
    args.see_also("config init");
    args.see_also("docs/configuration.md");
    args.see_also("doctor");
}

Result<ExitCode> run(const Options& /*options*/, Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY(check_configured_targets(context.config, &loop::check_gates));
    GDNCTL_TRY(check_loop_options(context.config));
    std::vector<Row> rows;
    collect(context.config.root(), "", rows);
    const bool target_is_set = context.config.find("target") != nullptr;
    if (!context.global.json) {
        print_text(rows, target.name, target_is_set, context.terminal);
        return ExitCode::ok;
    }
    Json report = {{"schema", "gdnctl.config-show/1"}, {"target", target.name}, {"target_detected", !target_is_set}};
    report["targets"] = target_names(context.config);
    report["values"] = Json::array();
    for (const Row& row : rows) {
        report["values"].push_back({{"key", row.key}, {"value", row.value}, {"origin", row.origin}});
    }
    print_json(report, context);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::config_show

namespace gdnctl::commands {

constinit const cli::Command k_config_show_row = cli::make<&config_show::describe, &config_show::run>(
    "config show", "Setup", "print each setting and where it comes from", Tier::none);

}  // namespace gdnctl::commands

// gdnctl config init
namespace gdnctl::commands::config_init {

struct Options {
    bool force = false;
    bool user = false;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Writes a gdnctl.toml to the working directory, with every key explained and commented out. Nothing changes "
        "until you uncomment a line.");
    args.example("gdnctl config init");
    args.example("gdnctl -C ~/kernels config init --force", "replace the existing file");
    args.flag(options.force, {.names = "--force", .help = "replace an existing file"});
    args.flag(options.user, {.names = "--user", .help = "write the user's config.toml instead"});
    args.exit_code(static_cast<int>(ExitCode::conflict), "the file exists and --force is not given");
    args.exit_code(static_cast<int>(ExitCode::local_io), "the file cannot be written");
    args.see_also("config show");
    args.see_also("docs/configuration.md");
}

Result<ExitCode> run(const Options& options, Context& context) {
    const auto path = options.user ? cli::user_config_path(context.env) : context.cwd / "gdnctl.toml";
    if (path.empty()) return fail(ErrorKind::config, "no home directory", "set HOME or XDG_CONFIG_HOME");
    std::error_code problem;
    if (std::filesystem::is_directory(path, problem)) {
        return fail(ErrorKind::local_io, fmt::format("{} is a directory", path.string()),
                    "remove it, or choose another folder with -C DIR");
    }
    if (!options.force && std::filesystem::exists(path, problem)) {
        return fail(ErrorKind::conflict, fmt::format("{} already exists", path.string()), "--force replaces it");
    }
    if (options.user) {
        std::filesystem::create_directories(path.parent_path(), problem);
        if (problem) {
            return tl::unexpected(file_error(ErrorKind::local_io, "create", path.parent_path(), problem.value()));
        }
    }
    GDNCTL_TRY(atomic_replace(path, cli::config_template()));
    if (context.global.json) {
        const Json report = {{"schema", "gdnctl.config-init/1"}, {"path", path.string()}};
        print_json(report, context);
    } else {
        log::info("wrote {}", path.string());
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::config_init

namespace gdnctl::commands {

constinit const cli::Command k_config_init_row =
    cli::make<&config_init::describe, &config_init::run>("config init", "Setup", "write a commented gdnctl.toml",
                                                         Tier::none)
        .without_config();

}  // namespace gdnctl::commands
