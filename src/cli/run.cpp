// How errors are printed.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/agent_mode.h"
#include "cli/args_cli11.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/dispatch.h"
#include "cli/help.h"
#include "cli/version.h"
#include "core/config.h"
#include "core/log.h"
#include "core/result.h"
#include "core/text.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/http.h"
#include "platform/machine.h"
#include "platform/process.h"
#include "platform/shown_process.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

namespace {

// Prints `[gdnctl] error: <context: message>` and, if there is one, `[gdnctl] hint: <hint>` to stderr. An internal
// error asks for a bug report. Returns the process's exit code.
int print_error(const Error& error, Terminal& terminal) {
    // stdout first, so that output from before the failure also appears before it on a terminal. An error of the flush
    // would hide the one being reported.
    (void)terminal.flush();
    // The error may contain names from other people's files.
    log::error("error: {}", text::visible(error.text()));
    std::string hint = error.hint;
    if (error.kind == ErrorKind::internal && hint.empty()) {
        hint = "this is a bug in gdnctl: please report the command line and the output of `gdnctl --version`";
    }
    if (!hint.empty()) log::warning("hint: {}", text::visible(hint));
    return static_cast<int>(exit_code_of(error.kind));
}

// Parsing can fail before --color is known, and the error should have the requested colour.
ColorMode color_asked_for(const std::vector<std::string>& words) {
    ColorMode mode = ColorMode::automatic;
    for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        std::string_view value;
        if (words[i] == "--color" && i + 1 < words.size()) value = words[i + 1];
        if (words[i].starts_with("--color=")) value = std::string_view(words[i]).substr(8);
        if (value == "always") mode = ColorMode::always;
        if (value == "never") mode = ColorMode::never;
        if (value == "auto") mode = ColorMode::automatic;
    }
    return mode;
}

PageStyle page_style(const Terminal& terminal, bool color) {
    // Longer lines are hard to read, however wide the terminal is.
    return {std::min(terminal.columns(), 100), color};
}

std::filesystem::path state_directory(const Env& env) {
    const auto set = [&](const char* name) { return std::filesystem::path(env.get(name).value_or("")); };
    const std::string own = expand_home(env.get("GDNCTL_STATE_DIR").value_or(""), env.get("HOME").value_or(""));
    if (!own.empty()) return std::filesystem::absolute(own);
    // The XDG base directory specification says to ignore relative paths.
    if (const auto xdg = set("XDG_STATE_HOME"); xdg.is_absolute()) return xdg / "gdnctl";
    if (const auto home = set("HOME"); home.is_absolute()) return home / ".local" / "state" / "gdnctl";
    std::error_code problem;
    const auto temporary = std::filesystem::temp_directory_path(problem);
    return (problem ? std::filesystem::path("/tmp") : temporary) / fmt::format("gdnctl-{}", getuid());
}

Result<std::filesystem::path> working_directory(const std::optional<std::string>& wanted) {
    std::error_code problem;
    auto here = std::filesystem::current_path(problem);
    if (problem) return fail(ErrorKind::local_io, "the working directory no longer exists: " + problem.message());
    if (!wanted) return here;
    const auto there = (here / *wanted).lexically_normal();
    if (wanted->empty() || !std::filesystem::is_directory(there, problem)) {
        return fail(ErrorKind::usage, fmt::format("-C needs a directory: {}", *wanted));
    }
    // So that children and libraries see the same directory.
    if (chdir(there.c_str()) != 0)
        return fail(ErrorKind::usage, fmt::format("cannot enter the directory: {}", *wanted));
    return there;
}

Error with_help_hint(Error error, std::string_view command) {
    const bool lacks_file =
        error.message.ends_with(" does not exist") || error.message.ends_with(": No such file or directory");
    if (error.kind == ErrorKind::usage && error.hint.empty() && !lacks_file) {
        error.hint = command.empty() ? "`gdnctl --help` lists the commands"
                                     : fmt::format("`gdnctl {} --help` shows the options", command);
    }
    return error;
}

Status show_overview(const Table& table, const Dispatch& called, const Args& globals, bool asked) {
    Terminal& terminal = system_terminal(ColorMode::automatic);
    const PageStyle style = page_style(terminal, asked ? terminal.color_out() : terminal.color_err());
    const std::string page =
        called.group.empty() ? overview(table, globals, style) : group_overview(table, called.group, style);
    if (asked) {
        terminal.out(page);
    } else {
        terminal.err(page);
    }
    return {};
}

