// gdnctl policy test
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands/loop/loop_gate_options.h"
#include "commands/loop/policy_common.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/target.h"
#include "core/json.h"
#include "loop/perf/policy_replay.h"
#include "loop/perf/record.h"
#include "platform/context.h"
#include "platform/fs.h"
#include "platform/terminal.h"

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

std::string case_text(const Judged& one) {
    const auto& [input, decision, differs] = one.replayed;
    const std::string commit = input.record.commit.empty() ? std::string("-") : input.record.commit.substr(0, 12);
    std::string out = fmt::format("{:>9}  {:<12}  ", input.record.iteration, commit);
    if (!input.skipped.empty()) return out + "not judged: " + input.skipped + "\n";
    const std::string delta = decision.delta_pct ? fmt::format("{:+.2f}%", *decision.delta_pct) : std::string("-");
    out += fmt::format("{:>8}  {:<24}  {}\n", delta, input.decided.empty() ? std::string("-") : input.decided,
                       differs ? "-> " + std::string(loop::to_text(decision.verdict)) : std::string("same"));
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
    args.positional(options.files, {.name = "FILE", .help = "records", .complete = cli::Complete::file});
    args.option(options.metric, {.names = "--perf-metric",
                                 .value = "NAME",
                                 .help = "metric for records of the running log",
                                 .group = "Performance",
                                 .default_text = "the target's, or throughput/mfu"});
    args.flag(options.lower,
              {.names = "--lower-is-better", .help = "override the target's metric", .group = "Performance"});
    args.flag(options.higher,
              {.names = "--higher-is-better", .help = "override the target's metric", .group = "Performance"});
    describe_perf_policy(args, options.perf);
    args.exit_code(0, "no decision would change");
    args.exit_code(1, "at least one decision would change");
    args.exit_code(9, "a file contains no such records, or none of them could be judged");
    args.example("gdnctl policy test .agents/logs/gdn_codex_loop/perf_state.json --perf-max-regression-pct 2",
                 "show what a wider band would have kept");
    args.example("gdnctl policy test perf_state.json --perf-policy-file policy.json --json | jq .differences");
    args.see_also("policy show");
    args.see_also("policy simulate");
    args.check([&options]() -> Status {
        if (options.files.empty()) return fail(ErrorKind::usage, "no FILE given", "such as perf_state.json");
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
        print_json(out, context, -1);
    } else {
        std::string out =
            fmt::format("{:>9}  {:<12}  {:>8}  {:<24}  {}\n", "ITERATION", "COMMIT", "DELTA", "RECORDED", "NOW");
        for (const Judged& one : all) out += case_text(one);
        out += fmt::format("{} records, {} not judged, {} decided differently by policy {}\n", all.size(), skipped,
                           differing, policy.name);
        context.terminal.out(out);
    }
    if (static_cast<std::size_t>(skipped) == all.size()) {
        return fail(ErrorKind::bad_input, fmt::format("none of {} records could be judged", all.size()),
                    "pass a file with measurements, or their metric with --perf-metric");
    }
    return differing == 0 ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::policy_test

namespace gdnctl::commands {

constinit const cli::Command k_policy_test_row = cli::make<&policy_test::describe, &policy_test::run>(
    "policy test", "Loop", "apply another policy to recorded measurements", Tier::none);

}  // namespace gdnctl::commands
