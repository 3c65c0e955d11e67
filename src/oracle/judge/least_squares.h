// A vector as a sum of multiples of others.
#pragma once

#include <vector>

namespace gdnctl::oracle {

// The factors x for which the sum of x[i] * terms[i] is nearest to target, all of one length. Terms that are 0 keep the
// factor 1.
std::vector<double> least_squares(const std::vector<std::vector<double>>& terms, const std::vector<double>& target);

// That sum.
std::vector<double> combined(const std::vector<std::vector<double>>& terms, const std::vector<double>& factors);

}  // namespace gdnctl::oracle
