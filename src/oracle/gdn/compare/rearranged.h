// How far a tensor of the dump is from what a mistake would have made of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

// Sum of squares of got - other, where both are finite.
double distance(const std::vector<double>& got, const std::vector<double>& other, int threads = 1);

// What an honest tensor may be off by, as such a sum.
double allowed(const Evidence& evidence);

// Adds a hint if the distance `after` is small against that `before`, which is to the truth.
void note(std::vector<Hint>& hints, std::string_view stage, std::string text, double before, double after,
          double limit);

// Values of [batches, tokens, heads, width] in the order of [batches, heads, tokens, width]. With tokens and heads
// exchanged it is the way back.
std::vector<double> heads_first(const std::vector<double>& values, std::size_t batches, std::size_t tokens,
                                std::size_t heads, std::size_t width);

// Inputs that were read, or an out that was written, with heads before tokens.
void match_axes_order(const GdnReference& reference, const ForwardEvidence& evidence, int threads,
                      std::vector<Hint>& hints);

}  // namespace gdnctl::oracle
