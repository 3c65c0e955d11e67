// The known mistakes of such kernels, and how each would show.
#pragma once

#include <string>
#include <vector>

#include "oracle/linear_ce/judge/findings.h"

namespace gdnctl::oracle::linear_ce {

// The likeliest stage first. Hints name mistakes under which the dump would be right.
struct Faults {
    std::vector<std::string> stages;
    std::vector<Hint> hints;
    std::optional<Place> place;
};

Faults lse_faults(const Findings& findings);       // lse is wrong
Faults loss_faults(const Findings& findings);      // loss is wrong, lse right or not in the dump
Faults argmax_faults(const Findings& findings);    // loss and lse are right
Faults gradient_faults(const Findings& findings);  // loss and lse are right
Faults reduced_faults(const Findings& findings);   // nothing but `reduced` is wrong

// The mistake in lse that explains the `wrong` rows of loss, indices among the compared ones, if one does.
void add_lse_of_loss(const Findings& findings, const std::vector<std::size_t>& wrong, Faults& faults);

// "weight" and what goes by that name too, for a mistake in the reduction.
std::vector<std::string> stages_of(const std::string& stage, const Problem& problem);

}  // namespace gdnctl::oracle::linear_ce
