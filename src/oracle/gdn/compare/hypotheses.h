// What may have gone wrong in a forward pass: each hypothesis is a known mistake that can be acted out on one lane.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/lane.h"

namespace gdnctl::oracle {

// Which lane, and which part of it. Everything a hypothesis may need beyond the window.
struct LanePlace {
    const GdnReference* reference = nullptr;
    std::size_t sequence = 0, head = 0;
    std::size_t begin = 0, tokens = 0;  // of the window, in the sequence
    std::vector<std::size_t> columns;   // of v
};

// The window's inputs as they were given, for the key head `key_head`; `state` is what the truth has before it,
// [dk, columns], or empty for zeros.
LaneInputs lane_inputs(const LanePlace& place, std::size_t key_head, std::size_t chunk, std::vector<double> state);
// The truth's state of the place's lane and columns before its first token: [dk, columns].
std::vector<double> state_before(const LanePlace& place);
// What it would be before the sequence, were all sequences before it one, without an end.
std::vector<double> state_carried_to(const LanePlace& place);

struct Hypothesis {
    std::string_view stage;
    std::string text;  // what the kernel then does, to follow "matches if"
    // Changes the inputs or the contract before preprocessing; false: makes no sense here.
    std::function<bool(LaneInputs&, GdnContract&, const LanePlace&)> given;
    std::function<void(Lane&)> prepared;
    ChunkEdit chunk;
    bool rounding = false;                     // cannot match to the last bit: an error 20 times smaller is enough
    LaneResult (*run)(const Lane&) = nullptr;  // another form than the chunked one

    // nullopt where it makes no sense. `place` is where `inputs` come from, `grams` may be those of them when they are
    // honest.
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

// Mistakes in what the inputs mean, in a chunk's coefficients, in the order of operations, and in rounding.
const std::vector<Hypothesis>& forward_hypotheses();

// The initial state of each other lane of the problem in place of a lane's own.
std::vector<Hypothesis> state_hypotheses(const GdnProblem& problem);

// One input of each other head in place of a lane's own.
std::vector<Hypothesis> head_hypotheses(const GdnProblem& problem);

std::vector<Hypothesis> input_hypotheses();
std::vector<Hypothesis> rounding_hypotheses();  // among those of the inputs
std::vector<Hypothesis> chunk_hypotheses();

}  // namespace gdnctl::oracle
