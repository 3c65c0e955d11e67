// oracle bench --sweep: the same kernels on many shapes, each on one thread and on all, beside what is promised.
#pragma once

#include "commands/oracle/bench.h"
#include "oracle/simd/isa.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_bench {

// Writes the table (or JSON). check_failed when a kernel is wrong on some shape; a cell that is slow is only named.
Result<ExitCode> run_sweep(const Options& options, Context& context, int threads, oracle::Isa isa);

}  // namespace gdnctl::commands::oracle_bench
