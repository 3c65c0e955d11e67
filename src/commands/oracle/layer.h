// oracle run and oracle compare for gdn-layer, the layer around the operator.
#pragma once

#include "commands/oracle/operators.h"

namespace gdnctl::commands::oracle_layer {

extern const Operator k_operator;  // its row

}  // namespace gdnctl::commands::oracle_layer
