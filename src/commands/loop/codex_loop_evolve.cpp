#include "commands/loop/codex_loop_evolve.h"

#include <array>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/print.h"
#include "core/json.h"
#include "core/log.h"
#include "core/log_timed.h"
#include "core/text.h"
#include "loop/evolve/run.h"
#include "loop/evolve/views.h"
#include "platform/terminal.h"

namespace gdnctl::commands::codex_loop {

namespace {

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
    args.option(o.max_attempts, {.names = "--max-attempts",
                                 .value = "N",
                                 .help = "stop after N attempts, those before --resume included",
                                 .group = k_group});
    args.option(o.no_improve, {.names = "--max-no-improve",
                               .value = "N",
                               .help = "stop after N attempts without a kept gain",
                               .group = k_group});
    args.option(o.device_s, {.names = "--max-device-seconds",
                             .value = "S",
                             .help = "start no attempt after S seconds on the device",
                             .group = k_group});
    args.option(o.max_usd, {.names = "--max-usd",
                            .value = "X",
                            .help = "start no attempt after spending X US dollars, at the prices in gdnctl.toml",
                            .group = k_group});
    args.option(options.reserve_final, {.names = "--reserve-final",
                                        .value = "P%",
                                        .help = "share of wall and device time kept for the final verification",
                                        .group = k_group,
                                        .default_text = "10%"});
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
    log::write_as_it_is(log::Level::warning, fmt::format("codex-loop stopped: reason={} attempt={} rc={}",
                                                         report.reason, report.attempt, report.rc));
}

}  // namespace

void describe_evolve(cli::Args& args, Options& options) {
    EvolveOptions& o = options.evolve;
    constexpr const char* k_group = "Evolve";
    args.option(options.evolves, k_modes,
                {.names = "--mode", .value = "MODE", .help = "how to search", .group = "Run"});
    describe_budgets(args, options);
    args.option(o.lineages, {.names = "--lineages", .value = "K", .help = "lineages of candidates", .group = k_group});
    args.option(o.stagnation, {.names = "--stagnation",
                               .value = "S",
                               .help = "restart a lineage after S attempts without a kept gain",
                               .group = k_group});
    args.option(o.operator_mix,
                {.names = "--operator-mix",
                 .value = "MIX",
                 .help = "shares of the operators, such as explore=.6,exploit=.4",
                 .group = k_group,
                 .default_text = "explore .35, exploit .3, repair .15, cross .1, simplify .05, ablate .05"});
    args.option(options.seed, {.names = "--seed",
                               .value = "N",
                               .help = "seed of all random draws",
                               .group = k_group,
                               .default_text = "random, and recorded"});
    args.option(o.from, {.names = "--from",
                         .value = "REF|RUN",
                         .help = "commit to start from, or a run: its best candidate",
                         .group = k_group,
                         .default_text = "HEAD"});
    args.option(o.edits, k_protocols,
                {.names = "--edit-protocol", .value = "KIND", .help = "how the agent changes files", .group = k_group});
    args.option(o.target_gain_pct, {.names = "--target-gain-pct",
                                    .value = "P",
                                    .help = "do not start if noise would hide a gain of P percent",
                                    .group = k_group});
    args.option(options.infra_max_wait, {.names = "--infra-max-wait",
                                         .value = "TIME",
                                         .help = "end the run after waiting this long for failing infrastructure",
                                         .group = k_group,
                                         .default_text = "6h"});
    args.option(o.max_shape_regression_pct,
                {.names = "--max-shape-regression-pct",
                 .value = "P",
                 .help = "reject a candidate that is more than P percent slower on any of several shapes",
                 .group = k_group});
    args.flag(o.accept_device_change, {.names = "--accept-device-change",
                                       .help = "resume a run on another device, after a new noise measurement there",
                                       .group = k_group});
    args.flag(o.accept_config_change, {.names = "--accept-config-change",
                                       .help = "resume a run with options other than those it was started with",
                                       .group = k_group});
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

}  // namespace gdnctl::commands::codex_loop
