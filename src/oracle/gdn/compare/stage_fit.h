// Least squares for a class of changes at one stage: Gauss-Newton steps, held back where they overshoot.
#pragma once

#include <optional>

#include "oracle/gdn/compare/stage_search.h"

namespace gdnctl::oracle {

// What a class of changes may look at.
struct FitPlace {
    const OpenChunk& base;  // nothing changed
    const ChunkParts& parts;
    const double* q = nullptr;  // rows of the chunk, [rows, dk]
    const double* k = nullptr;
};

// A class of changes: nudge(c, place, i, d) adds d to the i-th number of one that c has already.
struct Family {
    std::vector<std::string> stages;
    std::string what;
    std::size_t (*count)(const FitPlace&);
    std::function<void(OpenChunk& c, const FitPlace&, std::size_t i, double d)> nudge;
    bool carries = false;
    bool scans = false;  // number i is tried at many sizes against row i, where steps alone lead nowhere
};

// Solves (a + damping diag(a)) x = b by Cholesky, with a little more on the diagonal so that numbers without effect
// stay 0. Empty: it cannot be done.
Reals damped_solution(const std::vector<Reals>& a, const Reals& b, double damping, double* log_determinant = nullptr);

std::optional<Explanation> fit(const Family& family, const Section& s, std::size_t index, const Reals& state);

}  // namespace gdnctl::oracle
