// gdnctl policy show, test and simulate.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/loop/codex_loop.h"
#include "commands/table.h"
#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "core/tone.h"
#include "loop/gates/validation_options.h"
#include "loop/perf/gates.h"
#include "loop/perf/policy_trial.h"
#include "loop/perf/state.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands {

namespace {

// The policy that codex-loop would use here: built-in values, overridden by the target's `gates`, the file and the
// options.
Result<loop::PerfPolicy> policy_in_force(const loop::PerfOptions& options, const Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    return loop::policy_of(options, target, context.cwd);
}

}  // namespace

}  // namespace gdnctl::commands

// gdnctl policy show
namespace gdnctl::commands::policy_show {

struct Options {
    loop::PerfOptions perf;
};

void describe(cli::Args& args, Options& options) {
    args.about(
        "Prints the performance policy that codex-loop would use here, as JSON: thresholds and gates. The output is a "
        "policy file: change it and pass it with --perf-policy-file.");
    describe_perf_policy(args, options.perf);
    args.example("gdnctl policy show >policy.json", "start your own policy");
    args.example("gdnctl policy show --perf-max-while-increase-ms 2", "with another threshold");
    args.exit_code(2, "usage error, or a policy file that cannot be parsed");
    args.see_also({"policy test", "policy simulate"});
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const loop::PerfPolicy policy, policy_in_force(options.perf, context));
    if (context.global.json) {
        print_json(loop::policy_json(policy), context);
    } else {
        context.terminal.out(to_text(loop::policy_json(policy), 2) + "\n");  // a file to edit
    }
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::policy_show

// gdnctl policy test
namespace gdnctl::commands::policy_test {

struct Options {
    loop::PerfOptions perf;
    std::vector<std::string> files;
    std::string metric;
    bool higher = false, lower = false;
};

namespace {

struct Judged {
    std::string file;
    loop::Replayed replayed;
};

Json case_json(const Judged& one) {
    const auto& [input, decision, differs] = one.replayed;
    const auto word = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
    const auto number = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
    Json out;
    out["file"] = one.file;
    out["place"] = input.place;
    out["iteration"] = input.record.iteration;
    out["commit"] = word(input.record.commit);
    out["recorded"] = word(input.decided);
    const bool judged = input.skipped.empty();
    out["decision"] = judged ? Json(loop::to_text(decision.verdict)) : Json(nullptr);
    out["differs"] = differs;
    out["delta_pct"] = number(decision.delta_pct);
    out["reasons"] = decision.reasons;
    out["skipped"] = word(input.skipped);
    out["gates"] = loop::gates_json(decision.gates);
    return out;
}

std::string case_text(const Judged& one, bool color) {
    const auto& [input, decision, differs] = one.replayed;
    const std::string commit = input.record.commit.empty() ? std::string("-") : input.record.commit.substr(0, 12);
    std::string out = fmt::format("{:>9}  {:<12}  ", input.record.iteration, commit);
    if (!input.skipped.empty()) return out + "not judged: " + input.skipped + "\n";
    const std::string delta = decision.delta_pct ? signed_number(*decision.delta_pct, 2) + "%" : std::string("-");
    const std::string recorded = fmt::format("{:<24}", input.decided.empty() ? "-" : input.decided);
    out += fmt::format("{:>8}  {}  {}\n", delta, toned(recorded, color),
                       differs ? "-> " + toned(loop::to_text(decision.verdict), color) : std::string("same"));
    if (!differs) return out;
    for (const std::string& reason : decision.reasons) out += "             - " + reason + "\n";
    return out;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Applies the policy in force here, or another one, to recorded measurements, and shows which decisions would "
        "change. Each record is compared with the same champion as before. Files: perf_state.json of a loop, or files "
        "with one record per line (*.records.jsonl of the running log).");
    args.positional(options.files, "FILE", "records", {.complete = cli::Complete::file});
    args.option(options.metric, "--perf-metric NAME", "metric for records of the running log",
                {.group = "Judge by speed", .default_text = "the target's, or throughput/mfu"});
    args.flag(options.lower, "--lower-is-better", "override the target's metric", {.group = "Judge by speed"});
    args.flag(options.higher, "--higher-is-better", "override the target's metric", {.group = "Judge by speed"});
    describe_perf_policy(args, options.perf);
    args.exit_code(0, "no decision would change");
    args.exit_code(1, "at least one decision would change");
    args.exit_code(9, "a file contains no such records, or none of them could be judged");
    args.example("gdnctl policy test .agents/logs/gdn_codex_loop/perf_state.json --perf-max-regression-pct 2",
                 "show what a wider band would have kept");
    args.example("gdnctl policy test perf_state.json --perf-policy-file policy.json --json | jq .differences");
    args.see_also({"policy show", "policy simulate"});
    args.check([&options]() -> Status {
        if (options.files.empty()) {
            return fail(ErrorKind::usage, "the argument FILE is missing",
                        "FILE: a run's perf_state.json, such as .agents/logs/gdn_codex_loop/perf_state.json");
        }
        if (options.lower && options.higher) {
            return fail(ErrorKind::usage, "--lower-is-better and --higher-is-better cannot be combined");
        }
        return {};
    });
}

Result<ExitCode> run(const Options& options, Context& context) {
    GDNCTL_TRY_ASSIGN(const Target target, target_in_use(context));
    GDNCTL_TRY_ASSIGN(const loop::PerfPolicy policy, policy_in_force(options.perf, context));
    std::string metric = options.metric;
    if (metric.empty()) metric = target.metric ? target.metric->name : std::string("throughput/mfu");
    std::vector<Judged> all;
    for (const std::string& file : options.files) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_file(context.cwd / file));
        GDNCTL_TRY_ASSIGN(const auto cases, loop::replay_cases(text, file, metric));
        for (const loop::ReplayCase& one : cases) {
            const std::string& own = one.record.measured.metric;
            const bool lower = target.metric && target.metric->name == own && target.metric->lower_is_better;
            const bool higher = options.higher || (!options.lower && !lower);
            all.push_back({file, loop::replay(one, policy, options.perf.regression_policy, higher)});
        }
    }
    const auto differing =
        std::count_if(all.begin(), all.end(), [](const Judged& one) { return one.replayed.differs; });
    const auto skipped =
        std::count_if(all.begin(), all.end(), [](const Judged& one) { return !one.replayed.input.skipped.empty(); });
    if (context.global.json) {
        Json out;
        out["schema"] = "gdnctl.policy-test/1";
        out["policy"] = policy.name;
        out["records"] = all.size();
        out["not_judged"] = skipped;
        out["differences"] = differing;
        out["cases"] = Json::array();
        for (const Judged& one : all) out["cases"].push_back(case_json(one));
        print_json(out, context);
    } else {
        std::string out =
            fmt::format("{:>9}  {:<12}  {:>8}  {:<24}  {}\n", "ITERATION", "COMMIT", "DELTA", "RECORDED", "NOW");
        for (const Judged& one : all) out += case_text(one, context.terminal.color_out());
        out += fmt::format("{} records, {} not judged, {} decided differently by policy {}\n", all.size(), skipped,
                           differing, policy.name);
        print_lines(out, context);
    }
    if (static_cast<std::size_t>(skipped) == all.size()) {
        return fail(ErrorKind::bad_input, fmt::format("none of {} records could be judged", all.size()),
                    "pass a file with measurements, or their metric with --perf-metric");
    }
    return differing == 0 ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::policy_test

// gdnctl policy simulate
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
                           s.kept > 0 ? signed_number(100 * s.claimed_gain, 2) + "%" : std::string("-"));
    }
    return out;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows how often pairs of profiles lead to the right decision, by passing simulated measurements through the "
        "rule that codex-loop uses. A promotion with a true gain of 0 is a false one. NOISE is the standard deviation "
        "of one pair's difference, as the loop prints it for your device.");
    args.option(options.noise, "--noise-pct PCT", "spread of one pair", {.default_text = "0.1, 0.3, 1, 3, 10"});
    args.option(options.gain, "--gain-pct PCT", "true gain; negative for a loss",
                {.default_text = "0, 0.5, 1, 2, 3, 5"});
    args.option(options.shape, k_shapes, "--shape SHAPE", "kind of noise");
    args.option(options.pairs, "--perf-pairs N", "maximum number of pairs: 3, 5 or 9");
    args.option(options.trials, "--trials N", "candidates per row");
    args.option(options.seed, "--seed N", "seed; the same one gives the same table");
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
        print_lines(table_text(cells), context);
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
    print_json(out, context);
    return ExitCode::ok;
}

}  // namespace gdnctl::commands::policy_simulate

namespace gdnctl::commands {

Rows policy_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&policy_show::describe, &policy_show::run>("policy show", "Loop",
                                                             "print the policy that judges candidates", Tier::none),
        cli::make<&policy_test::describe, &policy_test::run>(
            "policy test", "Loop", "apply another policy to recorded measurements", Tier::none),
        cli::make<&policy_simulate::describe, &policy_simulate::run>(
            "policy simulate", "Loop", "show how often the policy decides correctly at your noise", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
