// Verbs for operators that are described by a harness::Operator, to be used in the operator's row.
#pragma once

#include <functional>

#include "commands/oracle/kernel_options.h"
#include "commands/oracle/operators.h"
#include "harness/engine/bench.h"

namespace gdnctl::commands::oracle_plain {

Result<ExitCode> cases(const Operator& op, const oracle_cases::Options& options, Context& context);
Result<std::unique_ptr<harness::Reading>> read(const Operator& op, const oracle::TensorFile& inputs,
                                               const ReadOptions& options);
// Of every operator that reads.
Result<ExitCode> compare(const Operator& op, const oracle_compare::Options& options, Context& context);
Result<ExitCode> verify(const Operator& op, const oracle_verify::Options& options, Context& context);
Result<harness::BenchRequest> bench_request(const oracle_bench::Options& options, int threads, const Context& context);
// Times a plan and reports.
Result<ExitCode> run_bench(std::string_view op, harness::BenchPlan& plan, const harness::BenchRequest& request,
                           const Hidden& hidden, Context& context);
// Of the last of its cases.
Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context);
// The same of other inputs, which are asked for once nothing else is in the way.
Result<ExitCode> bench_on(const Operator& op, const oracle_bench::Options& options, Context& context,
                          const std::function<Result<harness::BenchCase>()>& inputs);

}  // namespace gdnctl::commands::oracle_plain
