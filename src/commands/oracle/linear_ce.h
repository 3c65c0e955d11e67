// The row of linear-ce, and the options that its verbs share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/operators.h"
#include "harness/linear_ce/operator.h"
#include "oracle/linear_ce/judge/compare.h"
#include "oracle/linear_ce/judge/contract.h"
#include "platform/context.h"

namespace gdnctl::commands::linear_ce {

using Contract = oracle::linear_ce::Overrides;  // as options

extern const Operator k_operator;  // the row of linear-ce

// Its verbs, but for those that are any operator's.
Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context);
Status check_run(const oracle_run::Options& options);
Result<std::unique_ptr<harness::Reading>> read(const Operator& op, const oracle::TensorFile& inputs,
                                               const ReadOptions& options);
Status check_compare(const oracle_compare::Options& options);

void describe_contract(cli::Args& args, Contract& options);
// With what --set says besides. usage: an unknown field or value.
Result<Contract> with_sets(const Contract& options, const std::vector<std::string>& sets);
void describe_bench(cli::Args& args, harness::linear_ce::BenchSizes& sizes);

// gdnctl oracle compare linear-ce

struct CompareOptions {
    Contract contract;
    oracle::linear_ce::Level level = oracle::linear_ce::Level::sampled;
    std::int64_t rows = 32, columns = 64, seed = 1;
};

void describe_compare(cli::Args& args, CompareOptions& options);

// gdnctl oracle run linear-ce

using RunOptions = harness::linear_ce::Generated;

void describe_run(cli::Args& args, RunOptions& options);

}  // namespace gdnctl::commands::linear_ce
