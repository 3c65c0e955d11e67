#include "commands/oracle/flashinfer.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/flashinfer/evaluate.h"
#include "harness/flashinfer/traces.h"
#include "oracle/gdn/report/report.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::oracle_flashinfer {

using namespace harness::flashinfer;

namespace {

using oracle::flashinfer::GdnDefinition;
using oracle::flashinfer::Solution;
using oracle::flashinfer::Trace;

constexpr std::string_view k_group = "FlashInfer-Bench";
constexpr const char* k_default_kernel = "builtin:fused";

// A definition and who is evaluated on which of its workloads.
struct Plan {
    const GdnDefinition* definition = nullptr;
    std::vector<Trace> workloads;
    std::vector<Solution> solutions;  // empty: the kernel of the options
};

class Runner {
public:
    Runner(const Options& options, int threads, Context& context, Dataset dataset)
        : m_options(options), m_context(context), m_dataset(std::move(dataset)) {
        m_evaluate.trials = {options.warmup_runs, options.iterations, options.num_trials};
        m_evaluate.limits = limits_of(options.limits);
        m_evaluate.threads = threads;
    }

    // Reads and checks everything that can be checked before the first run.
    Status read() {
        for (const GdnDefinition& definition : oracle::flashinfer::gdn_definitions()) {
            const std::string& name = definition.definition.name;
            if (m_options.definition && *m_options.definition != name) continue;
            GDNCTL_TRY(m_dataset.check_definition(definition));
            Plan plan{&definition, {}, {}};
            GDNCTL_TRY_ASSIGN(plan.workloads, m_dataset.workloads(name));
            if (plan.workloads.empty()) continue;
            for (const Trace& trace : plan.workloads) {
                GDNCTL_TRY(workload_size(definition, trace.workload));
                GDNCTL_TRY(m_dataset.check_files(trace.workload));
            }
            if (!m_options.kernel) GDNCTL_TRY(choose_solutions(plan));
            m_plans.push_back(std::move(plan));
        }
        if (m_plans.empty()) {
            return fail(ErrorKind::nothing_done,
                        fmt::format("{} has no workload of {}", m_dataset.root().string(),
                                    m_options.definition.value_or("a Gated DeltaNet definition")),
                        "workloads are lines of ROOT/workloads/**/*.jsonl");
        }
        return m_options.solution ? check_solution_found() : Status{};
    }

    Status run() {
        for (const Plan& plan : m_plans) {
            if (plan.solutions.empty() && !m_options.solution) {
                const std::string kernel = m_options.kernel.value_or(k_default_kernel);
                GDNCTL_TRY_ASSIGN(const auto contender, Contender::from_kernel(kernel, m_evaluate.limits, m_context));
                GDNCTL_TRY(run_one(plan, contender));
            }
            for (const Solution& solution : plan.solutions) {
                GDNCTL_TRY_ASSIGN(const auto contender,
                                  Contender::from_solution(solution, *plan.definition, m_evaluate.limits, m_context));
                GDNCTL_TRY(run_one(plan, contender));
            }
        }
        return {};
    }

    std::string summary() const;
    Json json() const;
    ExitCode exit_code(bool allow_suspect) const;

private:
    Status choose_solutions(Plan& plan) {
        const std::string& name = plan.definition->definition.name;
        GDNCTL_TRY_ASSIGN(auto all, m_dataset.solutions(name));
        for (Solution& solution : all) {
            m_known.push_back(solution.name);
            if (m_options.solution && *m_options.solution != solution.name) continue;
            const Status runnable = check_runnable(solution);
            if (!runnable && m_options.solution) return runnable;
            if (runnable) {
                plan.solutions.push_back(std::move(solution));
            } else {
                log::info("{}: left out", runnable.error().message);
            }
        }
        if (plan.solutions.empty() && !m_options.solution) {
            log::info("no solution of {} can run here: evaluating {}", name, k_default_kernel);
        }
        return {};
    }

    Status check_solution_found() const {
        const bool found =
            std::any_of(m_plans.begin(), m_plans.end(), [](const Plan& plan) { return !plan.solutions.empty(); });
        if (found) return {};
        const auto near = text::nearest(*m_options.solution, m_known);
        return fail(ErrorKind::usage,
                    fmt::format("{} has no solution '{}' of {}", m_dataset.root().string(), *m_options.solution,
                                m_options.definition.value_or("GDN")),
                    near ? fmt::format("did you mean '{}'?", *near) : "");
    }

