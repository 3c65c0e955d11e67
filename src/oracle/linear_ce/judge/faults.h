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

Faults forward_faults(const Findings& findings);   // loss or lse is wrong
Faults gradient_faults(const Findings& findings);  // loss and lse are right
Faults reduced_faults(const Findings& findings);   // nothing but `reduced` is wrong

}  // namespace gdnctl::oracle::linear_ce
