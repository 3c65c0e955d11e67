// gdnctl codex-loop: unattended iterations of a coding agent; --resume and --mode evolve.
#include "commands/loop/codex_loop.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "cli/config.h"
#include "commands/common.h"
#include "commands/loop/loop_common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/result.h"
#include "core/text.h"
#include "jobs/job_destination.h"
#include "jobs/submit.h"
#include "jobs/target_job.h"
#include "loop/codex_loop.h"
#include "loop/engine/log_dir.h"
#include "loop/engine/options.h"
#include "loop/evolve/run.h"
#include "loop/evolve/views.h"
#include "loop/report/wording.h"
#include "platform/fs.h"
#include "platform/terminal.h"

namespace gdnctl::commands::codex_loop {

namespace {

using loop::OptionWords;
using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 5> k_of_the_call = {"--resume", "--dry-run", "--log-dir",
                                                           "--accept-config-change", "--accept-device-change"};
constexpr std::array<std::string_view, 5> k_budgets = {"--iterations", "--max-wall", "--max-tokens",
                                                       "--max-tpu-minutes", "--plateau"};
// Of an evolve run: what its attempts and verdicts depend on. Everything else may change.
constexpr std::array<std::string_view, 16> k_evolve_fixed = {"--mode",
                                                             "--agent",
                                                             "--agent-command",
                                                             "--model",
                                                             "--reasoning-effort",
                                                             "--edit-protocol",
                                                             "--lineages",
                                                             "--stagnation",
                                                             "--operator-mix",
                                                             "--seed",
                                                             "--from",
                                                             "--perf-min-improvement-pct",
                                                             "--perf-pairs",
                                                             "--target-gain-pct",
                                                             "--max-shape-regression-pct",
                                                             "--validation-ray-cluster"};
constexpr std::string_view k_hint =
    "leave it out: --resume uses the run's own options, and only --iterations, --max-* and --plateau may change; "
    "without --resume a new run starts";
constexpr std::string_view k_evolve_hint =
    "leave it out: --resume uses the run's own options; or accept the change with --accept-config-change";

bool is_among(Names names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

std::string shown(const cli::OptionDef& option, const std::vector<std::string>& words) {
    if (option.kind == cli::OptionDef::Kind::flag) return !words.empty() && words.back() == "true" ? "on" : "off";
    if (words.empty()) return option.default_text.empty() ? "none" : option.default_text;
    return redact(text::shell_join(words));
}

bool same_value(const std::string& one, const std::string& other) {
    if (one == other) return true;
    const auto a = text::parse_double(one), b = text::parse_double(other);
    return a && b && *a == *b;
}

// Whether the words mean the same as the run's; without words, the run has the default.
bool same_words(const cli::OptionDef& option, const std::vector<std::string>& now, std::vector<std::string> then) {
    if (then.empty()) then = option.initial;
    if (option.kind == cli::OptionDef::Kind::list) return now == then;
    if (then.empty()) return now.back() == option.default_text;
    return same_value(now.back(), then.back());
}

const std::vector<std::string>& words_for(const OptionWords& words, const std::string& option) {
    static const std::vector<std::string> none;
    const auto at = words.find(option);
    return at == words.end() ? none : at->second;
}

// Compares the call with the run, option by option.
class Continuation {
public:
    Continuation(const Options& now, loop::SavedOptions& kept) : m_now(now), m_kept(kept) {
        for (const cli::GivenOption& one : now.given) {
            (one.typed ? m_typed : m_configured)[one.option].push_back(one.value);
            if (!one.typed) m_origins[one.option] = one.origin;
        }
    }

    void take(const cli::OptionDef& option) {
        const std::string& name = option.canonical();
        const auto& typed = words_for(m_typed, name);
        const auto& configured = words_for(m_configured, name);
        const auto& before = words_for(m_kept.configured, name);
        if (!typed.empty()) {
            consider(option, typed, fmt::format("{} {}", name, shown(option, typed)));
        } else if (!configured.empty() &&
                   (configured != before || (masked(name) && before == words_for(m_kept.given, name)))) {
            consider(option, configured, fmt::format("{}: {} {}", m_origins[name], name, shown(option, configured)));
        } else if (masked(name)) {
            m_missing.push_back(name);
        }
    }

    Status end() {
        if (!m_missing.empty()) {
            return fail(ErrorKind::usage,
                        fmt::format("--resume: run {} has a secret in {}, which its journal does not keep", m_kept.run,
                                    text::join(m_missing, ", ")),
                        "pass it again with --resume");
        }
        if (!m_differences.empty()) {
            return fail(ErrorKind::usage,
                        fmt::format("--resume: not what run {} was started with: {}", m_kept.run,
                                    text::join(m_differences, "; ")),
                        std::string(m_now.evolves ? k_evolve_hint : k_hint));
        }
        m_kept.configured = std::move(m_configured);
        m_kept.masked.clear();
        return {};
    }

private:
    bool masked(const std::string& name) const { return m_kept.masked.contains(name); }

    void consider(const cli::OptionDef& option, const std::vector<std::string>& now, std::string said) {
        const std::string& name = option.canonical();
        const auto& then = words_for(m_kept.given, name);
        // The seed of a run never changes: earlier draws depend on it.
        const bool accepted = m_now.evolve.accept_config_change && name != "--seed";
        const bool is_free = m_now.evolves ? !is_among(k_evolve_fixed, name) : is_among(k_budgets, name);
        if (is_free || masked(name) || accepted) {
            m_kept.given[name] = now;
        } else if (!same_words(option, now, then)) {
            const auto& meant = then.empty() && option.default_text.empty() ? option.initial : then;
            m_differences.push_back(fmt::format("{} (the run has {})", said, shown(option, meant)));
        }
    }

    const Options& m_now;
    loop::SavedOptions& m_kept;
    OptionWords m_typed, m_configured;
    std::map<std::string, std::string> m_origins;
    std::vector<std::string> m_differences, m_missing;
};

Status assign_all(const cli::Args& args, const loop::SavedOptions& kept) {
    OptionWords left = kept.given;
    for (const cli::OptionDef& option : args.options()) {
        for (const std::string& word : words_for(kept.given, option.canonical())) {
            if (const Status done = option.assign(word); !done) {
                return fail(ErrorKind::config, fmt::format("--resume: {} {} of run {}: {}", option.canonical(),
                                                           redact(word), kept.run, done.error().message));
            }
        }
        left.erase(option.canonical());
    }
    if (left.empty()) return {};
    return fail(
        ErrorKind::config,
        fmt::format("--resume: run {} has an option that this gdnctl does not know: {}", kept.run, left.begin()->first),
        "use the gdnctl that started it");
}

// Stores the given options for the journal, except those that belong to a single call (--resume, --dry-run, --log-dir).
void keep_words(const std::vector<cli::GivenOption>& given, loop::SavedOptions& words) {
    OptionWords typed;
    for (const cli::GivenOption& one : given) {
        if (!is_among(k_of_the_call, one.option))
            (one.typed ? typed : words.configured)[one.option].push_back(one.value);
    }
    words.given = words.configured;
    for (auto& [option, values] : typed) words.given[option] = std::move(values);
}

// The options of the run described by `kept`, continued by a call with the options `now`. Updates `kept` for the next
// call. Errors: usage, naming every option that differs, except those that may change and, of an evolve run, what
// --accept-config-change accepts.
Result<Options> resumed_options(const Options& now, loop::SavedOptions& kept) {
    Options options;
    cli::Args args;
    describe(args, options);
    Continuation continuation(now, kept);
    for (const cli::OptionDef& option : args.options()) {
        if (!is_among(k_of_the_call, option.canonical())) continuation.take(option);
    }
    GDNCTL_TRY(continuation.end());
    GDNCTL_TRY(assign_all(args, kept));
    for (const auto& check : args.checks()) GDNCTL_TRY(check());
    options.loop.resume = true;
    options.loop.log_dir = now.loop.log_dir;
    options.dry_run = now.dry_run;
    options.evolve.accept_config_change = now.evolve.accept_config_change;
    options.evolve.accept_device_change = now.evolve.accept_device_change;
    return options;
}

using loop::evolve::EvolveOptions;

constexpr std::array<cli::Choice<bool>, 2> k_modes = {
    {{"climb", false, "one line of commits on your branch"},
     {"evolve", true, "a population of candidates on refs; your branch does not move"}}};
constexpr std::array<cli::Choice<bool>, 2> k_protocols = {
    {{"tools", false, "the agent edits files in a worktree"},
     {"v1", true, "the agent prints EDIT v1 blocks and needs no tools"}}};

void describe_budgets(cli::Args& args, Options& options) {
    EvolveOptions& o = options.evolve;
    constexpr const char* k_group = "Evolve";
    args.option(o.max_attempts, "--max-attempts N", "stop after N attempts, those before --resume included",
                {.group = k_group});
    args.option(o.no_improve, "--max-no-improve N", "stop after N attempts without a kept gain", {.group = k_group});
    args.option(o.device_s, "--max-device-seconds S", "start no attempt after S seconds on the device",
                {.group = k_group});
    args.option(o.max_usd, "--max-usd X", "start no attempt after spending X US dollars, at the prices in gdnctl.toml",
                {.group = k_group});
    args.option(options.reserve_final, "--reserve-final P%",
                "share of wall and device time kept for the final verification",
                {.group = k_group, .default_text = "10%"});
}

std::optional<std::uint64_t> parse_seed(std::string_view text) {
    std::uint64_t seed = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seed);
    return problem == std::errc{} && end == text.data() + text.size() && !text.empty() ? std::optional(seed)
                                                                                       : std::nullopt;
}

std::optional<double> parse_percent(std::string_view text) {
    if (text.ends_with('%')) text.remove_suffix(1);
    return text::parse_double(text);
}

tl::unexpected<Error> usage(std::string message, std::string hint = {}) {
    return fail(ErrorKind::usage, std::move(message), std::move(hint));
}

// Rejects options that work only without --mode evolve.
Status check_climb_options(const Options& options) {
    const loop::LoopOptions& o = options.loop;
    if (options.iterations) return usage("--iterations cannot be used with --mode evolve", "use --max-attempts N");
    if (o.plateau) return usage("--plateau cannot be used with --mode evolve", "use --max-no-improve N");
    if (o.max_tpu_minutes) {
        return usage("--max-tpu-minutes cannot be used with --mode evolve",
                     fmt::format("use --max-device-seconds {}", *o.max_tpu_minutes * 60));
    }
    if (o.isolation != loop::IsolationChoice::automatic) {
        return usage("--isolation cannot be used with --mode evolve",
                     "omit it: candidates are created in worktrees, and your checkout never changes");
    }
    if (o.dirty_policy != loop::DirtyPolicy::fail) {
        return usage("--dirty-policy cannot be used with --mode evolve",
                     "omit it: uncommitted work is allowed, because the run never touches your checkout");
    }
    return {};
}

Status check_evolve_options(const Options& options) {
    const EvolveOptions& o = options.evolve;
    const EvolveOptions none;
    const bool given = o.max_attempts || o.no_improve || o.max_usd || o.device_s || options.seed ||
                       options.reserve_final || o.edits || o.accept_config_change || o.accept_device_change ||
                       o.max_shape_regression_pct != none.max_shape_regression_pct || !o.from.empty() ||
                       !o.operator_mix.empty() || o.lineages != none.lineages || o.stagnation != none.stagnation ||
                       o.target_gain_pct != none.target_gain_pct || options.infra_max_wait;
    if (!given) return {};
    return usage("this option needs --mode evolve", "see the group Evolve of `gdnctl codex-loop --help`");
}

Json json_of(const loop::evolve::EvolveReport& report) {
    const loop::evolve::State& state = report.state;
    Json verdicts = Json::object();
    for (const auto& [word, count] : state.verdicts()) verdicts[word] = count;
    Json json = {{"schema", "gdnctl.codex-loop/1"},
                 {"mode", "evolve"},
                 {"reason", report.reason},
                 {"rc", report.rc},
                 {"run", report.run},
                 {"log_dir", report.log_dir.string()},
                 {"attempts", state.attempts.empty() ? 0 : state.attempts.size() - 1},
                 {"verdicts", verdicts},
                 {"best", nullptr},
                 {"failed_verification", nullptr}};
    if (!state.begun()) return json;
    const Json status = loop::evolve::status_json({report.log_dir, state, false});
    for (const char* key : {"best", "failed_verification"}) json[key] = status[key];
    return json;
}

// The last line on standard error, whatever happened.
void say_stopped(const loop::evolve::EvolveReport& report) {
    log::write_end(report.rc == 0, fmt::format("codex-loop stopped: reason={} attempt={} rc={}", report.reason,
                                               report.attempt, report.rc));
}

}  // namespace

void describe_evolve(cli::Args& args, Options& options) {
    EvolveOptions& o = options.evolve;
    constexpr const char* k_group = "Evolve";
    args.option(options.evolves, k_modes, "--mode MODE", "how to search", {.group = "Start, resume and end a run"});
    describe_budgets(args, options);
    args.option(o.lineages, "--lineages K", "lineages of candidates", {.group = k_group});
    args.option(o.stagnation, "--stagnation S", "restart a lineage after S attempts without a kept gain",
                {.group = k_group});
    args.option(
        o.operator_mix, "--operator-mix MIX", "shares of the operators, such as explore=.6,exploit=.4",
        {.group = k_group, .default_text = "explore .35, exploit .3, repair .15, cross .1, simplify .05, ablate .05"});
    args.option(options.seed, "--seed N", "seed of all random draws",
                {.group = k_group, .default_text = "random, and recorded"});
    args.option(o.from, "--from REF|RUN", "commit to start from, or a run (`last`: the newest): its best candidate",
                {.group = k_group, .default_text = "HEAD", .complete = cli::Complete::evolve_run});
    args.option(o.edits, k_protocols, "--edit-protocol KIND", "how the agent changes files", {.group = k_group});
    args.option(o.target_gain_pct, "--target-gain-pct P", "do not start if noise would hide a gain of P percent",
                {.group = k_group});
    args.option(options.infra_max_wait, "--infra-max-wait TIME",
                "end the run after waiting this long for failing infrastructure",
                {.group = k_group, .default_text = "6h"});
    args.option(o.max_shape_regression_pct, "--max-shape-regression-pct P",
                "reject a candidate that is more than P percent slower on any of several shapes", {.group = k_group});
    args.flag(o.accept_device_change, "--accept-device-change",
              "resume a run on another device, after a new noise measurement there", {.group = k_group});
    args.flag(o.accept_config_change, "--accept-config-change",
              "resume a run with options other than those it was started with", {.group = k_group});
}

Status check_mode(const Options& options) {
    if (!options.evolves) {
        GDNCTL_TRY(check_evolve_options(options));
        if (!options.iterations && !options.loop.resume) {
            return usage("--iterations is required", "or search a population: --mode evolve --max-attempts N");
        }
        return {};
    }
    GDNCTL_TRY(check_climb_options(options));
    if (options.seed && !parse_seed(*options.seed)) {
        return usage(fmt::format("--seed {}: expected a whole number from 0 to 18446744073709551615", *options.seed));
    }
    if (options.reserve_final && !parse_percent(*options.reserve_final)) {
        return usage(fmt::format("--reserve-final {}: expected a percentage from 0 to 100", *options.reserve_final));
    }
    if (options.infra_max_wait && !parse_span(*options.infra_max_wait)) {
        return usage(
            fmt::format("--infra-max-wait {}: expected seconds, or a time such as 90m or 6h", *options.infra_max_wait));
    }
    return {};
}

Result<ExitCode> run_evolve_mode(const Options& options, const loop::CodexLoopRequest& common, Context& context) {
    loop::evolve::EvolveRequest request;
    request.evolve = options.evolve;
    if (options.seed) request.evolve.seed = parse_seed(*options.seed);
    if (options.reserve_final) request.evolve.reserve_pct = parse_percent(*options.reserve_final).value_or(10);
    if (options.infra_max_wait) request.evolve.infra_max_wait_s = parse_span(*options.infra_max_wait).value_or(0);
    request.loop = common.options;
    request.gates = common.gates;
    request.target = common.target;
    request.config = common.config;
    request.words = loop::to_text(common.words);
    request.dry_run = options.dry_run;
    GDNCTL_TRY_ASSIGN(const auto report, loop::evolve::run_evolve(request, context));
    if (context.global.json) {
        print_json(json_of(report), context);
    } else if (report.state.begun()) {
        context.terminal.out(loop::evolve::status_text({report.log_dir, report.state, false}));
    }
    GDNCTL_TRY(context.terminal.flush());
    say_stopped(report);
    return static_cast<ExitCode>(report.rc);
}

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

Result<loop::CodexLoopRequest> request_of(const Options& options, loop::SavedOptions words, Context& context) {
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
    log::write_end(rc == 0, fmt::format("codex-loop stopped: reason={} iteration={} rc={}", reason, iteration, rc));
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

Result<loop::CodexLoopReport> run_as(const Options& options, loop::SavedOptions words, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto request, request_of(options, std::move(words), context));
    return loop::run_codex_loop(request, context);
}

tl::unexpected<Error> another(const loop::SavedOptions& kept, std::string_view option, const std::string& now,
                              const std::string& then) {
    return fail(ErrorKind::usage, fmt::format("--resume: not what run {} was started with: {} {} (the run has {})",
                                              kept.run, option, now, then.empty() ? "none" : then));
}

// Takes what the global options of this call name, if it is what the run has or the change is accepted.
Status take_global(const Options& now, loop::SavedOptions& kept, const Context& context) {
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
std::invoke_result_t<Go, const Options&, loop::SavedOptions, Context&> resume(const Options& now,
                                                                              loop::SavedOptions kept, Context& context,
                                                                              Go go) {
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

loop::SavedOptions words_of(const Options& options) {
    loop::SavedOptions words;
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

Result<ExitCode> evolve_as(const Options& options, loop::SavedOptions words, Context& context) {
    GDNCTL_TRY_ASSIGN(const auto request, request_of(options, std::move(words), context));
    return run_evolve_mode(options, request, context);
}

Result<ExitCode> evolve_it(const Options& options, Context& context) {
    if (options.loop.resume && !options.dry_run) {
        const auto folder = loop::evolve::resumed_folder(options.loop.log_dir, project_root(context));
        GDNCTL_TRY_ASSIGN(const auto kept, folder.empty() ? std::optional<loop::SavedOptions>()
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

Rows loop_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&codex_loop::describe, &codex_loop::run>("codex-loop", "Loop",
                                                           "run unattended iterations of a coding agent", Tier::http)
            .also("loop run")
            .with_options_in_config()
            .with_last_word(&codex_loop::never_ran)};
    return k_rows;
}

}  // namespace gdnctl::commands