    std::filesystem::path traces_of(const Contender& contender, const GdnDefinition& definition) const {
        if (m_options.traces) return m_context.cwd / *m_options.traces;
        // An author's name is a folder's, whatever is in it.
        std::string author = contender.author();
        std::replace(author.begin(), author.end(), '/', '_');
        if (author == "." || author == "..") author = "_";
        return m_dataset.root() / "traces" / author / definition.definition.op_type /
               (definition.definition.name + ".jsonl");
    }

    Status run_one(const Plan& plan, const Contender& contender) {
        const std::filesystem::path path = traces_of(contender, *plan.definition);
        std::set<std::pair<std::string, std::string>> recorded;
        if (m_options.resume) {
            GDNCTL_TRY_ASSIGN(recorded, recorded_traces(path));
        }
        if (!m_context.global.json) {
            m_context.terminal.out(fmt::format("{}, {}\n", plan.definition->definition.name, contender.name()));
        }
        for (const Trace& workload : plan.workloads) {
            if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
            if (recorded.contains({contender.name(), workload.workload.uuid})) {
                ++m_recorded;
                continue;
            }
            GDNCTL_TRY_ASSIGN(Item item,
                              evaluate(contender, *plan.definition, workload, m_dataset, m_evaluate, m_context));
            GDNCTL_TRY(append_trace(path, trace_line(item.trace)));
            if (!m_context.global.json) {
                m_context.terminal.out(text_of(item));
                GDNCTL_TRY(m_context.terminal.flush());
            }
            if (std::find(m_files.begin(), m_files.end(), path.string()) == m_files.end()) {
                m_files.push_back(path.string());
            }
            m_items.push_back(std::move(item));
        }
        return {};
    }

    static std::string text_of(const Item& item);
    static Json json_of(const Item& item);
    const Item* gravest() const;  // nullptr: nothing was evaluated
    std::size_t passed() const {
        return static_cast<std::size_t>(
            std::count_if(m_items.begin(), m_items.end(), [](const Item& i) { return i.passed(); }));
    }
    // Over those that passed; 0 when one did not, as contests count.
    double score() const;

