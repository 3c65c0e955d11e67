// Least squares for a class of changes at one stage: Gauss-Newton steps, damped where they overshoot.
#pragma once

#include <optional>

#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

// The inputs of a class of changes.
struct FitPlace {
    const OpenChunk& base;  // without changes
    const ChunkParts& parts;
    const double* q = nullptr;  // rows of the chunk, [rows, dk]
    const double* k = nullptr;
};

// A class of changes: nudge(c, place, i, d) adds d to parameter i in c, which already contains the change so far.
struct Family {
    std::vector<std::string> stages;
    std::string what;
    std::size_t (*count)(const FitPlace&);
    std::function<void(OpenChunk& c, const FitPlace&, std::size_t i, double d)> nudge;
    bool carries = false;
    bool scans = false;  // tries many values of parameter i against row i, where steps alone do not converge
};

// Solves (a + damping diag(a)) x = b by Cholesky, with a slightly larger diagonal so that parameters without effect
// stay 0. Empty: not solvable.
Reals damped_solution(const std::vector<Reals>& a, const Reals& b, double damping, double* log_determinant = nullptr);

std::optional<Explanation> fit(const Family& family, const Section& s, std::size_t index, const Reals& state);

}  // namespace gdnctl::oracle
