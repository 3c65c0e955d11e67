// The verdict on dumped tensors: how far they are from the fp64 truth, measured in what honest arithmetic would be off.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gdnctl/oracle/gdn_contract.h"
#include "gdnctl/oracle/gdn_problem.h"
#include "gdnctl/oracle/tensor.h"

namespace gdnctl::oracle {

enum class Verdict { ok, suspect, wrong, unstable_input, no_data };

std::string_view name_of(Verdict verdict);  // "OK", "UNSTABLE_INPUT"

// Bands on error / budget.
inline constexpr double k_ok_band = 4;
inline constexpr double k_wrong_band = 30;

// What honest arithmetic costs on one value head of one sequence ("group"), in absolute terms.
struct GroupBudget {
    double rms = 0;      // root mean square over the group's elements
    double max_abs = 0;  // largest single element
};

// out: one group per (sequence, value head), then one for rows outside every sequence; final_state: without the last.
struct TensorBudget {
    std::vector<GroupBudget> groups;
    double relative = 0;  // rms over the whole tensor / rms of the truth, for people
};

// Everything about one problem that does not depend on the dump.
struct GdnReference {
    GdnProblem problem;
    ResolvedContract contract;
    GdnOutputs truth;
    TensorBudget out, final_state;
    double growth = 0;            // largest |state| over the size that inputs alone explain
    std::string unstable_reason;  // empty: the input can be judged
};

GdnReference make_reference(GdnProblem problem, ResolvedContract contract, int threads);

struct CompareOptions {
    // Both or neither: every element within atol + rtol |truth| instead of the budget.
    std::optional<double> rtol, atol;
};

struct UlpDistance {
    double max = 0, p50 = 0, p99 = 0;
};

struct Outside {
    std::size_t count = 0;
    double fraction = 0;
};

struct Worst {
    std::string tensor;
    std::string axes;                 // "b,t,h,v"
    std::vector<std::int64_t> index;  // in the dump's own layout
    double got = 0, want = 0;
};

struct TensorReport {
    std::string name;       // as in the dump
    std::string canonical;  // "out"
    Shape shape;
    DType stored = DType::f32;
    DType judged = DType::f32;  // dtype that the values stand for: ULP distances and output rounding
    Verdict verdict = Verdict::ok;
    double error_over_budget = 0;
    double budget_relative = 0;
    double max_abs = 0, max_rel = 0;  // max_rel: |x-y| / max(|y|, eps rms(y))
    double rms_ratio = 0;             // rms(x-y) / rms(y)
    double nmse = 0;                  // sum (x-y)^2 / sum y^2
    double cosine = 1;
    UlpDistance ulp;
    Outside numpy_rule;       // |x-y| > atol + rtol |y|
    Outside flashinfer_rule;  // |x-y| > 1e-2 and |x-y| / (|y| + 1e-8) > 1e-2
    std::size_t nonfinite_got = 0, nonfinite_want = 0;
    std::size_t beyond_range = 0;  // values of the truth that `judged` cannot hold
    Worst worst;
};

struct NotCompared {
    std::string tensor;
    std::string reason;
};

struct GdnReport {
    Verdict verdict = Verdict::no_data;
    std::string reason;  // one line: why it is not OK; empty when it is
    std::vector<TensorReport> tensors;
    std::optional<Worst> worst;  // of the tensor with the largest error / budget
    std::vector<NotCompared> not_compared;
    std::vector<std::string> unknown;  // tensors with a name that means nothing here
};

// Judges the tensors of `dump`. Errors are bad_input: a wrong shape or dtype, two tensors of one meaning.
Result<GdnReport> judge(const GdnReference& reference, const TensorFile& dump, const CompareOptions& options);

}  // namespace gdnctl::oracle
