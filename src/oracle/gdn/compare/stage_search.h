// Which stage of a chunk could have made the error seen, whatever was done there: each stage is given a class of
// changes, and asked how few numbers of it make the dump right.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "oracle/gdn/compare/lane_search.h"
#include "oracle/gdn/compare/open_chunk.h"

namespace gdnctl::oracle {

// A few chunks of a wrong lane, from the one before the first wrong one on, beside the dump.
struct Section {
    std::size_t chunk = 64;
    std::size_t wrong = 0;  // of these chunks, the first that is; their number, where the final state alone is
    Lane lane;
    std::vector<ChunkParts> parts;
    std::vector<OpenChunk> honest;
    std::vector<Reals> truths;            // the state before each chunk, and after the last
    Reals out;                            // of the dump, [tokens, columns]; empty: none
    Reals state;                          // the same after the last chunk, [dk, columns]; empty: none, or not known
    double out_unit = 1, state_unit = 1;  // budgets

    Section() = default;
    Section(const Section&) = delete;  // parts point to the lane
    Section& operator=(const Section&) = delete;

    bool knows_state_after(std::size_t index) const { return index + 1 == parts.size() && !state.empty(); }
};
// nullptr: there is nothing to compare with.
std::unique_ptr<Section> make_section(const LaneSearch& search, const GdnReference& reference,
                                      const ForwardEvidence& evidence, const WrongLane& lane, bool out_wrong,
                                      std::size_t columns);
// Differences to the dump in units of the budget: a chunk's rows of out, and the state where it is known.
void add_out_errors(const Section& s, std::size_t index, const Reals& out, Reals& errors);
void add_state_errors(const Section& s, const Reals& state, Reals& errors);
double rms_of(const Reals& errors);
// Of a chunk that is right but for the state before it.
Reals honest_errors(const Section& s, std::size_t index, const Reals& state, Reals* after = nullptr);

// An error so much smaller that it is explained.
bool explains(double before, double after);

struct Explanation {
    double before = 0, after = 0;  // rms error / budget
    std::size_t numbers = 0;       // that had to be found; 0: an exact rearrangement
    Reals state;                   // after the chunk
    std::string text;
};
// Chunk `index` of the section, from `state`. nullopt: does not explain it.
using Attempt = std::function<std::optional<Explanation>(const Section&, std::size_t index, const Reals& state)>;
struct Suspicion {
    std::vector<std::string> stages;
    Attempt attempt;
    bool carries = false;  // spoils the state after a chunk that is right: shows in the next one
    bool all_columns = false;
};
// Factors of terms, by token, dimension, distance...; and values moved, left out or rounded.
std::vector<Suspicion> factor_suspicions();
std::vector<Suspicion> move_suspicions();

}  // namespace gdnctl::oracle
