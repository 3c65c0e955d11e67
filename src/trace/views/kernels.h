// Kernels (custom calls), and how far the compiler's claims about operations can be trusted.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trace/views/view.h"

namespace gdnctl::trace {

struct KernelStage {
    std::string name;
    Ps time = 0;
    std::int64_t calls = 0;
};

struct KernelRow {
    std::string name, program, text;
    std::vector<double> durations;  // ps, of each call
    std::vector<double> gaps;       // ps before each call that has an operation before it
    Ps total = 0, step_total = 0;
    std::int64_t step_calls = 0;
    std::optional<std::int64_t> io_bytes;
    std::optional<double> floor_ps;  // time to move io_bytes
    std::optional<double> claimed_flops, claimed_bytes, true_flops;
    std::vector<KernelStage> stages, scopes;  // empty: none were recorded
    const Schedule* schedule = nullptr;
    std::vector<std::string> flags;
    std::string bound, why, flag;  // `flag`: what to trace with to learn more

    double median() const { return quantile(durations, 0.5); }
    std::optional<double> times_floor() const;
    std::optional<double> wait_share() const;
};

// Whether the operation claims more than 105 % of what the device can do.
bool claims_too_much(const Model& model, std::size_t op);
// "claim_not_credible", "no_cost_estimate", "claim_below_shapes", "class_from_name", "upper_bound_bytes".
std::vector<std::string> claim_flags(const Model& model, std::size_t op);

// The custom calls, by total time; with Asked::name all operations that it matches. The schedules belong to `model`.
std::vector<KernelRow> kernel_rows(const Model& model, const Asked& asked);
Json kernel_json(const KernelRow& row, const Model& model);
Block kernel_block(const std::vector<KernelRow>& rows, const Model& model);

}  // namespace gdnctl::trace
