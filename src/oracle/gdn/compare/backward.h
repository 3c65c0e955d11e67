// The truth and the budgets of a backward pass, and the analysis of its errors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/groups.h"
#include "oracle/gdn/compare/localise.h"
#include "oracle/gdn/kernels/adjoint.h"

namespace gdnctl::oracle {

// A gradient that a dump may contain.
struct GradientTruth {
    std::string canonical;     // "dq"
    std::string_view axes;     // "b,t,h,k"
    Shape shape;               // as in files
    std::vector<double> want;  // canonical axes
    Groups groups;
    TensorBudget budget;
    DType input = DType::f32;  // dtype of the tensor it is the gradient of, as stored
};

inline bool has_tokens(const GradientTruth& t) { return t.axes.starts_with("b,t"); }

// If out is narrower than d_out, a correct kernel may use it either way.
enum class CotangentUse { no_choice, as_given, rounded };

struct GdnBackward {
    GdnCotangents cotangents;  // as used by the truth
    GdnGradients gradients;
    std::vector<GradientTruth> truths;
    CotangentUse d_out = CotangentUse::no_choice;
    DType d_out_dtype = DType::f32;  // the dtype it was rounded to

    const GradientTruth* find(std::string_view canonical) const;
};

std::vector<std::string_view> gradient_names();

// Whether every finite value is exact in `dtype`.
bool held_by(const std::vector<double>& values, DType dtype);

// A gradient of the dump with its truth.
struct GradientEvidence {
    const GradientTruth* truth = nullptr;
    Evidence evidence;
    bool wrong = false;
};

// Where the gradients are wrong. The backward pass runs from the last token to the first, so the "first" wrong token is
// the latest one.
std::optional<FaultLocation> locate_gradient_fault(const GdnReference& reference,
                                                   const std::vector<GradientEvidence>& all);
// Error / budget of the worst gradient by value head and chunk; `final_state` means d_initial_state. A key head's
// gradient counts for each of its value heads. Empty without gradients.
std::vector<HeadErrors> map_gradient_errors(const GdnReference& reference, const std::vector<GradientEvidence>& all);
// The same by token of a sequence, the worst over its heads.
std::vector<double> map_gradient_token_errors(const GdnReference& reference, const std::vector<GradientEvidence>& all,
                                              std::size_t sequence);
// Names the wrong gradients that have written rows outside all sequences; empty: none.
std::string written_outside(const GdnReference& reference, const std::vector<GradientEvidence>& all);
// Requires that some gradient is wrong, inside a sequence or outside.
Diagnosis diagnose_backward(const GdnReference& reference, const std::vector<GradientEvidence>& all, bool in_sequence,
                            int threads);

// A mistake that the search knows, and the gradients of a kernel that makes it.
struct BackwardMistake {
    std::string stage, text;
    GdnGradients gradients;
};
std::vector<BackwardMistake> known_backward_mistakes(const GdnReference& reference, int threads);

// The gradient of that canonical name.
std::vector<double>& gradient_of(GdnGradients& gradients, std::string_view canonical);
const std::vector<double>& gradient_of(const GdnGradients& gradients, std::string_view canonical);

// The RMS error that a correct gradient may have.
double honest_error(const GradientEvidence& gradient);
// How many times smaller its error would be if the truth were `other`; 0: no match.
double gain_under(const GradientEvidence& gradient, const std::vector<double>& other);
// Adds the hint "matches if `text`" if that is true.
void offer_gradient(const GradientEvidence& gradient, std::string stage, const std::string& text,
                    const std::vector<double>& other, std::vector<Hint>& hints);
// The stage of a gradient. Gradients of gates and beta as given belong to dg and dbeta.
std::string stage_of_gradient(std::string_view name);
// Finds wrong gradients that are a multiple of the truth, each by its own factor or all by one, or that have heads
// before tokens.
void match_scaled_gradients(const GdnProblem& problem, const std::vector<GradientEvidence>& all,
                            std::vector<Hint>& hints);

// Root mean square of got - want; skips values whose truth is not finite.
double rms_difference(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace gdnctl::oracle
