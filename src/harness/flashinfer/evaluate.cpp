#include "harness/flashinfer/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "core/time.h"
#include "core/version.h"
#include "harness/files.h"
#include "harness/flashinfer/dataset.h"
#include "harness/flashinfer/solution.h"
#include "harness/gdn/kernel.h"
#include "harness/timing.h"
#include "oracle/gdn/bench/bench.h"
#include "oracle/gdn/report/report.h"
#include "oracle/gdn/under_test/call.h"
#include "oracle/judge/report.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/signals.h"

namespace gdnctl::harness::flashinfer {

namespace {

using oracle::FreshWorkload;
using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelPass;
using oracle::flashinfer::Evaluation;
using oracle::flashinfer::GdnDefinition;
using oracle::flashinfer::RuleResult;
using oracle::flashinfer::Stage;
using oracle::flashinfer::Trace;
using oracle::flashinfer::TraceStatus;

constexpr std::string_view k_own_entry = "gdn_kernel";
constexpr std::string_view k_reference_kernel = "builtin:recurrent32";
constexpr const char* k_timed_reference = "builtin:fused";

TraceStatus status_of(KernelFaultKind kind) {
    switch (kind) {
        case KernelFaultKind::build_failed:
        case KernelFaultKind::no_entry_point: return TraceStatus::compile_error;
        case KernelFaultKind::timed_out: return TraceStatus::timeout;
        case KernelFaultKind::wrong_shape: return TraceStatus::incorrect_shape;
        case KernelFaultKind::incomplete:
        case KernelFaultKind::non_finite:
        case KernelFaultKind::unsteady: return TraceStatus::incorrect_numerical;
        default: return TraceStatus::runtime_error;
    }
}

std::string cpu_name() {
    constexpr std::string_view k_key = "model name";
    const auto info = read_file_if_exists("/proc/cpuinfo");
    if (info && *info) {
        for (const std::string_view line : text::split(**info, '\n')) {
            const std::size_t colon = line.find(':');
            if (line.starts_with(k_key) && colon != std::string_view::npos) {
                return std::string(text::trim(line.substr(colon + 1)));
            }
        }
    }
    return "cpu";
}

Json network_json(const Item& item) { return item.network.empty() ? Json(nullptr) : Json(item.network); }

// One evaluation, step by step; a step after a fault does nothing.
class Evaluator {
public:
    Evaluator(const Contender& contender, const GdnDefinition& definition, const EvaluateOptions& options,
              const Context& context)
        : m_contender(contender), m_definition(definition), m_options(options), m_context(context) {}

    Result<Item> run(const Trace& workload, const Dataset& dataset) {
        m_item.trace = workload;
        m_item.fault = m_contender.build_fault();
        if (!m_item.fault) {
            GDNCTL_TRY(prepare(dataset));
            GDNCTL_TRY(judge());
            if (m_rule.status == TraceStatus::passed && !m_item.fault) GDNCTL_TRY(time());
        }
        finish();
        return std::move(m_item);
    }

private:
    Status prepare(const Dataset& dataset) {
        const auto& workload = m_item.trace.workload;
        GDNCTL_TRY_ASSIGN(const auto size, workload_size(m_definition, workload));
        GDNCTL_TRY(oracle_files::check_memory(size.dims, static_cast<std::size_t>(size.sequences)));
        GDNCTL_TRY_ASSIGN(m_loaded, dataset.tensors(workload));
        GDNCTL_TRY_ASSIGN(m_inputs, make_workload_inputs(m_definition, workload, m_loaded));
        if (m_contender.solution() != nullptr) m_contender.solution()->use_pool(m_inputs.state_row, size.states);
        for (const std::string& warning : m_inputs.warnings) log::warning("{}", warning);
        GDNCTL_TRY_ASSIGN(auto contract, oracle::resolve_contract("flashinfer", {}, {}));
        // Solutions run on this machine, in fp32.
        GDNCTL_TRY(oracle::set_field(contract, "matmul", "f32", "this machine"));
        auto problem = oracle::read_problem(m_inputs.file, contract);
        if (!problem) return tl::unexpected(std::move(problem).error().within("workload " + workload.uuid));
        m_item.contract = m_contract = contract;
        m_reference = oracle::make_reference(std::move(*problem), std::move(contract), m_options.threads);
        return {};
    }

