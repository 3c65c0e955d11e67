// Possible faults of a forward pass: each hypothesis is a known mistake that can be simulated on one head.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/head.h"

namespace gdnctl::oracle {

// A head and a part of it, with everything that a hypothesis may need beyond the window.
struct HeadSlice {
    const GdnReference* reference = nullptr;
    std::size_t sequence = 0, head = 0;
    std::size_t begin = 0, tokens = 0;  // of the window, in the sequence
    std::vector<std::size_t> columns;   // of v
};

// The window's inputs as given, for the key head `key_head`; `state` is the truth's state before it, [dk, columns], or
// empty for zeros.
HeadInputs head_inputs(const HeadSlice& place, std::size_t key_head, std::size_t chunk, std::vector<double> state);
// The truth's state of the head and columns before the window's first token: [dk, columns].
std::vector<double> state_before(const HeadSlice& place);
// The state before the sequence if all earlier sequences were joined to it.
std::vector<double> state_carried_to(const HeadSlice& place);

struct Hypothesis {
    std::string_view stage;
    std::string text;  // what the kernel then does; follows "matches if"
    // Changes the inputs or the contract before preprocessing; false: not applicable.
    std::function<bool(HeadInputs&, GdnContract&, const HeadSlice&)> given;
    std::function<void(PreparedHead&)> prepared;
    ChunkEdit chunk;
    bool rounding = false;  // cannot match to the last bit: an error 20 times smaller is enough
    HeadResult (*run)(const PreparedHead&) = nullptr;  // a form other than the chunked one

    // nullopt if not applicable. `place` is the origin of `inputs`; `grams` may be theirs if they are unchanged.
    std::optional<HeadResult> simulate(HeadInputs inputs, GdnContract contract, const HeadSlice& place,
                                       const HeadGrams* grams = nullptr) const;
};

inline void add_given(std::vector<Hypothesis>& all, std::string_view stage, std::string text,
                      std::function<bool(HeadInputs&, GdnContract&, const HeadSlice&)> given) {
    all.push_back({stage, std::move(text), std::move(given), {}, {}});
}
inline void add_prepared(std::vector<Hypothesis>& all, std::string_view stage, std::string text,
                         std::function<void(PreparedHead&)> prepared) {
    all.push_back({stage, std::move(text), {}, std::move(prepared), {}});
}

// Mistakes in the meaning of the inputs, in a chunk's coefficients, in the order of operations, and in rounding.
const std::vector<Hypothesis>& forward_hypotheses();

// Replaces a head's initial state by that of each other head of the problem.
std::vector<Hypothesis> state_hypotheses(const GdnProblem& problem);

// Replaces one input of a head by that of each other head.
std::vector<Hypothesis> head_hypotheses(const GdnProblem& problem);

std::vector<Hypothesis> input_hypotheses();
std::vector<Hypothesis> rounding_hypotheses();  // among those of the inputs
std::vector<Hypothesis> chunk_hypotheses();

}  // namespace gdnctl::oracle
