// The verdict on dumped tensors: how far they are from the fp64 truth, measured in what honest arithmetic would be off.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/judge/verdict.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

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
    // What each element may be off by, whatever happens to others of its group. Empty: not known.
    std::vector<float> local = {};
};

// Whether honest arithmetic gives the tensor well enough for a comparison to say something.
bool can_judge(const TensorBudget& budget);

struct GdnBackward;  // backward.h

// Everything about one problem that does not depend on the dump.
struct GdnReference {
    GdnProblem problem;
    ResolvedContract contract;
    GdnOutputs truth;
    TensorBudget out, final_state;
    std::shared_ptr<const GdnBackward> backward;  // gradients; nullptr: not asked for, or no cotangent
    double growth = 0;                            // largest |state| over the size that inputs alone explain
    std::string unstable_reason;                  // empty: the input can be judged
    bool ill_conditioned = false;                 // that is the reason; a tensor for which can_judge() holds still is
    // By (sequence, value head): how many times the measured budget is granted where (I + M)^-1 is large.
    std::vector<double> widening = {};
};

// How far the inputs can carry an error, the worst over all lanes.
struct Condition {
    double growth_factor = 1;  // product of alpha max(1, |1 - beta k.k|), over the run of tokens where it is largest
    double inverse_norm = 1;   // of (I + M)^-1 of a chunk: the largest sum of |.| over a row. Chunks of at most 256.
};
Condition condition_of(const GdnReference& reference, int threads);

GdnReference make_reference(GdnProblem problem, ResolvedContract contract, int threads);

// Adds the truth of the gradients to `reference` when `dump` holds gradients and either file a cotangent (d_out,
// d_final_state; one that is missing is 0). Where out is narrower than d_out, a kernel may use d_out as given or
// rounded to out's dtype: the truth is the one that the dump's gradients agree with better. Errors: bad_input for a
// cotangent of the wrong shape or dtype.
Status add_backward(GdnReference& reference, const TensorFile& inputs, const TensorFile& dump, int threads);
// Whether the truth uses d_out rounded.
bool cotangent_rounded(const GdnReference& reference);
// "d_out as given" or "d_out rounded to bfloat16" where there was a choice, else empty.
std::string cotangent_used(const GdnReference& reference);

struct CompareOptions {
    // Both or neither: every element within atol + rtol |truth| instead of the budget.
    std::optional<double> rtol, atol;
    bool hints = true;  // look for the mistake that explains a WRONG or SUSPECT dump
    int threads = 1;    // results do not depend on it
};

struct UlpDistance {
    double max = 0, p50 = 0, p99 = 0;
};

struct Outside {
    std::size_t count = 0;
    double fraction = 0;
};

struct TensorReport {
    std::string name;       // as in the dump
    std::string canonical;  // "out"
    Shape shape;
    DType stored = DType::f32;
    DType judged = DType::f32;  // dtype that the values stand for: ULP distances and output rounding
    Verdict verdict = Verdict::ok;
    Verdict by_budget = Verdict::ok;  // the same unless CompareOptions::rtol is given
    double error_over_budget = 0;
    // The largest error / what the element's own token, head and column allow. Beyond the band of WRONG it is wrong
    // even where other elements are unstable.
    double local_error_over_budget = 0;
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
    std::vector<Worst> worst_elements;  // the worst first, at most k_worst_elements
};

inline constexpr std::size_t k_worst_elements = 8;

// Error / budget of one value head of one sequence, for each chunk of its tokens.
struct LaneErrors {
    std::int64_t sequence = 0, head = 0;
    std::vector<double> chunks;         // of out
    std::optional<double> final_state;  // nullopt: not in the dump
};

// Where a dump is wrong.
struct FaultPlace {
    std::vector<std::int64_t> sequences, heads;  // with an error beyond the band of OK
    std::vector<std::int64_t> chunks;            // of their sequences; a wrong final state counts as the last chunk
    std::string tensor;                          // of the first wrong token: "out", or "final_state" if out is right
    std::int64_t first_sequence = 0, first_head = 0;
    std::int64_t first_batch = 0, first_token = 0;  // as out is indexed
    std::int64_t first_chunk = 0;                   // of its sequence
};

struct GdnReport {
    Verdict verdict = Verdict::no_data;
    // One line: why it is not OK. Where it is, empty, or what the budget says against it if rtol and atol decided.
    std::string reason;
    std::string stage;                // likeliest; empty when nothing is wrong
    std::vector<std::string> stages;  // the likeliest first, then others that the outputs do not rule out
    std::vector<Hint> hints;          // all that fit equally well, or one by pattern
    std::optional<FaultPlace> place;
    bool backward_fault = false;       // `place` and `stages` are about gradients: the forward pass is right
    std::vector<double> token_errors;  // of out, tokens of the sequence of `place` (else the first): the worst head's
    std::vector<LaneErrors> errors;    // every lane
    // The same of the worst gradient; `final_state` is then that of d_initial_state. Empty: the dump has none.
    std::vector<LaneErrors> gradient_errors;
    std::vector<double> gradient_token_errors;
    std::vector<TensorReport> tensors;
    std::optional<Worst> worst;  // of the tensor with the largest error / budget
    std::vector<NotCompared> not_compared;
    std::vector<std::string> unknown;  // tensors with a name that means nothing here
    std::vector<UnreadTensor> unread;  // tensors that were left alone because of their dtype, whatever their names
    // Those of them that look like gradients; `reason` is the name under which they would be judged.
    std::vector<NotCompared> unjudged_gradients;
    bool outputs_are_truth = false;  // the dump is what `oracle run` wrote as the truth
};

// Lists what `file` holds beside what was asked for, each name once: in `unknown` names that mean nothing to `meaning`,
// in `unread` tensors that were left alone because of their dtype.
void list_left_alone(const TensorFile& file, GdnName (*meaning)(std::string_view), std::vector<std::string>& unknown,
                     std::vector<UnreadTensor>& unread);

// Whether the dump that `report` is about holds the fp64 truth as `oracle run` writes it: by its metadata or, in the
// NumPy formats, which have none, because every value is bit-equal to the truth.
bool is_written_truth(const TensorFile& dump, const GdnReport& report);

// Judges the tensors of `dump`. Errors are bad_input: a wrong shape or dtype, two tensors of one meaning.
Result<GdnReport> judge(const GdnReference& reference, const TensorFile& dump, const CompareOptions& options);

}  // namespace gdnctl::oracle
