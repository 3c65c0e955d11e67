// Finds the stages of a chunk that could have produced the error, whatever went wrong there: each stage has classes of
// changes, and the search finds how few parameters make the dump right.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "oracle/gdn/compare/head.h"
#include "oracle/gdn/compare/head_search.h"

namespace gdnctl::oracle {

// A few chunks of a wrong head, starting before the first wrong one, and the dump.
struct Section {
    std::size_t chunk = 64;
    std::size_t wrong = 0;  // index of the first wrong chunk; the number of chunks if only the final state is wrong
    PreparedHead head;
    std::vector<ChunkParts> parts;
    std::vector<OpenChunk> honest;
    std::vector<Reals> truths;            // the true state before each chunk, and after the last
    Reals out;                            // from the dump, [tokens, columns]; empty: none
    Reals state;                          // from the dump after the last chunk, [dk, columns]; empty: none, or unknown
    double out_unit = 1, state_unit = 1;  // budgets

    Section() = default;
    Section(const Section&) = delete;  // parts points to the head
    Section& operator=(const Section&) = delete;

    bool knows_state_after(std::size_t index) const { return index + 1 == parts.size() && !state.empty(); }
};
// nullptr: there is nothing to compare with.
std::unique_ptr<Section> make_section(const HeadSearch& search, const GdnReference& reference,
                                      const ForwardEvidence& evidence, const WrongHead& head, bool out_wrong,
                                      std::size_t columns);
// Differences from the dump in units of the budget: a chunk's rows of out, and the state if known.
void add_out_errors(const Section& s, std::size_t index, const Reals& out, Reals& errors);
void add_state_errors(const Section& s, const Reals& state, Reals& errors);
double rms_of(const Reals& errors);
// For a chunk that is correct except for the state before it.
Reals honest_errors(const Section& s, std::size_t index, const Reals& state, Reals* after = nullptr);

// Whether the error is so much smaller that it counts as explained.
bool explains(double before, double after);

struct Explanation {
    double before = 0, after = 0;  // rms error / budget
    std::size_t numbers = 0;       // parameters that had to be found; 0: an exact rearrangement
    Reals state;                   // after the chunk
    std::string text;
};
// Tries to explain chunk `index` of the section, starting from `state`. nullopt: it does not explain it.
using Attempt = std::function<std::optional<Explanation>(const Section&, std::size_t index, const Reals& state)>;
struct Suspicion {
    std::vector<std::string> stages;
    Attempt attempt;
    bool carries = false;  // damages the state after a correct chunk, which shows in the next one
    bool all_columns = false;
};
// Factors on terms, by token, dimension, distance...; and values that were moved, omitted or rounded.
std::vector<Suspicion> factor_suspicions();
std::vector<Suspicion> move_suspicions();

// Least squares for a class of changes at one stage: Gauss-Newton steps, damped where they overshoot.

// The inputs of a class of changes.
struct FitInputs {
    const OpenChunk& base;  // without changes
    const ChunkParts& parts;
    const double* q = nullptr;  // rows of the chunk, [rows, dk]
    const double* k = nullptr;
};

// A class of changes: nudge(c, place, i, d) adds d to parameter i in c, which already contains the change so far.
struct Family {
    std::vector<std::string> stages;
    std::string what;
    std::size_t (*count)(const FitInputs&);
    std::function<void(OpenChunk& c, const FitInputs&, std::size_t i, double d)> nudge;
    bool carries = false;
    bool scans = false;  // tries many values of parameter i against row i, where steps alone do not converge
};

// Solves (a + damping diag(a)) x = b by Cholesky, with a slightly larger diagonal so that parameters without effect
// stay 0. Empty: not solvable.
Reals damped_solution(const std::vector<Reals>& a, const Reals& b, double damping, double* log_determinant = nullptr);

std::optional<Explanation> fit(const Family& family, const Section& s, std::size_t index, const Reals& state);

}  // namespace gdnctl::oracle
