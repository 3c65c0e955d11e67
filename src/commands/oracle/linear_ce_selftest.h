// gdnctl oracle selftest linear-ce
#pragma once

#include "commands/oracle/operators.h"

namespace gdnctl::commands::linear_ce {

Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context);

}  // namespace gdnctl::commands::linear_ce
