// Approximates a vector by a linear combination of others.
#pragma once

#include <vector>

namespace gdnctl::oracle {

// The factors x that bring the sum of x[i] * terms[i] closest to target; all have the same length. A term that is all 0
// gets the factor 1.
std::vector<double> least_squares(const std::vector<std::vector<double>>& terms, const std::vector<double>& target);

// The sum for these factors.
std::vector<double> combined(const std::vector<std::vector<double>>& terms, const std::vector<double>& factors);

}  // namespace gdnctl::oracle
