// Cases with closed-form inputs in fp64, whose results are known from elsewhere (docs/oracle.md, "Goldens").
#pragma once

#include "gdnctl/oracle/gdn_cases.h"

namespace gdnctl::oracle {

// Inputs of the cases t_hand, t_hand_no_state and g1*.
TensorFile golden_inputs(const GdnCase& c);

}  // namespace gdnctl::oracle
