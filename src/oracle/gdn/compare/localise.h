// From "wrong" to where, at which stage, and by which known mistake.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "oracle/gdn/compare/compare.h"

namespace gdnctl::oracle {

// One tensor of the dump in canonical axes, with the budgets that it was judged by.
struct Evidence {
    const std::vector<double>* got = nullptr;
    const std::vector<double>* want = nullptr;
    std::vector<GroupBudget> budgets;  // with output rounding
    DType judged = DType::f32;
    const std::vector<float>* local = nullptr;  // see TensorBudget; nullptr: not known
};

struct ForwardEvidence {
    std::optional<Evidence> out, state;
};

// Error / budget by head and chunk, for every lane.
std::vector<LaneErrors> map_errors(const GdnReference& reference, const ForwardEvidence& evidence, int threads);

// Error / budget of each token of a sequence, the worst over its heads. Empty without out.
std::vector<double> map_token_errors(const GdnReference& reference, const ForwardEvidence& evidence,
                                     std::size_t sequence, int threads);

// A lane with an error beyond the band of OK, and the chunk where that begins.
struct WrongLane {
    std::size_t sequence = 0, head = 0, first_chunk = 0;
    double score = 0;
};
// Lanes by size of their error.
std::vector<WrongLane> wrong_lanes(const GdnReference& reference, const std::vector<LaneErrors>& errors);

// Heads, chunks and first wrong token. nullopt: every lane is within the band of OK.
std::optional<FaultPlace> find_place(const GdnReference& reference, const ForwardEvidence& evidence,
                                     const std::vector<LaneErrors>& errors);

// Stage and hints of a forward fault at `place`.
struct Diagnosis {
    std::string stage;
    std::vector<std::string> stages;
    std::vector<Hint> hints;
};
Diagnosis diagnose(const GdnReference& reference, const ForwardEvidence& evidence,
                   const std::vector<LaneErrors>& errors, const FaultPlace& place, int threads);

// Inputs that were declared wrongly, where that makes them unstable.
std::optional<Hint> hint_for_unstable(const GdnReference& reference, const ForwardEvidence& evidence, int threads);

// Mistakes that only move or scale whole values of the dump; no lane needs to be acted out.
std::vector<Hint> match_rearranged(const GdnReference& reference, const ForwardEvidence& evidence, int threads);
// Whether a tensor holds the exact result rounded to 16 bits without a declaration.
void match_rounding(const Evidence& evidence, std::string_view tensor, std::vector<Hint>& hints);
// Factors of the terms of the lane's first wrong chunk that make it right; nullopt: none do.
std::optional<Diagnosis> match_coefficients(const GdnReference& reference, const ForwardEvidence& evidence,
                                            const LaneErrors& errors);
// Whether values of out are right but elsewhere, or each mapped to another; nullopt: no.
std::optional<Diagnosis> match_finished(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const LaneErrors& errors);
// The stages at which some change makes the lane's first wrong chunks right, whatever the change is; else what `even`
// says, else the products that the errors are made of; nullopt: none.
std::optional<Diagnosis> match_stages(const GdnReference& reference, const ForwardEvidence& evidence,
                                      const LaneErrors& errors, int threads,
                                      const std::function<std::optional<Diagnosis>()>& even);
// The stages that are left when all that leave other errors are excluded; nullopt: too many.
std::optional<Diagnosis> exclude_stages(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const LaneErrors& errors);
// Kernels keep a state for the backward pass, and pad, by segments of this many chunks. Text to append where the first
// wrong chunk begins one, else empty.
inline constexpr std::size_t k_usual_segment = 8;
std::string segment_note(std::size_t first_wrong_chunk);
// Whether the lane's first wrong chunk is wrong as an inverse by doubling, (I - M)(I + M^2)(I + M^4)..., makes it in
// fp32 where keys are alike; nullopt: no.
std::optional<Diagnosis> match_doubling(const GdnReference& reference, const ForwardEvidence& evidence,
                                        const LaneErrors& errors);
// The precision that leaves errors of this relative size, with how to declare it.
std::string precision_of(double error);
// Whether a final state whose out is right is off as undeclared roundings leave it; nullopt: no.
std::optional<Diagnosis> match_hidden_rounding(const GdnReference& reference, const ForwardEvidence& evidence,
                                               const LaneErrors& errors);
// Tensors, or rows of out, that are wrong and hold nothing but zeros: no mistake in a formula makes these. nullopt:
// there are none, or something else is wrong too.
std::optional<Diagnosis> match_zeros(const GdnReference& reference, const ForwardEvidence& evidence,
                                     const std::vector<LaneErrors>& errors);
// Says of rows of out that are wrong and exactly 0 before anything that only a pattern suggests.
void put_zeros_first(const GdnReference& reference, const ForwardEvidence& evidence,
                     const std::vector<LaneErrors>& errors, Diagnosis& diagnosis);
// What the pattern of errors says when no known mistake fits.
Diagnosis match_pattern(const GdnReference& reference, const ForwardEvidence& evidence,
                        const std::vector<LaneErrors>& errors, const FaultPlace& place, int threads);

}  // namespace gdnctl::oracle
