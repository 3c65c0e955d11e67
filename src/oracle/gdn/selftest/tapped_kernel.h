// A chunked kernel in another form than the one the search knows (W and U from the inverse), in which the result of
// each step can be spoilt: what any fault at that step looks like from outside.
#pragma once

#include <string_view>

#include "oracle/gdn/compare/open_chunk.h"
#include "oracle/gdn/selftest/mutants.h"

namespace gdnctl::oracle {

// Steps of a chunk in their order.
enum class Tap { c, gamma, kk, M, T, beta_v, beta_k, Uu, W, WS, U, qk, P, QS, PU, out, write_keys, kept, added, state };

struct TapPoint {
    Tap tap;
    std::string_view name;
    std::vector<std::string> stages;  // any of these is right for a fault in this step
    bool of_values = false;           // its columns are those of v: a fault in some of them is one of a tile
};
const std::vector<TapPoint>& tap_points();

// [rows, width] values of a step.
using TapChange = std::function<void(std::vector<double>& values, std::size_t rows, std::size_t width)>;

// Without a change: honest.
GdnOutputs run_tapped(const GdnReference& reference, Tap tap, const TapChange& change, const MutantScope& scope,
                      int threads);

}  // namespace gdnctl::oracle
