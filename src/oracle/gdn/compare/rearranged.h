// The distance of a tensor of the dump from the result of a mistake.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/gdn/compare/localise.h"

namespace gdnctl::oracle {

// Sum of squares of got - other, where both are finite.
double distance(const std::vector<double>& got, const std::vector<double>& other, int threads = 1);

// The allowed error of a correct tensor, as such a sum.
double allowed(const Evidence& evidence);

// Adds a hint if the distance `after` is small compared with `before`, the distance to the truth.
void note(std::vector<Hint>& hints, std::string_view stage, std::string text, double before, double after,
          double limit);

// Inputs that were read, or an out that was written, with heads before tokens.
void match_axes_order(const GdnReference& reference, const ForwardEvidence& evidence, int threads,
                      std::vector<Hint>& hints);

}  // namespace gdnctl::oracle