    Status judge() {
        Kernel& kernel = m_contender.kernel();
        GDNCTL_TRY_ASSIGN(const auto own, oracle::find_builtin_kernel(k_reference_kernel));
        GDNCTL_TRY_ASSIGN(auto wanted,
                          run_pass(*own, KernelPass::forward, m_inputs.file, m_reference.contract, m_options.threads));
        GDNCTL_TRY_ASSIGN(const auto got, run_pass(kernel, KernelPass::forward, m_inputs.file, m_reference.contract,
                                                   m_options.threads));
        m_item.fault = got.fault;
        if (got.fault) return {};
        if (m_definition.stage == Stage::mtp) {
            // What that definition calls its final state is the pool as it was.
            std::erase_if(wanted.outputs.tensors, [](const auto& t) { return t.name == "final_state"; });
            if (m_contender.solution() != nullptr) {
                wanted.outputs.tensors.push_back({"pool", m_contender.solution()->pool(m_inputs.file)});
            }
        }
        m_rule = oracle::flashinfer::apply_rule(got.outputs, wanted.outputs);
        m_judged = true;
        GDNCTL_TRY_ASSIGN(const auto verdict,
                          oracle::judge_kernel(kernel, m_inputs.file, m_reference, m_options.threads, k_seed));
        m_item.fault = verdict.fault;
        m_item.network = kernel.network();
        m_item.verdict = verdict.report.verdict;
        m_item.reason = verdict.report.reason;
        for (const auto& t : verdict.report.tensors) {
            m_item.error_over_budget = std::max(m_item.error_over_budget, t.error_over_budget);
        }
        return {};
    }

    Status time() {
        std::unique_ptr<harness::TimedPass> forward;
        std::unique_ptr<OwnKernel> own;
        harness::Subject subject;
        const std::string& spelling = m_contender.spelling();
        // A kernel's own output, before it is converted to the contract's layout.
        m_reference.problem.packed = false;
        m_reference.contract.value.state_layout = oracle::StateLayout::key_value;
        if (m_contender.solution() != nullptr || harness::is_library(spelling)) {
            GDNCTL_TRY_ASSIGN(
                m_fresh, FreshWorkload::make(m_definition, m_item.trace.workload, std::move(m_loaded), m_contract));
            const oracle::TensorFile as_called = m_fresh->file();  // the workload's own values until it is drawn
            const harness::Task task{as_called, m_reference, m_options.threads, {}, &*m_fresh, rule()};
            if (m_contender.solution() != nullptr) {
                forward = m_contender.solution()->timed(task, *m_fresh);
            } else {
                GDNCTL_TRY_ASSIGN(std::shared_ptr<harness::Kernel> foreign,
                                  harness::open_foreign(spelling, harness::k_gdn_mode, m_options.limits, m_context));
                GDNCTL_TRY_ASSIGN(auto passes, harness::timed_passes(foreign, task));
                forward = std::move(passes.front());
            }
            subject = forward->subject(m_contender.name(), 0);
        } else {
            GDNCTL_TRY_ASSIGN(own, OwnKernel::make(spelling, m_reference, m_options.threads));
            subject = own->subject();
        }
        GDNCTL_TRY_ASSIGN(const auto reference_kernel,
                          OwnKernel::make(k_timed_reference, m_reference, m_options.threads));
        harness::Subject reference = reference_kernel->subject();
        const auto failed = [&] { return forward && forward->fault().has_value(); };
        GDNCTL_TRY_ASSIGN(m_latencies, measure(subject, reference, m_options.trials, make_chill(), failed,
                                               m_context.clock, m_context.stop));
        if (forward && !failed()) GDNCTL_TRY(forward->check_memory_of_results(m_context.clock, make_chill()));
        if (forward && !failed()) forward->check_floor(m_latencies.solution_ms * 1e-3, least_seconds());
        if (failed()) m_item.fault = forward->fault();
        return {};
    }

