#include "commands/loop/codex_loop.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/config.h"
#include "commands/loop/codex_loop_evolve.h"
#include "commands/loop/codex_loop_resume.h"
#include "commands/loop/loop_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/json.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/text.h"
#include "jobs/place.h"
#include "jobs/submit.h"
#include "jobs/target.h"
#include "loop/codex_loop.h"
#include "loop/engine/earlier_run.h"
#include "loop/engine/run_words.h"
#include "loop/report/verdict_words.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::codex_loop {

namespace {

// The name with which this program was called.
std::string called_as() {
    const auto line = read_file_if_exists("/proc/self/cmdline");
    if (!line || !*line) return "gdnctl";
    const std::string word = (*line)->substr(0, (*line)->find('\0'));
    return word.empty() ? std::string("gdnctl") : text::shell_quote(word);
}

// From --config, absolute; empty: the file is found by searching.
std::string config_file_of(const Context& context) {
    if (!context.global.config_file) return {};
    return (context.cwd / *context.global.config_file).lexically_normal().string();
}

Result<std::vector<std::string>> allocator_words(const Options& options, const Context& context) {
    GDNCTL_TRY_ASSIGN(const auto configured, context.config.string("dev_tpu_allocator"));
    const std::string line = options.allocator.value_or(configured.value_or(""));
    auto words = text::shell_split(line);
    if (!words) return fail(ErrorKind::usage, "--dev-tpu-allocator: unclosed quote: " + line);
    return std::move(*words);
}

Result<loop::CodexLoopRequest> request_of(const Options& options, loop::RunWords words, Context& context) {
    loop::CodexLoopRequest request;
    request.options = options.loop;
    if (options.model) {
        request.options.model = *options.model;
        request.options.model_given = true;
    }
    if (options.max_wall) request.options.max_wall_s = parse_span(*options.max_wall);
    if (request.options.self_command.empty()) request.options.self_command = called_as();
    request.gates = options.gates;
    request.config = config_at(context);
    request.dry_run = options.dry_run;
    GDNCTL_TRY_ASSIGN(request.allocator, allocator_words(options, context));
    GDNCTL_TRY_ASSIGN(request.target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const loop::GateModes modes, loop::resolve_modes(request.gates));
    // A dry run of a population judges nothing: its scores are made up.
    if (options.evolves ? !options.dry_run : modes.validation != loop::ValidationMode::off) {
        GDNCTL_TRY(check_target_is_named(request.target, true, context));
    }
    words.cwd = context.cwd.lexically_relative(project_root(context)).string();
    words.config_file = config_file_of(context);
    words.target = request.target.name;
    request.words = std::move(words);
    return request;
}

Json json_of(const loop::CodexLoopReport& report, bool dry_run) {
    Json json = {{"schema", dry_run ? "gdnctl.codex-loop-preview/1" : "gdnctl.codex-loop/1"},
                 {"reason", report.reason},
                 {"rc", report.rc},
                 {"iteration", report.iteration},
                 {"isolation", report.isolation},
                 {"log_dir", report.log_dir},
                 {"iterations_total", report.iterations_total}};
    if (dry_run) {
        json["agent_argv"] = report.agent_argv;
        json["prompt"] = report.prompt;
        json["plan"] = report.plan;
        return json;
    }
    Json outcomes = Json::object();
    for (const auto& [name, count] : report.outcomes) outcomes[name] = count;
    json["run"] = report.run;
    json["iterations_ended"] = report.iterations_ended;
    json["failures"] = report.failures;
    json["promotions"] = report.promotions;
    json["outcomes"] = outcomes;
    json["tokens"] = report.tokens;
    json["agent_ms"] = report.agent_ms;
    json["tpu_ms"] = report.tpu_ms;
    json["wall_ms"] = report.wall_ms;
    return json;
}

void show_preview(const loop::CodexLoopReport& report, Context& context) {
    std::string text = "agent: " + text::shell_join(report.agent_argv) + "\n";
    for (const auto& line : report.plan) text += line + "\n";
    text += "prompt:\n" + report.prompt;
    context.terminal.out(text);
}

void show_end(const loop::CodexLoopReport& report) {
    const std::string results = loop::results_text(report.outcomes, report.promotions);
    log::info("{} of {} iterations: {}", report.iterations_ended, report.iterations_total,
              results.empty() ? "none ended" : results);
}

// The last line on stderr, in every case.
void say_stopped(std::string_view reason, int iteration, int rc) {
    log::write_as_it_is(log::Level::warning,
                        fmt::format("codex-loop stopped: reason={} iteration={} rc={}", reason, iteration, rc));
}

std::string_view reason_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::usage: return "usage";
        case ErrorKind::config: return "config";
        case ErrorKind::conflict: return "conflict";
        case ErrorKind::local_io: return "local-io";
        case ErrorKind::infrastructure: return "infrastructure";
        case ErrorKind::authentication: return "authentication";
        case ErrorKind::interrupted: return "interrupted";
        case ErrorKind::terminated: return "terminated";
        default: return "error";
    }
}

