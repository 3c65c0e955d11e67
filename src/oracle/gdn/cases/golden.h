// Cases with closed-form inputs in fp64, whose results are known from other sources (docs/reference/oracle-methods.md,
// "Generated cases").
#pragma once

#include "oracle/gdn/cases/cases.h"

namespace gdnctl::oracle {

// Inputs of the cases t_hand, t_hand_no_state and g1*.
TensorFile golden_inputs(const GdnCase& c);

// d_out and d_final_state of the cases g1*; no tensor for others.
TensorFile golden_cotangents(const GdnCase& c);

}  // namespace gdnctl::oracle
