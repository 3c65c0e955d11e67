// oracle run and oracle compare for gdn-layer, the layer around the operator.
#pragma once

#include "commands/oracle/compare.h"
#include "commands/oracle/run.h"
#include "core/exit_code.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_layer {

Result<ExitCode> run(const oracle_run::Options& options, Context& context);
Result<ExitCode> compare(const oracle_compare::Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_layer
