// gdnctl policy simulate
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/loop/loop_gate_options.h"
#include "commands/loop/policy_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "core/json.h"
#include "core/text.h"
#include "loop/perf/simulation.h"
#include "platform/context.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::policy_simulate {

struct Options {
    loop::PerfOptions perf;
    std::vector<std::string> noise, gain;
    std::int64_t pairs = 9, trials = 20'000, seed = 1;
    loop::NoiseShape shape = loop::NoiseShape::normal;
};

namespace {

constexpr std::array<cli::Choice<loop::NoiseShape>, 3> k_shapes = {
    {{"normal", loop::NoiseShape::normal},
     {"heavy", loop::NoiseShape::heavy, "one pair in twenty is five times as noisy"},
     {"drift", loop::NoiseShape::drift, "the device keeps slowing down"}}};

Result<std::vector<double>> numbers(const std::vector<std::string>& given, std::vector<double> usual,
                                    const char* option, double least) {
    if (given.empty()) return usual;
    std::vector<double> out;
    for (const std::string& word : given) {
        const auto value = text::parse_double(word);
        if (!value || *value < least || *value > 100.0) {
            return fail(ErrorKind::usage,
                        fmt::format("{}: expected a percentage from {} to 100: {}", option, least, word));
        }
        out.push_back(*value);
    }
    return out;
}

struct Cell {
    double noise_pct, gain_pct;
    loop::Simulated simulated;
};

std::string table_text(const std::vector<Cell>& cells) {
    std::string out = fmt::format("{:>9}  {:>9}  {:>8}  {:>8}  {:>8}  {:>6}  {:>10}\n", "NOISE", "TRUE GAIN",
                                  "PROMOTED", "REFUSED", "HELD", "PAIRS", "CLAIMED");
    for (const Cell& cell : cells) {
        const loop::Simulated& s = cell.simulated;
        out += fmt::format("{:>8}%  {:>8}%  {:>7.2f}%  {:>7.2f}%  {:>7.2f}%  {:>6.1f}  {:>10}\n", cell.noise_pct,
                           cell.gain_pct, 100 * s.kept, 100 * s.refused, 100 * s.tied, s.pairs,
                           s.kept > 0 ? fmt::format("{:+.2f}%", 100 * s.claimed_gain) : std::string("-"));
    }
    return out;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows how often pairs of profiles lead to the right decision, by passing simulated measurements through the "
        "rule that codex-loop uses. A promotion with a true gain of 0 is a false one. NOISE is the standard deviation "
        "of one pair's difference, as the loop prints it for your device.");
    args.option(
        options.noise,
        {.names = "--noise-pct", .value = "PCT", .help = "spread of one pair", .default_text = "0.1, 0.3, 1, 3, 10"});
    args.option(options.gain, {.names = "--gain-pct",
                               .value = "PCT",
                               .help = "true gain; negative for a loss",
                               .default_text = "0, 0.5, 1, 2, 3, 5"});
    args.option(options.shape, k_shapes, {.names = "--shape", .value = "SHAPE", .help = "kind of noise"});
    args.option(options.pairs, {.names = "--perf-pairs", .value = "N", .help = "maximum number of pairs: 3, 5 or 9"});
    args.option(options.trials, {.names = "--trials", .value = "N", .help = "candidates per row"});
    args.option(options.seed, {.names = "--seed", .value = "N", .help = "seed; the same one gives the same table"});
    describe_perf_policy(args, options.perf);
    args.example("gdnctl policy simulate --noise-pct 0.8 --gain-pct 1", "can a gain of 1 % be found on this device?");
    args.example("gdnctl policy simulate --perf-pairs 3", "with three pairs at most");
    args.see_also("policy show");
    args.check([&options]() -> Status {
        if (options.pairs != 3 && options.pairs != 5 && options.pairs != 9) {
            return fail(ErrorKind::usage, "--perf-pairs must be 3, 5 or 9.");
        }
        if (options.trials < 1 || options.trials > 10'000'000) {
            return fail(ErrorKind::usage, fmt::format("--trials {}: expected 1 to 10000000", options.trials));
        }
        if (options.seed < 0) return fail(ErrorKind::usage, fmt::format("--seed {}: expected 0 or more", options.seed));
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const loop::PerfPolicy policy, policy_in_force(options.perf, context));
    GDNCTL_TRY_ASSIGN(const auto noises, numbers(options.noise, {0.1, 0.3, 1, 3, 10}, "--noise-pct", 0.0));
    GDNCTL_TRY_ASSIGN(const auto gains, numbers(options.gain, {0, 0.5, 1, 2, 3, 5}, "--gain-pct", -50.0));
    const loop::PairRule rule{policy.min_improvement_pct / 100.0, -policy.max_regression_pct / 100.0,
                              policy.noise_share, static_cast<int>(options.pairs)};
    std::vector<Cell> cells;
    for (const double noise : noises) {
        for (const double gain : gains) {
            if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
            cells.push_back(
                {noise, gain,
                 loop::simulate_pairs(rule, options.shape, noise / 100.0, gain / 100.0,
                                      static_cast<int>(options.trials), static_cast<std::uint64_t>(options.seed))});
        }
    }
    if (!context.global.json) {
        context.terminal.out(table_text(cells));
        return ExitCode::ok;
    }
    Json out;
    out["schema"] = "gdnctl.policy-simulate/1";
    out["policy"] = policy.name;
    out["shape"] = loop::to_text(options.shape);
    out["pairs"] = options.pairs;
    out["trials"] = options.trials;
    out["seed"] = options.seed;
    out["rows"] = Json::array();
    for (const Cell& cell : cells) {
        const loop::Simulated& s = cell.simulated;
        out["rows"].push_back({{"noise_pct", cell.noise_pct},
                               {"gain_pct", cell.gain_pct},
                               {"promoted", s.kept},
                               {"refused", s.refused},
                               {"held", s.tied},
                               {"pairs", s.pairs},
                               {"claimed_gain_pct", s.kept > 0 ? Json(100 * s.claimed_gain) : Json(nullptr)}});
    }
    print_json(out, context, -1);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::policy_simulate

namespace gdnctl::commands {

constinit const cli::Command k_policy_simulate_row = cli::make<&policy_simulate::describe, &policy_simulate::run>(
    "policy simulate", "Loop", "show how often the policy decides correctly at your noise", Tier::none);

}  // namespace gdnctl::commands
