// From "wrong" to the place, the stage and the known mistake.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// One tensor of the dump in canonical axes, with the budgets used to judge it.
struct Evidence {
    const std::vector<double>* got = nullptr;
    const std::vector<double>* want = nullptr;
    std::vector<GroupBudget> budgets;  // with output rounding
    DType judged = DType::f32;
    const TensorBudget* budget = nullptr;  // for `local`; nullptr: unknown
};

struct ForwardEvidence {
    std::optional<Evidence> out, state;
};

// Error / budget by head and chunk, for every head.
std::vector<HeadErrors> map_errors(const GdnReference& reference, const ForwardEvidence& evidence, int threads);

// Error / budget of each token of a sequence, the worst over its heads. Empty without out.
std::vector<double> map_token_errors(const GdnReference& reference, const ForwardEvidence& evidence,
                                     std::size_t sequence, int threads);

// A head with an error above the OK band, and the chunk where it begins.
struct WrongHead {
    std::size_t sequence = 0, head = 0, first_chunk = 0;
    double score = 0;
};
// Heads sorted by the size of their error.
std::vector<WrongHead> wrong_heads(const GdnReference& reference, const std::vector<HeadErrors>& errors);

// Heads, chunks and first wrong token. nullopt: all heads are within the OK band.
std::optional<FaultLocation> locate_fault(const GdnReference& reference, const ForwardEvidence& evidence,
                                          const std::vector<HeadErrors>& errors);

// Stage and hints of a forward fault at `place`.
struct Diagnosis {
    std::string stage;
    std::vector<std::string> stages;
    std::vector<Hint> hints;
};
Diagnosis diagnose(const GdnReference& reference, const ForwardEvidence& evidence,
                   const std::vector<HeadErrors>& errors, const FaultLocation& place, int threads);

// Inputs that were declared wrongly, if that makes them unstable.
std::optional<Hint> hint_for_unstable(const GdnReference& reference, const ForwardEvidence& evidence, int threads);

// Mistakes that only move or scale whole values of the dump, so that no head needs to be simulated.
std::vector<Hint> match_rearranged(const GdnReference& reference, const ForwardEvidence& evidence, int threads);
// Whether a tensor holds the exact result rounded to 16 bits without declaring it.
void match_rounding(const Evidence& evidence, std::string_view tensor, std::vector<Hint>& hints);
// Factors on the terms of the head's first wrong chunk that make it right; nullopt: none do.
std::optional<Diagnosis> match_coefficients(const GdnReference& reference, const ForwardEvidence& evidence,
                                            const HeadErrors& errors);
// Whether the heads' errors are those of another initial state; nullopt: no.
std::optional<Diagnosis> match_initial_state(const GdnReference& reference, const ForwardEvidence& evidence,
                                             const std::vector<HeadErrors>& errors);
// Whether values of out are right but in the wrong place, or each mapped to another; nullopt: no.
std::optional<Diagnosis> match_finished(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const HeadErrors& errors);
// The stages at which some change, of any kind, makes the head's first wrong chunks right; else the result of `even`;
// else the products that the errors consist of; nullopt: none.
std::optional<Diagnosis> match_stages(const GdnReference& reference, const ForwardEvidence& evidence,
                                      const HeadErrors& errors, int threads,
                                      const std::function<std::optional<Diagnosis>()>& even);
// The stages that remain after excluding all that would leave other errors; nullopt: too many.
std::optional<Diagnosis> exclude_stages(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const HeadErrors& errors);
// Kernels save a state for the backward pass, and pad, in segments of 8 chunks. Returns text to append if the
// first wrong chunk begins a segment, else empty.
std::string segment_note(std::size_t first_wrong_chunk);
// Whether the error of the head's first wrong chunk is that of an inverse by doubling, (I - M)(I + M^2)(I + M^4)..., in
// fp32 with similar keys; nullopt: no.
std::optional<Diagnosis> match_doubling(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const HeadErrors& errors);
// The precision that leaves errors of this relative size, and how to declare it.
std::string precision_of(double error);
// Whether the error of a final state, with out right, is that of undeclared rounding; nullopt: no.
std::optional<Diagnosis> match_hidden_rounding(const GdnReference& reference, const ForwardEvidence& evidence,
                                               const HeadErrors& errors);
// Finds tensors, or rows of out, that are wrong and all zeros, which no mistake in a formula produces. nullopt: there
// are none, or something else is wrong too.
std::optional<Diagnosis> match_zeros(const GdnReference& reference, const ForwardEvidence& evidence,
                                     const std::vector<HeadErrors>& errors);
// Reports rows of out that are wrong and exactly 0 before anything that only a pattern suggests.
void put_zeros_first(const GdnReference& reference, const ForwardEvidence& evidence,
                     const std::vector<HeadErrors>& errors, Diagnosis& diagnosis);
// What the pattern of errors suggests if no known mistake fits.
Diagnosis match_pattern(const GdnReference& reference, const ForwardEvidence& evidence,
                        const std::vector<HeadErrors>& errors, const FaultLocation& place, int threads);

}  // namespace gdnctl::oracle