    // Of the work on the tokens that there are, and of the states that are read and written once each.
    double least_seconds() const {
        const oracle::GdnProblem& p = m_reference.problem;
        std::int64_t tokens = 0;
        double states = 0;
        for (const oracle::GdnSequence& s : p.sequences) {
            tokens += s.end - s.begin;
            if (s.end > s.begin) ++states;
        }
        const bool initial = !p.initial_state.empty();
        const double flop = oracle::least_flop(p.dims, tokens, oracle::Pass::forward, initial);
        const double in_place =
            m_definition.stage == Stage::mtp || !initial ? 0 : 2;  // mtp may leave the pool as it is
        const double bytes = in_place * states * sizeof(float) * static_cast<double>(p.dims.Hv * p.dims.dk * p.dims.dv);
        return std::max(flop / harness::most_flop_a_second(m_options.threads, m_context.clock),
                        harness::least_seconds_of_bytes(bytes, m_options.threads, m_context.clock));
    }

    std::function<Result<std::string>(const oracle::TensorFile&)> rule() const {
        return [this](const oracle::TensorFile& outputs) { return complaint(outputs); };
    }

    // For a solution that passes by FlashInfer-Bench's rule and not by ours: by the same rule, on the inputs of a timed
    // run. Where the workload's values pass, others of their kind may not, but few: that is let pass.
    Result<std::string> complaint(const oracle::TensorFile& outputs) const {
        constexpr std::size_t k_one_in = 100;
        GDNCTL_TRY_ASSIGN(const auto own, oracle::find_builtin_kernel(k_reference_kernel));
        GDNCTL_TRY_ASSIGN(auto wanted, run_pass(*own, KernelPass::forward, m_fresh->as_workload(), m_fresh->contract(),
                                                m_options.threads));
        if (m_definition.stage == Stage::mtp) {
            std::erase_if(wanted.outputs.tensors, [](const auto& t) { return t.name == "final_state"; });
        }
        std::size_t values = 0;
        for (const auto& entry : wanted.outputs.tensors) values += entry.tensor.count();
        const auto got = call_outputs(m_fresh->problem(), m_fresh->contract().value, *outputs.find("out"),
                                      *outputs.find("final_state"));
        const RuleResult rule = oracle::flashinfer::apply_rule(got, wanted.outputs);
        if (rule.status == TraceStatus::passed || (rule.outside > 0 && k_one_in * rule.outside <= values)) {
            return std::string();
        }
        return fmt::format("{}, {} of {} values beyond both tolerances", name_of(rule.status), rule.outside, values);
    }

    void finish() {
        const bool right = !m_item.fault && m_item.verdict == oracle::Verdict::ok;
        m_item.verdict_name = m_item.fault ? oracle::name_of(m_item.fault->kind) : oracle::name_of(m_item.verdict);
        if (m_judged) {
            m_item.holes = rule_holes(m_rule, m_definition.stage, right, m_item.error_over_budget);
        }
        Evaluation e;
        e.status = m_rule.status;
        // What failed after the one call that the rule looks at has failed all the same.
        if (m_item.fault && (!m_judged || e.status == TraceStatus::passed)) e.status = status_of(m_item.fault->kind);
        e.hardware = cpu_name();
        e.libs = {{"gdnctl", std::string(gdnctl::version())},
                  {"reference", k_timed_reference},
                  {"threads", fmt::format("{}", m_options.threads)}};
        e.timestamp = format_iso8601(m_context.clock.wall());
        e.log = log_text();
        if (e.status == TraceStatus::passed || e.status == TraceStatus::incorrect_numerical) e.correctness = figures();
        if (e.status == TraceStatus::passed) {
            e.performance = oracle::flashinfer::Performance{m_latencies.solution_ms, m_latencies.reference_ms,
                                                            m_latencies.reference_ms / m_latencies.solution_ms};
        }
        m_item.trace.solution = m_contender.name();
        m_item.trace.evaluation = std::move(e);
    }

