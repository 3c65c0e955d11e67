// The verdict on dumped tensors: their distance from the fp64 truth, in units of the error of correct arithmetic.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/contract/contract.h"
#include "oracle/gdn/contract/problem.h"
#include "oracle/judge/metrics.h"
#include "oracle/judge/verdict.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// The error of correct arithmetic on one value head of one sequence ("group"), in absolute terms.
struct GroupBudget {
    double rms = 0;      // root mean square over the group's elements
    double max_abs = 0;  // largest single element
};

// out: one group per (sequence, value head), then one for rows outside every sequence; final_state: without that last
// one.
struct TensorBudget {
    std::vector<GroupBudget> groups;
    double relative = 0;  // rms over the whole tensor / rms of the truth, for people
    // The allowed error of each element, whatever happens to others of its group; each `local_width` consecutive
    // elements share one. Empty: unknown.
    std::vector<float> local = {};
    std::size_t local_width = 1;
    // If an element is a sum whose terms may have been rounded like the result: the size of the values around it, for
    // the same elements as `local`. Empty: it is not.
    std::vector<float> summed = {};
};

// Whether correct arithmetic computes the tensor well enough for a comparison to be meaningful.
bool can_judge(const TensorBudget& budget);

struct GdnBackward;  // backward.h

// Everything about a problem that does not depend on the dump.
struct GdnReference {
    GdnProblem problem;
    ResolvedContract contract;
    GdnOutputs truth;
    TensorBudget out, final_state;
    std::shared_ptr<const GdnBackward> backward;  // gradients; nullptr: not requested, or no cotangent
    double growth = 0;                            // largest |state| / the size expected from the inputs alone
    std::string unstable_reason;                  // empty: the input can be judged
    bool ill_conditioned = false;                 // that is the reason; tensors for which can_judge() is true are still
                                                  // judged
    // By (sequence, value head): the factor on the measured budget where (I + M)^-1 is large.
    std::vector<double> widening = {};
};

// How strongly the inputs can amplify an error; the worst over all heads.
struct Condition {
    double growth_factor = 1;  // product of alpha max(1, |1 - beta k.k|), over the run of tokens where it is largest
    double inverse_norm = 1;   // of (I + M)^-1 of a chunk: the largest row sum of |.|. Chunks of at most 256.
};
Condition condition_of(const GdnReference& reference, int threads);

GdnReference make_reference(GdnProblem problem, ResolvedContract contract, int threads);

// Adds the truth of the gradients to `reference` if `dump` contains gradients and either file a cotangent (d_out,
// d_final_state; a missing one is 0). If out is narrower than d_out, a kernel may use d_out as given or rounded to
// out's dtype, and the truth is the version that agrees better with the dump. Errors: bad_input for a cotangent of the
// wrong shape or dtype.
Status add_backward(GdnReference& reference, const TensorFile& inputs, const TensorFile& dump, int threads);
// Whether the truth uses the rounded d_out.
bool cotangent_rounded(const GdnReference& reference);
// "d_out as given" or "d_out rounded to bfloat16" if there was a choice, else empty.
std::string cotangent_used(const GdnReference& reference);

struct CompareOptions {
    // Both or neither: every element must be within atol + rtol |truth|, instead of the budget.
    std::optional<double> rtol = std::nullopt, atol = std::nullopt;
    bool hints = true;  // search for the mistake that explains a WRONG or SUSPECT dump
    int threads = 1;    // does not affect results
};

// Error / budget of one value head of one sequence, per chunk of its tokens.
struct HeadErrors {
    std::int64_t sequence = 0, head = 0;
    std::vector<double> chunks;         // of out
    std::optional<double> final_state;  // nullopt: not in the dump
};

// Where a dump is wrong.
struct FaultLocation {
    std::vector<std::int64_t> sequences, heads;  // with an error above the OK band
    std::vector<std::int64_t> chunks;            // of their sequences; a wrong final state counts as the last chunk
    std::string tensor;                          // of the first wrong token: "out", or "final_state" if out is right
    std::int64_t first_sequence = 0, first_head = 0;
    std::int64_t first_batch = 0, first_token = 0;  // indices of out
    std::int64_t first_chunk = 0;                   // in its sequence
};

struct GdnReport {
    Verdict verdict = Verdict::no_data;
    // One line that explains a verdict other than OK. For OK: empty; or the budget's objection if rtol and atol
    // decided; or the chunk length with which it was judged, if that had to be found.
    std::string reason;
    std::string stage;                // most likely; empty if nothing is wrong
    std::vector<std::string> stages;  // most likely first, then others that the outputs do not rule out
    std::vector<Hint> hints;          // all that fit equally well, or one from the pattern
    std::optional<FaultLocation> place;
    bool backward_fault = false;       // `place` and `stages` refer to gradients; the forward pass is right
    std::vector<double> token_errors;  // of out, by token of the sequence in `place` (else the first one): the worst
                                       // head's
    std::vector<HeadErrors> errors;    // all heads
    // The same for the worst gradient; `final_state` then means d_initial_state. Empty: the dump has none.
    std::vector<HeadErrors> gradient_errors;
    std::vector<double> gradient_token_errors;
    std::vector<TensorReport> tensors;
    std::optional<Worst> worst;  // of the tensor with the largest error / budget
    std::vector<NotCompared> not_compared;
    std::vector<std::string> unknown;  // tensors with unknown names
    std::vector<UnreadTensor> unread;  // tensors that were not read because of their dtype, whatever their names
    // Those that look like gradients; `reason` is the name under which they would be judged.
    std::vector<NotCompared> unjudged_gradients;
    bool outputs_are_truth = false;  // the dump is the truth as written by `oracle run`
    // The words of a command line under which the dump is OK; empty: there are none, or it is OK as declared.
    std::vector<std::string> declare;
    std::string declare_widens;  // by how much they widen budgets, as a phrase; empty: they do not
};

// Lists what `file` contains beyond what was requested, each name once: names that `meaning` does not know in
// `unknown`, tensors that were not read because of their dtype in `unread`.
void list_left_alone(const TensorFile& file, GdnName (*meaning)(std::string_view), std::vector<std::string>& unknown,
                     std::vector<UnreadTensor>& unread);

// Whether the dump of `report` is the fp64 truth as written by `oracle run`. Uses its metadata or, in the NumPy
// formats, which have none, checks that every value is bit-equal to the truth.
bool is_written_truth(const TensorFile& dump, const GdnReport& report);

// Judges the tensors of `dump`. Errors: bad_input, a wrong shape or dtype, or two tensors with the same meaning.
Result<GdnReport> judge(const GdnReference& reference, const TensorFile& dump, const CompareOptions& options);

// Lists what was not judged in a dump, and what is missing from it.

// Fills `not_compared`, `unknown` and `unjudged_gradients`; requires the report's tensors.
void list_unjudged(const GdnReference& reference, const TensorFile& dump, GdnReport& report);

}  // namespace gdnctl::oracle