std::string own_program() {
    std::error_code problem;
    const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
    return problem ? std::string("gdnctl") : path.string();
}

// A command that does not read the configuration runs even if it is broken.
Result<LoadedConfig> config_for(const Table& table, const Command& command, const GlobalFlags& flags,
                                const std::filesystem::path& cwd) {
    if (!command.reads_config) return LoadedConfig{};
    GDNCTL_TRY_ASSIGN(LoadedConfig loaded,
                      load_config(process_env(), {cwd, flags.common.config_file, flags.common.target}));
    for (const std::string& warning : loaded.warnings) log::warning("warning: {}", warning);
    // A misspelt --target is an error even for a command that does not use the target.
    if (flags.common.target && table.check_target != nullptr) GDNCTL_TRY(table.check_target(loaded.config, cwd));
    return loaded;
}

// The command that was named, and whether its run() was called.
struct Called {
    const Command* command = nullptr;
    bool ran = false;
    std::string_view agent;  // agent_mode()
    bool told_of_agent = false;

    // Says once that agent mode is on.
    void tell_of_agent() {
        if (agent.empty() || told_of_agent) return;
        told_of_agent = true;
        log::info(
            "{} is set: printing at most {} bytes of Markdown; --json prints everything, GDNCTL_AGENT=0 plain text",
            agent, k_agent_bytes);
    }
};

// For a command that has no business with the network: the table says so.
class NoHttp final : public Http {
public:
    Result<HttpResponse> send(const HttpRequest& /*request*/) override {
        return fail(ErrorKind::internal, "this command is listed as one that makes no network requests");
    }
    Result<std::unique_ptr<HttpPool>> open_pool(const HttpPoolSettings& /*settings*/) override {
        return send({}).map([](HttpResponse&&) { return std::unique_ptr<HttpPool>(); });
    }
};

Http& http_for(Tier tier) {
    static NoHttp none;
    if (tier != Tier::http) return none;
    return system_http();
}

// Where the command runs, and the configuration there; entered once.
class Workspace {
public:
    Workspace(const Table& table, const Command* command, const GlobalFlags& flags)
        : m_table(table), m_command(command), m_flags(flags) {}

    Status enter() {
        if (m_entered) return {};
        GDNCTL_TRY_ASSIGN(m_cwd, working_directory(m_flags.directory));
        GDNCTL_TRY_ASSIGN(m_loaded, config_for(m_table, *m_command, m_flags, m_cwd));
        m_entered = true;
        return {};
    }
    const std::filesystem::path& cwd() const { return m_cwd; }
    const Config& config() const { return m_loaded.config; }

    // The command's options in the configuration.
    OptionTable options() {
        if (m_command == nullptr || !m_command->options_in_config) return {};
        return {m_command->name, [this]() -> Result<const ConfigTable*> {
                    GDNCTL_TRY(enter());
                    const ConfigValue* table = config().find(m_command->name);
                    return table == nullptr ? nullptr : table->as_table();
                }};
    }

private:
    const Table& m_table;
    const Command* m_command;
    const GlobalFlags& m_flags;
    std::filesystem::path m_cwd;
    LoadedConfig m_loaded;
    bool m_entered = false;
};

Result<ExitCode> call(Workspace& workspace, Called& called, Invocation& invocation, const GlobalFlags& flags) {
    const Env& env = process_env();
    GDNCTL_TRY(workspace.enter());
    called.tell_of_agent();
    AgentTerminal for_agent(system_terminal(flags.color), called.command->name);
    ShownProcess process(system_process(), system_terminal(flags.color), system_clock(), flags.common.quiet);
    Context context{env,
                    system_clock(),
                    called.agent.empty() ? system_terminal(flags.color) : for_agent,
                    workspace.config(),
                    process,
                    http_for(called.command->tier),
                    stop_on_signals(),
                    workspace.cwd(),
                    state_directory(env),
                    own_program(),
                    flags.common};
    context.global.agent = !called.agent.empty();
    called.ran = true;
    auto result = invocation.run(context);
    for_agent.finish();
    return result;
}

