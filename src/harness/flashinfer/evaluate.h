// One solution on one workload: FlashInfer-Bench's status, our verdict, and the time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "harness/child/library.h"
#include "harness/flashinfer/dataset.h"
#include "harness/flashinfer/latency.h"
#include "harness/flashinfer/solution.h"
#include "oracle/flashinfer/flashinfer.h"
#include "oracle/gdn/under_test/kernel_under_test.h"
#include "platform/context.h"

namespace gdnctl::harness::flashinfer {

// What is evaluated: a solution of the dataset, or a kernel named on the command line.
class Contender {
public:
    // Compiles it. What does not compile is a COMPILE_ERROR of every workload, not an error here. `context` must
    // outlive the contender.
    static Result<Contender> from_solution(const oracle::flashinfer::Solution& solution,
                                           const oracle::flashinfer::GdnDefinition& definition,
                                           const harness::Limits& limits, const Context& context);
    static Result<Contender> from_kernel(const std::string& spelling, const harness::Limits& limits,
                                         const Context& context);

    const std::string& name() const { return m_name; }      // what traces call it
    const std::string& author() const { return m_author; }  // the folder of its traces
    // What to open it with: "builtin:fused", "lib:/tmp/.../kernel.so".
    const std::string& spelling() const { return m_spelling; }
    const std::optional<oracle::KernelFault>& build_fault() const { return m_fault; }
    Kernel& kernel() const { return *m_kernel; }
    // nullptr: the kernel is one of gdn/gdn_kernel.h, or our own.
    SolutionKernel* solution() const { return m_solution; }

private:
    Status open_library(const std::string& source, const harness::Limits& limits, const Context& context);

    std::string m_name, m_author = "gdnctl", m_spelling;
    harness::Folder m_sources;
    std::optional<harness::Library> m_library;
    std::optional<oracle::KernelFault> m_fault;
    std::unique_ptr<Kernel> m_kernel;
    SolutionKernel* m_solution = nullptr;  // m_kernel, if it is one
};

struct EvaluateOptions {
    TrialOptions trials;
    harness::Limits limits;
    int threads = 1;
};

struct Item {
    oracle::flashinfer::Trace trace;  // whole, as it is written
    oracle::Verdict verdict = oracle::Verdict::no_data;
    std::string verdict_name;  // of the verdict, or of the fault
    double error_over_budget = 0;
    std::string reason;
    std::vector<std::string> holes;
    std::optional<oracle::KernelFault> fault;
    oracle::ResolvedContract contract;  // that it was judged by; nameless: it was not
    std::string network;                // what kept it from the network; empty: nothing had to

    bool passed() const { return trace.evaluation->status == oracle::flashinfer::TraceStatus::passed; }
};

// Errors: what is wrong with the workload or with this machine; what is wrong with the solution is in the item.
Result<Item> evaluate(const Contender& contender, const oracle::flashinfer::GdnDefinition& definition,
                      const oracle::flashinfer::Trace& workload, const Dataset& dataset, const EvaluateOptions& options,
                      const Context& context);

// All workloads of a FlashInfer-Bench dataset, one trace line for each.

// What is evaluated, and where traces go.
struct DatasetRequest {
    std::optional<std::string> root;        // nullopt: where flashinfer-bench itself looks
    std::optional<std::string> definition;  // nullopt: all that have workloads
    std::optional<std::string> solution;    // nullopt: all that can run here, else builtin:fused
    std::optional<std::string> kernel;      // instead of solutions
    std::optional<std::string> traces;      // nullopt: ROOT/traces/AUTHOR/OP_TYPE/DEFINITION.jsonl
    bool resume = false;                    // leaves out what has a trace
    EvaluateOptions evaluate;
};

struct DatasetWatch {
    std::function<void(const std::string& definition, const Contender& contender)> begin;
    std::function<Status(const Item& item)> done;  // once its trace is on the disk
};

struct Evaluated {
    std::string root;
    std::vector<Item> items;
    std::vector<std::string> files;  // that traces were appended to
    std::size_t recorded = 0;        // left out

    std::size_t passed() const;
    // The mean speedup; 0 when one did not pass, as contests count.
    double score() const;
    // A fault before a wrong result, and that before one that cannot be judged. nullptr: nothing was evaluated.
    const Item* gravest() const;
    ExitCode exit_code(bool allow_suspect) const;
};

// Checks everything that can be checked before the first run. Errors: usage, what is wrong with the dataset,
// nothing_done without a workload, interrupted.
Result<Evaluated> evaluate_dataset(const DatasetRequest& request, const DatasetWatch& watch, const Context& context);

}  // namespace gdnctl::harness::flashinfer