    oracle::flashinfer::Correctness figures() const {
        oracle::flashinfer::Correctness c{m_rule.max_relative_error, m_rule.max_absolute_error, {}};
        if (m_rule.status == TraceStatus::passed && m_item.fault) {
            // The figures of the call that was right say nothing of the one that was not.
            c.max_relative_error = c.max_absolute_error = std::numeric_limits<double>::quiet_NaN();
        }
        Json extra = {{"verdict", m_item.verdict_name},
                      {"error_over_budget", oracle_report::number(m_item.error_over_budget)},
                      {"outside", m_rule.outside},
                      {"non_finite_reference", m_rule.non_finite_reference},
                      {"own_random_inputs", !m_inputs.random.empty()},
                      {"holes", m_item.holes},
                      {"contract", oracle_report::contract_json(m_item.contract)},
                      {"network_barrier", network_json(m_item)}};
        c.extra = to_text(Json{{"gdnctl", std::move(extra)}});
        return c;
    }

    std::string log_text() const {
        std::string log = fmt::format("gdnctl: {}", m_item.verdict_name);
        if (m_item.fault) {
            log += ": " + m_item.fault->text;
            if (!m_item.fault->output.empty()) log += "\n" + m_item.fault->output;
        } else if (!m_item.reason.empty()) {
            log += ": " + m_item.reason;
        }
        for (const std::string& hole : m_item.holes) log += "\n" + hole;
        return log;
    }

    static constexpr std::uint64_t k_seed = 1;

    const Contender& m_contender;
    const GdnDefinition& m_definition;
    const EvaluateOptions& m_options;
    const Context& m_context;
    std::map<std::string, oracle::Tensor> m_loaded;
    oracle::flashinfer::WorkloadInputs m_inputs;
    oracle::ResolvedContract m_contract;
    std::optional<FreshWorkload> m_fresh;  // inputs on which a third-party kernel is timed
    oracle::GdnReference m_reference;
    RuleResult m_rule;
    bool m_judged = false;
    Latencies m_latencies;
    Item m_item;
};

}  // namespace

Result<Contender> Contender::from_solution(const oracle::flashinfer::Solution& solution,
                                           const GdnDefinition& definition, const harness::Limits& limits,
                                           const Context& context) {
    GDNCTL_TRY(check_runnable(solution));
    Contender c;
    c.m_name = solution.name;
    c.m_author = solution.author;
    GDNCTL_TRY_ASSIGN(c.m_sources, harness::make_folder(context));
    for (const auto& source : solution.sources) {
        const auto path = c.m_sources.path() / source.path;
        std::error_code error;
        std::filesystem::create_directories(path.parent_path(), error);
        GDNCTL_TRY(atomic_replace(path, source.content));
    }
    if (solution.entry_function != k_own_entry) {
        GDNCTL_TRY_ASSIGN(c.m_fault, build_solution(solution, c.m_sources.path(), context));
        auto kernel = std::make_unique<SolutionKernel>(solution, c.m_sources.path(), definition, limits, context);
        c.m_solution = kernel.get();
        c.m_kernel = std::move(kernel);
        return c;
    }
    GDNCTL_TRY(c.open_library("src:" + (c.m_sources.path() / solution.entry_file).string(), limits, context));
    return c;
}

Result<Contender> Contender::from_kernel(const std::string& spelling, const harness::Limits& limits,
                                         const Context& context) {
    Contender c;
    c.m_name = spelling;
    if (harness::is_library(spelling)) {
        GDNCTL_TRY(c.open_library(spelling, limits, context));
        return c;
    }
    if (spelling != "builtin:fused" && spelling != "builtin:chunk") {
        return fail(ErrorKind::usage, fmt::format("kernel '{}' cannot be timed, but a trace needs a time", spelling),
                    "use one of lib:PATH, src:FILE.c, builtin:fused, builtin:chunk");
    }
    c.m_spelling = spelling;
    GDNCTL_TRY_ASSIGN(c.m_kernel, oracle::find_builtin_kernel(spelling));
    return c;
}

Status Contender::open_library(const std::string& source, const harness::Limits& limits, const Context& context) {
    GDNCTL_TRY_ASSIGN(m_library, harness::Library::open(source, context));
    m_fault = m_library->build_fault();
    if (m_fault) return {};
    m_spelling = "lib:" + m_library->path().string();
    GDNCTL_TRY_ASSIGN(m_kernel, harness::open_kernel(m_spelling, limits, context));
    return {};
}

Result<Item> evaluate(const Contender& contender, const GdnDefinition& definition, const Trace& workload,
                      const Dataset& dataset, const EvaluateOptions& options, const Context& context) {
    return Evaluator(contender, definition, options, context).run(workload, dataset);
}

namespace {

using oracle::flashinfer::GdnDefinition;
using oracle::flashinfer::Solution;
using oracle::flashinfer::Trace;

constexpr const char* k_default_kernel = "builtin:fused";

// A definition, and what is evaluated on which of its workloads.
struct Plan {
    const GdnDefinition* definition = nullptr;
    std::vector<Trace> workloads;
    std::vector<Solution> solutions;  // empty: the kernel of the options
};

class Runner {
public:
    Runner(const DatasetRequest& request, const DatasetWatch& watch, const Context& context, Dataset dataset)
        : m_request(request), m_watch(watch), m_context(context), m_dataset(std::move(dataset)) {
        m_done.root = m_dataset.root().string();
    }