// Nothing has started.
ExitCode refused(const Error& error, std::string_view counted) {
    const int rc = static_cast<int>(exit_code_of(error.kind));
    // Without "error: ", since scripts match the recipe's lines from their start.
    log::write_as_it_is(log::Level::error, error.text());
    if (!error.hint.empty()) log::write_as_it_is(log::Level::warning, "hint: " + error.hint);
    log::write_as_it_is(log::Level::warning,
                        fmt::format("codex-loop stopped: reason={} {}=0 rc={}", reason_of(error.kind), counted, rc));
    return static_cast<ExitCode>(rc);
}

Result<loop::CodexLoopReport> run_as(const Options& options, loop::RunWords words, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto request, request_of(options, std::move(words), context));
    return loop::run_codex_loop(request, context);
}

tl::unexpected<Error> another(const loop::RunWords& kept, std::string_view option, const std::string& now,
                              const std::string& then) {
    return fail(ErrorKind::usage, fmt::format("--resume: not what run {} was started with: {} {} (the run has {})",
                                              kept.run, option, now, then.empty() ? "none" : then));
}

// Takes what the global options of this call name, if it is what the run has or the change is accepted.
Status take_global(const Options& now, loop::RunWords& kept, const Context& context) {
    const bool accepted = now.evolve.accept_config_change;
    const auto take = [&](const char* option, const std::string& given, std::string& then) -> Status {
        if (given.empty() || given == then) return {};
        if (!accepted) return another(kept, option, given, then);
        then = given;
        return {};
    };
    GDNCTL_TRY(take("--config", config_file_of(context), kept.config_file));
    return take("--target", context.global.target.value_or(""), kept.target);
}

// Continues in the directory, and with the configuration file and target, of the original run. `go`: (options, words,
// context).
template <class Go>
std::invoke_result_t<Go, const Options&, loop::RunWords, Context&> resume(const Options& now, loop::RunWords kept,
                                                                          Context& context, Go go) {
    GDNCTL_TRY(take_global(now, kept, context));
    GDNCTL_TRY_ASSIGN(const Options options, resumed_options(now, kept));
    if (options.evolves != now.evolves) return another(kept, "--mode", "climb", "evolve");
    Context there = context;
    const std::filesystem::path cwd = (project_root(context) / kept.cwd).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::is_directory(cwd, ignored)) there.cwd = kept.cwd == "." ? project_root(context) : cwd;
    if (!kept.config_file.empty()) there.global.config_file = kept.config_file;
    // In its own words, so that a target that had to be named is named now.
    there.global.target = kept.target;
    GDNCTL_TRY_ASSIGN(
        const cli::LoadedConfig loaded,
        cli::load_config(context.env, cli::ConfigRequest{there.cwd, there.global.config_file, there.global.target}));
    Context held{there.env,  there.clock, there.terminal,  loaded.config, there.process, there.http,
                 there.stop, there.cwd,   there.state_dir, there.program, there.global};
    return go(options, std::move(kept), held);
}

