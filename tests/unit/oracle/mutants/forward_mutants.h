// Mutants of the chunked kernel in fp32, and correct variants of it.
#pragma once

#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/hypotheses.h"

namespace gdnctl::oracle::testing {

// The part of a problem that a mutant affects.
struct MutantScope {
    std::vector<std::int64_t> heads;  // empty: all
    int chunk = -1;                   // of every sequence; -1: all
};

struct Mutant {
    std::string name;
    std::vector<std::string> stages;                              // any of these is right
    Hypothesis fault;                                             // simulated in fp32 on each head in scope
    std::function<void(GdnOutputs&, const GdnReference&)> after;  // damages the finished outputs instead
    // A kernel other than ours, with its own fault.
    std::function<GdnOutputs(const GdnReference&, const MutantScope&, int threads)> kernel;
    bool whole_only = false;  // makes no sense in a single chunk
};

std::vector<Mutant> all_mutants();
// Faults that no hypothesis of the search simulates.
std::vector<Mutant> unexpected_mutants();

// The outputs of a mutant (or, without one, of the correct kernel) on a problem.
GdnOutputs run_mutant(const GdnReference& reference, const Mutant* mutant, const MutantScope& scope, int threads);

}  // namespace gdnctl::oracle::testing