    // Reads and checks everything that can be checked before the first run.
    Status read() {
        for (const GdnDefinition& definition : oracle::flashinfer::gdn_definitions()) {
            const std::string& name = definition.definition.name;
            if (m_request.definition && *m_request.definition != name) continue;
            GDNCTL_TRY(m_dataset.check_definition(definition));
            Plan plan{&definition, {}, {}};
            GDNCTL_TRY_ASSIGN(plan.workloads, m_dataset.workloads(name));
            if (plan.workloads.empty()) continue;
            for (const Trace& trace : plan.workloads) {
                GDNCTL_TRY(workload_size(definition, trace.workload));
                GDNCTL_TRY(m_dataset.check_files(trace.workload));
            }
            if (!m_request.kernel) GDNCTL_TRY(choose_solutions(plan));
            m_plans.push_back(std::move(plan));
        }
        if (m_plans.empty()) {
            return fail(ErrorKind::nothing_done,
                        fmt::format("{} has no workload of {}", m_dataset.root().string(),
                                    m_request.definition.value_or("a Gated DeltaNet definition")),
                        "workloads are lines of ROOT/workloads/**/*.jsonl");
        }
        return m_request.solution ? check_solution_found() : Status{};
    }

    Result<Evaluated> run() {
        for (const Plan& plan : m_plans) {
            if (plan.solutions.empty() && !m_request.solution) {
                const std::string kernel = m_request.kernel.value_or(k_default_kernel);
                GDNCTL_TRY_ASSIGN(const auto contender,
                                  Contender::from_kernel(kernel, m_request.evaluate.limits, m_context));
                GDNCTL_TRY(run_one(plan, contender));
            }
            for (const Solution& solution : plan.solutions) {
                GDNCTL_TRY_ASSIGN(const auto contender, Contender::from_solution(solution, *plan.definition,
                                                                                 m_request.evaluate.limits, m_context));
                GDNCTL_TRY(run_one(plan, contender));
            }
        }
        return std::move(m_done);
    }

private:
    Status choose_solutions(Plan& plan) {
        const std::string& name = plan.definition->definition.name;
        GDNCTL_TRY_ASSIGN(auto all, m_dataset.solutions(name));
        for (Solution& solution : all) {
            m_known.push_back(solution.name);
            if (m_request.solution && *m_request.solution != solution.name) continue;
            const Status runnable = check_runnable(solution);
            if (!runnable && m_request.solution) return runnable;
            if (runnable) {
                plan.solutions.push_back(std::move(solution));
            } else {
                log::info("{}: skipped", runnable.error().message);
            }
        }
        if (plan.solutions.empty() && !m_request.solution) {
            log::info("no solution of {} can run here: evaluating {}", name, k_default_kernel);
        }
        return {};
    }

