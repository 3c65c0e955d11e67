// A chunked kernel in a form that the search does not know (W and U from the inverse), in which the result of each step
// can be changed: it shows how any fault at that step looks from outside.
#pragma once

#include <string_view>

#include "oracle/gdn/compare/head.h"
#include "unit/oracle/mutants/forward_mutants.h"

namespace gdnctl::oracle::testing {

// Steps of a chunk, in order.
enum class Tap { c, gamma, kk, M, T, beta_v, beta_k, Uu, W, WS, U, qk, P, QS, PU, out, write_keys, kept, added, state };

struct TapPoint {
    Tap tap;
    std::string_view name;
    std::vector<std::string> stages;  // any of these is right for a fault in this step
    bool of_values = false;           // its columns are those of v, so a fault may affect only a tile of them
};
const std::vector<TapPoint>& tap_points();

// [rows, width] values of a step.
using TapChange = std::function<void(std::vector<double>& values, std::size_t rows, std::size_t width)>;

// Without a change: correct.
GdnOutputs run_tapped(const GdnReference& reference, Tap tap, const TapChange& change, const MutantScope& scope,
                      int threads);

// Every step of this kernel, with each of several faults.
std::vector<Mutant> tapped_mutants();
// The same with faults that were written after the search was finished.
std::vector<Mutant> later_tapped_mutants();

}  // namespace gdnctl::oracle::testing
