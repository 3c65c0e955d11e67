#include "harness/flashinfer/run.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "harness/flashinfer/traces.h"
#include "oracle/judge/report.h"
#include "platform/env.h"
#include "platform/signals.h"

namespace gdnctl::harness::flashinfer {

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
