// The row of gdn, and the options that its verbs share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/operators.h"
#include "harness/gdn/read.h"
#include "oracle/gdn/cases/cases.h"
#include "oracle/gdn/compare/compare.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_gdn {

extern const Operator k_operator;  // the row of gdn

// Its verbs.
Result<ExitCode> run(const Operator& op, const oracle_run::Options& options, Context& context);
Result<ExitCode> bench(const Operator& op, const oracle_bench::Options& options, Context& context);
Result<ExitCode> selftest(const Operator& op, const oracle_selftest::Options& options, Context& context);
Status check_run(const oracle_run::Options& options);

using ContractOptions = harness::ContractChoice;  // the same on every command

void describe_contract(cli::Args& args, ContractOptions& options);
const std::string& contract_help();
void describe_threads(cli::Args& args, std::int64_t& threads);
void describe_tolerances(cli::Args& args, std::optional<double>& rtol, std::optional<double>& atol, bool& budget);

}  // namespace gdnctl::commands::oracle_gdn

namespace gdnctl::commands::oracle_layer {

// oracle run and oracle compare for gdn-layer, the layer around the operator.

extern const Operator k_operator;  // its row

}  // namespace gdnctl::commands::oracle_layer
