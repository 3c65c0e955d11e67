// gdnctl oracle compare --flashinfer: the workloads of a FlashInfer-Bench dataset, one trace line for each
#pragma once

#include "cli/args.h"
#include "commands/oracle/kernel_options.h"
#include "core/exit_code.h"
#include "harness/flashinfer/run.h"
#include "platform/context.h"

namespace gdnctl::commands::oracle_flashinfer {

struct Options : harness::flashinfer::DatasetRequest {
    LimitOptions limits;
};

// Whether a dataset is to be evaluated: one is named, or a definition, which the usual one is looked through for.
bool wanted(const Options& options);

// Adds the options and the check that the others are given with one of these two only.
void describe(cli::Args& args, Options& options);
// For options that are wanted().
Result<ExitCode> run(const Options& options, int threads, bool allow_suspect, Context& context);

}  // namespace gdnctl::commands::oracle_flashinfer