    Status check_solution_found() const {
        const bool found =
            std::any_of(m_plans.begin(), m_plans.end(), [](const Plan& plan) { return !plan.solutions.empty(); });
        if (found) return {};
        const auto near = text::nearest(*m_request.solution, m_known);
        return fail(ErrorKind::usage,
                    fmt::format("{} has no solution '{}' of {}", m_dataset.root().string(), *m_request.solution,
                                m_request.definition.value_or("GDN")),
                    near ? fmt::format("did you mean '{}'?", *near) : "");
    }

    std::filesystem::path traces_of(const Contender& contender, const GdnDefinition& definition) const {
        if (m_request.traces) return m_context.cwd / *m_request.traces;
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
        if (m_request.resume) {
            GDNCTL_TRY_ASSIGN(recorded, recorded_traces(path));
        }
        m_watch.begin(plan.definition->definition.name, contender);
        for (const Trace& workload : plan.workloads) {
            if (m_context.stop.stop_requested()) return tl::unexpected(stopped_error());
            if (recorded.contains({contender.name(), workload.workload.uuid})) {
                ++m_done.recorded;
                continue;
            }
            GDNCTL_TRY_ASSIGN(
                Item item, evaluate(contender, *plan.definition, workload, m_dataset, m_request.evaluate, m_context));
            GDNCTL_TRY(append_trace(path, trace_line(item.trace)));
            GDNCTL_TRY(m_watch.done(item));
            auto& files = m_done.files;
            if (std::find(files.begin(), files.end(), path.string()) == files.end()) files.push_back(path.string());
            m_done.items.push_back(std::move(item));
        }
        return {};
    }

    const DatasetRequest& m_request;
    const DatasetWatch& m_watch;
    const Context& m_context;
    Dataset m_dataset;
    std::vector<Plan> m_plans;
    std::vector<std::string> m_known;  // solutions, for suggestions
    Evaluated m_done;
};

// Where flashinfer-bench itself looks.
std::string usual_root(const Env& env) {
    if (const auto named = env.get("FIB_DATASET_PATH"); named && !named->empty()) return *named;
    return env.get("HOME").value_or("") + "/.cache/flashinfer_bench/dataset";
}

}  // namespace

std::size_t Evaluated::passed() const {
    return static_cast<std::size_t>(
        std::count_if(items.begin(), items.end(), [](const Item& item) { return item.passed(); }));
}

double Evaluated::score() const {
    double sum = 0;
    for (const Item& item : items) {
        if (!item.passed()) return 0;
        sum += item.trace.evaluation->performance->speedup_factor;
    }
    return items.empty() ? 0 : sum / static_cast<double>(items.size());
}

const Item* Evaluated::gravest() const {
    const auto rank = [](const Item& item) {
        if (item.fault) return 100 + static_cast<int>(item.fault->kind);
        if (item.verdict == oracle::Verdict::wrong) return 5;
        if (item.verdict == oracle::Verdict::unstable_input) return 3;
        if (!item.passed()) return 4;
        if (item.verdict == oracle::Verdict::no_data) return 2;
        return item.verdict == oracle::Verdict::suspect ? 1 : 0;
    };
    const auto found =
        std::max_element(items.begin(), items.end(), [&](const Item& a, const Item& b) { return rank(a) < rank(b); });
    return found == items.end() ? nullptr : &*found;
}

ExitCode Evaluated::exit_code(bool allow_suspect) const {
    const Item* item = gravest();
    if (item == nullptr) return ExitCode::ok;  // all of them were recorded before
    if (item->fault) return harness::exit_code_of(item->fault->kind);
    if (!item->passed() && item->verdict != oracle::Verdict::unstable_input) return ExitCode::check_failed;
    return oracle_report::exit_code_of(item->verdict, allow_suspect);
}

Result<Evaluated> evaluate_dataset(const DatasetRequest& request, const DatasetWatch& watch, const Context& context) {
    GDNCTL_TRY_ASSIGN(Dataset dataset, Dataset::open(context, request.root.value_or(usual_root(context.env))));
    Runner runner(request, watch, context, std::move(dataset));
    GDNCTL_TRY(runner.read());
    return runner.run();
}

}  // namespace gdnctl::harness::flashinfer
