// All workloads of a FlashInfer-Bench dataset, one trace line for each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/exit_code.h"
#include "harness/flashinfer/evaluate.h"

namespace gdnctl::harness::flashinfer {

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
