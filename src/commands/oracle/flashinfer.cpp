#include <set>

#include <fmt/format.h>

#include "commands/common.h"
#include "commands/oracle/verbs.h"
#include "core/json.h"
#include "core/text.h"
#include "oracle/gdn/report/report.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_flashinfer {

using namespace harness::flashinfer;

namespace {

constexpr std::string_view k_group = "FlashInfer-Bench";

std::string text_of(const Item& item) {
    const auto& e = *item.trace.evaluation;
    std::string line = fmt::format("{:<38} {:<19} ", item.trace.workload.uuid, name_of(e.status));
    if (e.performance) {
        line += fmt::format("{:<14} {:.4g} ms, {:.3g}x", item.verdict_name, e.performance->latency_ms,
                            e.performance->speedup_factor);
    } else {
        line += item.verdict_name;
    }
    line += "\n";
    if (item.fault) {
        line += fmt::format("       {}\n", item.fault->text) + harness::quoted_output(*item.fault);
    } else if (item.verdict != oracle::Verdict::ok) {
        line += fmt::format("       {}\n", item.reason);
    }
    for (const std::string& hole : item.holes) line += fmt::format("       note: {}\n", hole);
    return line;
}

Json json_of(const Item& item) {
    const auto& e = *item.trace.evaluation;
    Json object = {
        {"definition", item.trace.definition},
        {"workload", item.trace.workload.uuid},
        {"solution", *item.trace.solution},
        {"status", name_of(e.status)},
        {"verdict", item.verdict_name},
        {"error_over_budget", oracle_report::number(item.error_over_budget)},
        {"reason", item.reason},
        {"holes", item.holes},
        {"max_absolute_error", nullptr},
        {"max_relative_error", nullptr},
        {"latency_ms", nullptr},
        {"reference_latency_ms", nullptr},
        {"speedup", nullptr},
        {"fault", harness::fault_json(item.fault)},
        {"contract", item.contract.name.empty() ? Json(nullptr) : oracle_report::contract_json(item.contract)},
        {"network_barrier", item.network.empty() ? Json(nullptr) : Json(item.network)}};
    if (e.correctness) {
        object["max_absolute_error"] = oracle_report::number(e.correctness->max_absolute_error);
        object["max_relative_error"] = oracle_report::number(e.correctness->max_relative_error);
    }
    if (e.performance) {
        object["latency_ms"] = e.performance->latency_ms;
        object["reference_latency_ms"] = e.performance->reference_latency_ms;
        object["speedup"] = e.performance->speedup_factor;
    }
    return object;
}

std::string summary(const Evaluated& done) {
    std::string text;
    for (const std::string& file : done.files) text += fmt::format("traces appended to {}\n", file);
    if (done.recorded > 0) text += fmt::format("skipped, already recorded: {}\n", done.recorded);
    std::set<std::string> contracts;
    for (const Item& item : done.items) {
        if (item.contract.name.empty()) continue;
        std::string contract = oracle_report::contract_text(item.contract);
        if (contracts.insert(contract).second) text += contract;
    }
    std::set<std::string> barriers;
    for (const Item& item : done.items) {
        if (item.network.empty() || !barriers.insert(item.network).second) continue;
        text += fmt::format("network blocked by: {}\n", item.network);
    }
    text += fmt::format("passed: {} of {}, score {:.3g} (mean of reference / solution; 0 when one fails)\n",
                        done.passed(), done.items.size(), done.score());
    const Item* item = done.gravest();
    if (item != nullptr) text += fmt::format("verdict: {}\n", item->verdict_name);
    return text;
}

Json json_of(const Evaluated& done) {
    const Item* item = done.gravest();
    Json object = {{"schema", "gdnctl.oracle-flashinfer/1"},
                   {"root", done.root},
                   {"verdict", item == nullptr ? Json(nullptr) : Json(item->verdict_name)},
                   {"workloads", done.items.size()},
                   {"passed", done.passed()},
                   {"recorded_before", done.recorded},
                   {"score", done.score()},
                   {"trace_files", done.files}};
    object["items"] = Json::array();
    for (const Item& each : done.items) object["items"].push_back(json_of(each));
    return object;
}

}  // namespace

bool wanted(const Options& options) { return options.root || options.definition; }

