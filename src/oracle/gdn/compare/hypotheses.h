// Possible faults of a forward pass: each hypothesis is a known mistake that can be simulated on one lane.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/lane.h"

namespace gdnctl::oracle {

// A lane and a part of it, with everything that a hypothesis may need beyond the window.
struct LanePlace {
    const GdnReference* reference = nullptr;
    std::size_t sequence = 0, head = 0;
    std::size_t begin = 0, tokens = 0;  // of the window, in the sequence
    std::vector<std::size_t> columns;   // of v
};

// The window's inputs as given, for the key head `key_head`; `state` is the truth's state before it, [dk, columns], or
// empty for zeros.
LaneInputs lane_inputs(const LanePlace& place, std::size_t key_head, std::size_t chunk, std::vector<double> state);
// The truth's state of the lane and columns before the window's first token: [dk, columns].
std::vector<double> state_before(const LanePlace& place);
// The state before the sequence if all earlier sequences were joined to it.
std::vector<double> state_carried_to(const LanePlace& place);

struct Hypothesis {
    std::string_view stage;
    std::string text;  // what the kernel then does; follows "matches if"
    // Changes the inputs or the contract before preprocessing; false: not applicable.
    std::function<bool(LaneInputs&, GdnContract&, const LanePlace&)> given;
    std::function<void(Lane&)> prepared;
    ChunkEdit chunk;
    bool rounding = false;                     // cannot match to the last bit: an error 20 times smaller is enough
    LaneResult (*run)(const Lane&) = nullptr;  // a form other than the chunked one

    // nullopt if not applicable. `place` is the origin of `inputs`; `grams` may be theirs if they are unchanged.
    std::optional<LaneResult> act_out(LaneInputs inputs, GdnContract contract, const LanePlace& place,
                                      const LaneGrams* grams = nullptr) const;
};

inline void add_given(std::vector<Hypothesis>& all, std::string_view stage, std::string text,
                      std::function<bool(LaneInputs&, GdnContract&, const LanePlace&)> given) {
    all.push_back({stage, std::move(text), std::move(given), {}, {}});
}
inline void add_prepared(std::vector<Hypothesis>& all, std::string_view stage, std::string text,
                         std::function<void(Lane&)> prepared) {
    all.push_back({stage, std::move(text), {}, std::move(prepared), {}});
}

// Mistakes in the meaning of the inputs, in a chunk's coefficients, in the order of operations, and in rounding.
const std::vector<Hypothesis>& forward_hypotheses();

// Replaces a lane's initial state by that of each other lane of the problem.
std::vector<Hypothesis> state_hypotheses(const GdnProblem& problem);

// Replaces one input of a lane by that of each other head.
std::vector<Hypothesis> head_hypotheses(const GdnProblem& problem);

std::vector<Hypothesis> input_hypotheses();
std::vector<Hypothesis> rounding_hypotheses();  // among those of the inputs
std::vector<Hypothesis> chunk_hypotheses();

}  // namespace gdnctl::oracle