    const Options& m_options;
    Context& m_context;
    Dataset m_dataset;
    EvaluateOptions m_evaluate;
    std::vector<Plan> m_plans;
    std::vector<std::string> m_known;  // solutions, for suggestions
    std::vector<Item> m_items;
    std::vector<std::string> m_files;
    std::size_t m_recorded = 0;
};

std::string Runner::text_of(const Item& item) {
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

Json Runner::json_of(const Item& item) {
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

double Runner::score() const {
    double sum = 0;
    for (const Item& item : m_items) {
        if (!item.passed()) return 0;
        sum += item.trace.evaluation->performance->speedup_factor;
    }
    return m_items.empty() ? 0 : sum / static_cast<double>(m_items.size());
}

// A fault before a wrong result, and that before one that cannot be judged.
const Item* Runner::gravest() const {
    const auto rank = [](const Item& item) {
        if (item.fault) return 100 + static_cast<int>(item.fault->kind);
        if (item.verdict == oracle::Verdict::wrong) return 5;
        if (item.verdict == oracle::Verdict::unstable_input) return 3;
        if (!item.passed()) return 4;
        if (item.verdict == oracle::Verdict::no_data) return 2;
        return item.verdict == oracle::Verdict::suspect ? 1 : 0;
    };
    const auto found = std::max_element(m_items.begin(), m_items.end(),
                                        [&](const Item& a, const Item& b) { return rank(a) < rank(b); });
    return found == m_items.end() ? nullptr : &*found;
}

ExitCode Runner::exit_code(bool allow_suspect) const {
    const Item* item = gravest();
    if (item == nullptr) return ExitCode::ok;  // all of them were recorded before
    if (item->fault) return harness::exit_code_of(item->fault->kind);
    if (!item->passed() && item->verdict != oracle::Verdict::unstable_input) return ExitCode::check_failed;
    return oracle_report::exit_code_of(item->verdict, allow_suspect);
}

std::string Runner::summary() const {
    std::string text;
    for (const std::string& file : m_files) text += fmt::format("traces appended to {}\n", file);
    if (m_recorded > 0) text += fmt::format("left out, recorded before: {}\n", m_recorded);
    std::set<std::string> contracts;
    for (const Item& item : m_items) {
        if (item.contract.name.empty()) continue;
        std::string contract = oracle_report::contract_text(item.contract);
        if (contracts.insert(contract).second) text += contract;
    }
    std::set<std::string> barriers;
    for (const Item& item : m_items) {
        if (item.network.empty() || !barriers.insert(item.network).second) continue;
        text += fmt::format("network blocked by: {}\n", item.network);
    }
    text += fmt::format("passed: {} of {}, score {:.3g} (mean of reference / solution; 0 when one fails)\n", passed(),
                        m_items.size(), score());
    const Item* item = gravest();
    if (item != nullptr) text += fmt::format("verdict: {}\n", item->verdict_name);
    return text;
}

Json Runner::json() const {
    const Item* item = gravest();
    Json object = {{"schema", "gdnctl.oracle-flashinfer/1"},
                   {"root", m_dataset.root().string()},
                   {"verdict", item == nullptr ? Json(nullptr) : Json(item->verdict_name)},
                   {"workloads", m_items.size()},
                   {"passed", passed()},
                   {"recorded_before", m_recorded},
                   {"score", score()},
                   {"trace_files", m_files}};
    object["items"] = Json::array();
    for (const Item& each : m_items) object["items"].push_back(json_of(each));
    return object;
}

// Where flashinfer-bench itself looks.
std::string usual_root(const Env& env) {
    if (const auto named = env.get("FIB_DATASET_PATH"); named && !named->empty()) return *named;
    return env.get("HOME").value_or("") + "/.cache/flashinfer_bench/dataset";
}

}  // namespace

bool wanted(const Options& options) { return options.root || options.definition; }

void describe(cli::Args& args, Options& o) {
    args.option(o.root, {.names = "--flashinfer",
                         .value = "ROOT",
                         .help = "evaluate solutions on the workloads of this FlashInfer-Bench dataset",
                         .group = k_group,
                         .default_text = "with --definition $FIB_DATASET_PATH, or ~/.cache/flashinfer_bench/dataset",
                         .complete = cli::Complete::directory});
    static const std::string k_definition_help = "one definition (default: all that have workloads): " +
                                                 text::join(oracle::flashinfer::gdn_definition_names(), ", ");
    args.option(o.definition, {.names = "--definition", .value = "NAME", .help = k_definition_help, .group = k_group});
    args.option(o.solution, {.names = "--solution",
                             .value = "NAME",
                             .help = "run only this solution of the dataset",
                             .group = k_group,
                             .default_text = "all that are in C, else builtin:fused"});
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
    args.option(o.warmup_runs,
                {.names = "--warmup-runs", .value = "N", .help = "untimed runs before each trial", .group = k_group});
    args.option(o.iterations,
                {.names = "--iterations", .value = "N", .help = "timed runs of a trial", .group = k_group});
    args.option(o.num_trials,
                {.names = "--num-trials", .value = "N", .help = "trials; their mean is the latency", .group = k_group});
    describe_limits(args, o.limits);
    args.check([&o]() -> Status {
        const bool others = o.solution || o.kernel || o.traces || o.resume;
        if (!wanted(o) && others) {
            return fail(ErrorKind::usage,
                        "--solution, --kernel, --traces and --resume need --flashinfer or --definition");
        }
        if (o.solution && o.kernel) return fail(ErrorKind::usage, "--solution and --kernel cannot be combined");
        if (o.warmup_runs < 0 || o.iterations < 1 || o.num_trials < 1) {
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

Result<ExitCode> run(const Options& options, int threads, bool allow_suspect, Context& context) {
    GDNCTL_TRY_ASSIGN(Dataset dataset, Dataset::open(context, options.root.value_or(usual_root(context.env))));
    Runner runner(options, threads, context, std::move(dataset));
    GDNCTL_TRY(runner.read());
    GDNCTL_TRY(runner.run());
    context.terminal.out(context.global.json ? to_text(runner.json(), 2) + "\n" : runner.summary());
    return runner.exit_code(allow_suspect);
}

}  // namespace gdnctl::commands::oracle_flashinfer