void describe(cli::Args& args, Options& o) {
    args.option(o.root, {.names = "--flashinfer",
                         .value = "ROOT",
                         .help = "evaluate solutions on the workloads of this FlashInfer-Bench dataset",
                         .group = k_group,
                         .default_text = "with --definition: $FIB_DATASET_PATH, or ~/.cache/flashinfer_bench/dataset",
                         .complete = cli::Complete::directory});
    static const std::string k_definition_help = "evaluate only this definition (default: all that have workloads): " +
                                                 text::join(oracle::flashinfer::gdn_definition_names(), ", ");
    args.option(o.definition, {.names = "--definition", .value = "NAME", .help = k_definition_help, .group = k_group});
    args.option(o.solution, {.names = "--solution",
                             .value = "NAME",
                             .help = "run only this solution of the dataset",
                             .group = k_group,
                             .default_text = "all solutions in C; builtin:fused if there are none"});
    args.option(o.kernel, {.names = "--kernel",
                           .value = "KERNEL",
                           .help = "evaluate this kernel instead: lib:PATH, src:FILE.c, builtin:fused, builtin:chunk",
                           .group = k_group,
                           .complete = cli::Complete::timed_kernel});
    args.option(o.traces, {.names = "--traces",
                           .value = "FILE",
                           .help = "append the traces to this file",
                           .group = k_group,
                           .default_text = "ROOT/traces/AUTHOR/gdn/DEFINITION.jsonl",
                           .complete = cli::Complete::file});
    args.flag(
        o.resume,
        {.names = "--resume", .help = "skip workloads that already have a trace of this solution", .group = k_group});
    args.option(o.evaluate.trials.warmup,
                {.names = "--warmup-runs", .value = "N", .help = "untimed runs before each trial", .group = k_group});
    args.option(o.evaluate.trials.iterations,
                {.names = "--iterations", .value = "N", .help = "timed runs per trial", .group = k_group});
    args.option(o.evaluate.trials.trials, {.names = "--num-trials",
                                           .value = "N",
                                           .help = "number of trials; the latency is their mean",
                                           .group = k_group});
    describe_limits(args, o.limits);
    args.check([&o]() -> Status {
        const bool others = o.solution || o.kernel || o.traces || o.resume;
        if (!wanted(o) && others) {
            return fail(ErrorKind::usage,
                        "--solution, --kernel, --traces and --resume need --flashinfer or --definition");
        }
        if (o.solution && o.kernel) return fail(ErrorKind::usage, "--solution and --kernel cannot be combined");
        if (o.evaluate.trials.warmup < 0 || o.evaluate.trials.iterations < 1 || o.evaluate.trials.trials < 1) {
            return fail(ErrorKind::usage,
                        "--iterations and --num-trials must be at least 1, and --warmup-runs at least 0");
        }
        if (o.definition && oracle::flashinfer::find_gdn_definition(*o.definition) == nullptr) {
            const auto near = text::nearest(*o.definition, oracle::flashinfer::gdn_definition_names());
            return fail(
                ErrorKind::usage, fmt::format("unknown definition '{}'", *o.definition),
                near ? fmt::format("did you mean '{}'?", *near) : "gdnctl oracle compare --help lists all nine");
        }
        return {};
    });
}

Result<ExitCode> run(const Options& o, int threads, bool allow_suspect, Context& context) {
    DatasetRequest request = static_cast<const DatasetRequest&>(o);
    request.evaluate.limits = limits_of(o.limits);
    request.evaluate.threads = threads;
    const bool lines = !context.global.json;
    const DatasetWatch watch{[&](const std::string& definition, const Contender& contender) {
                                 if (lines) print_lines(fmt::format("{}, {}\n", definition, contender.name()), context);
                             },
                             [&](const Item& item) -> Status {
                                 if (!lines) return {};
                                 print_lines(text_of(item), context);
                                 return context.terminal.flush();
                             }};
    GDNCTL_TRY_ASSIGN(const Evaluated done, evaluate_dataset(request, watch, context));
    if (lines) {
        print_lines(summary(done), context);
    } else {
        print_json(json_of(done), context);
    }
    return done.exit_code(allow_suspect);
}

}  // namespace gdnctl::commands::oracle_flashinfer