loop::RunWords words_of(const Options& options) {
    loop::RunWords words;
    keep_words(options.given, words);
    return words;
}

Result<loop::CodexLoopReport> run_it(const Options& options, Context& context) {
    if (options.loop.resume) {
        const auto journal = project_root(context) / options.loop.log_dir / "journal.jsonl";
        GDNCTL_TRY_ASSIGN(const auto kept, loop::words_of_run(journal));
        if (kept) {
            GDNCTL_TRY(loop::mend_repository(context.cwd, journal, context.process, context.clock));
            return resume(options, *kept, context, run_as);
        }
        const auto is_total = [](const cli::GivenOption& one) { return one.option == "--iterations"; };
        if (std::none_of(options.given.begin(), options.given.end(), is_total)) {
            return fail(ErrorKind::usage,
                        fmt::format("--iterations is required: {} has no run to continue with its "
                                    "own options",
                                    journal.parent_path().string()),
                        "--log-dir names the folder of the run");
        }
    }
    return run_as(options, words_of(options), context);
}

Result<ExitCode> evolve_as(const Options& options, loop::RunWords words, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto request, request_of(options, std::move(words), context));
    return run_evolve_mode(options, request, context);
}

Result<ExitCode> evolve_it(const Options& options, Context& context) {
    if (options.loop.resume && !options.dry_run) {
        const auto folder = loop::evolve::resumed_folder(options.loop.log_dir, project_root(context));
        GDNCTL_TRY_ASSIGN(const auto kept, folder.empty() ? std::optional<loop::RunWords>()
                                                          : loop::words_of_run(folder / "journal.jsonl"));
        if (kept) {
            GDNCTL_TRY(loop::mend_repository(context.cwd, folder / "journal.jsonl", context.process, context.clock));
            return resume(options, *kept, context, evolve_as);
        }
    }
    return evolve_as(options, words_of(options), context);
}

}  // namespace

std::optional<std::int64_t> parse_span(std::string_view text) {
    std::int64_t unit = 1;
    if (!text.empty()) {
        switch (text.back()) {
            case 's': unit = 1; break;
            case 'm': unit = 60; break;
            case 'h': unit = 3600; break;
            case 'd': unit = 86'400; break;
            default: unit = 0; break;
        }
        if (unit == 0) {
            unit = 1;
        } else {
            text.remove_suffix(1);
        }
    }
    const auto number = text::parse_int(text);
    constexpr std::int64_t k_most = 100'000'000;
    if (!number || *number < 0 || *number > k_most) return std::nullopt;
    return *number * unit;
}

void never_ran(const Error& error) {
    say_stopped(reason_of(error.kind), 0, static_cast<int>(exit_code_of(error.kind)));
}

Result<ExitCode> run(const Options& options, Context& context) {
    const log::Timed timed;
    if (options.evolves) {
        const auto ended = evolve_it(options, context);
        return ended ? *ended : refused(ended.error(), "attempt");
    }
    const auto report = run_it(options, context);
    if (!report) return refused(report.error(), "iteration");
    if (context.global.json) {
        print_json(json_of(*report, options.dry_run), context);
    } else if (options.dry_run) {
        show_preview(*report, context);
    } else {
        show_end(*report);
    }
    if (options.dry_run) return ExitCode::ok;
    GDNCTL_TRY(context.terminal.flush());
    say_stopped(report->reason, report->iteration, report->rc);
    return static_cast<ExitCode>(report->rc);
}

}  // namespace gdnctl::commands::codex_loop

namespace gdnctl::commands {

constinit const cli::Command k_codex_loop_row =
    cli::make<&codex_loop::describe, &codex_loop::run>("codex-loop", "Loop",
                                                       "run unattended iterations of a coding agent", Tier::http)
        .with_options_in_config()
        .with_last_word(&codex_loop::never_ran);

}  // namespace gdnctl::commands
