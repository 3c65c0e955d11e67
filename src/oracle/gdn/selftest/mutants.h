// Mutants of the chunked kernel, in fp32, and honest variants of it.
#pragma once

#include <string>
#include <vector>

#include "oracle/gdn/compare/compare.h"
#include "oracle/gdn/compare/hypotheses.h"

namespace gdnctl::oracle {

// Which part of a problem a mutant spoils.
struct MutantScope {
    std::vector<std::int64_t> heads;  // empty: all
    int chunk = -1;                   // of every sequence; -1: all
};

struct Mutant {
    std::string name;
    std::vector<std::string> stages;                              // any of these is right
    Hypothesis fault;                                             // acted out in fp32 on each lane in scope
    std::function<void(GdnOutputs&, const GdnReference&)> after;  // spoils the finished outputs instead
    // Another kernel than ours, spoilt by itself.
    std::function<GdnOutputs(const GdnReference&, const MutantScope&, int threads)> kernel;
    bool whole_only = false;  // has no meaning in one chunk alone
    bool needs_state = false, needs_tail = false;
};

std::vector<Mutant> all_mutants();
// Faults that no hypothesis of the search acts out.
std::vector<Mutant> unexpected_mutants();
// Every step of another kernel spoilt in every one of some ways.
std::vector<Mutant> tapped_mutants();
// The same in ways that were written when the search was done.
std::vector<Mutant> later_tapped_mutants();

// The outputs of a mutant (or of the honest kernel, without one) on a problem.
GdnOutputs run_mutant(const GdnReference& reference, const Mutant* mutant, const MutantScope& scope, int threads);

}  // namespace gdnctl::oracle
