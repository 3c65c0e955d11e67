// gdnctl oracle compare
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/flashinfer.h"
#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce_compare.h"
#include "commands/oracle/operators.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_compare {

struct Options {
    std::string op;
    std::vector<std::string> inputs, outputs;
    oracle_gdn::ContractOptions contract;
    std::optional<double> rtol, atol;
    bool budget = false;
    bool allow_suspect = false;
    bool no_hints = false;
    bool heatmap = false;
    std::optional<std::string> html;
    bool u2_as_bf16 = false;
    std::int64_t threads = 0;
    oracle_flashinfer::Options flashinfer;
    linear_ce::CompareOptions ce;
    Operators operators = commands::operators();
};

struct Dump {
    oracle::TensorFile inputs, outputs;
};
Result<Dump> read(const Options& options, const Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_compare