// -h alone; where a command has no short page, its page is the whole one.
bool asked_for_short_help(const Dispatch& called) {
    const auto end = std::find(called.words.begin(), called.words.end(), "--");
    return !called.help && std::none_of(called.words.begin(), end, [](const std::string& word) {
        return word == "--help" || word.starts_with("--help=");
    });
}

log::Settings log_settings(log::Level level, const Terminal& terminal) {
    const auto columns = [] { return system_terminal(ColorMode::automatic).columns(); };
    return {level, terminal.color_err(), terminal.err_is_tty() ? +columns : nullptr};
}

// Prints help or the version, or runs the command.
Result<ExitCode> run_words(const Table& table, const std::vector<std::string>& words, Called& meant) {
    GlobalFlags flags;
    Args globals;
    describe_globals(globals, flags);
    const auto lookup = [](std::string_view name) { return process_env().get(name); };
    const auto stop_early = [&] { return flags.help || flags.version; };

    GDNCTL_TRY_ASSIGN(const Dispatch called, dispatch(table, words));
    flags.help = called.help;
    meant.command = called.command;
    if (called.command != nullptr) {
        const bool tty = system_terminal(flags.color).out_is_tty();
        meant.agent = agent_mode({called.command->report, tty, chooses_output(words)}, lookup);
    }
    Args args;
    std::unique_ptr<Invocation> invocation;
    if (called.command != nullptr) {
        invocation = called.command->create();
        invocation->describe(args);
    }
    Workspace workspace(table, called.command, flags);
    if (const Status parsed = parse_words(globals, args, called.words, lookup, stop_early, workspace.options());
        !parsed) {
        return tl::unexpected(with_help_hint(parsed.error(), called.name));
    }
    Terminal& terminal = system_terminal(flags.color);
    const log::Level level = flags.common.quiet         ? log::Level::warning
                             : flags.common.verbose > 0 ? log::Level::debug
                                                        : log::Level::info;
    log::configure(log_settings(level, terminal));
    if (flags.version) {
        terminal.out(version_text(process_env(), flags.common.json, terminal.out_is_tty() ? 2 : -1));
        return ExitCode::ok;
    }
    if (called.command == nullptr) {
        GDNCTL_TRY(show_overview(table, called, globals, flags.help));
        return flags.help ? ExitCode::ok : ExitCode::usage;
    }
    if (flags.help) {
        const PageStyle style = page_style(terminal, terminal.color_out());
        terminal.out(asked_for_short_help(called) ? short_help_page(*called.command, args, globals, style)
                                                  : help_page(*called.command, args, globals, style));
        return ExitCode::ok;
    }
    auto result = call(workspace, meant, *invocation, flags);
    if (!result) return tl::unexpected(with_help_hint(std::move(result).error(), called.name));
    return result;
}

// An agent gets one JSON line.
int print_result_error(const Error& error, Called& meant, Terminal& terminal) {
    if (meant.agent.empty()) return print_error(error, terminal);
    meant.tell_of_agent();
    (void)terminal.flush();
    terminal.err(agent_error(error));
    return static_cast<int>(exit_code_of(error.kind));
}

int finish(const Result<ExitCode>& result, Called& meant) {
    Terminal& terminal = system_terminal(ColorMode::automatic);
    if (!result) {
        const int code = print_result_error(result.error(), meant, terminal);
        const bool last_word = meant.command != nullptr && !meant.ran && meant.command->never_ran != nullptr;
        if (last_word) meant.command->never_ran(result.error());
        return code;
    }
    const Status flushed = terminal.flush();
    if (flushed) return static_cast<int>(*result);
    const int code = print_error(flushed.error(), terminal);
    return *result == ExitCode::ok ? code : static_cast<int>(*result);
}

}  // namespace

int run(const Table& table, int argc, char** argv) {
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    Terminal& terminal = system_terminal(color_asked_for(words));
    log::configure(log_settings(log::Level::info, terminal));
    try {
        Called meant;
        const auto result = run_words(table, words, meant);
        return finish(result, meant);
    } catch (const std::bad_alloc&) {
        return print_error({ErrorKind::bad_input, "not enough memory for this", "", ""}, terminal);
    } catch (const std::exception& e) {
        return print_error({ErrorKind::internal, fmt::format("unexpected exception: {}", e.what()), "", ""}, terminal);
    } catch (...) {
        return print_error({ErrorKind::internal, "unexpected exception of an unknown type", "", ""}, terminal);
    }
}

}  // namespace gdnctl::cli
