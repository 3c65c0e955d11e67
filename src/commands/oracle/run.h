// gdnctl oracle run
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/args.h"
#include "commands/oracle/gdn.h"
#include "commands/oracle/linear_ce_run.h"
#include "commands/oracle/operators.h"
#include "harness/gdn/run.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_run {

using harness::Method;
// What to run for gdn and gdn-layer, and the rest.
struct Options : harness::GdnRun {
    std::string op;
    std::vector<std::string> inputs;
    std::optional<std::int64_t> chunk;
    bool u2_as_bf16 = false;
    std::int64_t threads = 0;
    std::string out;
    linear_ce::RunOptions ce;
    linear_ce::Contract ce_contract;
    Operators operators = commands::operators();
};

// That inputs come from one of --shape, --case and --inputs.
Status check_sources(const Options& options);

// The file of --inputs, or what `generate` makes.
Result<oracle::TensorFile> inputs(const Options& options, const Context& context,
                                  const std::function<Result<oracle::TensorFile>()>& generate);

// Writes `file` with metadata from which it can be judged or made again, and reports it.
Status finish(const Options& options, const oracle::ResolvedContract& contract, oracle::TensorFile& file,
              Context& context);

void describe(cli::Args& args, Options& options);
Result<ExitCode> run(const Options& options, Context& context);

}  // namespace gdnctl::commands::oracle_run
